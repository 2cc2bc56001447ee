"""Which WAL runs become which files: plain decisions over the state, without I/O.

Only records below the stable offset are settled: all of their transactions have ended. The markers of transactions go
along with the runs around them, and a task names the aborted ones, whose records get into no file.

Runs are cut in the order in which they were written, not stream by stream, so a task reads each WAL object that it
needs once. Small topics share a task.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from headwater.lake.tasks import VERSION, FileTask, StreamPart, Task, WalRun
from headwater.log.wal import format as wal
from headwater.schemas.typing import Typing
from headwater.state.streams.domain import U32_MAX, UNITS_LEVEL
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.typed import TypedTable
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import DataFile, TopicTable

DATA = "_data/"
"""Delta's VACUUM skips directories with a leading underscore, whatever retention it is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes of files, tasks and jobs."""

    file_bytes: int = 48 << 20
    """WAL bytes of one file, and of one task."""
    job_bytes: int = 1 << 30
    min_task_bytes: int = 4 << 20
    """Below this, another task costs more than it saves."""
    merge_files: int = 8
    """The number of small files of a table that are merged into one."""
    small_file_bytes: int = 8 << 20
    merges_per_job: int = 64
    """Tables of one merging job. Tables that settle together need merging together, and settling waits for the job."""
    files_per_job: int = 5_000
    parts_per_topic: int = 20_000
    """Streams times files of a topic in one job. They have to fit into one ledger record."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that may be settled."""

    topic: uuid.UUID
    root: str
    streams: list[Stream]
    freshness_ms: int
    stops: Mapping[int, int] = field(default_factory=dict)
    """Offsets at which settling stops, by stream: records from there on cannot be read."""
    typing: Typing | None = None
    """How rows get typed columns; None if they get none."""

    def pending(self, state: StreamsState, stream: Stream) -> Iterator[IndexEntry]:
        """The entries of a stream that can be settled now, oldest first."""
        stop = self.stops.get(stream.id)
        return itertools.takewhile(lambda entry: stop is None or entry.start < stop, pending(state, stream))

    def bytes_waiting(self, stream: Stream) -> int:
        """Bytes of a stream past its settled end, up to where settling stops."""
        return pending_bytes(stream, self.stops.get(stream.id))


@dataclass(slots=True)
class Job:
    """Tasks, and which topic each of their files belongs to."""

    tasks: list[Task] = field(default_factory=list)
    topics: list[list[uuid.UUID]] = field(default_factory=list)
    """Per task and file."""
    removed: dict[uuid.UUID, list[int]] = field(default_factory=dict)
    """Files that are merged away, by topic; empty for a settle."""
    rewrites: set[uuid.UUID] = field(default_factory=set)
    """Topics whose files are not only merged but decoded."""

    def __bool__(self) -> bool:
        return bool(self.tasks)


def table_root(name: str, topic: uuid.UUID) -> str:
    """The path of a topic's table. It contains the topic id, so a recreated topic gets another path."""
    return f"tables/{name}-{topic}"


def pending(state: StreamsState, stream: Stream) -> Iterator[IndexEntry]:
    """The entries of a stream that can be settled now, oldest first.

    They end at the first bulk append, or at the stable offset. Gaps between them go along, unless the offsets would be
    more than one index entry covers: settling passes over such a gap by itself when it gets there.
    """
    bound, crosses = min(stream.stable, stream.settled + U32_MAX), state.level >= UNITS_LEVEL
    for i in range(stream.index.find(stream.settled), len(stream.index)):
        entry = stream.index[i]
        if not (entry.unsettled or (entry.gap and crosses)) or entry.end > bound:
            return
        yield entry


def oldest_pending_ms(state: StreamsState, stream: Stream) -> int | None:
    """When the oldest entry of a stream that can be settled now was written; None if there is none."""
    entry = next(pending(state, stream), None)
    return _created_ms(state, entry) if entry is not None else None


def _created_ms(state: StreamsState, entry: IndexEntry) -> int:
    """When an entry was written: the creation time of its object, or the ledger's time of a marker. 0 for a gap."""
    if entry.marker:
        return entry.max_timestamp
    known = state.objects.get(entry.object)
    return known.created_ms if known is not None else 0


def lag_ms(state: StreamsState, streams: Iterable[Stream], now_ms: int) -> int:
    """The age of the oldest entry of these streams that can be settled now; 0 if there is none."""
    oldest = [ms for stream in streams if (ms := oldest_pending_ms(state, stream)) is not None]
    return max(0, now_ms - min(oldest)) if oldest else 0


def pending_bytes(stream: Stream, stop: int | None = None) -> int:
    """Bytes of a stream from its settled end to its stable offset or to a stop before it, bulk appends included."""
    end = stream.stable if stop is None else min(stop, stream.stable)
    return max(0, stream.bytes_from(stream.settled) - stream.bytes_from(end))


def due(state: StreamsState, plan: TopicPlan, now_ms: int, limits: Limits) -> bool:
    """Whether a topic is due: it has enough bytes, or a third of its freshness target has passed."""
    waiting = 0
    for stream in plan.streams:
        entry = next(plan.pending(state, stream), None)
        if entry is None:
            continue
        waiting += plan.bytes_waiting(stream)
        if now_ms - _created_ms(state, entry) >= plan.freshness_ms // 3 or waiting >= limits.file_bytes:
            return True
    return False


def plan_settle(
    state: StreamsState, plans: list[TopicPlan], *, store: str, prefix: str, slots: int, limits: Limits
) -> Job:
    """Tasks for topics that are due, as many as fit into one job."""
    files: list[tuple[tuple[int, int, int], uuid.UUID, FileTask]] = []
    total = 0
    for plan in plans:
        for key, task in _files_of(state, plan, prefix, limits, limits.job_bytes - total):
            files.append((key, plan.topic, task))
            total += task.wal_bytes
        if total >= limits.job_bytes or len(files) >= limits.files_per_job:
            break
    files.sort(key=lambda item: item[0])
    return job_of([(topic, task) for _, topic, task in files], store, slots, total, limits)


def _files_of(
    state: StreamsState, plan: TopicPlan, prefix: str, limits: Limits, room: int
) -> Iterator[tuple[tuple[int, int, int], FileTask]]:
    """A topic's pending entries, cut into files in the order of their objects."""
    ordered: list[tuple[tuple[int, int, int], int, IndexEntry]] = []
    for i, stream in enumerate(plan.streams):
        newest = (0, 0, 0)
        for entry in plan.pending(state, stream):
            place = (entry.object.epoch, entry.object.sequence) if entry.in_wal else (0, 0)
            newest = max(newest, (_created_ms(state, entry), *place))
            ordered.append((newest, i, entry))
    ordered.sort(key=lambda item: (item[0], item[1], item[2].start))
    taken: dict[int, list[IndexEntry]] = {}
    size, parts, first = 0, 0, (0, 0, 0)
    for key, i, entry in ordered:
        if size and size + entry.length > limits.file_bytes:
            yield first, _file(state, plan, prefix, taken)
            room -= size
            parts += len(taken)
            taken, size = {}, 0
            if room <= 0 or parts + len(plan.streams) > limits.parts_per_topic:
                return
        if not size:
            first = key
        taken.setdefault(i, []).append(entry)
        size += entry.length
    if size:
        yield first, _file(state, plan, prefix, taken)


def run_of(state: StreamsState, entry: IndexEntry) -> WalRun:
    """The run that an index entry names."""
    known = state.objects.get(entry.object)
    assert known is not None, f"the index names {entry.object}, which the state does not know"
    path = wal.path_of(known.zone, state.domain, known.created_ms, entry.object)
    append_ms = entry.max_timestamp if entry.append_time else -1
    return WalRun(path, entry.position, entry.length, entry.start, entry.end, append_ms)


def _file(state: StreamsState, plan: TopicPlan, prefix: str, taken: dict[int, list[IndexEntry]]) -> FileTask:
    parts = []
    for i in sorted(taken, key=lambda i: plan.streams[i].partition):
        stream, entries = plan.streams[i], taken[i]
        runs = []
        for entry in entries:
            if entry.in_wal:
                runs.append(run_of(state, entry))
        start, end = max(entries[0].start, stream.settled), entries[-1].end
        aborted = [(gone.producer, gone.first, gone.marker) for gone in stream.aborted.between(start, end)]
        parts.append(StreamPart(stream.id, stream.partition, start, end, runs, aborted if runs else []))
    return FileTask(plan.topic.bytes, plan.root, f"{DATA}{prefix}", parts, [], plan.typing)


def job_of(files: list[tuple[uuid.UUID, FileTask]], store: str, slots: int, total: int, limits: Limits) -> Job:
    """Files divided into tasks: evenly over the slots, but no task is too large or too small."""
    job = Job()
    share = min(max(total // max(slots, 1), limits.min_task_bytes), limits.file_bytes)
    held: list[FileTask] = []
    topics: list[uuid.UUID] = []
    size = 0

    def close() -> None:
        nonlocal held, topics, size
        if held:
            job.tasks.append(Task(VERSION, store, held))
            job.topics.append(topics)
            held, topics, size = [], [], 0

    for topic, task in files:
        if size and size + task.wal_bytes > share:
            close()
        held.append(task)
        topics.append(topic)
        size += task.wal_bytes
    close()
    return job


# --- merging -----------------------------------------------------------------------------------------------


def mergeable(
    table: TopicTable, streams: list[Stream], limits: Limits, damaged: Collection[str] = ()
) -> Iterator[list[DataFile]]:
    """Runs of small files that are worth a rewrite, oldest first. Files with a damaged path are left alone.

    Files are numbered in the order in which they were committed. That is not always the order of their offsets: a
    bulk append may be committed before the WAL records in front of it are settled.
    """
    numbers = _small(table, limits, damaged)
    if len(numbers) < limits.merge_files:
        return
    before = _things_before(streams, numbers)
    run: list[DataFile] = []
    size, places = 0, dict[int, int]()
    for file in sorted(table.live(), key=lambda f: f.number):
        place = before.get(file.number, {})
        apart = any(places.get(stream, count) != count for stream, count in place.items())
        if file.number not in numbers or apart or size + file.size > limits.file_bytes:
            if len(run) >= limits.merge_files:
                yield run
            run, size, places = [], 0, {}
        if file.number in numbers:
            run.append(file)
            size += file.size
            places |= place
    if len(run) >= limits.merge_files:
        yield run


def _small(table: TopicTable, limits: Limits, damaged: Collection[str]) -> set[int]:
    small = [f for f in table.live() if f.size < limits.small_file_bytes and f.references]
    return {f.number for f in small if not damaged or f"{table.root}/{f.name}" not in damaged}


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
        streams = streams_of(table.topic)
        for files in mergeable(table, streams, limits, damaged):
            task = merge_file(table, streams, files, prefix)
            if task is not None and task.parts:
                known = (typed or {}).get(table.topic, TypedTable())
                typing = (typings or {}).get(table.topic)
                if typing is not None and any(True for _ in known.undecoded(files)):
                    task = msgspec.structs.replace(task, typing=typing)
                    rewrites.add(table.topic)
                elif any(file.number in known.files and known.files[file.number].version for file in files):
                    task = msgspec.structs.replace(task, columns=known.columns.newest)
                chosen.append((table.topic, task))
                removed[table.topic] = [file.number for file in files]
                total += sum(file.size for file in files)
                break
        if total >= limits.job_bytes or len(removed) >= limits.merges_per_job:
            break
    job = job_of(chosen, store, slots, total, limits)
    job.removed, job.rewrites = removed, rewrites
    return job


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
