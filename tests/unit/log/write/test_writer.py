"""The write path: gathering, order, acknowledgement after the commit only, failures."""

import asyncio
from typing import Any

import pytest

from harness.virtual import EPOCH_MS, run
from headwater.errors import EpochLost, HeadwaterError, NotReady, OutcomeUnknown, StoreUnavailable
from headwater.log.batch import TRANSACTIONAL_BIT
from headwater.log.wal import format as wal
from headwater.log.write.part import Outcome
from headwater.settings.settings import Profile, Wal
from headwater.state.commands.base import Fence
from headwater.state.commands.streams import AppendUnits, AppendWal, Mode
from headwater.state.results import Verdict
from headwater.types import Pieces, WalId
from tests.support.batches import Rec, batch, data_of, values
from tests.support.promise import promise
from tests.support.transactions import Transactor
from tests.support.virtual_nodes import ONE, NodeWorld, read, send, sent, topic, way_of

PROMISES = ("L1", "L3", "L5", "K3", "K11")

ACCEPTED = Verdict.ACCEPTED


def profile(**changes: int) -> Profile:
    base = {"object_bytes": 1 << 20, "min_interval_ms": 0, "gather_ms": 0, "flushes": 1}
    return Profile(**(base | changes))


def numbered(i: int) -> bytes:
    return batch([f"{i}".encode()])


@promise("L1")
def test_an_append() -> None:
    """Its outcome says where it is; the object lies where the index says, and holds what was sent."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        streams = (await topic(node, partitions=2)).streams
        data = batch([b"a", b"b"])
        assert await sent(node, streams[0], data) == Outcome(ACCEPTED, 0, 0, -1)
        assert await sent(node, streams[0], data) == Outcome(ACCEPTED, 2, 0, -1)
        assert await sent(node, streams[1], data) == Outcome(ACCEPTED, 0, 0, -1)
        paths = world.wal_paths()
        assert [wal.id_of_path(path) for path in paths] == [WalId(1, 1), WalId(1, 2), WalId(1, 3)]
        found = wal.parse(world.store.objects[paths[2]])
        assert (found.id, found.domain, [c.stream for c in found.chunks]) == (WalId(1, 3), 1, [streams[1]])
        assert values(await read(node, streams[0])) == [(0, b"a"), (1, b"b"), (2, b"a"), (3, b"b")]

    run(told())


@promise("L3")
def test_what_arrives_together_is_stored_together() -> None:
    """One object and one record for all streams, in the order of arrival per stream."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(wal=Wal(latency=profile()))
        streams = (await topic(node, partitions=3)).streams
        before = await world.ledger.last(ONE)
        outcomes = await asyncio.gather(*(send(node, streams[i % 3], numbered(i)) for i in range(30)))
        assert world.store.puts == 1
        assert await world.ledger.last(ONE) == before + 1
        assert [o.offset for o in outcomes if isinstance(o, Outcome)] == [i // 3 for i in range(30)]
        for s, stream in enumerate(streams):
            assert [v for _, v in values(await read(node, stream))] == [f"{i}".encode() for i in range(s, 30, 3)]

    run(told())


@promise("L1")
def test_never_acknowledged_before_the_commit() -> None:
    """Not while the object is on its way, nor while its record is."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        world.store.gate.clear()
        done = send(node, stream, numbered(0))
        await asyncio.sleep(5)
        assert not done.done()
        assert world.wal_paths() == []
        way_of(node).gate.clear()
        world.store.gate.set()
        await asyncio.sleep(5)
        assert not done.done()
        assert len(world.wal_paths()) == 1
        assert node.domains[ONE].state.streams[stream].next_offset == 0
        way_of(node).gate.set()
        assert isinstance(await done, Outcome)

    run(told())


@promise("L1")
def test_uploads_overlap_and_order_is_kept() -> None:
    """A slow upload does not let a later one overtake it in the ledger."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(wal=Wal(latency=profile(flushes=4)))
        [stream] = (await topic(node)).streams
        waiting = []
        for i in range(8):
            world.store.put_seconds = 0.5 if i % 3 == 0 else 0.01
            waiting.append(send(node, stream, numbered(i)))
            await asyncio.sleep(0.02)
        outcomes = await asyncio.gather(*waiting)
        assert [o.offset for o in outcomes if isinstance(o, Outcome)] == list(range(8))
        assert values(await read(node, stream)) == [(i, f"{i}".encode()) for i in range(8)]
        assert world.store.puts > 1

    run(told())


@promise("L5")
@pytest.mark.parametrize("again", [0.001, 0.008], ids=["quick clients", "clients slower than a flush"])
def test_a_window_of_requests_shares_a_flush(again: float) -> None:
    """Clients that were just answered are given a moment to send again, so that nobody's window is torn in two."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(wal=Wal(latency=profile(gather_ms=10)))
        [stream] = (await topic(node)).streams
        world.store.put_seconds = 0.005

        async def client(first_at: float) -> None:
            await asyncio.sleep(first_at)
            for i in range(20):
                await sent(node, stream, numbered(i))
                await asyncio.sleep(again)  # what it takes a client to send again

        await asyncio.gather(*(client(at) for at in (0, 0.001, 0.002, 0.003, 0.004)))
        assert world.store.puts <= 25  # 100 batches by twos and threes would be 40 flushes

    run(told())


@promise("L5")
def test_clients_that_do_not_come_back_are_not_waited_for() -> None:
    """A steady trickle waits for nobody, but for a look every now and then whether that has changed."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(wal=Wal(latency=profile(gather_ms=2)))
        [stream] = (await topic(node)).streams
        world.store.put_seconds = 0.004
        loop, late = asyncio.get_running_loop(), 0
        for i in range(256):
            burst = [send(node, stream, numbered(i)) for _ in range(10 if i % 2 else 2)]
            began = loop.time()
            await asyncio.gather(*burst)
            late += loop.time() - began > 0.0045
            await asyncio.sleep(0.1)
        assert 0 < late <= 16

    run(told())


@promise("L5")
def test_the_interval() -> None:
    """The cost profile makes few objects, unless one is full before its time."""

    async def told() -> None:
        world = NodeWorld()
        cost = profile(min_interval_ms=200, object_bytes=1000, flushes=4)
        node = await world.node(wal=Wal(cost=cost))
        [stream] = (await topic(node)).streams
        waiting = []
        for i in range(100):
            waiting.append(send(node, stream, numbered(i), "cost"))
            await asyncio.sleep(0.01)
        await asyncio.gather(*waiting)
        small = len(numbered(0))
        most_in_one = 1000 // small
        assert 1.0 / 0.2 <= world.store.puts <= 2 + 100 / most_in_one * 2
        puts = world.store.puts
        started = asyncio.get_running_loop().time()
        await asyncio.gather(*(send(node, stream, numbered(i), "cost") for i in range(most_in_one * 5)))
        assert asyncio.get_running_loop().time() - started < 0.25, "a full object does not wait"
        assert world.store.puts - puts <= 7
        lone = asyncio.get_running_loop().time()
        await asyncio.sleep(1)
        await sent(node, stream, numbered(1), "cost")
        assert asyncio.get_running_loop().time() - lone < 1.05, "after a pause the first goes at once"

    run(told())


@promise("L5")
def test_objects_are_bounded() -> None:
    """Never more than the profile's bytes in one object, except for a single larger batch."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(wal=Wal(latency=profile(object_bytes=500)))
        [stream] = (await topic(node)).streams
        parts = [numbered(0), batch([b"x" * 2000]), *(numbered(i) for i in range(10))]
        await asyncio.gather(*(send(node, stream, part) for part in parts))
        sizes = [[c.batches for c in wal.parse(world.store.objects[p]).chunks] for p in world.wal_paths()]
        each = len(numbered(1))
        assert sizes[:2] == [[1], [1]]
        assert all(count <= 500 // each for [count] in sizes)
        assert sum(count for [count] in sizes) == 12

    run(told())


@promise("L5")
def test_a_slow_profile_does_not_hold_up_the_other() -> None:
    """Each has a pipeline of its own; sequences of one epoch never meet."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        thrifty, quick = (await topic(node, partitions=2)).streams
        await sent(node, thrifty, numbered(0), "cost")
        slow = send(node, thrifty, numbered(1), "cost")
        assert (await sent(node, quick, numbered(2), "latency")).offset == 0
        assert not slow.done()
        outcome = await slow
        assert isinstance(outcome, Outcome)
        assert outcome.offset == 1
        assert len({wal.id_of_path(p) for p in world.wal_paths()}) == 3

    run(told())


# --- what fails ----------------------------------------------------------------------------------------


@promise("L1")
def test_a_failed_upload() -> None:
    """Is answered as retriable, enters nothing, and does not hold up what comes after."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(wal=Wal(latency=profile(flushes=2)))
        [stream] = (await topic(node)).streams
        world.store.put_errors = [StoreUnavailable("no"), StoreUnavailable("no")]
        before = await world.ledger.last(ONE)
        for i in range(2):
            with pytest.raises(StoreUnavailable):
                await sent(node, stream, numbered(i))
        assert await world.ledger.last(ONE) == before
        assert (await sent(node, stream, numbered(9))).offset == 0

    run(told())


@promise("L3")
def test_a_definitely_failed_commit_removes_the_object() -> None:
    """For certain nothing will ever name it."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        way_of(node).faults = [(False, StoreUnavailable("no"))]
        with pytest.raises(StoreUnavailable):
            await sent(node, stream, numbered(0))
        await asyncio.sleep(0.1)
        assert world.wal_paths() == []
        assert (await sent(node, stream, numbered(1))).offset == 0

    run(told())


@promise("L1")
def test_an_unknown_commit_is_settled() -> None:
    """The record is repeated until one stands; the client gets the one true answer."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        way_of(node).faults = [(True, OutcomeUnknown("?")), (True, OutcomeUnknown("?"))]
        assert (await sent(node, stream, numbered(0))).offset == 0
        assert (await sent(node, stream, numbered(1))).offset == 1

    run(told())


@promise("L3", "K11")
def test_an_object_of_which_nothing_was_accepted_is_removed() -> None:
    """A duplicate is answered with its first offset and costs no storage."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        first = batch([b"a", b"b"], producer=(7, 0, 0))
        await sent(node, stream, numbered(0))
        assert (await sent(node, stream, first)).offset == 1
        assert await sent(node, stream, first) == Outcome(Verdict.DUPLICATE, 1, 0, Rec(b"a").timestamp)
        assert (await sent(node, stream, batch([b"x"], producer=(7, 0, 9)))).verdict is Verdict.OUT_OF_ORDER
        assert (await sent(node, 12345, numbered(0))).verdict is Verdict.NO_STREAM
        await asyncio.sleep(0.1)
        assert len(world.wal_paths()) == 2

    run(told())


@promise("L3", "M2")
def test_a_fenced_writer() -> None:
    """What is under way fails retriably, its object stays until it is swept; a new epoch goes on."""

    async def told() -> None:
        world = NodeWorld()
        node, other = await world.node(1), await world.node(2)
        [stream] = (await topic(node)).streams
        world.store.gate.clear()
        late = send(node, stream, numbered(0))
        await asyncio.sleep(0.01)
        await other.cluster.submit([Fence(1)])
        await other.domains[ONE].submit([Fence(1)])
        await asyncio.sleep(5)
        world.store.gate.set()
        assert isinstance(await late, EpochLost)
        await asyncio.sleep(1)
        assert [wal.id_of_path(p) for p in world.wal_paths()] == [WalId(1, 1)]
        assert (await sent(node, stream, numbered(1))).offset == 0
        epoch = node.membership.epoch
        assert epoch > 2
        assert wal.id_of_path(world.wal_paths()[-1]) == WalId(epoch, 1), "sequences start over"

    run(told())


@promise("M2")
def test_without_an_epoch() -> None:
    """Nothing is uploaded."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        node.writers.join(type(node.membership.epoch)(0))
        with pytest.raises(EpochLost):
            await sent(node, stream, numbered(0))
        assert world.store.puts == 0

    run(told())


@promise("M5")
def test_draining() -> None:
    """What was taken is finished, what comes later is told to try elsewhere."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        taken = [send(node, stream, numbered(i), "cost") for i in range(5)]
        draining = asyncio.create_task(node.writers.drain())
        await asyncio.sleep(0)
        await draining
        outcomes: list[Outcome | HeadwaterError] = list(await asyncio.gather(*taken))
        assert all(isinstance(o, Outcome) for o in outcomes)
        late = send(node, stream, numbered(9))
        assert not late.done(), "never from within the call"
        assert isinstance(await late, NotReady)

    run(told())


@promise("L2")
def test_wall_clock() -> None:
    """An object's path carries the day it was made."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        await sent(node, stream, numbered(0))
        [path] = world.wal_paths()
        made = wal.parse(world.store.objects[path]).created_ms
        assert EPOCH_MS <= made <= EPOCH_MS + 60_000
        assert path == wal.path_of("local", 1, made, WalId(1, 1))

    run(told())


@promise("L3")
def test_an_unexpected_failure_of_a_flush_ends_the_process() -> None:
    """The flushes behind it would wait for it for ever."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(wal=Wal(latency=profile(flushes=2)))
        [stream] = (await topic(node)).streams

        right = world.store.put

        async def put(path: str, pieces: Pieces) -> None:
            if path.startswith(wal.ROOT):
                raise RuntimeError("planted")
            await right(path, pieces)

        world.store.put = put  # type: ignore[method-assign, assignment]
        send(node, stream, numbered(0))
        await asyncio.sleep(1)
        assert "writer-1-latency" in str(node.background.failure)
        assert node.background.status == "unhealthy"
        await node.stop()  # it does not wait for what never ends

    run(told())


@promise("K12")
def test_only_batches_of_transactions_need_units() -> None:
    """An object without them is entered as before, so that a cluster of an older level understands it."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        streams = (await topic(node, partitions=2)).streams
        replica, entered = node.domains[ONE], []
        enqueue = replica.enqueue

        def noting(commands: list[Any], *arguments: Any, **options: Any) -> Any:
            entered.extend(commands)
            return enqueue(commands, *arguments, **options)

        replica.enqueue = noting  # type: ignore[method-assign]
        one = await Transactor.at(node, "a", 500)
        await one.join(streams[1])
        entered.clear()
        await sent(node, streams[0], batch([b"x"], producer=(7, 0, 0)))
        await asyncio.gather(
            send(node, streams[0], numbered(1)),
            send(node, streams[1], numbered(2)),
            send(node, streams[1], one.batch(streams[1], [b"y"])),
            send(node, streams[1], one.batch(streams[1], [b"z"]), joins=True),
        )
        assert [type(command) for command in entered] == [AppendWal, AppendUnits]
        [unit] = entered[1].units
        assert unit.conditions == []
        assert [(chunk.stream, list(chunk.modes)) for chunk in unit.chunks] == [
            (streams[0], []), (streams[1], [Mode.PLAIN, Mode.JOINED, Mode.JOINS]),
        ]  # fmt: skip
        assert values(await read(node, streams[1])) == [(0, b"2"), (1, b"y"), (2, b"z")]

    run(told())


@promise("K12")
def test_batches_that_are_not_of_an_open_transaction() -> None:
    """Each is refused alone, and says why; what lies beside it in the object is written."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [stream] = (await topic(node)).streams
        one = await Transactor.at(node, "a", 500)
        early = one.batch(stream, [b"early"])
        outcomes = await asyncio.gather(
            send(node, stream, early),
            send(node, stream, batch([b"x"], producer=(9, 0, 0), attributes=TRANSACTIONAL_BIT), joins=True),
            send(node, stream, batch([b"x"], producer=(500, 1, 0), attributes=TRANSACTIONAL_BIT), joins=True),
            send(node, stream, numbered(0)),
            send(node, stream, early, joins=True),
            send(node, stream, early, joins=True),
            send(node, stream, batch([b"x"], producer=(500, 0, 1))),
        )
        assert [o.verdict for o in outcomes if isinstance(o, Outcome)] == [
            Verdict.NOT_JOINED, Verdict.NO_TRANSACTION, Verdict.STALE_PRODUCER, ACCEPTED, ACCEPTED, Verdict.DUPLICATE,
            Verdict.IN_TRANSACTION,
        ]  # fmt: skip
        await one.end(commit=True)
        assert (await sent(node, stream, early, joins=True)).verdict is Verdict.STALE_PRODUCER
        assert values(data_of(await read(node, stream))) == [(0, b"0"), (1, b"early")]

    run(told())
