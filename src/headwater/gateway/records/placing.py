"""Which partition each record goes to, and the batches that they become. Nothing here waits; a thread may run it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.client.partitioner import partition_of_key
from headwater.client.records import Record, encode_batch
from headwater.errors import BadInput, BatchTooLarge
from headwater.gateway.problems import BAD_REQUEST, Refusal, refusal_of
from headwater.gateway.records.bodies import Entry
from headwater.log.batch import Batch, BatchRules, InvalidRecord, InvalidTimestamp, unchecked
from headwater.log.write.opening import NO_LIMIT, Target, Work, prepare

RECORD_BYTES = 40
"""What a record takes in a batch beside its key, its value and its headers, at most."""
HEADER_BYTES = 10
"""What a header takes beside its name and its value, at most."""
BATCH_BYTES = 61
MAX_TOLD = 100
"""Records of a refused request that are named one by one."""


class Demands(msgspec.Struct, frozen=True):
    """What a topic demands of records."""

    partitions: int
    rules: BatchRules
    target: Target | None


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
    made = []
    for partition, numbers in by_partition.items():
        made += [(partition, _batch(entries, cut, demands, now_ms)) for cut in _cuts(entries, numbers, demands.rules)]
    return made


def _cuts(entries: Sequence[Entry], numbers: Sequence[int], rules: BatchRules) -> list[list[int]]:
    """The records of each batch: as many as the topic allows in one. A record that is too large is alone."""
    cuts: list[list[int]] = []
    room = 0
    for number in numbers:
        size = _most_bytes(entries[number])
        if not cuts or size > room:
            cuts.append([])
            room = rules.max_bytes - BATCH_BYTES
        cuts[-1].append(number)
        room -= size
    return cuts


def _most_bytes(entry: Entry) -> int:
    """The bytes that a record takes at most."""
    size = RECORD_BYTES + len(entry.key or b"") + len(entry.value or b"")
    for name, value in entry.headers:
        size += HEADER_BYTES + 4 * len(name) + len(value or b"")
    return size


def _batch(entries: Sequence[Entry], numbers: Sequence[int], demands: Demands, now_ms: int) -> Batch:
    records = [
        Record(0, now_ms if entry.timestamp is None else entry.timestamp, entry.key, entry.value, entry.headers)
        for entry in (entries[number] for number in numbers)
    ]
    try:
        data = encode_batch(records)
        return prepare(unchecked(data), Work(demands.rules, now_ms, demands.target), NO_LIMIT)[0]
    except (InvalidRecord, InvalidTimestamp) as error:
        lines = [{"record": numbers[at], "reason": reason} for at, reason in error.records[:MAX_TOLD]]
        first = f"records[{lines[0]['record']}]: " if lines else ""
        raise Refusal(BAD_REQUEST, f"{first}{error}", more={"errors": lines}) from error
    except BatchTooLarge as error:
        where = f"records[{numbers[0]}]: " if len(numbers) == 1 else ""
        raise Refusal(refusal_of(error).kind, f"{where}{error} (max.message.bytes)") from error
