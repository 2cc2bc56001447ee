"""A snapshot of a topic: the exact files and WAL runs that hold its rows at one moment, each row once.

Taking a snapshot is pure: no I/O and no await. The caller brings the state up to the ledger's end before. Then one step
takes the files of the table's newest version, every run that is still in the WAL, where readers stop, and which
transactions were aborted.

"The table up to the settled end, and the WAL from there on" would be wrong. A segment of a bulk append may be ahead of
the settled end, and even behind an open reservation. So every partition has a bound, and it holds for files too.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from headwater.errors import BadInput
from headwater.lake.planning import run_of
from headwater.lake.tasks import StreamPart
from headwater.log.looking import bound_of
from headwater.log.segment.cache import Segment
from headwater.query.wanted import FOREVER, Wanted
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import DataFile, TopicTable


class RowsGone(BadInput):
    """Retention has removed rows that the caller needs."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offsets of a partition that are part of a snapshot: `[start, end)`."""

    start: int
    end: int

    def __bool__(self) -> bool:
        return self.start < self.end


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What to read. A row of a file counts only if its partition is in `bounds`, and its offset in that range."""

    topic: uuid.UUID
    version: int
    """The table's version; 0 if nothing is settled."""
    bounds: Mapping[int, Offsets]
    """By partition."""
    from_ms: int
    until_ms: int
    files: list[Segment]
    hot: list[StreamPart]
    """Runs in the WAL, in the order of offsets, with the aborted transactions in them."""
    cut: frozenset[str]
    """Paths of files that may have rows outside of `bounds`. All rows of the others are within them."""
    decoded: Mapping[str, int]
    """By path, the version of the typed columns that a file has. Files without any are not here."""

    @property
    def wal_bytes(self) -> int:
        """The bytes of all runs."""
        return sum(run.length for part in self.hot for run in part.runs)

    @property
    def file_bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)


def take(state: StreamsState, topic: uuid.UUID, streams: Iterable[Stream], wanted: Wanted) -> Snapshot:
    """A snapshot of a topic. The state must have reached the ledger's end; `streams` are all of the topic's."""
    table = state.tables.get(topic)
    if table is not None and table.dropped:
        table = None
    version = _checked_version(state, table, wanted.version)
    chosen = _chosen(streams, wanted)
    _check_kept(table, chosen, wanted.kept)
    bounds: dict[int, Offsets] = {}
    whole: set[int] = set()
    hot: list[StreamPart] = []
    for stream in chosen:
        offsets = _bounds(stream, wanted)
        if not offsets.start and not _reaches_beyond(stream, offsets.end):
            whole.add(stream.partition)
        if not offsets:
            continue
        bounds[stream.partition] = offsets
        part = _hot(state, stream, offsets, wanted) if wanted.version is None else None
        if part is not None:
            hot.append(part)
    files: list[Segment] = []
    cut: set[str] = set()
    typed, decoded = state.typed.get(topic), dict[str, int]()
    for file in files_of(table, version, bounds, wanted) if table is not None else []:
        assert table is not None
        segment = segment_of(table, file)
        files.append(segment)
        if not _within(file, bounds, whole):
            cut.add(segment.path)
        if typed is not None and (own := typed.files.get(file.number)) is not None and own.version:
            decoded[segment.path] = own.version
    return Snapshot(topic, version, bounds, wanted.from_ms, wanted.until_ms, files, hot, frozenset(cut), decoded)


def _chosen(streams: Iterable[Stream], wanted: Wanted) -> list[Stream]:
    by_partition = {stream.partition: stream for stream in streams}
    named = by_partition if wanted.partitions is None else wanted.partitions
    for number in (*named, *wanted.from_offsets, *wanted.until_offsets, *wanted.kept):
        if number not in by_partition:
            raise BadInput(f"the topic has no partition {number}: it has 0 to {len(by_partition) - 1}")
    return [by_partition[number] for number in sorted(set(named))]


def _bounds(stream: Stream, wanted: Wanted) -> Offsets:
    """The offsets of a stream that are wanted and may be read. Tables keep rows that are before the log's start."""
    end = FOREVER if wanted.version is not None else bound_of(stream, wanted.committed)
    first = wanted.from_offsets.get(stream.partition, wanted.from_offset)
    return Offsets(max(0, first), min(end, wanted.until_offsets.get(stream.partition, wanted.until_offset)))


# --- files ---------------------------------------------------------------------------------------------


def _checked_version(state: StreamsState, table: TopicTable | None, version: int | None) -> int:
    """The version to show. An older one is refused if a file of it is deleted already, or if that is not known."""
    newest = table.last_sequence if table is not None else 0
    if version is None or version == newest:
        return newest
    if not 0 <= version < newest or table is None:
        raise BadInput(f"there is no version {version}: the newest is {newest}")
    changes = table.entries_after(version)
    if changes is None:  # the journal does not say which files it had, but who keeps it keeps all of them
        kept = any(follower.keeps(version) for follower in table.followers.values())
        if kept or version in state.held.versions(table.topic):
            return version
        raise BadInput(f"version {version} is too old: the oldest that is known is {table.first_version}")
    later = {number for entry in changes for number in entry.added}
    gone = [number for entry in changes for number in entry.removed if number not in table.files]
    if any(number not in later for number in gone):
        raise BadInput(f"version {version} has expired: files of it are deleted")
    return version


def files_of(table: TopicTable, version: int, bounds: Mapping[int, Offsets], wanted: Wanted) -> list[DataFile]:
    """The files of a version that may have wanted rows, by number."""
    shown = [
        file
        for file in table.files.values()
        if file.added <= version
        and (not file.removed or version < file.removed)
        and file.max_timestamp >= wanted.from_ms
        and file.min_timestamp < wanted.until_ms
        and _overlaps(file, bounds)
    ]
    shown.sort(key=lambda file: file.number)
    return shown


def segment_of(table: TopicTable, file: DataFile) -> Segment:
    """A file as it is opened."""
    return Segment(f"{table.root}/{file.name}", file.size, file.footer_checksum)


def _overlaps(file: DataFile, bounds: Mapping[int, Offsets]) -> bool:
    """Whether a file may have rows within the bounds."""
    here = range(file.first_partition, file.last_partition + 1)
    numbers = here if len(here) < len(bounds) else bounds
    return any(
        number in here and number in bounds and _meets(bounds[number], file.first_offset, file.last_offset)
        for number in numbers
    )


def _meets(offsets: Offsets, first: int, last: int) -> bool:
    return first < offsets.end and offsets.start <= last


def _within(file: DataFile, bounds: Mapping[int, Offsets], whole: Collection[int]) -> bool:
    """Whether all rows of a file are certainly within the bounds. Partitions in `whole` have no rows beyond them."""
    return all(
        number in whole
        or (number in bounds and bounds[number].start <= file.first_offset and file.last_offset < bounds[number].end)
        for number in range(file.first_partition, file.last_partition + 1)
    )


def _reaches_beyond(stream: Stream, end: int) -> bool:
    """Whether a file may have rows of a stream at an offset or behind it, as a bulk append's behind a reservation."""
    if end < stream.log_start:
        return True  # the index begins later than the tables do
    index = stream.index
    return any(index[i].file for i in range(index.find(end), len(index)))


# --- what retention has left ---------------------------------------------------------------------------


def kept_from(table: TopicTable | None, stream: Stream) -> int:
    """The offset of a partition from which on no row was removed, as far as the state knows.

    The log's start, unless the table reaches further back. A table whose retention is shorter than the log's begins
    later than the log. Of a file with several partitions only the smallest offset is known, so the result may be too
    small.
    """
    start, number = stream.log_start, stream.partition
    if table is None:
        return start
    if start and table.ends_at(table.last_sequence).get(number, 0) >= start:
        here = [file for file in table.live() if file.first_partition <= number <= file.last_partition]
        start = min((file.first_offset for file in here), default=start)
    retired = {file.number for file in table.files.values() if file.removed and file.references}
    if retired:
        index = stream.index
        ends = [index[i].end for i in range(len(index)) if index[i].file in retired]
        start = max([start, *ends[-1:]])
    return start


def _check_kept(table: TopicTable | None, streams: Iterable[Stream], kept: Mapping[int, int]) -> None:
    for stream in streams:
        needed = kept.get(stream.partition)
        if needed is not None and (left := kept_from(table, stream)) > needed:
            raise RowsGone(
                f"retention has removed rows of partition {stream.partition} that are needed: they are needed from "
                f"offset {needed} on, and complete from {left} on"
            )


# --- the WAL -------------------------------------------------------------------------------------------


def _hot(state: StreamsState, stream: Stream, offsets: Offsets, wanted: Wanted) -> StreamPart | None:
    """The runs of a stream that hold wanted rows; None if there are none."""
    start, index, runs = max(offsets.start, stream.log_start), stream.index, []
    for i in range(index.find(max(start, stream.settled)), len(index)):
        entry = index[i]
        if entry.start >= offsets.end:
            break
        if entry.in_wal and _may_match(entry, wanted):
            runs.append(run_of(state, entry))
    if not runs:
        return None
    end = min(offsets.end, runs[-1].end)
    start = max(start, runs[0].start)
    aborted = stream.aborted.between(start, end) if wanted.committed else []
    return StreamPart(
        stream.id, stream.partition, start, end, runs, [(gone.producer, gone.first, gone.marker) for gone in aborted]
    )


def _may_match(entry: IndexEntry, wanted: Wanted) -> bool:
    """Whether a run may have rows of the wanted times. With log-append time all of its rows have the same."""
    if entry.max_timestamp < wanted.from_ms:
        return False
    return not entry.append_time or entry.max_timestamp < wanted.until_ms
