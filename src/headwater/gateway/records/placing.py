"""Which partition each record goes to, and the batches that they become. Nothing here waits; a thread may run it."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.client.partitioner import partition_of_key
from headwater.client.records import Record
from headwater.errors import BadInput, InvalidRecord, InvalidTimestamp, TooLarge
from headwater.gateway.problems import Refusal, refusal_of
from headwater.gateway.records.bodies import Entry
from headwater.log.batch import Batch
from headwater.log.write.making import Demands, cuts, made, most_bytes

MAX_TOLD = 100
"""Records of a refused request that are named one by one."""


def places(entries: Sequence[Entry], partitions: int, keyless: int) -> list[int]:
    """The partition of each record. `keyless` is a number that chooses that of records without a key."""
    found = []
    for number, entry in enumerate(entries):
        if entry.partition is not None:
            if entry.partition >= partitions:
                raise BadInput(
                    f"records[{number}]: there is no partition {entry.partition}; the topic has {partitions}"
                )
            found.append(entry.partition)
        elif entry.key is not None:
            found.append(partition_of_key(entry.key, partitions))
        else:
            found.append(keyless % partitions)
    return found


def batches_of(
    entries: Sequence[Entry], placed: Sequence[int], demands: Demands, now_ms: int
) -> list[tuple[int, Batch]]:
    """Batches with their partitions, those of a partition in a row. Each passed the checks that a producer's gets."""
    by_partition: dict[int, list[int]] = {}
    for number, partition in enumerate(placed):
        by_partition.setdefault(partition, []).append(number)
    found = []
    for partition, numbers in by_partition.items():
        sizes = [most_bytes(entry.key, entry.value, entry.headers) for entry in (entries[n] for n in numbers)]
        for cut in cuts(sizes, demands.room):
            found.append((partition, _batch(entries, [numbers[place] for place in cut], demands, now_ms)))
    return found


def _batch(entries: Sequence[Entry], numbers: Sequence[int], demands: Demands, now_ms: int) -> Batch:
    records = [
        Record(0, now_ms if entry.timestamp is None else entry.timestamp, entry.key, entry.value, entry.headers)
        for entry in (entries[number] for number in numbers)
    ]
    try:
        return made(records, demands, now_ms)
    except (InvalidRecord, InvalidTimestamp) as error:
        lines = [{"record": numbers[at], "reason": reason} for at, reason in error.records[:MAX_TOLD]]
        first = f"records[{lines[0]['record']}]: " if lines else ""
        raise Refusal(refusal_of(error).kind, f"{first}{error}", more={"errors": lines}) from error
    except TooLarge as error:
        where = f"records[{numbers[0]}]: " if len(numbers) == 1 else ""
        raise Refusal(refusal_of(error).kind, f"{where}{error} (max.message.bytes)") from error
