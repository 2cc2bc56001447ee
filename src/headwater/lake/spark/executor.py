"""What an executor does with a task: read WAL runs or segments, write segments, tell what became of them.

It runs wherever Spark runs it, any number of times. Every attempt writes under names of its own, so a repeated, lost or
speculative attempt leaves files that nothing refers to, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from headwater.client.records import Record, encode_batch
from headwater.clock import SystemChance
from headwater.errors import ConfigError, CorruptObject
from headwater.lake.segments import NewSegment
from headwater.lake.tasks import (
    VERSION,
    FileFacts,
    FileTask,
    PartRun,
    StreamPart,
    Task,
    TaskFacts,
    WalRun,
    decode_task,
    encode,
)
from headwater.log.segment import Piece, SegmentWriter, Sizes, decode_runs, read_pieces
from headwater.log.several import each
from headwater.log.wal import PREFIX_BYTES
from headwater.objects import ObjectStore, open_store
from headwater.store_options import from_environment
from headwater.types import Buffer

OPENED_LIMIT = 64 << 20


def run_task(data: bytes) -> bytes:
    """A task's facts, both as bytes."""
    task = decode_task(data)
    if task.version != VERSION:
        raise ConfigError(f"a task of version {task.version}; this executor's headwater knows {VERSION}")
    return encode(asyncio.run(_run(task)))


def warm_up() -> None:
    """Load and compile what a first task would have to wait for, by settling one record into thin air."""
    batch = encode_batch([Record(0, 0, b"key", b"value", (("name", b"value"),))])
    run = len(batch).to_bytes(PREFIX_BYTES, "big") + batch
    segment = NewSegment()
    for piece in decode_runs(0, [(run, 0, -1)], 0, OPENED_LIMIT):
        segment.writer.add(0, piece)
    segment.writer.end_part()
    segment.close("", SystemChance())


async def _run(task: Task) -> TaskFacts:
    """Options come with the task; what they lack, such as keys, is in the executor's own environment."""
    provider = {**task.options.provider, **from_environment().provider}
    store = open_store(task.store, msgspec.structs.replace(task.options, provider=provider))
    try:
        return await perform(store, task)
    finally:
        await store.close()


async def perform(store: ObjectStore, task: Task) -> TaskFacts:
    """Do a task on an open store."""
    ranges = await _load(store, [run for file in task.files for part in file.parts for run in part.runs])
    return TaskFacts([await _write(store, file, ranges) for file in task.files])


class _Ranges:
    """The bytes of the runs of a task, by object."""

    def __init__(self) -> None:
        self._held: dict[str, list[tuple[int, memoryview]]] = {}

    def add(self, path: str, start: int, data: Buffer) -> None:
        self._held.setdefault(path, []).append((start, memoryview(data)))

    def get(self, run: WalRun) -> memoryview:
        for start, data in self._held[run.path]:
            if start <= run.position and run.position + run.length <= start + len(data):
                return data[run.position - start : run.position - start + run.length]
        raise CorruptObject(f"{run.path} ends before {run.position + run.length}")


async def _load(store: ObjectStore, runs: list[WalRun]) -> _Ranges:
    """Each object that is needed, read once: from the first byte that is needed to the last."""
    spans: dict[str, tuple[int, int]] = {}
    for run in runs:
        low, high = spans.get(run.path, (run.position, run.position))
        spans[run.path] = (min(low, run.position), max(high, run.position + run.length))
    ranges = _Ranges()

    async def load(path: str) -> None:
        low, high = spans[path]
        ranges.add(path, low, await store.get(path, low, high - low))

    await each(load, spans)
    return ranges


async def _write(store: ObjectStore, task: FileTask, ranges: _Ranges) -> FileFacts:
    segment = NewSegment()
    if task.sources:
        runs = await _merge(store, task, segment.writer)
    else:
        sizes = Sizes()
        runs = [_settle_part(segment.writer, part, ranges, sizes) for part in task.parts]
    file = segment.close(task.prefix, SystemChance())
    if file is not None:
        await store.put(f"{task.root}/{file.name}", segment.pieces)
    return FileFacts(file, runs)


def _settle_part(writer: SegmentWriter, part: StreamPart, ranges: _Ranges, sizes: Sizes) -> PartRun:
    runs: Iterator[tuple[Buffer, int, int]] = ((ranges.get(run), run.start, run.append_ms) for run in part.runs)
    for piece in decode_runs(part.partition, runs, part.start, OPENED_LIMIT, sizes):
        writer.add(part.partition, piece)
    first, groups = writer.end_part()
    return PartRun(part.stream, part.start, part.end, first, groups)


async def _merge(store: ObjectStore, task: FileTask, writer: SegmentWriter) -> list[PartRun]:
    """All rows of the sources, by partition and offset; row groups of one partition never overlap between files."""
    pieces: list[Piece] = []
    sources = await each(lambda source: store.get(f"{task.root}/{source[0]}"), task.sources)
    for (_, checksum), data in zip(task.sources, sources, strict=True):
        pieces += read_pieces(data, checksum)
    streams = {part.partition: part for part in task.parts}
    runs = []
    for partition in sorted({piece.partition for piece in pieces}):
        for piece in sorted((p for p in pieces if p.partition == partition), key=lambda p: p.first_offset):
            for batch in piece.batches():
                writer.add(partition, batch)
        first, groups = writer.end_part()
        part = streams.get(partition)
        if part is not None:
            runs.append(PartRun(part.stream, part.start, part.end, first, groups))
    return runs
