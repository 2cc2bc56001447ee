"""Both tables hold exactly the committed records, also if the compactor dies before or after any write.

Transactions overlap, are aborted, last over several rounds of settling, and are open while others settle. After
settling, the log has the same records, and look-ups by time find them.
"""

import asyncio
from pathlib import Path

import pytest

from harness.virtual import EPOCH_MS, SeededChance, VirtualClock, run
from headwater.app.node import Node
from headwater.log.reader import ReadResult, Want
from headwater.replica.domains import Domains
from headwater.state.cluster.domain import Topic
from headwater.state.streams.stream import Stream
from tests.support.batches import Rec
from tests.support.bulk import Loader, numbered
from tests.support.lake import ONE, Fate, LakeWorld, Row, files_left, log_rows
from tests.support.promise import promise
from tests.support.soak import dealt, first_middle_last
from tests.support.transactions import PLAIN, ObjectWriter, Sent, submitting
from tests.support.virtual_nodes import topic

PROMISES = ("T1", "T2", "K5")

pytestmark = pytest.mark.long
ROUNDS = 10
LONG, SHORT, DOOMED = "long", "short", "doomed"
"""Transactional ids: one whose transactions last over several rounds, one that ends in each round, by turns committed
and aborted, and one that only aborts."""


class Writing:
    """A process that writes transactions to all partitions of a topic."""

    def __init__(self, world: LakeWorld, made: Topic) -> None:
        self._topic = made
        self._domains = Domains(world.ledger, world.store, VirtualClock(), SeededChance(77))
        self._store = world.store

    async def start(self) -> None:
        await self._domains.follow()
        await self._domains.join()
        replica = self._domains[ONE]
        self.by = ObjectWriter(replica.epoch, submitting(replica), self._store, ONE)

    async def close(self) -> None:
        await self._domains.leave()

    async def round(self, number: int) -> None:
        """One object with batches of all, or of the doomed one only; then some of the transactions end."""
        alone = number % 5 == 3
        parts: list[Sent] = []
        for partition, stream in enumerate(self._topic.streams):
            for name in (DOOMED,) if alone else (PLAIN, LONG, PLAIN, SHORT, DOOMED, LONG):
                time = EPOCH_MS + number * 10 + (1_000 if name == DOOMED else 0)
                value = b"%d-%d-%s" % (number, partition, name.encode())
                parts.append((stream, name, [Rec(value + b"-%d" % i, timestamp=time + i) for i in range(2)]))
        await self.by.write(*parts, created_ms=EPOCH_MS)
        if not alone:
            await self.by.end(SHORT, commit=number % 2 == 0)
        await self.by.end(DOOMED, commit=False)
        if number % 4 == 2:
            await self.by.end(LONG, commit=number % 8 == 2)

    async def finish(self) -> None:
        for name in self.by.open:
            await self.by.end(name, commit=True)

    def rows(self, below: dict[int, int]) -> list[Row]:
        """The committed records, below an offset of each stream."""
        return [
            (partition, offset, rec.timestamp, rec.key, rec.value, ())
            for partition, stream in enumerate(self._topic.streams)
            for offset, rec in sorted(self.by.committed.get(stream, {}).items())
            if offset < below[stream]
        ]


def streams_of(node: Node, made: Topic) -> list[Stream]:
    return [node.domains[ONE].state.streams[stream] for stream in made.streams]


def check_tables(world: LakeWorld, node: Node, made: Topic, writing: Writing) -> None:
    """Both tables have the committed records up to the stable offset."""
    world.lay_out()
    wanted = writing.rows({stream.id: stream.stable for stream in streams_of(node, made)})
    assert [stream.settled for stream in streams_of(node, made)] == [s.stable for s in streams_of(node, made)]
    assert world.iceberg_rows(node, made) == wanted
    assert world.delta_rows(node, made) == wanted


async def check_log(node: Node, made: Topic, writing: Writing) -> None:
    """All is settled: the log has the committed records, from every offset on and at both isolations, and finds them by
    their time."""
    rows = writing.rows({stream.id: stream.next_offset for stream in streams_of(node, made)})
    assert await log_rows(node, made) == rows
    reader, replica = node.broker.reader, node.domains[ONE]
    for partition, stream in enumerate(streams_of(node, made)):
        times = [(offset, time) for p, offset, time, *_ in rows if p == partition]
        largest = max(time for _, time in times)
        for wanted in sorted({time for _, time in times} | {largest + 1, EPOCH_MS + 1_000, 0}):
            found = await reader.find_time(replica, stream.id, wanted)
            first = next(((offset, time) for offset, time in times if time >= wanted), None)
            assert (None if found is None else (found.offset, found.timestamp)) == first
        newest = await reader.find_max_timestamp(replica, stream.id)
        assert newest is not None
        assert (newest.offset, newest.timestamp) == next(one for one in times if one[1] == largest)
        assert stream.settled == stream.end, "the next check is about settled segments"
        for offset in range(stream.log_start, stream.end):
            wants = [Want(replica, stream.id, offset, 1 << 20, committed) for committed in (False, True)]
            every, committed = await reader.read_many(wants, 1 << 21)
            assert isinstance(every, ReadResult) and isinstance(committed, ReadResult)
            assert every.records, f"a consumer is stuck at {offset}"
            assert bytes(every.records) == bytes(committed.records)
            assert not every.aborted and not committed.aborted


async def story(world: LakeWorld, fate: Fate) -> list[str]:
    """Write and settle until the compactor dies or all is done; then have another one finish."""
    node = await world.node()
    made = await topic(node, partitions=2)
    writing = Writing(world, made)
    await writing.start()
    first = await world.compaction(fate)
    number = 0
    while number < ROUNDS and not fate.dead:
        await writing.round(number)
        await asyncio.sleep(0.05)
        if await fate.outlived(first.round()) and fate.left is None:
            await node.domains[ONE].barrier()
            check_tables(world, node, made, writing)
        number += 1
    if not fate.dead:
        await fate.outlived(first.finish())
    await first.abandon()
    for later in range(number, ROUNDS):
        await writing.round(later)
    await asyncio.sleep(10)  # of virtual time: the broker sees that the beats have stopped
    second = await world.compaction()
    await second.finish()
    await node.domains[ONE].barrier()
    assert writing.by.open, "a transaction is open while all others are settled"
    check_tables(world, node, made, writing)
    await writing.finish()
    await second.finish()
    await node.domains[ONE].barrier()
    check_tables(world, node, made, writing)
    assert all(stream.settled == stream.next_offset for stream in streams_of(node, made))
    assert not any(len(stream.aborted) for stream in streams_of(node, made))
    await check_log(node, made, writing)
    stored, known = files_left(world, node)
    assert stored == known
    await second.close()
    await writing.close()
    await node.stop()
    return fate.steps


@promise("T1")
def test_nobody_dies(tmp_path: Path) -> None:
    """The tables show the committed records after every round."""
    steps = run(story(LakeWorld(tmp_path / "objects"), Fate()))
    assert any(step.startswith("append") and "Settle" in step for step in steps)
    assert any(step.startswith("append") and "Replace" in step for step in steps)


@promise("L6", "T1")
def test_retention_waits_for_an_open_transaction(tmp_path: Path) -> None:
    """Records older than their retention get into the tables before the log forgets them."""

    async def told() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, retention_ms="60000")
        [stream] = streams_of(node, made)
        writing, compaction = Writing(world, made), await world.compaction()
        await writing.start()
        rec = [Rec(b"old", timestamp=EPOCH_MS)]
        await writing.by.write(
            (stream.id, PLAIN, rec), (stream.id, LONG, rec), (stream.id, PLAIN, rec), created_ms=EPOCH_MS
        )
        await asyncio.sleep(3_000)  # of virtual time
        for _ in range(2):
            await compaction.finish(2)
            await node.housekeeper.round()
        await node.domains[ONE].barrier()
        assert (stream.log_start, stream.settled, stream.stable, stream.end) == (0, 1, 1, 3)
        await asyncio.sleep(90)  # longer than the grace of what has come into the table
        await node.housekeeper.round()
        assert stream.log_start == 1
        await writing.by.end(LONG, commit=True)
        await node.housekeeper.round()
        assert stream.log_start == 1
        await compaction.finish(2)
        await node.domains[ONE].barrier()
        check_tables(world, node, made, writing)
        assert len(world.delta_rows(node, made)) == 3
        await asyncio.sleep(90)
        await node.housekeeper.round()
        assert stream.log_start == 4
        await compaction.close()
        await writing.close()
        await node.stop()

    run(told())


@promise("T1")
def test_a_topic_with_an_aborted_transaction_only(tmp_path: Path) -> None:
    """Its table is empty, its consumers go on, and its log starts where it did."""

    async def told() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, retention_ms="60000")
        [stream] = streams_of(node, made)
        writing, compaction = Writing(world, made), await world.compaction()
        await writing.start()
        await writing.by.write((stream.id, DOOMED, [Rec(b"gone", timestamp=EPOCH_MS)] * 3), created_ms=EPOCH_MS)
        await writing.by.end(DOOMED, commit=False)
        await asyncio.sleep(1)
        await compaction.finish(2)
        await node.domains[ONE].barrier()
        check_tables(world, node, made, writing)
        assert stream.settled == stream.next_offset == 4
        assert await log_rows(node, made) == []
        assert await node.broker.reader.find_time(node.domains[ONE], stream.id, 0) is None
        await asyncio.sleep(3_000)
        await node.housekeeper.round()
        assert stream.log_start == 0
        stored, _ = files_left(world, node)
        assert not stored
        await writing.by.write((stream.id, PLAIN, [Rec(b"kept", timestamp=EPOCH_MS + 9_000_000)]), created_ms=EPOCH_MS)
        await asyncio.sleep(1)
        await compaction.finish(2)
        await node.domains[ONE].barrier()
        check_tables(world, node, made, writing)
        await check_log(node, made, writing)
        await compaction.close()
        await writing.close()
        await node.stop()

    run(told())


@promise("T1", "L8")
@pytest.mark.parametrize("commit", [False, True], ids=["aborted", "committed"])
def test_a_bulk_append_inside_a_transaction(tmp_path: Path, commit: bool) -> None:
    """Its rows are in the tables at once, and the records around them when the transaction has ended."""

    async def told() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node)
        [stream] = streams_of(node, made)
        writing, compaction = Writing(world, made), await world.compaction()
        await writing.start()
        await writing.by.write((stream.id, PLAIN, [Rec(b"a")]), (stream.id, LONG, [Rec(b"b")]), created_ms=EPOCH_MS)
        loader = await Loader(world).start()
        await loader.bulk(made).append(numbered(5))
        await writing.by.write((stream.id, LONG, [Rec(b"c")]), (stream.id, PLAIN, [Rec(b"d")]), created_ms=EPOCH_MS)
        await asyncio.sleep(1)
        await compaction.finish()
        await node.domains[ONE].barrier()
        world.lay_out()
        bulk = [b"bulk-%d" % i for i in range(5)]
        assert [value for *_, value, _ in world.delta_rows(node, made)] == [b"a", *bulk]
        assert (stream.settled, stream.stable, stream.end) == (1, 1, 9)
        await writing.by.end(LONG, commit=commit)
        await compaction.finish()
        await node.domains[ONE].barrier()
        world.lay_out()
        around = [b"b"] if commit else [], [b"c"] if commit else []
        rows = world.delta_rows(node, made)
        assert [value for *_, value, _ in rows] == [b"a", *around[0], *bulk, *around[1], b"d"]
        assert rows == world.iceberg_rows(node, made) == await log_rows(node, made)
        assert stream.settled == stream.end == 10
        assert not len(stream.aborted)
        for process in (loader, compaction, writing):
            await process.close()
        await node.stop()

    run(told())


@promise("T1", "T2")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_every_write(tmp_path: Path, after: bool) -> None:
    """The first, the middle and the last write of each kind, every other one before and the rest after it; all
    of them both ways in the soak."""
    for step in dealt(first_middle_last(run(story(LakeWorld(tmp_path / "objects"), Fate()))), after, 2):
        fate = Fate(step, after=after)
        try:
            run(story(LakeWorld(tmp_path / "objects"), fate))
        except BaseException as error:
            raise AssertionError(f"died {'after' if after else 'before'} write {step}: {fate.steps[-1]}") from error
