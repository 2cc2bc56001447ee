"""What an executor does with a task: read WAL runs or segments, write segments, tell what became of them.

It runs wherever Spark runs it, any number of times. Every attempt writes under names of its own, so a repeated, lost or
speculative attempt leaves files that nothing refers to, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from headwater.client.records import Record, encode_batch
from headwater.clock import SystemChance
from headwater.errors import ConfigError, CorruptObject
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
from headwater.log.segment import Piece, SegmentWriter, decode_runs, read_pieces
from headwater.log.segment_read import FOOTER_END, footer_bytes, footer_checksum
from headwater.log.wal import PREFIX_BYTES
from headwater.metadata.commands import NewFile
from headwater.objects import ObjectStore, open_store
from headwater.types import Buffer

OPENED_LIMIT = 64 << 20
SUFFIX = ".parquet"


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
    writer = SegmentWriter(_Sink())
    for piece in decode_runs(0, [(run, 0, -1)], 0, OPENED_LIMIT):
        writer.add(0, piece)
    writer.end_part()
    writer.close()


async def _run(task: Task) -> TaskFacts:
    store = open_store(task.store)
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
    for path, (low, high) in spans.items():
        ranges.add(path, low, await store.get(path, low, high - low))
    return ranges


class _Sink:
    """Collects what a Parquet writer writes."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: Buffer) -> int:
        self.pieces.append(bytes(data))
        return len(data)


async def _write(store: ObjectStore, task: FileTask, ranges: _Ranges) -> FileFacts:
    sink = _Sink()
    writer = SegmentWriter(sink)
    if task.sources:
        runs = await _merge(store, task, writer)
    else:
        runs = [_settle_part(writer, part, ranges) for part in task.parts]
    facts = writer.close()
    if not facts.rows:
        return FileFacts(None, runs)
    name = f"{task.prefix}{SystemChance().uuid().hex}{SUFFIX}"
    await store.put(f"{task.root}/{name}", sink.pieces)
    file = NewFile(
        name=name,
        size=facts.size,
        rows=facts.rows,
        groups=facts.groups,
        first_partition=facts.first_partition,
        last_partition=facts.last_partition,
        first_offset=facts.first_offset,
        last_offset=facts.last_offset,
        min_timestamp=facts.min_timestamp,
        max_timestamp=facts.max_timestamp,
        timestamp_nulls=facts.timestamp_nulls,
        footer_checksum=footer_checksum(_tail(sink.pieces)),
    )
    return FileFacts(file, runs)


def _tail(pieces: list[bytes]) -> bytes:
    """The end of a file, at least as long as its footer."""
    tail = b""
    for piece in reversed(pieces):
        tail = piece + tail
        if len(tail) >= FOOTER_END and len(tail) >= footer_bytes(tail):
            break
    return tail


def _settle_part(writer: SegmentWriter, part: StreamPart, ranges: _Ranges) -> PartRun:
    runs: Iterator[tuple[Buffer, int, int]] = ((ranges.get(run), run.start, run.append_ms) for run in part.runs)
    for piece in decode_runs(part.partition, runs, part.start, OPENED_LIMIT):
        writer.add(part.partition, piece)
    first, groups = writer.end_part()
    return PartRun(part.stream, part.start, part.end, first, groups)


async def _merge(store: ObjectStore, task: FileTask, writer: SegmentWriter) -> list[PartRun]:
    """All rows of the sources, by partition and offset; row groups of one partition never overlap between files."""
    pieces: list[Piece] = []
    for name, checksum in task.sources:
        pieces += read_pieces(await store.get(f"{task.root}/{name}"), checksum)
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
