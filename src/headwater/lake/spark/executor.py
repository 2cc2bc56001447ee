"""The work of an executor on a task: read WAL runs or segments, write segments, return facts about them.

Spark may run a task anywhere, and any number of times. Every attempt writes files with names of its own, so a repeated,
lost or speculative attempt leaves only files that nothing refers to.

An input that is missing or damaged fails neither the task nor its other files. It is named in the facts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from headwater.background import each
from headwater.client.records import Record, encode_batch
from headwater.clock import SystemChance
from headwater.errors import ConfigError, Damaged, ObjectMissing, Retriable
from headwater.lake.segments import NewSegment
from headwater.lake.tasks import (
    VERSION,
    DamagedInput,
    FileFacts,
    FileTask,
    PartRun,
    StreamPart,
    Task,
    TaskFacts,
    TypedFacts,
    WalRun,
    decode_task,
    encode,
)
from headwater.log.segment.write import Piece, SegmentWriter, Sizes, decode_runs, read_pieces
from headwater.log.wal.format import PREFIX_BYTES, sound_batches
from headwater.log.wal.runs import RunBytes, load_runs
from headwater.objects import ObjectStore, open_store
from headwater.settings.objects import from_environment
from headwater.state.commands.columns import column_at
from headwater.types import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.lake.typed_rows import TypedRows

OPENED_LIMIT = 256 << 20
"""The bytes to which a batch may decompress. Brokers take only smaller ones, but links copy batches unopened."""
_UNREADABLE = (ObjectMissing, Damaged)


def run_task(data: bytes) -> bytes:
    """Run an encoded task; returns its encoded facts."""
    task = decode_task(data)
    if task.version != VERSION:
        raise ConfigError(f"a task of version {task.version}; this executor's headwater knows {VERSION}")
    return encode(asyncio.run(_run(task)))


def warm_up() -> None:
    """Load and compile what a first task would have to wait for, by settling one record that is not stored."""
    batch = encode_batch([Record(0, 0, b"key", b"value", (("name", b"value"),))])
    run = len(batch).to_bytes(PREFIX_BYTES, "big") + batch
    segment = NewSegment()
    for piece in decode_runs(0, [(run, 0, -1)], 0, OPENED_LIMIT):
        segment.writer.add(0, piece)
    segment.writer.end_part()
    segment.close("", SystemChance())


async def _run(task: Task) -> TaskFacts:
    """Open the store with the task's options. Credentials come from the executor's own environment.

    If the store fails, the facts say so, because an error would pass through Spark as a text.
    """
    provider = {**task.options.provider, **from_environment().provider}
    store = open_store(task.store, msgspec.structs.replace(task.options, provider=provider))
    try:
        return await perform(store, task)
    except Retriable as error:
        return TaskFacts([], f"{type(error).__name__}: {error}")
    finally:
        await store.close()


async def perform(store: ObjectStore, task: Task) -> TaskFacts:
    """Do a task on an open store."""
    ranges = await load_runs(store, [run for file in task.files for run in _runs(file)])
    sources = _Sources(store)
    return TaskFacts([await _attempt(store, file, ranges, sources) for file in task.files], "")


class _Sources:
    """The files that a merge reads. They are kept for the next file, which may be cut from the same ones."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._held: dict[str, list[Piece]] = {}
        self._more = False
        """Whether the next file has the same sources, or some of them."""

    def __repr__(self) -> str:
        return f"<_Sources, {len(self._held)} held>"

    async def pieces(self, task: FileTask) -> list[Piece]:
        """The row groups of all sources of a file."""
        wanted = {f"{task.root}/{name}": checksum for name, checksum in task.sources}
        if not self._more:
            self._held = {}
        self._more = bool(task.only)  # the last file of those that are cut is told what the others have
        missing = [path for path in wanted if path not in self._held]
        for path, data in zip(missing, await each(self._store.get, missing), strict=True):
            self._held[path] = read_pieces(data, wanted[path])
        return [piece for path in wanted for piece in self._held[path]]


async def _attempt(store: ObjectStore, task: FileTask, ranges: RunBytes, sources: _Sources) -> FileFacts:
    """Write a file. If an input cannot be read, all inputs are read a second time, and those that fail are named."""
    try:
        return await _write(store, task, ranges, sources)
    except _UNREADABLE:
        ranges = await load_runs(store, _runs(task))
        damaged = [*await _damaged_sources(store, task), *_damaged_runs(task, ranges)]
    return FileFacts(None, [], damaged) if damaged else await _write(store, task, ranges, _Sources(store))


async def _damaged_sources(store: ObjectStore, task: FileTask) -> list[DamagedInput]:
    damaged = []
    for name, checksum in task.sources:
        try:
            for piece in read_pieces(await store.get(f"{task.root}/{name}"), checksum):
                for _ in piece.batches():
                    pass
        except _UNREADABLE as error:
            damaged.append(DamagedInput(-1, -1, name, str(error)))
    return damaged


def _damaged_runs(task: FileTask, ranges: RunBytes) -> list[DamagedInput]:
    """The first run of each stream that cannot be decoded."""
    damaged = []
    for part in task.parts:
        for run in part.runs:
            try:
                data = ranges.get(run)
                sound_batches(data, 0, len(data), run.end - run.start)
                for _ in decode_runs(part.partition, [(data, run.start, run.append_ms)], run.start, OPENED_LIMIT):
                    pass
            except _UNREADABLE as error:
                damaged.append(DamagedInput(part.stream, run.start, run.path, str(error)))
                break
    return damaged


def _runs(task: FileTask) -> list[WalRun]:
    return [run for part in task.parts for run in part.runs]


async def _write(store: ObjectStore, task: FileTask, ranges: RunBytes, sources: _Sources) -> FileFacts:
    typed = _typed_rows(task)
    segment = NewSegment(_typed_fields(task, typed), _indexed(task))
    if task.sources:
        runs = _merge(task, await sources.pieces(task), segment.writer, typed)
    else:
        sizes = Sizes()
        runs = [_settle_part(segment.writer, part, ranges, sizes, typed) for part in task.parts]
    facts = typed.facts if typed is not None else TypedFacts(failures=segment.writer.failures)
    file = segment.close(task.prefix, SystemChance())
    if facts.wants:
        return FileFacts(None, [], [], facts)
    if file is not None:
        await store.put(f"{task.root}/{file.name}", segment.pieces)
    return FileFacts(file, runs, [], facts, segment.digest, segment.bounds)


def _typed_rows(task: FileTask) -> TypedRows | None:
    """What decodes the rows of a file. What it needs is imported only for topics with typed columns."""
    if task.typing is None:
        return None
    from headwater.lake.typed_rows import TypedRows

    return TypedRows(task.typing)


def _typed_fields(task: FileTask, typed: TypedRows | None) -> Sequence[pa.Field]:
    """The typed columns of a file: those that are decoded, or those that a merge takes over."""
    if typed is not None:
        return typed.fields
    if not task.columns:
        return ()
    from headwater.schemas.conform import arrow_fields

    return arrow_fields(task.columns)


def _indexed(task: FileTask) -> list[int]:
    """The ids of the columns that get bounds and bloom filters, as far as the table has them."""
    columns = task.columns if task.typing is None else task.typing.columns
    found = (column_at(columns, path) for path in task.index)
    return [column.id for column in found if column is not None and not column.children]


def _settle_part(
    writer: SegmentWriter, part: StreamPart, ranges: RunBytes, sizes: Sizes, typed: TypedRows | None
) -> PartRun:
    runs: Iterator[tuple[Buffer, int, int]] = ((ranges.get(run), run.start, run.append_ms) for run in part.runs)
    for piece in decode_runs(part.partition, runs, part.start, OPENED_LIMIT, sizes, part.aborted):
        _add(writer, part.partition, piece, typed)
    return _end_part(writer, part)


def _add(writer: SegmentWriter, partition: int, rows: pa.RecordBatch, typed: TypedRows | None) -> None:
    """Write rows with their typed columns. Nothing is written if something is missing for these."""
    found = rows if typed is None else typed.typed(rows)
    if found is not None:
        writer.add(partition, found)


def _end_part(writer: SegmentWriter, part: StreamPart) -> PartRun:
    newest = writer.newest
    first, groups = writer.end_part()
    return PartRun(part.stream, part.start, part.end, first, groups, newest)


def _merge(task: FileTask, held: Sequence[Piece], writer: SegmentWriter, typed: TypedRows | None) -> list[PartRun]:
    """Write the rows of the sources, by partition and offset. Row groups of a partition never overlap between files."""
    fields = _typed_fields(task, None)
    pieces = [piece for piece in held if task.takes(piece.partition)]
    streams = {part.partition: part for part in task.parts}
    runs = []
    for partition in sorted({piece.partition for piece in pieces}):
        part = streams.get(partition)
        for piece in sorted((p for p in pieces if p.partition == partition), key=lambda p: p.first_offset):
            for batch in piece.batches(fields):
                _add(writer, partition, batch, typed)
        if part is not None:
            runs.append(_end_part(writer, part))
        else:
            writer.end_part()
    return runs
