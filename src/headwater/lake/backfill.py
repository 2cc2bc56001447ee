"""Which settled files are decoded again: those from before their topic had schemas, and those that waited for one.

The newest files come first. A job takes a few files only, because settling waits for it; each file is replaced by
itself, so whatever ends a compactor loses the work on a few files at most.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping

import msgspec

from headwater.lake.merging import merge_file
from headwater.lake.planning import Job, Limits, job_of
from headwater.lake.tasks import FileTask
from headwater.schemas.typing import Typing
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.typed import TypedTable
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import DataFile, TopicTable


def undecoded(state: StreamsState, table: TopicTable) -> list[DataFile]:
    """The files of a table that are not decoded, the newest first."""
    known = state.typed.get(table.topic, TypedTable())
    return sorted(known.undecoded(table.live()), key=lambda file: file.number, reverse=True)


def plan_rewrite(
    state: StreamsState,
    typings: Mapping[uuid.UUID, Typing],
    *,
    store: str,
    prefix: str,
    slots: int,
    limits: Limits,
    damaged: Collection[str] = (),
    postponed: Callable[[uuid.UUID], bool] = lambda _: False,
) -> Job:
    """Tasks that decode files, each into one new file. Tables take turns: each gives its newest file first."""
    waiting: list[tuple[TopicTable, list[DataFile]]] = []
    for topic in typings:
        table = state.tables.get(topic)
        if table is not None and not table.dropped and not postponed(topic):
            files = [file for file in undecoded(state, table) if f"{table.root}/{file.name}" not in damaged]
            waiting.append((table, files))
    streams: dict[uuid.UUID, list[Stream]] = {}
    if any(files for _, files in waiting):
        for stream in state.streams.values():
            streams.setdefault(stream.topic, []).append(stream)
    chosen: list[tuple[uuid.UUID, FileTask]] = []
    removed: dict[uuid.UUID, list[int]] = {}
    total = 0
    while any(files for _, files in waiting) and len(chosen) < slots and total < slots * limits.file_bytes:
        for table, files in waiting:
            if not files or len(chosen) >= slots:
                continue
            file = files.pop(0)
            task = merge_file(table, streams.get(table.topic, []), [file], prefix)
            if task is not None:
                chosen.append((table.topic, msgspec.structs.replace(task, typing=typings[table.topic])))
                removed.setdefault(table.topic, []).append(file.number)
                total += file.size
    job = job_of(chosen, store, slots, total, limits)
    job.removed, job.rewrites = removed, set(removed)
    return job
