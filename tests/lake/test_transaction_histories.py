"""Whatever producers write, commit and abort, and wherever settling cuts it, files hold the committed records."""

import io
from typing import Any

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.virtual import run
from headwater.app.doctor.examining import check_references, check_stream
from headwater.app.doctor.report import Report
from headwater.app.doctor.tables import check_tables
from headwater.app.doctor.transactions import check_transactions
from headwater.lake.commands import settle_command
from headwater.lake.planning import Limits, TopicPlan, lag_ms, pending_bytes, plan_settle, table_root
from headwater.lake.spark.executor import perform
from headwater.lake.tasks import FileFacts, decode_facts, decode_task, encode
from headwater.objects.memory import MemoryStore
from headwater.state.commands.base import SetLevel, TakeLease
from headwater.state.commands.streams import CreateStreams, StreamConfig
from headwater.state.machine import LEVEL, LEVELS
from headwater.state.records import Command
from headwater.state.results import Done, Result
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.index import NO_TIMESTAMP
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.support.batches import Rec
from tests.support.promise import promise
from tests.support.scribe import START_MS, TOPIC, Scribe
from tests.support.soak import examples
from tests.support.transactions import PLAIN, ObjectWriter

PROMISES = ("T1",)

ONE = Domain(1)
WRITER, COMPACTOR = 5, 9
PLAIN_TIME, APPEND_TIME = 1, 2
"""Two streams of a topic. The second is written with log-append time."""
IDS = ("a", "b", "c")

parts = st.tuples(
    st.sampled_from([PLAIN_TIME, PLAIN_TIME, APPEND_TIME]), st.sampled_from([PLAIN, *IDS]), st.integers(1, 3),
    st.integers(-1, 50),
)  # fmt: skip
steps = st.one_of(
    st.tuples(st.just("write"), st.lists(parts, min_size=1, max_size=4)),
    st.tuples(st.just("write"), st.lists(parts, min_size=1, max_size=4)),
    st.tuples(st.just("end"), st.sampled_from(IDS), st.booleans()),
    st.tuples(st.just("settle"), st.sampled_from([1, 150, 400, 1 << 20])),
    st.tuples(st.just("delete"), st.sampled_from([PLAIN_TIME, APPEND_TIME]), st.integers(1, 6)),
    st.tuples(st.just("restore")),
)


class History:
    """A state, the objects that it names, and what is done to them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.scribe = Scribe(StreamsState(ONE))
        self.scribe.do(WRITER, SetLevel(LEVEL, LEVELS[LEVEL]))
        for i, stream in enumerate((PLAIN_TIME, APPEND_TIME)):
            config = StreamConfig(stream == APPEND_TIME)
            self.scribe.do(WRITER, CreateStreams(TOPIC, i, (stream,), config))
        self.writer = ObjectWriter(WRITER, self._submit, self.store, ONE)
        lease = self.scribe.do(COMPACTOR, TakeLease(COMPACTION, 1 << 40))
        assert isinstance(lease, Done)
        self._lease = lease.value
        self._now = START_MS
        self._records = 0

    @property
    def state(self) -> StreamsState:
        assert isinstance(self.scribe.state, StreamsState)
        return self.scribe.state

    async def _submit(self, command: Command) -> Result:
        self._now += 1
        return self.scribe.do(WRITER, command, self._now)

    async def step(self, kind: str, *facts: Any) -> None:
        match kind, facts:
            case "write", (made,):
                sent = []
                for stream, name, count, stamp in made:
                    first, self._records = self._records, self._records + count
                    sent.append((stream, name, [Rec(b"%d" % i, timestamp=stamp) for i in range(first, first + count)]))
                await self.writer.write(*sent, created_ms=self._now)
            case "end", (name, commit) if name in self.writer.open:
                await self.writer.end(name, commit=commit)
            case "settle", (file_bytes,):
                await self.settle(file_bytes)
            case "delete", (name, count):
                stream = self.state.streams[name]
                before = min(stream.log_start + count, stream.end)
                if before > stream.log_start:
                    await self.writer.delete(name, before, stream.settled)
            case "restore", ():
                restored = StreamsState(ONE)
                restored.restore(self.state.image())
                self.scribe.state = restored

    async def settle(self, file_bytes: int) -> bool:
        """Settle what one job takes; returns whether there was anything."""
        state = self.state
        streams = list(state.streams.values())
        plan = TopicPlan(TOPIC, table_root("t", TOPIC), streams, 1_000)
        limits = Limits(file_bytes=file_bytes, job_bytes=4 * file_bytes, min_task_bytes=1)
        job = plan_settle(state, [plan], store=self.store.url, prefix="1-1-", slots=2, limits=limits)
        waiting = any(stream.settled < stream.stable for stream in streams)
        assert waiting == bool(job) == any(pending_bytes(stream) for stream in streams)
        assert waiting or not lag_ms(state, streams, self._now + 1_000)
        facts: list[FileFacts] = []
        for task in job.tasks:
            facts += decode_facts(encode(await perform(self.store, decode_task(encode(task))))).files
        if not job:
            return False
        assert not any(fact.damaged for fact in facts)
        command = settle_command(state, self._lease, TOPIC, plan.root, facts)
        result = self.scribe.do(COMPACTOR, command, self._now)
        assert isinstance(result, Done), result
        return True

    def check(self) -> None:
        """No record of an open transaction is settled, and largest timestamps are those of the records."""
        for name, stream in self.state.streams.items():
            assert stream.settled <= stream.stable
            running = None
            for entry in stream.index:
                own = NO_TIMESTAMP if entry.marker else entry.max_timestamp
                running = own if running is None else max(running, own)
                assert entry.running_max_timestamp == running
            assert not any(s == name and at < stream.settled for s, at in self.writer.held())
            gone = {(a.producer, a.first) for a in stream.aborted if a.marker < stream.settled}
            assert not gone, "settled streams need no aborted transactions"
        assert self.rows() == {
            (name, at, rec.value)
            for name, records in self.writer.committed.items()
            for at, rec in records.items()
            if at < self.state.streams[name].settled
        }

    def rows(self) -> set[tuple[int, int, bytes]]:
        """Stream, offset and value of all rows. Files have them in the order of the log."""
        table = self.state.tables.get(TOPIC)
        found: list[tuple[int, int, bytes]] = []
        for file in table.live() if table is not None else ():
            assert table is not None
            rows = pq.read_table(io.BytesIO(self.store.objects[f"{table.root}/{file.name}"])).to_pylist()
            of_file = [(row["partition"] + 1, row["offset"], row["value"]) for row in rows]
            assert of_file == sorted(of_file)
            found += of_file
        assert len(found) == len(set(found))
        return set(found)

    def check_times(self) -> None:
        """All is settled: the index finds the largest time of the records that are left."""
        stream = self.state.streams[PLAIN_TIME]
        if stream.log_start == 0:
            times = [rec.timestamp for rec in self.writer.committed.get(PLAIN_TIME, {}).values()]
            assert stream.max_timestamp == max(times, default=NO_TIMESTAMP)
        for entry in (entry for stream in self.state.streams.values() for entry in stream.index):
            assert entry.settled
            assert bool(entry.file) or entry.max_timestamp == NO_TIMESTAMP


def check_doctor(state: StreamsState) -> None:
    """`headwater doctor` finds nothing."""
    report = Report()
    for stream in state.streams.values():
        check_stream(stream, report)
    check_references(state, report)
    check_tables(state, report)
    check_transactions(state, report)
    assert not report.findings


async def told(history: list[Any], commits: bool) -> None:
    made = History()
    for step in history:
        await made.step(*step)
        made.check()
        check_doctor(made.state)
    for name in made.writer.open:
        await made.writer.end(name, commit=commits)
    while await made.settle(300):
        made.check()
    assert all(stream.settled == stream.next_offset for stream in made.state.streams.values())
    made.check()
    made.check_times()
    check_doctor(made.state)


@promise("T1")
@settings(deadline=None, max_examples=examples(150))
@given(history=st.lists(steps, max_size=25), commits=st.booleans())
def test_histories(history: list[Any], commits: bool) -> None:
    run(told(history, commits))
