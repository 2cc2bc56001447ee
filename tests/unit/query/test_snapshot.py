"""Snapshots: whatever was written, aborted, skipped, settled, merged and deleted, each visible row is read once."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.virtual import SeededChance, run
from headwater.errors import BadInput
from headwater.lake.commands import replace_command, settle_command
from headwater.lake.merging import plan_merge
from headwater.lake.planning import Limits, TopicPlan, plan_settle, table_root
from headwater.lake.recutting import plan_merges
from headwater.lake.segments import NewSegment
from headwater.lake.spark.executor import perform
from headwater.lake.tasks import FileFacts
from headwater.log.batch import check_batch
from headwater.log.segment.rows import plain_rows, plain_schema
from headwater.log.wal import format as wal
from headwater.objects.memory import MemoryStore
from headwater.query.scan import scan, schema_of
from headwater.query.snapshot import Snapshot, take
from headwater.query.wanted import Wanted
from headwater.state.commands.base import SetLevel, TakeLease
from headwater.state.commands.streams import AppendUnits, CreateStreams, StartAt, StreamConfig, Unit, UnitChunk
from headwater.state.commands.tables import Fill, Release, Reserve, Retire, SegmentRun
from headwater.state.machine import LEVEL, LEVELS
from headwater.state.records import Command
from headwater.state.results import Appended, Done, Result
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.state import StreamsState
from headwater.state.streams.tables import Follower
from headwater.types import Domain, WalId
from tests.support.batches import Rec, batch
from tests.support.promise import promise
from tests.support.scribe import START_MS, TOPIC, Scribe
from tests.support.transactions import PLAIN, ObjectWriter
from tests.support.virtual_nodes import LAX

ONE = Domain(1)
WRITER, LEAPER, LOADER, COMPACTOR = 5, 6, 7, 9
PLAIN_TIME, APPEND_TIME = 1, 2
"""Two streams of a topic. The second is written with log-append time. Their partitions are 0 and 1."""
STREAMS = (PLAIN_TIME, APPEND_TIME)
IDS = ("a", "b")
ROOT = table_root("t", TOPIC)
Row = tuple[int, int, bytes]
"""Stream, offset, value."""

streams = st.sampled_from([PLAIN_TIME, PLAIN_TIME, APPEND_TIME])
parts = st.tuples(streams, st.sampled_from([PLAIN, PLAIN, *IDS]), st.integers(1, 3), st.integers(0, 50))
steps = st.one_of(
    st.tuples(st.just("write"), st.lists(parts, min_size=1, max_size=4)),
    st.tuples(st.just("write"), st.lists(parts, min_size=1, max_size=4)),
    st.tuples(st.just("end"), st.sampled_from(IDS), st.booleans()),
    st.tuples(st.just("end"), st.sampled_from(IDS), st.just(False)),
    st.tuples(st.just("leap"), streams, st.integers(0, 4)),
    st.tuples(st.just("reserve"), st.lists(streams, min_size=1, max_size=2, unique=True), st.integers(1, 3)),
    st.tuples(st.just("fill"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("settle"), st.sampled_from([1, 150, 400, 1 << 20])),
    st.tuples(st.just("merge")),
    st.tuples(st.just("recut")),
    st.tuples(st.just("retire"), st.integers(0, 3)),
    st.tuples(st.just("trim"), streams, st.integers(1, 6)),
    st.tuples(st.just("restore")),
)


class History:
    """A state, the objects that it names, what is done to them, and a model of the rows that this leaves."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.scribe = Scribe(StreamsState(ONE))
        self.scribe.do(WRITER, SetLevel(LEVEL, LEVELS[LEVEL]))
        for partition, stream in enumerate(STREAMS):
            self.scribe.do(WRITER, CreateStreams(TOPIC, partition, (stream,), StreamConfig(stream == APPEND_TIME)))
        self.writer = ObjectWriter(WRITER, self._submit, self.store, ONE)
        lease = self.scribe.do(COMPACTOR, TakeLease(COMPACTION, 1 << 40))
        assert isinstance(lease, Done)
        self._lease = lease.value
        self._now = START_MS
        self._records = self._objects = 0
        self._chance = SeededChance(1)
        self.reserved: list[int] = []
        self.bulk: dict[tuple[int, int], Rec] = {}
        """Rows of bulk appends, by stream and offset."""
        self.aborted: dict[tuple[int, int], Rec] = {}
        self.times: dict[int, dict[int, int]] = {stream: {} for stream in STREAMS}
        """Timestamps by stream and offset."""

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
                sent = [(stream, name, self._made(count, stamp)) for stream, name, count, stamp in made]
                await self.writer.write(*sent, created_ms=self._now)
            case "end", (name, commit) if name in self.writer.open:
                await self._end(name, commit)
            case "leap", (stream, gap):
                await self._leap(stream, gap)
            case "reserve", (chosen, count) if len(self.reserved) < 3:
                done = self.scribe.do(
                    LOADER, Reserve(TOPIC, [(s, count) for s in sorted(chosen)], 1_000_000), self._now
                )
                assert isinstance(done, Done)
                self.reserved.append(done.value)
            case "fill", (which, filled) if which < len(self.reserved):
                await self._close(self.reserved.pop(which), filled)
            case "settle", (file_bytes,):
                await self.settle(file_bytes)
            case "merge", ():
                await self._merge()
            case "recut", ():
                await self._recut()
            case "retire", (which,):
                self._retire(which)
            case "trim", (name, count):
                stream = self.state.streams[name]
                before = min(stream.log_start + count, stream.end)
                if before > stream.log_start:
                    self._cut(self.aborted, name, range(stream.settled, before))
                    await self.writer.delete(name, before, stream.settled)
            case "restore", ():
                restored = StreamsState(ONE)
                restored.restore(self.state.image())
                self.scribe.state = restored

    def _made(self, count: int, stamp: int) -> list[Rec]:
        first, self._records = self._records, self._records + count
        return [Rec(b"%d" % i, timestamp=stamp) for i in range(first, first + count)]

    @staticmethod
    def _cut(rows: dict[tuple[int, int], Rec], stream: int, gone: range) -> None:
        for at in [at for at in rows if at[0] == stream and at[1] in gone]:
            del rows[at]

    async def _end(self, name: str, commit: bool) -> None:
        open_rows = {(s, at): rec for s, at, rec in self.writer.written(name)}
        await self.writer.end(name, commit=commit)
        if not commit:
            self.aborted |= open_rows

    async def _leap(self, name: int, gap: int) -> None:
        """A unit that leaves a gap in front of its records."""
        stream = self.state.streams[name]
        self._objects += 1
        [made], at = self._made(1, 7), stream.next_offset + gap
        object_id, checked = WalId(LEAPER, self._objects), check_batch(batch([made]), LAX, 0)
        image = wal.build(object_id, ONE, self._now, self._now, [(name, [checked])], wal.UNITS)
        await self.store.put(wal.path_of("local", ONE, self._now, object_id), image.pieces)
        sizes = [(len(checked.data), checked.offsets, checked.max_timestamp)]
        chunk = UnitChunk(name, image.positions[0], sizes, [], b"")
        unit = Unit([StartAt(name, at)], [chunk])
        result = self.scribe.do(LEAPER, AppendUnits(self._objects, image.size, self._now, "local", [unit]), self._now)
        assert isinstance(result, Appended), result
        self.writer.committed.setdefault(name, {})[at] = made

    async def _close(self, number: int, filled: bool) -> None:
        found = self.state.reservations[number]
        if not filled:
            assert isinstance(self.scribe.do(LOADER, Release(number), self._now), Done)
            return
        segment, runs = NewSegment(), []
        for name, start, end in found.parts:
            made = self._made(end - start, 9)
            rows: list[dict[str, Any]] = [
                {"key": rec.key, "value": rec.value, "timestamp_ms": 9, "headers": []} for rec in made
            ]
            partition = self.state.streams[name].partition
            columns = pa.RecordBatch.from_pylist(rows, schema=plain_schema())
            segment.writer.add(partition, plain_rows(partition, start, columns, append_time=False))
            first, groups = segment.writer.end_part()
            runs.append(SegmentRun(name, start, end, 0, first, groups))
            self.bulk |= {(name, at): rec for at, rec in enumerate(made, start)}
        file = segment.close("_data/7-1-", self._chance)
        assert file is not None
        await self.store.put(f"{ROOT}/{file.name}", segment.pieces)
        done = self.scribe.do(LOADER, Fill(number, ROOT, [file], runs, [9] * len(runs)), self._now)
        assert isinstance(done, Done), done

    async def settle(self, file_bytes: int) -> None:
        plan = TopicPlan(TOPIC, ROOT, list(self.state.streams.values()), 1_000)
        own = int(file_bytes == 150)  # then each partition has files of its own
        limits = Limits(
            file_bytes=file_bytes, job_bytes=4 * file_bytes, min_task_bytes=1, partition_bytes=own, read_bytes=0
        )
        job = plan_settle(self.state, [plan], store=self.store.url, prefix="1-1-", slots=2, limits=limits)
        if facts := await self._perform(job.tasks):
            self._do(settle_command(self.state, self._lease, TOPIC, ROOT, facts))

    async def _merge(self) -> None:
        table = self.state.tables.get(TOPIC)
        if table is None:
            return
        limits = Limits(merge_files=2, file_bytes=1 << 30)
        job = plan_merge(
            [table], lambda _: list(self.state.streams.values()), store=self.store.url, prefix="1-2-", slots=1,
            limits=limits,
        )  # fmt: skip
        if facts := await self._perform(job.tasks):
            self._do(replace_command(self.state, self._lease, TOPIC, job.removed[TOPIC], facts))

    async def _recut(self) -> None:
        """Cut files of both partitions in two."""
        limits = Limits(merge_files=1 << 30, file_bytes=1 << 30, small_file_bytes=1, partition_bytes=1)
        tables, streams = list(self.state.tables.values()), list(self.state.streams.values())
        job = plan_merges(
            tables, lambda _: streams, store=self.store.url, prefix="1-3-", slots=1, limits=limits, cut={TOPIC}
        )
        if facts := await self._perform(job.tasks):
            self._do(replace_command(self.state, self._lease, TOPIC, job.removed[TOPIC], facts))

    def _retire(self, which: int) -> None:
        """The table's retention removes a file. The log may still read it."""
        table = self.state.tables.get(TOPIC)
        live = sorted(table.live(), key=lambda file: file.number) if table is not None else []
        if which >= len(live):
            return
        for stream, at, _ in self.rows_of(live[which].name):
            self.writer.committed.get(stream, {}).pop(at, None)
            self.bulk.pop((stream, at), None)
        self._do(Retire(self._lease, TOPIC, [live[which].number]))

    def rows_of(self, name: str) -> list[Row]:
        from pyarrow import parquet

        table = parquet.read_table(pa.BufferReader(self.store.objects[f"{ROOT}/{name}"]))
        return [(row["partition"] + 1, row["offset"], row["value"]) for row in table.to_pylist()]

    async def _perform(self, tasks: list[Any]) -> list[FileFacts]:
        facts: list[FileFacts] = []
        for task in tasks:
            facts += (await perform(self.store, task)).files
        assert not any(fact.damaged for fact in facts)
        return facts

    def _do(self, command: Command) -> None:
        done = self.scribe.do(COMPACTOR, command, self._now)
        assert isinstance(done, Done), done

    # --- reading -------------------------------------------------------------------------------------------

    def take(self, **wanted: Any) -> Snapshot:
        return take(self.state, TOPIC, self.state.streams.values(), Wanted(**wanted))

    async def scanned(self, snapshot: Snapshot, names: list[str] | None = None) -> list[Row]:
        found: list[Row] = []
        async for rows in scan(self.store, snapshot, names):
            assert rows.schema.equals(schema_of(names))
            found += [(row["partition"] + 1, row["offset"], row["value"]) for row in rows.to_pylist()]
        return found

    async def rows(self, **wanted: Any) -> list[Row]:
        return sorted(await self.scanned(self.take(**wanted)))

    def visible(self) -> list[Row]:
        """What readers of committed records must see."""
        rows = {(s, at): rec for s, made in self.writer.committed.items() for at, rec in made.items()} | self.bulk
        return sorted((s, at, rec.value or b"") for (s, at), rec in rows.items() if at < self.state.streams[s].stable)

    def visible_uncommitted(self) -> list[Row]:
        """What other readers must see: also open transactions, and aborted ones that are not settled."""
        rows = {(s, at): rec for s, made in self.writer.committed.items() for at, rec in made.items()} | self.bulk
        rows |= {(s, at): rec for name in self.writer.open for s, at, rec in self.writer.written(name)}
        rows |= {at: rec for at, rec in self.aborted.items() if at[1] >= self.state.streams[at[0]].settled}
        return sorted((s, at, rec.value or b"") for (s, at), rec in rows.items() if at < self.state.streams[s].end)

    async def check(self) -> None:
        visible = self.visible()
        assert await self.rows() == visible
        assert await self.rows(committed=False) == self.visible_uncommitted()
        assert await self.rows(partitions=[1]) == [row for row in visible if row[0] == APPEND_TIME]
        between = {0: 3, 1: 2}
        until = {0: 9, 1: 5}
        for snapshot in (self.take(), self.take(until_offsets=until), self.take(from_offsets=between)):
            self.check_cut(snapshot)
        assert await self.rows(from_offsets=between, until_offsets=until) == [
            row for row in visible if between[row[0] - 1] <= row[1] < until[row[0] - 1]
        ]

    def check_cut(self, snapshot: Snapshot) -> None:
        """Files that are not cut have no row beyond the bounds."""
        for file in snapshot.files:
            if file.path not in snapshot.cut:
                for stream, at, _ in self.rows_of(file.path.removeprefix(f"{ROOT}/")):
                    bounds = snapshot.bounds[stream - 1]
                    assert bounds.start <= at < bounds.end


async def told(history: list[Any]) -> None:
    made = History()
    for step in history:
        await made.step(*step)
        await made.check()
    for name in made.writer.open:
        await made._end(name, True)
    await made.settle(1 << 20)
    await made.check()


FOUR = [(PLAIN_TIME, PLAIN, 2, 5), (APPEND_TIME, PLAIN, 2, 6), (PLAIN_TIME, "a", 1, 7), (PLAIN_TIME, PLAIN, 1, 8)]
ABORTED = [("write", FOUR), ("end", "a", False), ("write", FOUR), ("settle", 1), ("end", "a", False), ("write", FOUR)]
BEHIND = [
    *(("write", FOUR), ("reserve", [PLAIN_TIME], 2), ("reserve", [PLAIN_TIME, APPEND_TIME], 3), ("write", FOUR)),
    *(("fill", 1, True), ("leap", PLAIN_TIME, 2), ("settle", 400), ("fill", 0, True), ("end", "a", True)),
    *(("settle", 1 << 20), ("leap", APPEND_TIME, 3), ("merge",), ("retire", 0)),
]
TRIMMED = [
    *(("write", FOUR), ("end", "a", True), ("settle", 150), ("write", FOUR), ("trim", PLAIN_TIME, 6), ("settle", 1)),
    *(("reserve", [PLAIN_TIME], 2), ("fill", 0, False), ("trim", PLAIN_TIME, 3), ("restore",), ("write", FOUR)),
]


@settings(deadline=None, max_examples=25)
@example(history=ABORTED)
@example(history=BEHIND)
@example(history=TRIMMED)
@given(history=st.lists(steps, min_size=4, max_size=14))
def test_each_visible_row_once(history: list[Any]) -> None:
    run(told(history))


async def _written(*history: Any) -> History:
    made = History()
    for step in history:
        await made.step(*step)
    return made


def test_segments_behind_an_open_reservation_are_not_shown_yet() -> None:
    """The table has them already: its newest version is not what may be read."""

    async def main() -> None:
        made = await _written(*BEHIND[:5])
        table = made.state.tables[TOPIC]
        assert [file.first_offset for file in table.live()] == [2]
        assert made.state.streams[PLAIN_TIME].stable == 2 and made.state.streams[APPEND_TIME].stable == 7
        assert [row[:2] for row in await made.rows()] == [(1, 0), (1, 1), *((2, at) for at in range(7))]
        snapshot = made.take()
        assert snapshot.version == 1 and len(snapshot.files) == 1 and snapshot.bounds[0].end == 2

    run(main())


def test_what_cannot_match_is_not_read() -> None:
    """By partition, offset and time, in files and in the WAL."""

    async def main() -> None:
        early, late = [(PLAIN_TIME, PLAIN, 2, 5)], [(PLAIN_TIME, PLAIN, 2, 50)]
        made = await _written(("write", early), ("settle", 1), ("write", late), ("settle", 1), ("write", early))
        await made.step("write", late)
        await made.step("write", [(APPEND_TIME, PLAIN, 1, 5)])
        everything = made.take()
        assert len(everything.files) == 2 and sum(len(part.runs) for part in everything.hot) == 3
        assert everything.wal_bytes > 0 < everything.file_bytes
        recent = made.take(from_ms=40, partitions=[0])
        assert len(recent.files) == 1 and [run.start for run in recent.hot[0].runs] == [6]
        assert [row[1] for row in await made.rows(from_ms=40, partitions=[0])] == [2, 3, 6, 7]
        old = made.take(until_ms=40)
        assert len(old.files) == 1 and [part.partition for part in old.hot] == [0], "append time is known exactly"
        assert [row[1] for row in await made.rows(until_ms=40)] == [0, 1, 4, 5]
        some = made.take(from_offsets={0: 3, 1: 9}, until_offsets={0: 5})
        assert len(some.files) == 1 and len(some.hot) == 1 and len(some.hot[0].runs) == 1 and 1 not in some.bounds
        assert [row[1] for row in sorted(await made.scanned(some))] == [3, 4]
        none = made.take(partitions=[])
        assert not none.files and not none.hot and await made.scanned(none) == []

    run(main())


def test_versions_of_the_table() -> None:
    """A version has what was settled then. One whose files may be gone is refused, not shown with fewer rows."""

    async def main() -> None:
        made = await _written(("write", FOUR[:2]), ("settle", 1 << 20), ("write", FOUR[:2]), ("settle", 1 << 20))
        await made.step("write", FOUR[:1])
        assert [len(await made.rows(version=version)) for version in (0, 1, 2)] == [0, 4, 8]
        assert len(await made.rows()) == 10
        await made.step("merge")
        assert [len(await made.rows(version=version)) for version in (1, 2, 3)] == [4, 8, 8]
        table = made.state.tables[TOPIC]
        assert len(made.take(version=2).files) == 2 and len(made.take(version=3).files) == 1
        for number in [number for number, file in table.files.items() if file.removed]:
            del table.files[number]
        assert len(await made.rows(version=3)) == 8
        with pytest.raises(BadInput, match="version 2 has expired"):
            made.take(version=2)
        with pytest.raises(BadInput, match="there is no version 4: the newest is 3"):
            made.take(version=4)
        with pytest.raises(BadInput, match="no partition 2: it has 0 to 1"):
            made.take(partitions=[2])

    run(main())


@promise("Q2", "T5")
def test_versions_that_the_journal_has_forgotten() -> None:
    """They are shown as long as a follower or a hold keeps all of their files."""

    async def main() -> None:
        made = await _written(*[("write", FOUR[:1]), ("settle", 1 << 20)] * 3)
        table = made.state.tables[TOPIC]
        del table.journal[:2]
        with pytest.raises(BadInput, match="version 1 is too old: the oldest that is known is 2"):
            made.take(version=1)
        table.followers["iceberg"] = Follower(3, 1, "", 3, (1,))
        assert len(await made.rows(version=1)) == 2
        table.followers.clear()
        made.state.held.take(WRITER, 0).versions[(TOPIC, 1)] = None
        assert len(await made.rows(version=1)) == 2

    run(main())


def test_a_topic_without_records_and_one_that_is_deleted() -> None:
    async def main() -> None:
        made = await _written()
        snapshot = made.take()
        assert snapshot.version == 0 and await made.scanned(snapshot) == []
        await made.step("write", FOUR[:1])
        await made.settle(1)
        made.state.tables[TOPIC].dropped = True
        assert not made.take().files

    run(main())
