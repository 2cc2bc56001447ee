"""A Produce request as its handler wants it, read in one compiled pass where that is possible.

Until the kernels are compiled, and for whatever the pass declines, kio reads the request and `check_batch` each batch.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import msgspec
from crc32c import crc32c

from headwater.log import kernels
from headwater.log.batch import CRC_FROM, Batch, BatchRules, check_batch, is_transactional
from headwater.wire.messages import RequestStart

TOPIC_IDS_SINCE = 13
Partition: TypeAlias = Sequence[Any]
"""What came for one partition. Its index is the first element, the rest is known to its `Batches`."""


class Batches(Protocol):
    """Checks what came for a partition."""

    def check(self, partition: Partition, rules: BatchRules, now_ms: int) -> Batch:
        """As `check_batch`."""

    def keep(self) -> None:
        """The request is looked at later: its bytes must not depend on the buffer they were received in."""


class ProduceRequest(msgspec.Struct, frozen=True):
    """What a client wants written."""

    acks: int
    timeout_ms: int
    transaction: str | None
    """The transactional id, if there is one."""
    topics: list[tuple[str | uuid.UUID | None, list[Partition]]]
    """Names, or ids where the version has those, and what came for their partitions."""
    batches: Batches
    transactional: bool = False
    """Whether any batch is part of a transaction."""


class _Decoded:
    """Batches that kio has copied out of a request."""

    def check(self, partition: Partition, rules: BatchRules, now_ms: int) -> Batch:
        return check_batch(partition[1] or b"", rules, now_ms)

    def keep(self) -> None: ...


class _Framed:
    """Batches that still lie in a frame, with the rows that `read_produce` filled in."""

    __slots__ = ("_frame",)

    def __init__(self, frame: memoryview) -> None:
        self._frame = frame

    def check(self, partition: Partition, rules: BatchRules, now_ms: int) -> Batch:
        _, start, end, plain, crc, offsets, first_ms, last_ms, producer, epoch, sequence, null_keys = partition
        frame = self._frame
        if (
            plain
            and end - start <= rules.max_bytes
            and not (null_keys and rules.compacted)
            and (rules.append_time or rules.admits(first_ms, last_ms, now_ms))
            and crc32c(frame[start + CRC_FROM : end]) == crc
        ):
            return Batch(frame[start:end].tobytes(), offsets, first_ms, last_ms, producer, epoch, sequence)
        return check_batch(frame[start:end].tobytes(), rules, now_ms)

    def keep(self) -> None:
        self._frame = memoryview(bytes(self._frame))


def of_body(version: int, body: Any) -> ProduceRequest:
    """The request that kio has decoded."""
    topics: list[tuple[str | uuid.UUID | None, list[Partition]]] = [
        (
            topic.topic_id if version >= TOPIC_IDS_SINCE else topic.name,
            [(partition.index, partition.records) for partition in topic.partition_data],
        )
        for topic in body.topic_data
    ]
    timeout_ms = round(body.timeout.total_seconds() * 1000)
    transactional = any(is_transactional(records or b"") for _, partitions in topics for _, records in partitions)
    return ProduceRequest(body.acks, timeout_ms, body.transactional_id, topics, _Decoded(), transactional)


def without_repetition(wanted: ProduceRequest) -> ProduceRequest:
    """Of a partition that is named twice, what came last counts."""
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
    """The client's id and the request, or nothing if it has to be read in the general way."""
    rows = kernels.produce_rows(frame, start.version)
    if rows is None:
        return None
    acks, timeout_ms, client_at, client_end, *_ = rows[0]
    topics: list[tuple[str | uuid.UUID | None, list[Partition]]] = []
    at = 1
    try:
        client = str(frame[client_at:client_end], "utf-8")
        while at < len(rows):
            name_at, name_end, partitions, *_ = rows[at]
            name = frame[name_at:name_end]
            named = _topic_id(bytes(name)) if start.version >= TOPIC_IDS_SINCE else str(name, "utf-8")
            at += 1 + partitions
            topics.append((named, [*rows[at - partitions : at]]))
    except UnicodeDecodeError:
        return None
    return client, ProduceRequest(acks, timeout_ms, None, topics, _Framed(frame))


@functools.lru_cache(maxsize=1024)
def _topic_id(data: bytes) -> uuid.UUID | None:
    found = uuid.UUID(bytes=data)
    return found if found.int else None
