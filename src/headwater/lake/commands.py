"""Commands of the compactor, from the facts of jobs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TypeAlias

from headwater.lake.tasks import FileFacts, TaskFacts
from headwater.state.commands.tables import FileTyping, NewFile, Replace, SegmentRun, Settle
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.typed import TypedTable

Swap: TypeAlias = Settle | Replace
"""Commands that put new files into a table."""


def facts_by_topic(topics: list[list[uuid.UUID]], facts: list[TaskFacts]) -> dict[uuid.UUID, list[FileFacts]]:
    """The facts of files by topic. `topics` has the topic of each file of each task."""
    found: dict[uuid.UUID, list[FileFacts]] = {}
    for names, task in zip(topics, facts, strict=True):
        for topic, file in zip(names, task.files, strict=True):
            found.setdefault(topic, []).append(file)
    return found


def settle_command(lease: int, topic: uuid.UUID, root: str, facts: list[FileFacts]) -> Settle:
    """The command for the settled files of a topic."""
    files, runs, newest = _files_and_runs(facts)
    return Settle(lease, topic, root, files, runs, newest, _typings(facts))


def replace_command(
    state: StreamsState,
    lease: int,
    topic: uuid.UUID,
    removed: list[int],
    facts: list[FileFacts],
    *,
    rewrites: bool = False,
) -> Replace:
    """The command for files that took the place of others; with `rewrites` their rows were decoded."""
    files, runs, _ = _files_and_runs(facts)
    typings = _typings(facts) if rewrites else [_merged(state, topic, removed, fact) for fact in facts if fact.file]
    return Replace(lease, topic, removed, files, runs, typings, rewrites)


def failures_of(command: Swap) -> int:
    """The rows that could not be decoded."""
    return sum(one.failures for one in command.typings)


def _typings(facts: Sequence[FileFacts]) -> list[FileTyping]:
    return [
        FileTyping(fact.digest, fact.typed.version, fact.typed.failures, fact.bounds)
        for fact in facts
        if fact.file is not None
    ]


def _merged(state: StreamsState, topic: uuid.UUID, removed: list[int], fact: FileFacts) -> FileTyping:
    """A merged file is decoded if all files are whose place it takes."""
    known = state.typed.get(topic, TypedTable()).files
    sources = [known.get(number, FileTyping(0, 0, 0, ())) for number in removed]
    version = max(one.version for one in sources) if all(one.version for one in sources) else 0
    return FileTyping(fact.digest, version, fact.typed.failures, fact.bounds)


def _files_and_runs(facts: list[FileFacts]) -> tuple[list[NewFile], list[SegmentRun], list[int]]:
    """The files of a topic, the runs of its streams in them, and the largest timestamp of each run, or -1.

    Each stream's runs are sorted by offset.
    """
    files: list[NewFile] = []
    runs: list[tuple[SegmentRun, int]] = []
    for fact in facts:
        number = -1
        if fact.file is not None:
            number = len(files)
            files.append(fact.file)
        for run in fact.runs:
            held = number if run.groups else -1
            made = SegmentRun(run.stream, run.start, run.end, held, run.first_group, run.groups)
            runs.append((made, run.newest))
    runs.sort(key=lambda item: (item[0].stream, item[0].start))
    return files, [run for run, _ in runs], [newest for _, newest in runs]
