"""Which large files of many partitions are cut by partition: plain decisions over the state, without I/O.

A topic that gets little at a time settles into files that all of its partitions share. If the topic wants it
(`headwater.table.cut.partitions`), their rows are written again when there is enough of them, one partition a file, so
that engines pass over the other partitions. If there are so many partitions that such files would be small,
neighbouring partitions share a file.

Files are written again only if the new ones have half as many partitions, weighed by their bytes. So this comes to an
end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from headwater.lake.merging import merge_file, neighbours, plan_merge, with_columns
from headwater.lake.planning import Job, Limits, job_of
from headwater.lake.tasks import FileTask, StreamPart
from headwater.schemas.typing import Typing
from headwater.state.streams.stored.typed import TypedTable
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import DataFile, TopicTable

INPUT_FILES = 4
"""Bytes that are written again at once, in files of full size. An executor holds them in memory."""


def plan_merges(
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
    cut: Collection[uuid.UUID] = (),
    looked: dict[uuid.UUID, int] | None = None,
) -> Job:
    """Merges of small files if there are any; else large files of topics in `cut` are cut, a table at a time.

    `looked` is the caller's memory: the versions of tables in which there was nothing to cut. To look takes time.
    """
    looked = {} if looked is None else looked
    job = plan_merge(
        tables, streams_of, store=store, prefix=prefix, slots=slots, limits=limits, damaged=damaged,
        typed=typed, typings=typings,
    )  # fmt: skip
    if job or not limits.partition_bytes:
        return job
    for table in tables:
        if table.topic not in cut or looked.get(table.topic) == table.last_sequence:
            continue
        streams, known = streams_of(table.topic), (typed or {}).get(table.topic, TypedTable())
        for files in recuttable(table, streams, limits, damaged):
            if table.topic in (typings or {}) and any(True for _ in known.undecoded(files)):
                continue  # they are going to be written again anyway
            tasks = recut(table, streams, files, prefix, limits)
            if tasks:
                chosen = [(table.topic, with_columns(task, files, known)) for task in tasks]
                job = job_of(chosen, store, slots, sum(file.size for file in files), limits)
                job.removed = {table.topic: [file.number for file in files]}
                return job
        looked[table.topic] = table.last_sequence
    for gone in looked.keys() - set(cut):
        del looked[gone]
    return job


def target_bytes(limits: Limits) -> int:
    """The size of new files. They must not be small, or they would be merged again."""
    return max(limits.partition_bytes, limits.small_file_bytes) * 5 // 4


def recuttable(
    table: TopicTable, streams: list[Stream], limits: Limits, damaged: Collection[str] = ()
) -> Iterator[list[DataFile]]:
    """Runs of files with many partitions that are large enough to be cut.

    Files of single partitions may lie between them. They are written again too if they are not the larger part.
    """
    wished = len(streams) * target_bytes(limits)
    enough = max(min(wished, (INPUT_FILES - 1) * limits.file_bytes), 1)
    live = [file for file in table.live() if file.references and f"{table.root}/{file.name}" not in damaged]
    wide = {file.number for file in _wide(live, -(-wished // enough), limits)}
    if sum(file.size for file in live if file.number in wide) < enough:
        return
    most = INPUT_FILES * limits.file_bytes
    for run in neighbours([file for file in live if file.number in wide], streams, most):
        if sum(file.size for file in run) >= enough:
            yield run
    for run in neighbours(live, streams, most):
        cut = sum(file.size for file in run if file.number in wide)
        if 2 * cut >= max(enough, sum(file.size for file in run)):
            yield run


def _wide(files: Iterable[DataFile], narrow: int, limits: Limits) -> Iterator[DataFile]:
    """Files that are not small, with at least twice as many partitions as new ones would have."""
    for file in files:
        if file.size >= limits.small_file_bytes and file.last_partition - file.first_partition + 1 >= 2 * narrow:
            yield file


def recut(
    table: TopicTable, streams: list[Stream], files: list[DataFile], prefix: str, limits: Limits
) -> list[FileTask]:
    """Tasks that cut files by partition; empty if that is not possible now, or would leave them as they are."""
    whole = merge_file(table, streams, files, prefix)
    if whole is None:
        return []
    shares = _shares(streams, files)
    sizes = {part.partition: sum(shares[part.stream].values()) for part in whole.parts}
    groups = _groups([(part, sizes[part.partition]) for part in whole.parts], target_bytes(limits))
    before = sum((file.last_partition - file.first_partition) * file.size for file in files)
    after = sum(
        (group[-1].partition - group[0].partition) * sizes[part.partition] for group in groups for part in group
    )
    if len(groups) < 2 or 2 * after > before:
        return []
    names = {file.number: (file.name, file.footer_checksum) for file in files}
    found: list[FileTask] = []
    for group in groups[:-1]:
        only = tuple(part.partition for part in group)
        for parts, numbers in _pieces(group, streams, shares, limits.file_bytes):
            sources = [source for number, source in names.items() if number in numbers]
            found.append(msgspec.structs.replace(whole, parts=parts, sources=sources, only=only))
    # The last one takes what the others do not. The log has left some rows, and nothing here tells their partitions.
    others = tuple(part.partition for group in groups[:-1] for part in group)
    return [*found, msgspec.structs.replace(whole, parts=groups[-1], without=others)]


def _shares(streams: Iterable[Stream], files: Iterable[DataFile]) -> dict[int, dict[int, float]]:
    """About how many bytes of each file are a stream's: by stream and file, in the order of the offsets."""
    sizes = {file.number: file.size for file in files}
    lengths: dict[int, dict[int, int]] = {}
    totals = dict.fromkeys(sizes, 0)
    for stream in streams:
        own = lengths.setdefault(stream.id, {})
        for entry in stream.index:
            if entry.file in sizes:
                own[entry.file] = own.get(entry.file, 0) + entry.length
                totals[entry.file] += entry.length
    return {
        stream: {number: sizes[number] * length / max(totals[number], 1) for number, length in own.items()}
        for stream, own in lengths.items()
    }


def _groups(parts: Iterable[tuple[StreamPart, float]], target: int) -> list[list[StreamPart]]:
    """Parts that share a file. Large ones are alone; neighbours among the others share files of the target's size.

    The last group is one of several partitions, if there is any.
    """
    alone: list[list[StreamPart]] = []
    shared: list[list[StreamPart]] = []
    size = float(target)
    for part, own in parts:
        if own >= target:
            alone.append([part])
            continue
        if size >= target:
            shared.append([])
            size = 0
        shared[-1].append(part)
        size += own
    if len(shared) > 1 and size < target / 2:
        shared[-2:] = [[*shared[-2], *shared[-1]]]
    return alone + shared


def _pieces(
    group: list[StreamPart], streams: Iterable[Stream], shares: Mapping[int, Mapping[int, float]], limit: int
) -> Iterator[tuple[list[StreamPart], set[int]]]:
    """A group's parts with the numbers of the files they are in. The parts of a large partition are several."""
    every = {number for own in shares.values() for number in own}
    [part, *more] = group
    own = shares[part.stream]
    if more or sum(own.values()) <= limit:
        yield group, every
        return
    index = next(stream.index for stream in streams if stream.id == part.stream)
    begins: dict[int, int] = {}
    for entry in index:
        if entry.file in own:
            begins.setdefault(entry.file, max(entry.start, part.start))
    cuts: list[tuple[int, set[int]]] = []
    size = 0.0
    for number, start in begins.items():
        if not cuts or size + own[number] > limit:
            cuts.append((start, set()))
            size = 0.0
        cuts[-1][1].add(number)
        size += own[number]
    later = {number for _, numbers in cuts[1:] for number in numbers}
    ends = [start for start, _ in cuts[1:]] + [part.end]
    for at, ((start, numbers), end) in enumerate(zip(cuts, ends, strict=True)):
        piece = msgspec.structs.replace(part, start=start if at else part.start, end=end)
        yield [piece], numbers if at else every - later
