"""From a snapshot to rows: Arrow record batches in the columns of the topic's tables, the typed ones too.

Files give only the row groups and the columns that are needed. Runs of the WAL are decoded by the loops that settling
uses. Memory is bounded: at most one row group, or `HOT_BYTES` of runs, is held at once.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from headwater.errors import BadInput, Damaged, ObjectMissing, SnapshotGone
from headwater.lake.tasks import StreamPart, WalRun
from headwater.log.segment.cache import Segment
from headwater.log.segment.decode import decode_runs
from headwater.log.segment.read import SegmentReader, open_segment
from headwater.log.segment.schema import FIELD_ID, segment_schema
from headwater.log.segment.typed import aligned
from headwater.log.wal.runs import RunBytes, load_runs
from headwater.objects import ObjectStore
from headwater.query.snapshot import Offsets, Snapshot
from headwater.query.wanted import FOREVER, check_names
from headwater.schemas.conform import arrow_fields
from headwater.state.commands.columns import Column
from headwater.threads import Offload, inline
from headwater.types import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

HOT_BYTES = 8 << 20
"""Bytes of objects that are read together, from the first one needed to the last one. A single larger run is read
alone."""
MAX_NAMED = 50
"""Columns that an error names."""
MAX_ROWS = 65_536
"""Rows of one batch."""
OPENED_LIMIT = 64 << 20
"""The bytes to which a compressed batch may decompress."""


class RowTyper(Protocol):
    """Gives rows of the WAL their typed columns."""

    async def typed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with their typed columns behind the others."""
        ...


def columns_of(names: Sequence[str] | None, typed: Sequence[Column] = ()) -> list[str]:
    """The columns by their names; all if there are none. Raises `BadInput` for an unknown one, or one given twice.

    `typed` are the typed columns of the table.
    """
    known = [*segment_schema().names, *(column.name for column in typed)]
    if names is None:
        return known
    check_names(names)
    for name in names:
        if name not in known:
            told = ", ".join(known[:MAX_NAMED]) + (", …" if len(known) > MAX_NAMED else "")
            raise BadInput(f"there is no column {name!r}: the columns are {told}")
    return list(names)


def schema_of(names: Sequence[str] | None = None, typed: Sequence[Column] = ()) -> pa.Schema:
    """The schema of a scan: the columns of the topic's tables, without the numbers that files give them."""
    import pyarrow as pa

    chosen = columns_of(names, typed)
    fields = {field.name: field for field in (*segment_schema(), *arrow_fields(typed))}
    return pa.schema([_plain(fields[name]) for name in chosen])


def _plain(field: pa.Field) -> pa.Field:
    """A field without Parquet's number, in its children too."""
    import pyarrow as pa

    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_plain(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_plain(kind.key_field), _plain(kind.item_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_plain(kind.field(i)) for i in range(kind.num_fields)])
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != FIELD_ID}
    return pa.field(field.name, kind, field.nullable, metadata or None)


async def scan(
    store: ObjectStore,
    snapshot: Snapshot,
    names: Sequence[str] | None = None,
    offload: Offload = inline,
    columns: Sequence[Column] = (),
    typing: RowTyper | None = None,
) -> AsyncGenerator[pa.RecordBatch, None]:
    """The rows of a snapshot, file by file, then those of the WAL. Within each of them a partition's offsets rise.

    `columns` are the typed columns of the table, and `typing` makes them for rows of the WAL. A row has nulls in those
    that its file lacks. `offload` says where decoding happens. Raises `SnapshotGone` if something was deleted
    meanwhile, and `Damaged` for what cannot be read; never fewer rows.
    """
    shape = _Shape(snapshot, columns_of(names, columns), columns)
    for file in snapshot.files:
        async for batch in _file(store, file, snapshot, shape, offload):
            yield batch
    for group in grouped(snapshot.hot):
        loaded = await load_runs(store, [run for _, part in group for run in part.runs])
        for _, part in group:
            async for batch in _hot(decoded(part, loaded), shape, offload, typing if shape.is_typed else None):
                yield batch


class _Shape:
    """Which columns are read, which rows stay, and how the result looks."""

    def __init__(self, snapshot: Snapshot, names: list[str], typed: Sequence[Column]) -> None:
        self.schema = schema_of(names, typed)
        self.names = names
        self._typed = {column.name for column in typed}
        self.is_typed = not self._typed.isdisjoint(names)
        """Whether typed columns are wanted."""
        self._snapshot = snapshot
        self._timed = snapshot.from_ms > -FOREVER or snapshot.until_ms < FOREVER

    def read(self, bounded: bool) -> list[str]:
        """The columns to read: also those that decide which rows stay."""
        alone = self._typed.issuperset(self.names)  # the file may have none of them
        needed = [*(["offset"] if bounded or alone else []), *(["timestamp_ms"] if self._timed else [])]
        return [*self.names, *(name for name in needed if name not in self.names)]

    def shaped(self, rows: pa.Table | pa.RecordBatch, offsets: Offsets | None) -> list[pa.RecordBatch]:
        """The rows that stay, in the columns of the result. Without `offsets` all of them are within bounds."""
        import pyarrow as pa
        import pyarrow.compute as pc

        masks = []
        if offsets is not None:
            masks += [pc.greater_equal(rows["offset"], offsets.start), pc.less(rows["offset"], offsets.end)]
        if self._timed:
            times, snapshot = rows["timestamp_ms"], self._snapshot
            if snapshot.from_ms > -FOREVER:
                masks.append(pc.greater_equal(times, snapshot.from_ms))
            if snapshot.until_ms < FOREVER:
                masks.append(pc.less(times, snapshot.until_ms))
        kept = rows.filter(functools.reduce(pc.and_, masks)) if masks else rows
        shaped = pa.Table.from_arrays([self._column(kept, name) for name in self.names], schema=self.schema)
        return [batch for batch in shaped.to_batches(max_chunksize=MAX_ROWS) if batch.num_rows]

    def _column(self, rows: pa.Table | pa.RecordBatch, name: str) -> pa.ChunkedArray | pa.Array:
        """A column as it is in the result. A typed column that the rows lack, or fields of it, are null."""
        import pyarrow as pa

        kind = self.schema.field(name).type
        if name not in self._typed:
            return rows[name].cast(kind)
        if name not in rows.schema.names:
            return pa.nulls(rows.num_rows, kind)
        found = rows[name]
        chunks = found.chunks if isinstance(found, pa.ChunkedArray) else [found]
        return pa.chunked_array([aligned(chunk, kind) for chunk in chunks], kind)


# --- files ---------------------------------------------------------------------------------------------


async def _file(
    store: ObjectStore, file: Segment, snapshot: Snapshot, shape: _Shape, offload: Offload
) -> AsyncIterator[pa.RecordBatch]:
    async def read(start: int, length: int) -> Buffer:
        try:
            return await store.get(file.path, start, length)
        except ObjectMissing:
            raise SnapshotGone(f"{file.path} was deleted while it was read: scan again") from None

    try:
        footer = await open_segment(file.size, read, file.checksum)
        for i, group in enumerate(footer.groups):
            bounds = snapshot.bounds.get(group.partition)
            if bounds is None or group.max_timestamp < snapshot.from_ms:
                continue
            if group.first_offset >= bounds.end or group.last_offset < bounds.start:
                continue
            inside = bounds.start <= group.first_offset and group.last_offset < bounds.end
            names = shape.read(not inside)
            held = [(start, await read(start, length)) for start, length in footer.ranges(i, names)]
            for batch in await offload(_decoded, footer, i, names, held, shape, None if inside else bounds):
                yield batch
    except Damaged as error:
        raise Damaged(f"{file.path}: {error}") from error


def _decoded(
    footer: SegmentReader,
    group: int,
    names: list[str],
    held: list[tuple[int, Buffer]],
    shape: _Shape,
    offsets: Offsets | None,
) -> list[pa.RecordBatch]:
    rows = footer.columns(group, names, held)
    if rows.num_rows != footer.groups[group].rows:
        raise Damaged(f"row group {group} holds {rows.num_rows} rows instead of {footer.groups[group].rows}")
    return shape.shaped(rows, offsets)


# --- the WAL -------------------------------------------------------------------------------------------


def grouped(parts: Sequence[StreamPart]) -> Iterator[list[tuple[int, StreamPart]]]:
    """Runs that are read together, in the order of their objects, so that an object with many streams is read once.

    A group needs at most `HOT_BYTES`, or is a single run. It has the places of the parts whose runs are in it, and
    those runs. Within a part the order of offsets stays.
    """
    ordered = sorted(
        ((rank, i, run) for i, part in enumerate(parts) for rank, run in _ranked(part)),
        key=lambda item: (item[0], item[1], item[2].start),
    )
    taken: dict[int, list[WalRun]] = {}
    spans: dict[str, tuple[int, int]] = {}
    size = 0
    for _, i, run in ordered:
        low, high = spans.get(run.path, (run.position, run.position))
        wider = (min(low, run.position), max(high, run.position + run.length))
        more = wider[1] - wider[0] - (high - low)
        if taken and size + more > HOT_BYTES:
            yield _parts(parts, taken)
            taken, spans, size = {}, {}, 0
            wider, more = (run.position, run.position + run.length), run.length
        taken.setdefault(i, []).append(run)
        spans[run.path], size = wider, size + more
    if taken:
        yield _parts(parts, taken)


def _ranked(part: StreamPart) -> Iterator[tuple[str, WalRun]]:
    """Each run with the greatest path so far: paths rise with time, as good as always."""
    greatest = ""
    for run in part.runs:
        greatest = max(greatest, run.path)
        yield greatest, run


def _parts(parts: Sequence[StreamPart], taken: dict[int, list[WalRun]]) -> list[tuple[int, StreamPart]]:
    found = []
    for i in sorted(taken):
        part, runs = parts[i], taken[i]
        found.append((i, part_of(part, runs)))
    return found


def part_of(part: StreamPart, runs: list[WalRun]) -> StreamPart:
    """Some runs of a part that follow each other, with the aborted transactions that may be in them."""
    start, end = max(part.start, runs[0].start), min(part.end, runs[-1].end)
    aborted = [gone for gone in part.aborted if gone[1] < end and gone[2] >= start]
    return StreamPart(part.stream, part.partition, start, end, runs, aborted)


def decoded(part: StreamPart, loaded: RunBytes) -> Iterator[pa.RecordBatch]:
    """The rows of a part whose bytes are loaded, in all columns of a segment, without those beyond its end."""
    import pyarrow.compute as pc

    at = part.runs[0]

    def runs() -> Iterator[tuple[Buffer, int, int]]:
        nonlocal at
        for run in part.runs:
            at = run
            yield loaded.get(run), run.start, run.append_ms

    inside = part.end >= part.runs[-1].end
    try:
        for batch in decode_runs(part.partition, runs(), part.start, OPENED_LIMIT, aborted=part.aborted):
            yield batch if inside else batch.filter(pc.less(batch["offset"], part.end))
    except Damaged as error:
        if at.path in loaded.missing:
            raise SnapshotGone(f"{at.path} was deleted while it was read: scan again") from error
        raise


async def _hot(
    rows: Iterator[pa.RecordBatch], shape: _Shape, offload: Offload, typing: RowTyper | None
) -> AsyncIterator[pa.RecordBatch]:
    """Rows of the WAL in the columns of the result."""
    if typing is None:
        while (batches := await offload(_next_shaped, rows, shape)) is not None:
            for batch in batches:
                yield batch
        return
    while (found := await offload(_next, rows)) is not None:
        for batch in await offload(shape.shaped, await typing.typed(found), None):
            yield batch


def _next(rows: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next(rows, None)


def _next_shaped(rows: Iterator[pa.RecordBatch], shape: _Shape) -> list[pa.RecordBatch] | None:
    found = next(rows, None)
    return None if found is None else shape.shaped(found, None)
