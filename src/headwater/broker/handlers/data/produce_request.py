"""A Produce request in the form that its handler uses, decoded in one compiled pass if possible.

Until the kernels are compiled, and for requests that the pass declines, kio decodes the request and `check_batch`
checks each batch.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import msgspec
from crc32c import crc32c

from headwater.log.batch import CRC_FROM, Batch, BatchRules, transactional_producer
from headwater.log.kernels import switch
from headwater.wire.messages import RequestStart

TOPIC_IDS_SINCE = 13
MANY_ROWS = 1024
"""The general decoder, which counts and waits for its turn, has to read a request with more topics and partitions."""
PRODUCER, EPOCH, PART_OF = 8, 9, 12
"""Where the row of a partition has its batch's producer, and whether the batch claims to be part of a transaction."""
Partition: TypeAlias = Sequence[Any]
"""The data for one partition. The first element is its index; `Batches` knows the others."""


Topics: TypeAlias = list[tuple[str | uuid.UUID | None, list[Partition]]]
"""Names of topics, or ids if the version has ids, and the data for their partitions."""


class Batches(Protocol):
    """The data for partitions."""

    def quick(self, partition: Partition, rules: BatchRules, now_ms: int) -> Batch | None:
        """The batch, if it is plain and passes its checks; None if `check_batch` has to decide."""

    def data(self, partition: Partition) -> bytes:
        """The bytes of the batch."""

    def keep(self, topics: Topics) -> int:
        """Copy the bytes out of the receive buffer, because the request is processed later. Returns how many."""


class ProduceRequest(msgspec.Struct, frozen=True):
    """A decoded Produce request."""

    acks: int
    timeout_ms: int
    transaction: str | None
    """The transactional id, if there is one."""
    topics: Topics
    batches: Batches
    producers: frozenset[tuple[int, int]] = frozenset()
    """Producer ids and epochs of the batches that claim to be part of a transaction."""


class _Decoded:
    """Batches that kio has copied out of a request."""

    def quick(self, partition: Partition, rules: BatchRules, now_ms: int) -> Batch | None:
        return None

    def data(self, partition: Partition) -> bytes:
        return partition[1] or b""

    def keep(self, topics: Topics) -> int:
        return sum(len(partition[1] or b"") for _, partitions in topics for partition in partitions)


class _Framed:
    """Batches that are still in a frame, with the rows that `read_produce` filled in."""

    __slots__ = ("_frame",)

    def __init__(self, frame: memoryview) -> None:
        self._frame = frame

    def quick(self, partition: Partition, rules: BatchRules, now_ms: int) -> Batch | None:
        _, start, end, plain, crc, offsets, first_ms, last_ms, producer, epoch, sequence, null_keys, part_of = partition
        frame = self._frame
        if (
            plain
            and end - start <= rules.max_bytes
            and not (null_keys and rules.compacted)
            and (rules.append_time or rules.admits(first_ms, last_ms, now_ms))
            and crc32c(frame[start + CRC_FROM : end]) == crc
        ):
            data = frame[start:end].tobytes()
            return Batch(data, offsets, first_ms, last_ms, producer, epoch, sequence, part_of != 0 and producer >= 0)
        return None

    def data(self, partition: Partition) -> bytes:
        return self._frame[partition[1] : partition[2]].tobytes()

    def keep(self, topics: Topics) -> int:
        self._frame = memoryview(bytes(self._frame))
        return len(self._frame)


def of_body(version: int, body: Any) -> ProduceRequest:
    """The request that kio has decoded."""
    topics: Topics = [
        (
            topic.topic_id if version >= TOPIC_IDS_SINCE else topic.name,
            [(partition.index, partition.records) for partition in topic.partition_data],
        )
        for topic in body.topic_data
    ]
    timeout_ms = round(body.timeout.total_seconds() * 1000)
    found = [transactional_producer(records or b"") for _, partitions in topics for _, records in partitions]
    producers = frozenset(producer for producer in found if producer is not None)
    return ProduceRequest(body.acks, timeout_ms, body.transactional_id, topics, _Decoded(), producers)


def without_repetition(wanted: ProduceRequest) -> ProduceRequest:
    """The request with each partition once. If a partition is named twice, the last one counts."""
    topics = wanted.topics
    if len({topic for topic, _ in topics}) == len(topics) and all(
        len(partitions) == 1 or len({partition[0] for partition in partitions}) == len(partitions)
        for _, partitions in topics
    ):
        return wanted
    merged: dict[str | uuid.UUID | None, dict[int, Partition]] = {}
    for topic, partitions in topics:
        merged.setdefault(topic, {}).update((partition[0], partition) for partition in partitions)
    return msgspec.structs.replace(wanted, topics=[(topic, [*parts.values()]) for topic, parts in merged.items()])


def read_frame(start: RequestStart, frame: memoryview) -> tuple[str, ProduceRequest] | None:
    """The client id and the request; None if the general decoder has to read the request."""
    rows = switch.produce_rows(frame, start.version)
    if rows is None or len(rows) > MANY_ROWS:
        return None
    acks, timeout_ms, client_at, client_end, id_at, id_end, *_ = rows[0]
    transaction: str | None = None
    producers: frozenset[tuple[int, int]] = frozenset()
    topics: Topics = []
    at = 1
    try:
        client = str(frame[client_at:client_end], "utf-8")
        if id_at:
            transaction = str(frame[id_at:id_end], "utf-8")
        while at < len(rows):
            name_at, name_end, partitions, *_ = rows[at]
            name = frame[name_at:name_end]
            named = _topic_id(bytes(name)) if start.version >= TOPIC_IDS_SINCE else str(name, "utf-8")
            at += 1 + partitions
            found = rows[at - partitions : at]
            topics.append((named, [*found]))
            if claims := {(row[PRODUCER], row[EPOCH]) for row in found if row[PART_OF]}:
                producers |= claims
    except UnicodeDecodeError:
        return None
    return client, ProduceRequest(acks, timeout_ms, transaction, topics, _Framed(frame), producers)


@functools.lru_cache(maxsize=1024)
def _topic_id(data: bytes) -> uuid.UUID | None:
    found = uuid.UUID(bytes=data)
    return found if found.int else None
