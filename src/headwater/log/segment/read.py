"""Finding and opening row groups of a stored segment, with as few and as short reads as possible.

The columns that serve records are next to each other in a row group, so one ranged read fetches them. This module does
no I/O by itself: the caller passes the bytes, or a function that reads them.
"""

from __future__ import annotations

import io
import struct
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from crc32c import crc32c

from headwater.errors import Damaged
from headwater.log.segment.encode import READ_COLUMNS, RowGroup
from headwater.log.segment.typed import leaf_places
from headwater.types import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

ReadRange: TypeAlias = Callable[[int, int], Awaitable[Buffer]]
"""Reads (start, length) of one object."""

TAIL_BYTES = 64 << 10
"""The first read of a footer takes this many bytes from the end of the file. Few footers are longer."""

SPAN_BYTES = 2 << 20
"""Row groups within this many bytes are read with one request."""

GAP_BYTES = 256 << 10
"""Columns of a row group within this many bytes of each other are read with one request. pyarrow itself joins reads
that are 8 KB apart, so it must not be less."""

LOG_LEAVES = 13
"""The log's columns in Parquet: `headers` are two. Typed columns come behind them."""

_MAGIC = b"PAR1"
_END = struct.Struct("<I4s")
FOOTER_END = _END.size
"""The size of the end of a file, which contains the length of the footer."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One row group: what it contains, and the byte range that is read to serve it."""

    partition: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    rows: int
    position: int
    length: int


class _Window(io.RawIOBase):
    """A file of which only some ranges are in memory: the position and the bytes of each."""

    def __init__(self, ranges: Sequence[tuple[int, Buffer]]) -> None:
        self._ranges = [(position, memoryview(data)) for position, data in ranges]
        self._size = max(position + len(data) for position, data in self._ranges)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> memoryview:
        for position, data in self._ranges:
            start = self._at - position
            end = len(data) if size is None or size < 0 else start + size
            if 0 <= start <= end <= len(data):
                self._at = position + end
                return data[start:end]
        raise OSError(f"bytes {self._at} to {self._at + (size or 0)} were not read from the store")


class SegmentReader:
    """The footer of a segment: its row groups, and how to open them."""

    def __init__(self, footer: Buffer) -> None:
        """Take a file's tail, at least as long as `footer_bytes` says."""
        import pyarrow as pa
        from pyarrow import parquet

        try:
            self._metadata = parquet.read_metadata(pa.BufferReader(_MAGIC + bytes(footer)))
            self.groups = [_facts(self._metadata.row_group(i)) for i in range(self._metadata.num_row_groups)]
        except (pa.ArrowException, OSError) as error:
            raise Damaged(f"a segment's footer cannot be read: {error}") from error
        self._places: dict[str, range] = {}
        self._ends = [(group.partition, group.last_offset) for group in self.groups]
        if sorted(self._ends) != self._ends:
            raise Damaged("a segment's row groups do not rise by partition and offset")
        self.spans: list[tuple[int, int]] = []
        """Ranges that are each read with one request: start and length."""
        self.span_of: list[int] = []
        """For each row group, the number of its span."""
        for group in self.groups:
            start, end = self.spans[-1][0] if self.spans else -1, group.position + group.length
            if 0 <= start <= group.position and end - start <= SPAN_BYTES:
                self.spans[-1] = (start, end - start)
            else:
                self.spans.append((group.position, group.length))
            self.span_of.append(len(self.spans) - 1)

    def __repr__(self) -> str:
        return f"<SegmentReader of {len(self.groups)} row groups>"

    @property
    def size_bytes(self) -> int:
        """About how much memory this takes."""
        return int(self._metadata.serialized_size)

    def key_filters(self) -> list[tuple[int, int] | None]:
        """For each row group, where the bloom filter of its keys is: start and length. None if it has none."""
        found: list[tuple[int, int] | None] = []
        for i in range(self._metadata.num_row_groups):
            chunk = self._metadata.row_group(i).column(self._leaves(["key"])[0])
            start, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
            found.append((start, length) if start is not None and length is not None else None)
        return found

    def find(self, partition: int, offset: int) -> int | None:
        """The first row group that holds rows of a partition from an offset on."""
        i = bisect_left(self._ends, (partition, offset))
        return i if i < len(self.groups) and self.groups[i].partition == partition else None

    def decode(self, group: int, data: Buffer) -> RowGroup:
        """The rows of a row group from the bytes of its range. Page checksums are verified."""
        facts = self.groups[group]
        if len(data) != facts.length:
            raise Damaged(f"row group {group}: {len(data)} bytes instead of {facts.length}")
        rows = RowGroup(self.columns(group, READ_COLUMNS, [(facts.position, data)]))
        if len(rows) != facts.rows:
            raise Damaged(f"row group {group} holds {len(rows)} rows instead of {facts.rows}")
        return rows

    def ranges(self, group: int, columns: Collection[str]) -> list[tuple[int, int]]:
        """The byte ranges that hold some columns of a row group: start and length. Neighbours are one range."""
        metadata = self._metadata.row_group(group)
        found: list[tuple[int, int]] = []
        for start, end in sorted(_span(metadata.column(i)) for i in self._leaves(columns)):
            if found and start - found[-1][1] <= GAP_BYTES:
                found[-1] = (found[-1][0], max(end, found[-1][1]))
            else:
                found.append((start, end))
        return [(start, end - start) for start, end in found]

    def columns(self, group: int, columns: Collection[str], ranges: Sequence[tuple[int, Buffer]]) -> pa.Table:
        """Some columns of a row group from the bytes of their ranges. Page checksums are verified."""
        import pyarrow as pa
        from pyarrow import parquet

        window = pa.PythonFile(_Window(ranges), mode="r")
        try:
            file = parquet.ParquetFile(window, metadata=self._metadata, page_checksum_verification=True)
            # By number: pyarrow takes "value.x" for a part of "value", even if it is a column of its own.
            return file.reader.read_row_group(group, column_indices=self._leaves(columns), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise Damaged(f"row group {group} of a segment cannot be read: {error}") from error

    def _leaves(self, columns: Collection[str]) -> list[int]:
        """The numbers of the Parquet columns of some columns, in the order of the file."""
        if not self._places:
            self._places = leaf_places(self._metadata.schema.to_arrow_schema())
        return sorted(leaf for name in columns for leaf in self._places.get(name, ()))

    async def load(self, group: int, read: ReadRange) -> RowGroup:
        """The rows of a row group, by one ranged read."""
        facts = self.groups[group]
        return self.decode(group, await read(facts.position, facts.length))


def footer_bytes(tail: Buffer) -> int:
    """The length of a segment's footer, the last bytes of the file included."""
    if len(tail) < _END.size:
        raise Damaged(f"a segment of {len(tail)} bytes")
    length, magic = _END.unpack_from(tail, len(tail) - _END.size)
    if magic != _MAGIC:
        raise Damaged("a segment does not end as a Parquet file does")
    return int(length) + _END.size


def footer_checksum(tail: Buffer) -> int:
    """The CRC32C of the footer at the end of `tail`.

    Parquet itself has no checksum for the footer, and some damaged footers crash pyarrow.
    """
    needed = footer_bytes(tail)
    if needed > len(tail):
        raise Damaged(f"a footer of {needed} bytes in {len(tail)}")
    checksum: int = crc32c(memoryview(tail)[len(tail) - needed :])
    return checksum


def check_footer(tail: Buffer, checksum: int) -> None:
    """Raise `Damaged` if the footer is not the one that was written."""
    if footer_checksum(tail) != checksum:
        raise Damaged("a segment's footer is not the one that was written")


async def open_segment(size: int, read: ReadRange, checksum: int) -> SegmentReader:
    """Read the footer of a segment of a known size and checksum, with one or two ranged reads."""
    length = min(size, TAIL_BYTES)
    tail = await read(size - length, length)
    needed = footer_bytes(tail)
    if needed > size:
        raise Damaged(f"a footer of {needed} bytes in a segment of {size}")
    if needed > length:
        tail = await read(size - needed, needed)
    check_footer(tail, checksum)
    return SegmentReader(memoryview(tail)[len(tail) - needed :])


def _facts(group: Any) -> GroupFacts:
    """The facts of a row group, from its statistics and the positions of its columns. Those of the log come first."""
    chunks: dict[str, list[Any]] = {}
    for i in range(min(group.num_columns, LOG_LEAVES)):
        chunk = group.column(i)
        chunks.setdefault(chunk.path_in_schema.split(".")[0], []).append(chunk)
    missing = [name for name in ("partition", *READ_COLUMNS) if name not in chunks]
    if missing:
        raise Damaged(f"a segment without the columns {', '.join(missing)}")
    partition, offset, time = (chunks[name][0].statistics for name in ("partition", "offset", "timestamp_ms"))
    if partition is None or offset is None or time is None or partition.min != partition.max:
        raise Damaged("a row group without statistics, or of several partitions")
    spans = [_span(chunk) for name in READ_COLUMNS for chunk in chunks[name]]
    start, end = min(span[0] for span in spans), max(span[1] for span in spans)
    if start < 0 or end < start:
        raise Damaged(f"a row group from {start} to {end}")
    return GroupFacts(partition.min, offset.min, offset.max, time.max, group.num_rows, start, end - start)


def _span(chunk: Any) -> tuple[int, int]:
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size
