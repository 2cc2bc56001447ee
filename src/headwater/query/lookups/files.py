"""The files of a topic's table, and which of their row groups may have a key: bloom filters, read once and kept.

A file costs one or two reads, for its footer and its filters. Filters that are too large to keep are probed in the
store, 32 bytes at a time.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from headwater.errors import Damaged
from headwater.log.segment.cache import Segment
from headwater.log.segment.filters import BLOCK_BYTES, block_at, blocks_of, header_of, may_have
from headwater.log.segment.read import GroupFacts, SegmentReader, check_footer, footer_bytes
from headwater.objects import ObjectStore, reads
from headwater.state.streams.tables import DataFile, TopicTable
from headwater.types import Buffer

TAIL_BYTES = 256 << 10
"""The first read of a file takes this many bytes from its end. They often have the filters too."""
FILTERS_BYTES = 4 << 20
"""Filters of a file that are kept in memory. Larger ones are probed in the store."""
GROUP_BYTES = 300
"""About what a row group takes in memory, beside its filter."""
MAX_LISTS = 64
"""Topics whose files are kept as a list."""


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files that a table shows."""

    files: tuple[DataFile, ...]
    newest_ms: int
    """The largest timestamp in them."""
    last_offset: int
    """The greatest offset in them, of all partitions."""


class FileKeys:
    """The row groups of a file, and the filters of their keys."""

    def __init__(
        self, groups: list[GroupFacts], blocks: list[tuple[int, int] | None], kept: tuple[int, bytes] | None
    ) -> None:
        self.groups = groups
        self._blocks = blocks
        self._kept = kept

    def __repr__(self) -> str:
        return f"<FileKeys of {len(self.groups)} row groups, {self.size_bytes} bytes>"

    @property
    def size_bytes(self) -> int:
        return GROUP_BYTES * (1 + len(self.groups)) + (len(self._kept[1]) if self._kept is not None else 0)

    async def may_have(
        self, hashed: int, counts: Callable[[GroupFacts], bool], store: ObjectStore, path: str
    ) -> list[int]:
        """The row groups that count and may have a key."""
        found = []
        for number, facts in enumerate(self.groups):
            place = self._blocks[number]
            if counts(facts) and (place is None or may_have(await self._block(place, hashed, store, path), hashed)):
                found.append(number)
        return found

    async def _block(self, place: tuple[int, int], hashed: int, store: ObjectStore, path: str) -> bytes:
        start = place[0] + block_at(place[1], hashed)
        if self._kept is not None:
            start -= self._kept[0]
            return self._kept[1][start : start + BLOCK_BYTES]
        block = await store.get(path, start, BLOCK_BYTES)
        reads.note(len(block))
        if len(block) != BLOCK_BYTES:
            raise Damaged(f"{path} ends before {start + BLOCK_BYTES}")
        return block


class KeyFiles:
    """Footers and filters of the files that were asked for most recently, up to a number of bytes."""

    def __init__(self, store: ObjectStore, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._held: OrderedDict[str, FileKeys] = OrderedDict()
        self._lists: OrderedDict[uuid.UUID, tuple[int, TableFiles]] = OrderedDict()
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"<KeyFiles of {len(self._held)} files, {self.size_bytes} of {self._limit} bytes>"

    def listed(self, table: TopicTable | None) -> TableFiles:
        """The files that the newest version of a table shows."""
        if table is None or table.dropped:
            return TableFiles((), -1, -1)
        held = self._lists.get(table.topic)
        if held is None or held[0] != table.last_sequence:
            files = tuple(table.live())
            newest = max((file.max_timestamp for file in files), default=-1)
            last = max((file.last_offset for file in files), default=-1)
            held = table.last_sequence, TableFiles(files, newest, last)
            self._lists[table.topic] = held
            while len(self._lists) > MAX_LISTS:
                self._lists.popitem(last=False)
        return held[1]

    async def get(self, segment: Segment) -> FileKeys:
        """What is known about the keys of a file. Raises `ObjectMissing` or `Damaged`."""
        found = self._held.get(segment.path)
        if found is not None:
            self._held.move_to_end(segment.path)
            return found
        found = await self._read(segment)
        if segment.path not in self._held and found.size_bytes <= self._limit:
            self._held[segment.path] = found
            self.size_bytes += found.size_bytes
            while self.size_bytes > self._limit:
                self.size_bytes -= self._held.popitem(last=False)[1].size_bytes
        return found

    def forget(self, path: str) -> None:
        """Forget a file, so that it is read again."""
        gone = self._held.pop(path, None)
        if gone is not None:
            self.size_bytes -= gone.size_bytes

    async def _read(self, segment: Segment) -> FileKeys:
        start = segment.size - min(segment.size, TAIL_BYTES)
        tail: Buffer = await self._range(segment, start, segment.size - start)
        needed = footer_bytes(tail)
        if needed > segment.size:
            raise Damaged(f"{segment.path}: a footer of {needed} bytes in a segment of {segment.size}")
        if needed > len(tail):
            start = segment.size - needed
            tail = await self._range(segment, start, needed)
        check_footer(tail, segment.checksum)
        footer = SegmentReader(memoryview(tail)[len(tail) - needed :])
        places = footer.key_filters()
        return await self._kept(segment, footer.groups, places, (start, tail))

    async def _kept(
        self,
        segment: Segment,
        groups: list[GroupFacts],
        places: list[tuple[int, int] | None],
        tail: tuple[int, Buffer],
    ) -> FileKeys:
        """The filters of a file, which are next to each other: from its tail, by one read, or left in the store."""
        there = [place for place in places if place is not None]
        blocks = [blocks_of(*place) if place is not None else None for place in places]
        if not there:
            return FileKeys(groups, blocks, None)
        low, high = min(start for start, _ in there), max(start + length for start, length in there)
        if low >= tail[0]:
            data = bytes(memoryview(tail[1])[low - tail[0] : high - tail[0]])
        elif high - low <= FILTERS_BYTES:
            data = await self._range(segment, low, high - low)
        else:
            return FileKeys(groups, blocks, None)
        for number, place in enumerate(places):
            block = blocks[number]
            if place is not None and block is not None:
                header = data[place[0] - low : block[0] - low]
                if header != header_of(block[1]) or len(data) != high - low:
                    blocks[number] = None  # not a filter that can be used: the row group may have any key
        return FileKeys(groups, blocks, (low, data))

    async def _range(self, segment: Segment, start: int, length: int) -> bytes:
        data = await self._store.get(segment.path, start, length)
        reads.note(len(data))
        return data
