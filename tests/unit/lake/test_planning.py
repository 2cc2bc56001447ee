"""What goes into which task, decided over the state alone."""

import dataclasses
import uuid

import msgspec

from harness.virtual import run
from headwater.lake.merging import plan_merge
from headwater.lake.planning import (
    Job,
    Limits,
    TopicPlan,
    Turns,
    bytes_in_time,
    due,
    lag_ms,
    pending,
    pending_bytes,
    plan_settle,
    table_root,
)
from headwater.objects.memory import MemoryStore
from headwater.state.commands.base import TakeLease
from headwater.state.commands.streams import AppendUnits, Chunk, StartAt, Unit, UnitChunk
from headwater.state.commands.tables import NewFile, Replace, SegmentRun, Settle
from headwater.state.records import Command
from headwater.state.results import Done, Result
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.index import MARKER_BYTES
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.support.batches import Rec
from tests.support.promise import promise
from tests.support.scribe import FIRST_CHUNK, START_MS, TOPIC, Scribe, untyped
from tests.support.transactions import PLAIN, ObjectWriter

PROMISES = ("T1", "T13")

LIMITS = Limits(file_bytes=1_000, job_bytes=10_000, min_task_bytes=100)


def scribe(streams: int) -> Scribe:
    made = Scribe(StreamsState(Domain(1)))
    made.streams(*range(1, streams + 1))
    return made


def state_of(made: Scribe) -> StreamsState:
    assert isinstance(made.state, StreamsState)
    return made.state


def interleaved(made: Scribe, objects: int, length: int) -> None:
    """Objects that all streams share."""
    for _ in range(objects):
        chunks = []
        for i, stream in enumerate(state_of(made).streams):
            chunks.append(Chunk(stream, FIRST_CHUNK + i * (length + 4), [(length, 5, 10)], []))
        made.do(1, made.wal(*chunks))


def plan_of(made: Scribe, freshness_ms: int = 30_000) -> TopicPlan:
    return TopicPlan(TOPIC, table_root("t", TOPIC), list(state_of(made).streams.values()), freshness_ms)


@promise("T1")
def test_each_object_is_in_one_task() -> None:
    """Runs are cut along the objects, not stream by stream."""
    made = scribe(4)
    interleaved(made, 10, 96)
    job = plan_settle(state_of(made), [plan_of(made)], store="memory://", prefix="1-1-", slots=2, limits=LIMITS)
    seen: dict[str, set[int]] = {}
    for number, task in enumerate(job.tasks):
        for file in task.files:
            assert file.wal_bytes <= LIMITS.file_bytes
            for part in file.parts:
                for found in part.runs:
                    seen.setdefault(found.path, set()).add(number)
    assert len(seen) == 10
    assert sum(len(tasks) for tasks in seen.values()) <= 10 + len(job.tasks)  # only where a file ends


@promise("T1")
def test_streams_stay_in_order() -> None:
    """Each stream's parts follow one another over the files, from where it is settled to its end."""
    made = scribe(3)
    interleaved(made, 12, 200)
    job = plan_settle(state_of(made), [plan_of(made)], store="memory://", prefix="1-1-", slots=2, limits=LIMITS)
    at: dict[int, int] = {}
    for task in job.tasks:
        for file in task.files:
            assert [part.partition for part in file.parts] == sorted(part.partition for part in file.parts)
            for part in file.parts:
                assert part.start == at.get(part.stream, 0)
                assert part.end == part.start + 5 * len(part.runs)
                at[part.stream] = part.end
    assert at == {1: 60, 2: 60, 3: 60}


APART = Limits(file_bytes=1_000, job_bytes=10_000, min_task_bytes=100, partition_bytes=600, read_bytes=0)


@promise("T17")
def test_large_partitions_have_files_of_their_own() -> None:
    """From a size on, in as few files of even size as there can be; the others share."""
    made = scribe(3)
    interleaved(made, 5, 96)
    for _ in range(10):
        made.append(1, 2, [(96, 5, 10)])
    job = plan_settle(state_of(made), [plan_of(made)], store="m://", prefix="x", slots=2, limits=APART)
    files = [file for task in job.tasks for file in task.files]
    assert [[part.stream for part in file.parts] for file in files] == [[2], [1, 3], [2]]
    assert [file.wal_bytes for file in files] == [800, 1_000, 700]
    assert [(file.parts[0].start, file.parts[0].end) for file in (files[0], files[2])] == [(0, 40), (40, 75)]
    for limits in (LIMITS, dataclasses.replace(APART, partition_bytes=0), dataclasses.replace(APART, read_bytes=100)):
        job = plan_settle(state_of(made), [plan_of(made)], store="m://", prefix="x", slots=2, limits=limits)
        streams = [{part.stream for part in file.parts} for task in job.tasks for file in task.files]
        assert streams[0] == {1, 2, 3}, limits


@promise("T17")
def test_neighbouring_partitions_are_in_a_task() -> None:
    """So a task reads one piece of each object, whatever order the partitions were written in first."""
    made = scribe(4)
    for stream in (4, 2, 3, 1):
        made.append(1, stream, [(96, 5, 10)])
    interleaved(made, 5, 96)
    limits = dataclasses.replace(APART, min_task_bytes=1_200, file_bytes=1_200)
    job = plan_settle(state_of(made), [plan_of(made)], store="m://", prefix="x", slots=1, limits=limits)
    assert [[file.parts[0].stream for file in task.files] for task in job.tasks] == [[1, 2], [3, 4]]


@promise("T1")
def test_a_job_is_bounded() -> None:
    """By bytes, and so that its result fits one ledger record."""
    made = scribe(2)
    interleaved(made, 200, 500)
    small = plan_settle(state_of(made), [plan_of(made)], store="m://", prefix="x", slots=2, limits=LIMITS)
    assert 9_000 <= sum(file.wal_bytes for task in small.tasks for file in task.files) <= 11_000
    few = Limits(file_bytes=1_000, job_bytes=1 << 30, min_task_bytes=100, parts_per_topic=10)
    job = plan_settle(state_of(made), [plan_of(made)], store="m://", prefix="x", slots=2, limits=few)
    assert sum(len(file.parts) for task in job.tasks for file in task.files) <= 10


@promise("T13")
def test_small_topics_share_a_task() -> None:
    """A thousand trickling topics are a handful of tasks."""
    made = Scribe(StreamsState(Domain(1)))
    made.streams(*range(1, 1_001))
    for stream in range(1, 1_001):
        made.append(1, stream, [(100, 1, 5)])
    streams = state_of(made).streams
    plans = [TopicPlan(uuid.UUID(int=s), f"tables/{s}", [streams[s]], 1_000) for s in range(1, 1_001)]
    job = plan_settle(state_of(made), plans, store="m://", prefix="x", slots=2, limits=Limits())
    assert len(job.tasks) == 1
    assert len(job.tasks[0].files) == 1_000
    assert sorted(topic.int for topics in job.topics for topic in topics) == list(range(1, 1_001))


@promise("T10")
def test_when_a_turn_comes() -> None:
    """By age against the freshness target, or by bytes."""
    made = scribe(1)
    state, plan = state_of(made), plan_of(made, 30_000)
    assert not due(state, plan, START_MS + 1_000_000, LIMITS)
    made.append(1, 1, [(100, 1, 5)])
    assert not due(state, plan, START_MS + 9_999, LIMITS)
    assert due(state, plan, START_MS + 10_000, LIMITS)
    made.append(1, 1, [(900, 1, 5)])
    assert due(state, plan, START_MS, LIMITS)


class Written:
    """A stream with transactions, and the ledger's time of the next command."""

    def __init__(self) -> None:
        self.scribe = scribe(1)
        self.state = state_of(self.scribe)
        self.stream = self.state.streams[1]
        self.now = START_MS
        self.by = ObjectWriter(5, self._submit, MemoryStore(), Domain(1))

    async def _submit(self, command: Command) -> Result:
        return self.scribe.do(5, command, self.now)

    async def write(self, *names: str) -> None:
        """Batches of two records, in one object."""
        await self.by.write(*((1, name, [Rec(b"x"), Rec(b"y")]) for name in names), created_ms=self.now)


@promise("T1", "T10")
def test_up_to_the_stable_offset() -> None:
    """What lies behind it neither settles, nor waits, nor makes a topic due."""

    async def told() -> None:
        written = Written()
        state, stream, plan = written.state, written.stream, plan_of(written.scribe)
        await written.write("a", PLAIN)
        assert not list(pending(state, stream))
        assert pending_bytes(stream) == lag_ms(state, [stream], START_MS + 1_000_000) == 0
        assert not due(state, plan, START_MS + 1_000_000, LIMITS)
        assert not plan_settle(state, [plan], store="m://", prefix="x", slots=1, limits=LIMITS)
        written.now += 5_000
        await written.write(PLAIN, "b")
        await written.by.end("a", commit=True)
        assert [(entry.start, entry.end) for entry in pending(state, stream)] == [(0, 4), (4, 6)]
        assert pending_bytes(stream) == stream.index[1].cumulative_size
        assert lag_ms(state, [stream], START_MS + 9_000) == 9_000
        assert due(state, plan, START_MS + 10_000, LIMITS)
        await written.by.end("b", commit=True)
        assert pending_bytes(stream) == stream.size
        assert plan.bytes_waiting(stream) == stream.size
        stopped = TopicPlan(TOPIC, plan.root, plan.streams, plan.freshness_ms, {1: 6})
        assert stopped.bytes_waiting(stream) == stream.index[1].cumulative_size

    run(told())


@promise("T1")
def test_markers_and_aborted_transactions() -> None:
    """Markers are in no run, and a task names the aborted transactions that may be in its runs."""

    async def told() -> None:
        written = Written()
        await written.write("a", "b")
        await written.by.end("a", commit=False)
        await written.write("b")
        await written.by.end("b", commit=False)
        await written.write("a")
        await written.by.end("a", commit=True)
        one, two = 1 + (5 << 32), 2 + (5 << 32)
        limits = Limits(file_bytes=1 << 20)
        plan = plan_of(written.scribe)
        job = plan_settle(written.state, [plan], store="m://", prefix="x", slots=1, limits=limits)
        [part] = job.tasks[0].files[0].parts
        assert (part.start, part.end) == (0, 11)
        assert [(found.start, found.end) for found in part.runs] == [(0, 2), (2, 4), (5, 7), (8, 10)]
        assert sorted(part.aborted) == [(one, 0, 4), (two, 2, 7)]
        small = Limits(file_bytes=1, job_bytes=1 << 20)
        job = plan_settle(written.state, [plan], store="m://", prefix="x", slots=1, limits=small)
        parts = [part for task in job.tasks for file in task.files for part in file.parts]
        assert [(part.start, part.end) for part in parts] == [
            (0, 2), (2, 4), (4, 5), (5, 7), (7, 8), (8, 10), (10, 11)
        ]  # fmt: skip
        assert [sorted(part.aborted) for part in parts if part.runs] == [
            [(one, 0, 4)], [(one, 0, 4), (two, 2, 7)], [(two, 2, 7)], []
        ]  # fmt: skip

    run(told())


@promise("T10")
def test_a_marker_is_as_old_as_the_ledger_says() -> None:
    """Its numbers name no object, also if there is an object of that name."""

    async def told() -> None:
        written = Written()
        state, stream, plan = written.state, written.stream, plan_of(written.scribe)
        await written.write("a")
        await written.by.delete(1, 2, 0)
        written.now += 20_000
        await written.by.end("a", commit=False)
        assert [(entry.marker, entry.length) for entry in pending(state, stream)] == [(True, MARKER_BYTES)]
        assert lag_ms(state, [stream], written.now + 500) == 500
        assert not due(state, plan, written.now + 9_999, LIMITS)
        assert due(state, plan, written.now + 10_000, LIMITS)
        job = plan_settle(state, [plan], store="m://", prefix="x", slots=1, limits=LIMITS)
        assert [(part.start, part.end, part.runs) for part in job.tasks[0].files[0].parts] == [(2, 3, [])]

    run(told())


class Gapped:
    """A stream with gaps of more offsets than one index entry covers, and a compactor without files."""

    def __init__(self) -> None:
        self.scribe = scribe(1)
        self.state = state_of(self.scribe)
        self.stream = self.state.streams[1]
        lease = self.scribe.do(1, TakeLease(COMPACTION, 1_000))
        assert isinstance(lease, Done)
        self.lease = lease.value

    def append(self, gap: int) -> None:
        """A record behind a gap."""
        unit = Unit(
            [StartAt(1, self.stream.next_offset + gap)],
            [UnitChunk(1, FIRST_CHUNK, [(96, 1, START_MS)], [], b"")],
        )
        self.scribe.sequence += 1
        self.scribe.do(1, AppendUnits(self.scribe.sequence, 300, START_MS, "local", [unit]))

    def settle(self) -> Result:
        """Settle what can be settled, into one file."""
        plan = plan_of(self.scribe)
        job = plan_settle(self.state, [plan], store="m://", prefix="x", slots=1, limits=LIMITS)
        files, runs = self._files(job)
        return self.scribe.do(1, Settle(self.lease, TOPIC, plan.root, files, runs, [START_MS], untyped(files)))

    def merge(self, limits: Limits) -> Job:
        tables = list(self.state.tables.values())
        return plan_merge(tables, lambda _: [self.stream], store="m://", prefix="y", slots=1, limits=limits)

    def carry_out(self, job: Job) -> Result:
        """Enter a merge."""
        files, runs = self._files(job)
        return self.scribe.do(1, Replace(self.lease, TOPIC, job.removed[TOPIC], files, runs, untyped(files), False))

    def _files(self, job: Job) -> tuple[list[NewFile], list[SegmentRun]]:
        [part] = job.tasks[0].files[0].parts
        files = [file for table in self.state.tables.values() for file in table.live()]
        rows = len(part.runs) or sum(file.rows for file in files if file.number in job.removed[TOPIC])
        name = f"_data/{self.state.last_file}.parquet"
        file = NewFile(name, 100, rows, 1, 0, 0, part.start, part.end - 1, START_MS, START_MS, 0, 7)
        return [file], [SegmentRun(1, part.start, part.end, 0, 0, 1)]


@promise("T1", "L4")
def test_gaps_larger_than_an_index_entry() -> None:
    """A run crosses a small gap and stops before a huge one, and so does a merge. Neither is ever refused."""
    gapped, huge = Gapped(), 5 << 32
    for gap in (0, 3, huge, 3, 1 << 31, 1 << 31):
        gapped.append(gap)
    while gapped.stream.settled < gapped.stream.next_offset:
        assert isinstance(gapped.settle(), Done), gapped.stream
    entries = [entry for entry in gapped.stream.index if entry.file]
    last = huge + 11 + (1 << 32)
    assert [(entry.start, entry.end) for entry in entries] == [
        (0, 5), (huge + 5, huge + 11 + (1 << 31)), (last, last + 1)
    ]  # fmt: skip
    gapped.append(0)
    assert isinstance(gapped.settle(), Done)
    job = gapped.merge(Limits(merge_files=2))
    assert job.removed == {TOPIC: [3, 4]}
    assert isinstance(gapped.carry_out(job), Done)
    assert not gapped.merge(Limits(merge_files=2)).removed


FRESHNESS_MS = 30_000
BYTES_A_SECOND = 10_000
"""What the compactor of `Sharing` settles."""
SHARED = Limits(file_bytes=5_000, job_bytes=40_000, min_task_bytes=1_000)


class Sharing:
    """Topics of one stream each, and a compactor that settles so many bytes in a second of the test's time."""

    def __init__(self, topics: int, limits: Limits = SHARED) -> None:
        self.scribe = scribe(topics)
        self.state = state_of(self.scribe)
        self.limits = limits
        self.turns = Turns()
        self.now = START_MS
        self.lags: dict[int, int] = {}
        """The greatest lag of each stream."""
        self.settled: dict[int, int] = {}
        """Bytes by stream."""
        lease = self.scribe.do(1, TakeLease(COMPACTION, 1 << 40))
        assert isinstance(lease, Done)
        self.lease = lease.value
        self.plans = [
            TopicPlan(uuid.UUID(int=name), f"tables/{name}", [stream], FRESHNESS_MS)
            for name, stream in self.state.streams.items()
        ]

    def write(self, stream: int, size: int, count: int = 1) -> None:
        for _ in range(count):
            command = self.scribe.wal(Chunk(stream, FIRST_CHUNK, [(size, 1, self.now)], []))
            self.scribe.do(1, msgspec.structs.replace(command, created_ms=self.now), self.now)

    def plan(self) -> Job:
        ready = [plan for plan in self.plans if due(self.state, plan, self.now, self.limits)]
        return plan_settle(
            self.state, ready, store="m://", prefix="x", slots=2, limits=self.limits, turns=self.turns
        )  # fmt: skip

    def enter(self, job: Job) -> None:
        """Settle what a job has, as if no record were left in it."""
        for stream in self.state.streams.values():
            self.lags[stream.id] = max(self.lags.get(stream.id, 0), lag_ms(self.state, [stream], self.now))
        parts = [part for task in job.tasks for file in task.files for part in file.parts]
        for part in sorted(parts, key=lambda part: (part.stream, part.start)):
            run_ = SegmentRun(part.stream, part.start, part.end, -1, 0, 0)
            assert isinstance(self.scribe.do(1, Settle(self.lease, TOPIC, "tables/t", [], [run_], [-1], [])), Done)
            self.settled[part.stream] = self.settled.get(part.stream, 0) + sum(found.length for found in part.runs)


def size_of(job: Job) -> int:
    return sum(file.wal_bytes for task in job.tasks for file in task.files)


@promise("T10", "T13")
def test_a_topic_at_twice_the_rate_of_settling() -> None:
    """The others keep their freshness, and it gets all that they leave."""
    sharing = Sharing(6)
    heavy, *others = sharing.state.streams
    seconds, running, ends = 100, Job(), START_MS
    for second in range(seconds):
        sharing.now = START_MS + second * 1_000
        if sharing.now >= ends:
            sharing.enter(running)
            running = sharing.plan()
            ends = sharing.now + max(1_000, size_of(running) * 1_000 // BYTES_A_SECOND)
        sharing.write(heavy, 2_000, 2 * BYTES_A_SECOND // 2_000)
        for stream in others:
            sharing.write(stream, 100)
    assert all(0 < sharing.lags[stream] < FRESHNESS_MS for stream in others), sharing.lags
    assert sharing.lags[heavy] > FRESHNESS_MS, "it was too much"
    assert sharing.settled[heavy] > 0.6 * BYTES_A_SECOND * seconds


@promise("T13")
def test_more_heavy_topics_than_a_job_has_shares() -> None:
    """Each has its turn, and a topic that becomes due does not wait for all of them."""
    sharing = Sharing(41)
    *heavy, late = sharing.state.streams
    for stream in heavy:
        sharing.write(stream, 1_000, 100)
    turns = [set[int]() for _ in range(6)]
    for number, served in enumerate(turns):
        if number == 4:
            sharing.write(late, 6_000)
        job = sharing.plan()
        assert size_of(job) <= SHARED.job_bytes + 1_000
        sharing.enter(job)
        served.update(part.stream for task in job.tasks for file in task.files for part in file.parts)
    assert set.union(*turns[:3]) == set(heavy), "a job has 16 shares"
    assert max(sharing.settled[stream] for stream in heavy) <= 3 * min(sharing.settled[stream] for stream in heavy)
    assert late in turns[4]


@promise("T13")
def test_entries_larger_than_a_share() -> None:
    """What a topic gets beyond its share is taken from its next ones."""
    sharing = Sharing(2, dataclasses.replace(SHARED, job_bytes=4_000))
    large, small = sharing.state.streams
    sharing.write(large, 12_000, 20)
    sharing.write(small, 500, 200)
    for _ in range(20):
        job = sharing.plan()
        assert job, "no job is empty"
        sharing.enter(job)
    assert 0.6 < sharing.settled[large] / sharing.settled[small] < 1.7, sharing.settled
    alone = Sharing(1, dataclasses.replace(SHARED, job_bytes=4_000))
    alone.write(1, 12_000, 20)
    for number in range(5):
        alone.enter(alone.plan())
        assert alone.settled[1] > 12_000 * (number + 1), "it has debts to no other"


@promise("T10")
def test_jobs_are_as_large_as_freshness_allows() -> None:
    """What becomes due while a job runs is settled by the next one, in time."""
    sharing = Sharing(3)
    limits = dataclasses.replace(SHARED, job_bytes=1 << 30)
    assert bytes_in_time(None, sharing.plans, 2, limits) == 1 << 30, "the first job shows how fast they are"
    assert bytes_in_time(20_000.0, sharing.plans, 2, limits) == 20_000 * FRESHNESS_MS // 4_000
    assert bytes_in_time(20_000.0, sharing.plans[:1], 2, limits) == 1 << 30, "it waits for no other topic"
    assert bytes_in_time(1.0, sharing.plans, 2, limits) == 2 * limits.file_bytes
    assert bytes_in_time(1e12, sharing.plans, 2, limits) == 1 << 30
