"""Which WAL runs become which files: plain decisions over the state, without I/O.

Only records below the stable offset are settled: all of their transactions have ended. The markers of transactions go
along with the runs around them, and a task names the aborted ones, whose records get into no file.

Runs are cut in the order in which they were written, not stream by stream, so a task reads each WAL object that it
needs once. Small topics share a task.

A job that cannot take all that waits is divided between the topics that are due. None gets more than its share while
another one waits, and `Turns` remembers from job to job whose turn it is.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headwater.lake.tasks import VERSION, FileTask, StreamPart, Task, WalRun
from headwater.log.wal import format as wal
from headwater.schemas.typing import Typing
from headwater.settings.settings import Lake
from headwater.state.streams.domain import U32_MAX
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import DataFile

DATA = "_data/"
"""Delta's VACUUM skips directories with a leading underscore, whatever retention it is given."""
LEAST_FRESHNESS_MS = 10_000
"""A shorter freshness target counts as this where it is compared with a lag: a job takes some seconds itself."""
SHARES = 16
"""A job has room for at least as many topics. If more are due, shares are so large that their files are not small."""


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
    partition_bytes: int = 8 << 20
    """A partition with this many bytes in a job gets files of its own; 0 for never. See `lake.partition_bytes`."""
    read_bytes: int = 64 << 10
    """Files of single partitions take parts of WAL objects. They are not written if the parts would be smaller."""
    merges_per_job: int = 64
    """Merges of one merging job. Tables that settle together need merging together, and settling waits for the job."""

    @classmethod
    def of(cls, settings: Lake) -> Limits:
        """The sizes that the settings name."""
        return cls(
            file_bytes=settings.file_bytes,
            job_bytes=settings.job_bytes,
            merge_files=settings.merge_files,
            small_file_bytes=settings.small_file_bytes,
            partition_bytes=settings.partition_bytes,
        )

    files_per_job: int = 5_000
    parts_per_topic: int = 20_000
    """Streams times files of a topic in one job. They have to fit into one ledger record."""

    def stays_apart(self, file: DataFile) -> bool:
        """Whether a file of one partition is large enough to be merged with files of that partition only."""
        alone = file.first_partition == file.last_partition
        return alone and 0 < self.partition_bytes <= 2 * file.size


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

    def deadline_ms(self, state: StreamsState) -> int:
        """When the freshness target of the oldest pending record ends."""
        first = (next(self.pending(state, stream), None) for stream in self.streams)
        return min((_arrived_ms(state, entry) for entry in first if entry is not None), default=0) + self.freshness_ms


@dataclass(slots=True)
class Turns:
    """Whose turn it is, remembered from job to job: deficit round robin between the topics that are due.

    Topics that are no longer due are forgotten. When they are due again they come before those that always are.
    """

    jobs: int = 0
    served: dict[uuid.UUID, int] = field(default_factory=dict)
    """The last job that had a share for the topic."""
    debts: dict[uuid.UUID, int] = field(default_factory=dict)
    """Bytes that a topic got beyond its share, because index entries are not divided."""
    passed_over: set[uuid.UUID] = field(default_factory=set)
    """Topics of the last job that it had no more room for."""

    def next_job(self, state: StreamsState, plans: Iterable[TopicPlan], limits: Limits) -> list[TopicPlan]:
        """The topics that share the next job: those that have waited longest for a turn.

        Those with the fewest bytes come first, so that others get what they leave of their shares.
        """
        waiting = {plan.topic: sum(map(plan.bytes_waiting, plan.streams)) for plan in plans}
        for known in (self.served, self.debts):
            for topic in known.keys() - waiting.keys():
                del known[topic]
        self.passed_over &= waiting.keys()
        least = max(1, min(limits.small_file_bytes, limits.job_bytes // SHARES))
        room, found = limits.job_bytes, list[TopicPlan]()
        ready = [plan for plan in plans if waiting[plan.topic]]
        for plan in sorted(ready, key=lambda plan: (self.served.get(plan.topic, 0), plan.deadline_ms(state))):
            if room <= 0 or len(found) >= limits.files_per_job:
                break
            found.append(plan)
            room -= min(waiting[plan.topic], least)
        self.jobs += 1
        return sorted(found, key=lambda plan: (plan.topic not in self.passed_over, waiting[plan.topic]))

    def note(self, topic: uuid.UUID, share: int, taken: int) -> None:
        """Note that a topic got this many bytes in its turn."""
        self.served[topic] = self.jobs
        self.debts[topic] = max(0, self.debts.get(topic, 0) + taken - share)


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


def writer_of(path: str) -> tuple[int, int] | None:
    """Epoch and job in the name of a data file; None if Headwater does not give such names."""
    directory, _, name = path.rpartition("/")
    epoch, job, *rest = (*name.split("-", 2), "", "")[:4]
    if not directory.endswith("/" + DATA.rstrip("/")) or not epoch.isdecimal() or not job.isdecimal() or not rest[0]:
        return None
    return int(epoch), int(job)


def pending(state: StreamsState, stream: Stream) -> Iterator[IndexEntry]:
    """The entries of a stream that can be settled now, oldest first.

    They end at the first bulk append, or at the stable offset. Gaps between them go along, unless the offsets would be
    more than one index entry covers: settling passes over such a gap by itself when it gets there.
    """
    bound = min(stream.stable, stream.settled + U32_MAX)
    for i in range(stream.index.find(stream.settled), len(stream.index)):
        entry = stream.index[i]
        if not (entry.unsettled or entry.gap) or entry.end > bound:
            return
        yield entry


def oldest_pending_ms(state: StreamsState, stream: Stream) -> int | None:
    """When the oldest entry of a stream that can be settled now was written; None if there is none."""
    entry = next(pending(state, stream), None)
    return _arrived_ms(state, entry) if entry is not None else None


def _arrived_ms(state: StreamsState, entry: IndexEntry) -> int:
    """The ledger time at which an entry came into the log. 0 for a gap."""
    if entry.marker:
        return entry.max_timestamp - state.clocks.lead_ms
    known = state.objects.get(entry.object)
    return known.arrived_ms if known is not None else 0


def lag_ms(state: StreamsState, streams: Iterable[Stream], now_ms: int) -> int:
    """The age of the oldest entry of these streams that can be settled now; 0 if there is none."""
    oldest = [ms for stream in streams if (ms := oldest_pending_ms(state, stream)) is not None]
    return max(0, now_ms - min(oldest)) if oldest else 0


def lag_of(state: StreamsState, plans: Iterable[TopicPlan], now_ms: int) -> float:
    """The greatest lag of topics, in their freshness targets."""
    shares = (lag_ms(state, plan.streams, now_ms) / max(plan.freshness_ms, LEAST_FRESHNESS_MS) for plan in plans)
    return max(shares, default=0.0)


def bytes_in_time(pace: float | None, plans: Sequence[TopicPlan], slots: int, limits: Limits) -> int:
    """How large the next job may be: a topic that becomes due while it runs still has time for a job of its own.

    A topic is due after a third of its freshness target, so each of the two jobs may take a quarter. A job is never so
    small that a core has no file.
    """
    if pace is None or len(plans) < 2:
        return limits.job_bytes
    seconds = min(plan.freshness_ms for plan in plans) / 4000
    return min(limits.job_bytes, max(int(pace * seconds), slots * limits.file_bytes))


class Pace:
    """How fast jobs settle, by the last one that was full."""

    def __init__(self) -> None:
        self._bytes_in_a_second: float | None = None

    def __repr__(self) -> str:
        return f"<Pace {self._bytes_in_a_second}>"

    def limits(self, plans: Sequence[TopicPlan], slots: int, limits: Limits) -> Limits:
        """The limits of the next job. See `bytes_in_time`."""
        return replace(limits, job_bytes=bytes_in_time(self._bytes_in_a_second, plans, slots, limits))

    def note(self, job: Job, limits: Limits, seconds: float) -> None:
        """A job with these limits took this long."""
        size = sum(file.wal_bytes for task in job.tasks for file in task.files)
        if 2 * size >= limits.job_bytes:
            self._bytes_in_a_second = size / max(seconds, 0.001)


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
        if now_ms - _arrived_ms(state, entry) >= plan.freshness_ms // 3 or waiting >= limits.file_bytes:
            return True
    return False


def plan_settle(
    state: StreamsState,
    plans: list[TopicPlan],
    *,
    store: str,
    prefix: str,
    slots: int,
    limits: Limits,
    turns: Turns | None = None,
) -> Job:
    """Tasks for topics that are due, as many as fit into one job. Each topic gets its share of the job.

    `turns` is what the job before has left; it is brought up to date.
    """
    turns = turns if turns is not None else Turns()
    files = _shared_out(state, plans, prefix, limits, turns)
    if not files and any(turns.debts.values()):  # all of them had more than their share before
        turns.debts.clear()
        files = _shared_out(state, plans, prefix, limits, turns)
    files.sort(key=lambda item: item[0])
    total = sum(task.wal_bytes for _, _, task in files)
    return job_of([(topic, task) for _, topic, task in files], store, slots, total, limits)


def _shared_out(
    state: StreamsState, plans: list[TopicPlan], prefix: str, limits: Limits, turns: Turns
) -> list[tuple[_Key, uuid.UUID, FileTask]]:
    """The files of the next job. What a topic leaves of its share is divided between those after it."""
    files: list[tuple[_Key, uuid.UUID, FileTask]] = []
    left, sharing = limits.job_bytes, turns.next_job(state, plans, limits)
    turns.passed_over = {plan.topic for plan in sharing}
    for place, plan in enumerate(sharing):
        if left <= 0 or len(files) >= limits.files_per_job:
            break
        share, taken = max(1, left // (len(sharing) - place)), 0
        for key, task in _files_of(state, plan, prefix, limits, share - turns.debts.get(plan.topic, 0)):
            files.append((key, plan.topic, task))
            taken += task.wal_bytes
        turns.note(plan.topic, share, taken)
        turns.passed_over.discard(plan.topic)
        left -= taken
    return files


_Key = tuple[int, int, int]
"""When an entry was written, as far as files are ordered by it."""
_Entries = list[tuple[_Key, int, IndexEntry]]
"""Entries with their keys and the places of their streams in the plan."""


def _files_of(
    state: StreamsState, plan: TopicPlan, prefix: str, limits: Limits, room: int
) -> Iterator[tuple[_Key, FileTask]]:
    """A topic's pending entries, cut into files in the order of their objects; large partitions have their own."""
    ordered = _ordered(state, plan, room)
    shared: _Entries = []
    lanes: dict[int, _Entries] = {place: [] for place in sorted(_large(ordered, limits))}
    for item in ordered:
        lanes.get(item[1], shared).append(item)
    parts = 0
    for entries in lanes.values():
        for number, piece in enumerate(_evenly(entries, limits.file_bytes)):
            # All of them begin with the job. So tasks take neighbouring partitions, which are neighbours in objects.
            yield (piece if number else ordered)[0][0], _file(state, plan, prefix, _by_stream(piece))
            parts += 1
    taken: _Entries = []
    size = 0
    for item in shared:
        length = item[2].length
        if size and size + length > limits.file_bytes:
            found = _by_stream(taken)
            yield _first(taken), _file(state, plan, prefix, found)
            parts += len(found)
            taken, size = [], 0
            if parts + len(plan.streams) > limits.parts_per_topic:
                return
        taken.append(item)
        size += length
    if size:
        yield _first(taken), _file(state, plan, prefix, _by_stream(taken))


def _ordered(state: StreamsState, plan: TopicPlan, room: int) -> _Entries:
    """Pending entries in the order of their objects, about as many bytes as there is room for."""
    found: _Entries = []
    for place, stream in enumerate(plan.streams):
        newest = (0, 0, 0)
        for entry in plan.pending(state, stream):
            names = (entry.object.epoch, entry.object.sequence) if entry.in_wal else (0, 0)
            newest = max(newest, (_arrived_ms(state, entry), *names))
            found.append((newest, place, entry))
    found.sort(key=lambda item: (item[0], item[1], item[2].start))
    for at, item in enumerate(found):
        if room <= 0:
            return found[:at]
        room -= item[2].length
    return found


def _large(entries: _Entries, limits: Limits) -> set[int]:
    """The places of streams whose entries become files of their own."""
    sizes: dict[int, int] = {}
    objects = set()
    for _, place, entry in entries:
        sizes[place] = sizes.get(place, 0) + entry.length
        if entry.in_wal:
            objects.add(entry.object)
    if not limits.partition_bytes or min(sum(sizes.values()), limits.file_bytes) < limits.read_bytes * len(objects):
        return set()
    return {place for place, size in sizes.items() if size >= limits.partition_bytes}


def _evenly(entries: _Entries, limit: int) -> Iterator[_Entries]:
    """Entries in as few pieces as the limit allows, all of about the same size."""
    left = sum(entry.length for _, _, entry in entries)
    pieces = -(-left // limit)
    share, size, taken = left / pieces, 0, list[tuple[_Key, int, IndexEntry]]()
    for item in entries:
        if size and pieces > 1 and size + item[2].length / 2 > share:
            yield taken
            taken, size, pieces = [], 0, pieces - 1
        taken.append(item)
        size += item[2].length
    yield taken


def _first(entries: _Entries) -> _Key:
    """The key of the first entry with records or a marker."""
    return next(key for key, _, entry in entries if entry.length)


def _by_stream(entries: _Entries) -> dict[int, list[IndexEntry]]:
    found: dict[int, list[IndexEntry]] = {}
    for _, place, entry in entries:
        found.setdefault(place, []).append(entry)
    return found


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
