"""Segments in memory: footers and row groups that were read recently. The cache is bounded; the store is the truth.

One request to a cloud's store takes about as long as the transfer of two megabytes. So small row groups, as topics with
many partitions have them, are read together with their neighbours, and a small segment is read as a whole.

Decoding a row group takes milliseconds of computing. `offload` says where that happens, so that a process with an
event loop can use a thread.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.background import spawn
from headwater.errors import Damaged
from headwater.log.batch import MAX_EMPTY, empty_batch
from headwater.objects import ObjectStore, reads
from headwater.threads import Offload, inline
from headwater.types import Buffer

if TYPE_CHECKING:
    from headwater.log.segment.encode import Encoded, RowGroup
    from headwater.log.segment.read import SegmentReader

FOOTER_OVERHEAD = 16
"""A footer takes about this many times its size in memory."""
_FOOTER, _SPAN = -1, -2
"""Keys of the footer and of the first span. Row groups have their numbers, from 0 up; further spans count down."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file: its path, and the size and footer checksum that it must have."""

    path: str
    size: int
    checksum: int


class DamagedRows(Damaged):
    """A row group cannot be decoded. Other row groups of the segment can."""

    def __init__(self, start: int, end: int, reason: str) -> None:
        super().__init__(reason)
        self.start = start
        self.end = end


class SegmentCache:
    """The most recently used footers and row groups. Concurrent callers share one read."""

    def __init__(self, store: ObjectStore, limit: int, offload: Offload = inline) -> None:
        self._store = store
        self._limit = limit
        self._offload = offload
        self._held: OrderedDict[tuple[str, int], tuple[Any, int]] = OrderedDict()
        self._reading: dict[tuple[str, int], asyncio.Task[Any]] = {}
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def __repr__(self) -> str:
        return f"<SegmentCache {len(self._held)} pieces, {self.bytes} of {self._limit} bytes>"

    async def footer(self, segment: Segment) -> SegmentReader:
        """A segment's row groups."""

        async def read() -> tuple[SegmentReader, int]:
            from headwater.log.segment.read import SPAN_BYTES, open_segment

            path, whole = segment.path, b""
            if segment.size <= min(SPAN_BYTES, self._limit):
                whole = await self._get_range(path)

            async def part(start: int, length: int) -> Buffer:
                return whole[start : start + length] or await self._get_range(path, start, length)

            reader = await open_segment(segment.size, part, segment.checksum)
            if whole:
                self._keep((path, _SPAN), (0, whole), len(whole))
            return reader, reader.size_bytes * FOOTER_OVERHEAD

        footer: SegmentReader = await self._get((segment.path, _FOOTER), read)
        return footer

    async def rows(self, path: str, footer: SegmentReader, group: int) -> RowGroup:
        """The rows of a row group."""

        async def read() -> tuple[RowGroup, int]:
            rows = await self._offload(footer.decode, group, await self._bytes(path, footer, group))
            return rows, rows.size_bytes

        rows: RowGroup = await self._get((path, group), read)
        return rows

    async def _bytes(self, path: str, footer: SegmentReader, group: int) -> Buffer:
        """The bytes of a row group, read together with those of its neighbours if these are small."""
        facts, number = footer.groups[group], footer.span_of[group]
        start, length = footer.spans[number]
        alone = length == facts.length or length > self._limit
        if alone and (path, _SPAN - number) not in self._held:
            return await self._get_range(path, facts.position, facts.length)

        async def read() -> tuple[tuple[int, bytes], int]:
            return (start, await self._get_range(path, start, length)), length

        base, data = await self._get((path, _SPAN - number), read)
        at = facts.position - base
        return memoryview(data)[at : at + facts.length]

    async def _get_range(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        data = await self._store.get(path, start, length)
        reads.note(len(data))
        return data

    async def encode(
        self, segment: Segment, partition: int, offset: int, end: int, max_bytes: int, first_whole: bool
    ) -> Encoded:
        """Record batches of a partition from an offset on, from the first row group with rows at or after it.

        They cover offsets up to `end` if no more rows come before it. A range without rows becomes one empty batch.
        A row group that is not as it was written raises `DamagedRows`.
        """
        from headwater.log.segment.encode import Encoded

        footer = await self.footer(segment)
        group = footer.find(partition, offset)
        if group is None or footer.groups[group].first_offset >= end:
            end = min(end, offset + MAX_EMPTY)
            return Encoded(empty_batch(offset, end), end)
        following = group + 1
        if following < len(footer.groups) and footer.groups[following].partition == partition:
            end = min(end, footer.groups[following].first_offset)
        try:
            rows = await self.rows(segment.path, footer, group)
        except Damaged as error:
            raise DamagedRows(min(offset, footer.groups[group].first_offset), end, str(error)) from error
        encoded: Encoded = await self._offload(rows.encode, offset, end, max_bytes, first_whole)
        return encoded

    async def find_time(
        self, segment: Segment, partition: int, timestamp: int, from_offset: int
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first row from an offset on whose timestamp is at least the given one."""
        footer = await self.footer(segment)
        first = footer.find(partition, from_offset)
        for group in range(first if first is not None else len(footer.groups), len(footer.groups)):
            facts = footer.groups[group]
            if facts.partition != partition:
                break
            if facts.max_timestamp >= timestamp:
                rows = await self.rows(segment.path, footer, group)
                found = rows.first_at_time(timestamp, from_offset)
                if found is not None:
                    return found
        return None

    async def _get(self, key: tuple[str, int], read: Callable[[], Awaitable[tuple[Any, int]]]) -> Any:
        held = self._held.get(key)
        if held is not None:
            self.hits += 1
            self._held.move_to_end(key)
            return held[0]
        reading = self._reading.get(key)
        if reading is None:
            self.misses += 1
            reading = self._reading[key] = spawn(self._read(key, read), f"read-segment {key[0]}")
        return await asyncio.shield(reading)

    async def _read(self, key: tuple[str, int], read: Callable[[], Awaitable[tuple[Any, int]]]) -> Any:
        try:
            found, size = await read()
        finally:
            del self._reading[key]
        self._keep(key, found, size)
        return found

    def forget(self, path: str) -> None:
        """Forget all pieces of a segment, so that the next read comes from the store."""
        for key in [key for key in self._held if key[0] == path]:
            self.bytes -= self._held.pop(key)[1]

    def _keep(self, key: tuple[str, int], found: Any, size: int) -> None:
        if size > self._limit or key in self._held:
            return
        self._held[key] = (found, size)
        self.bytes += size
        while self.bytes > self._limit:
            _, (_, freed) = self._held.popitem(last=False)
            self.bytes -= freed
