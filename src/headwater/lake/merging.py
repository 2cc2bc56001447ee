"""Which settled files are merged into larger ones: plain decisions over the state, without I/O."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from headwater.lake.planning import DATA, Job, Limits, job_of
from headwater.lake.tasks import FileTask, StreamPart
from headwater.schemas.typing import Typing
from headwater.state.streams.domain import U32_MAX
from headwater.state.streams.stored.typed import TypedTable
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import DataFile, TopicTable

SHARED = -1
"""The lane of files that have rows of several partitions, or few of one. Other lanes are partitions."""


def mergeable(
    table: TopicTable, streams: list[Stream], limits: Limits, damaged: Collection[str] = ()
) -> Iterator[list[DataFile]]:
    """Runs of small files that are worth a rewrite. Files with a damaged path are left alone.

    Files of one partition are merged with each other if one of them is large enough to stay apart. Otherwise all
    partitions are merged together, so that one that gets little does not have many small files.
    """
    small = _small(table, limits, damaged)
    apart = {file.first_partition for file in small if limits.stays_apart(file)}
    lanes: dict[int, list[DataFile]] = {}
    for file in small:
        if file.first_partition == file.last_partition and file.first_partition in apart:
            lanes.setdefault(file.first_partition, []).append(file)
        if not limits.stays_apart(file):
            lanes.setdefault(SHARED, []).append(file)
    for lane in sorted(lanes, key=lambda lane: (lane == SHARED, lane)):
        if len(lanes[lane]) >= limits.merge_files:
            own = streams if lane == SHARED else [stream for stream in streams if stream.partition == lane]
            runs = neighbours(lanes[lane], own, limits.file_bytes)
            yield from (run for run in runs if len(run) >= limits.merge_files)


def neighbours(files: Iterable[DataFile], streams: list[Stream], limit: int) -> Iterator[list[DataFile]]:
    """Files whose offsets have no other entries between them, in runs of up to `limit` bytes, oldest first.

    Files are numbered in the order in which they were committed. That is not always the order of their offsets: a
    bulk append may be committed before the WAL records in front of it are settled.
    """
    ordered = sorted(files, key=lambda file: file.number)
    before = _things_before(streams, {file.number for file in ordered})
    run: list[DataFile] = []
    size, places = 0, dict[int, int]()
    for file in ordered:
        place = before.get(file.number, {})
        apart = any(places.get(stream, count) != count for stream, count in place.items())
        if run and (apart or size + file.size > limit):
            yield run
            run, size, places = [], 0, {}
        run.append(file)
        size += file.size
        places |= place
    if run:
        yield run


def _small(table: TopicTable, limits: Limits, damaged: Collection[str]) -> list[DataFile]:
    small = [f for f in table.live() if f.size < limits.small_file_bytes and f.references]
    return [f for f in small if not damaged or f"{table.root}/{f.name}" not in damaged]


def _things_before(streams: list[Stream], numbers: set[int]) -> dict[int, dict[int, int]]:
    """For each of these files, by stream, the number of other entries in front of it.

    It also rises where the offsets become more than one index entry covers.
    """
    found: dict[int, dict[int, int]] = {}
    for stream in streams:
        others = start = 0
        for entry in stream.index:
            if entry.end - start > U32_MAX:
                others, start = others + 1, entry.start
            if entry.file in numbers:
                found.setdefault(entry.file, {})[stream.id] = others
            elif entry.file or not entry.settled:
                others += 1
    return found


def plan_merge(
    tables: list[TopicTable],
    streams_of: Callable[[uuid.UUID], list[Stream]],
    *,
    store: str,
    prefix: str,
    slots: int,
    limits: Limits,
    damaged: Collection[str] = (),
    typed: Mapping[uuid.UUID, TypedTable] | None = None,
    typings: Mapping[uuid.UUID, Typing] | None = None,
) -> Job:
    """Tasks that rewrite small files as larger ones. The tables with most small files come first, so all get a turn.

    Typed columns are taken over. If a file lacks those that its topic has by `typings`, all of its task are decoded.
    """
    chosen: list[tuple[uuid.UUID, FileTask]] = []
    removed: dict[uuid.UUID, list[int]] = {}
    rewrites: set[uuid.UUID] = set()
    total = 0
    for table in sorted(tables, key=lambda table: len(_small(table, limits, damaged)), reverse=True):
        streams, known = streams_of(table.topic), (typed or {}).get(table.topic, TypedTable())
        typing = (typings or {}).get(table.topic)
        merged = set[int]()
        for files in mergeable(table, streams, limits, damaged):
            task = merge_file(table, streams, files, prefix)
            if task is None or not task.parts or any(part.stream in merged for part in task.parts):
                continue
            rewrites_now = typing is not None and any(True for _ in known.undecoded(files))
            if rewrites_now and merged:
                break  # one command is a merge or a rewrite
            if rewrites_now:
                task = msgspec.structs.replace(task, typing=typing)
                rewrites.add(table.topic)
            else:
                task = with_columns(task, files, known)
            chosen.append((table.topic, task))
            removed.setdefault(table.topic, []).extend(file.number for file in files)
            merged.update(part.stream for part in task.parts)
            total += sum(file.size for file in files)
            if rewrites_now or total >= limits.job_bytes or len(chosen) >= limits.merges_per_job:
                break
            if not any(map(limits.stays_apart, files)):
                break  # the rest has its turn in the next job
        if total >= limits.job_bytes or len(chosen) >= limits.merges_per_job:
            break
    job = job_of(chosen, store, slots, total, limits)
    job.removed, job.rewrites = removed, rewrites
    return job


def with_columns(task: FileTask, files: Iterable[DataFile], known: TypedTable) -> FileTask:
    """A merge that takes over typed columns, if files have them."""
    if any(file.number in known.files and known.files[file.number].version for file in files):
        return msgspec.structs.replace(task, columns=known.columns.newest)
    return task


def merge_file(table: TopicTable, streams: list[Stream], files: list[DataFile], prefix: str) -> FileTask | None:
    """A task for all rows of these files; None if the index has other entries between theirs."""
    numbers = {file.number for file in files}
    parts, named = [], 0
    for stream in sorted(streams, key=lambda s: s.partition):
        places = [i for i, entry in enumerate(stream.index) if entry.file in numbers]
        if not places:
            continue
        between = [stream.index[i] for i in range(places[0], places[-1] + 1)]
        if not all(entry.settled and (not entry.file or entry.file in numbers) for entry in between):
            return None
        parts.append(StreamPart(stream.id, stream.partition, between[0].start, between[-1].end, [], []))
        named += len(places)
    if named != sum(file.references for file in files):
        return None
    return FileTask(
        table.topic.bytes, table.root, f"{DATA}{prefix}", parts, [(f.name, f.footer_checksum) for f in files]
    )
