"""Batches that came before their predecessors wait for them, for a moment."""

import asyncio

from harness.virtual import EPOCH_MS, run
from headwater.app.node import Node
from headwater.log.write.part import Outcome
from headwater.settings.settings import Wal
from headwater.state.results import Verdict
from tests.support.batches import batch, values
from tests.support.promise import promise
from tests.support.transactions import Transactor
from tests.support.virtual_nodes import ONE, NodeWorld, read, send, sent, topic

PROMISES = ("K11", "M2")

PID = 7
WAL = Wal(hold_ms=500)


def produced(first: int, records: int = 1, epoch: int = 0) -> bytes:
    return batch([f"{first + i}".encode() for i in range(records)], producer=(PID, epoch, first))


async def two_nodes() -> tuple[NodeWorld, Node, Node, int]:
    """Two nodes that have both written to the domain, and a stream."""
    world = NodeWorld()
    one, two = await world.node(1, wal=WAL), await world.node(2, wal=WAL)
    [stream] = (await topic(one)).streams
    await two.domains[ONE].barrier()
    await two.cluster.barrier()
    other = (await topic(two, "other")).streams[0]
    await sent(two, other, batch([b"x"]))
    await sent(one, other, batch([b"x"]))
    return world, one, two, stream


@promise("K11", "M2")
def test_a_batch_waits_for_its_predecessors() -> None:
    """Which come through the other broker."""

    async def told() -> None:
        _, one, two, stream = await two_nodes()
        early = send(two, stream, produced(2))
        later = send(two, stream, produced(3))
        await asyncio.sleep(0.1)
        assert not early.done()
        assert (await sent(one, stream, produced(0, 2))).offset == 0
        outcomes = [await early, await later]
        assert outcomes == [Outcome(Verdict.ACCEPTED, 2, 0, -1), Outcome(Verdict.ACCEPTED, 3, 0, -1)]
        await one.domains[ONE].barrier()
        assert values(await read(one, stream)) == [(i, f"{i}".encode()) for i in range(4)]

    run(told())


@promise("K11")
def test_but_not_for_ever() -> None:
    """After a moment `apply` decides, and says that the partition moved: the client sends again."""

    async def told() -> None:
        _, _, two, stream = await two_nodes()
        loop = asyncio.get_running_loop()
        started = loop.time()
        outcome = await sent(two, stream, produced(5))
        assert outcome.verdict is Verdict.MOVED
        assert 0.5 <= loop.time() - started < 0.7
        assert (await sent(two, stream, produced(0, 5))).offset == 0
        assert (await sent(two, stream, produced(5))).offset == 5

    run(told())


@promise("K11")
def test_held_batches_go_in_the_order_of_their_sequences() -> None:
    """Whatever the order they came in."""

    async def told() -> None:
        _, one, two, stream = await two_nodes()
        waiting = {first: send(two, stream, produced(first)) for first in (4, 2, 3, 1)}
        await asyncio.sleep(0.05)
        assert (await sent(one, stream, produced(0))).offset == 0
        for first, outcome in waiting.items():
            assert await outcome == Outcome(Verdict.ACCEPTED, first, 0, -1)

    run(told())


@promise("K11")
def test_a_gap_filled_here() -> None:
    """The missing batch arrives at the same broker after those it held."""

    async def told() -> None:
        _, _, two, stream = await two_nodes()
        early = send(two, stream, produced(1))
        await asyncio.sleep(0.05)
        assert not early.done()
        first = send(two, stream, produced(0))
        assert await first == Outcome(Verdict.ACCEPTED, 0, 0, -1)
        assert await early == Outcome(Verdict.ACCEPTED, 1, 0, -1)

    run(told())


@promise("K11", "M2")
def test_a_newer_epoch_waits_for_its_first_batches() -> None:
    """They come through the other broker, after batches of the older epoch that are known here."""

    async def told() -> None:
        _, one, two, stream = await two_nodes()
        assert (await sent(two, stream, produced(0, 2))).offset == 0
        early = send(two, stream, produced(1, epoch=1))
        await asyncio.sleep(0.1)
        assert not early.done()
        assert (await sent(one, stream, produced(0, epoch=1))).offset == 2
        assert await early == Outcome(Verdict.ACCEPTED, 3, 0, -1)

    run(told())


@promise("K11")
def test_a_retry_of_an_earlier_batch_holds_up_nobody() -> None:
    """What is under way here stays the newest batch, whatever is sent again meanwhile."""

    async def told() -> None:
        _, _, two, stream = await two_nodes()
        assert (await sent(two, stream, produced(0))).offset == 0
        batches = [produced(1), produced(2), produced(0), produced(3)]
        outcomes = await asyncio.gather(*(send(two, stream, data) for data in batches))
        assert [(o.verdict, o.offset) for o in outcomes] == [
            (Verdict.ACCEPTED, 1), (Verdict.ACCEPTED, 2), (Verdict.DUPLICATE, 0), (Verdict.ACCEPTED, 3),
        ]  # fmt: skip
        assert sum(writer._holding.held for writer in two.writers.all()) == 0

    run(told())


@promise("K11")
def test_nothing_waits_without_need() -> None:
    """In sequence, from 0, a duplicate, another epoch, another stream, or with one writer only."""

    async def told() -> None:
        world, one, two, stream = await two_nodes()
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert (await sent(two, stream, produced(0, 2))).offset == 0
        assert (await sent(two, stream, produced(2))).offset == 2
        assert (await sent(one, stream, produced(3))).offset == 3
        assert (await sent(two, stream, produced(4))).offset == 4
        assert (await sent(two, stream, produced(0, 2))).verdict is Verdict.DUPLICATE
        assert (await sent(two, stream, produced(0, epoch=1))).offset == 5
        assert (await sent(two, stream, produced(5, epoch=0))).verdict is Verdict.STALE_PRODUCER
        pipelined = [send(two, stream, produced(i, epoch=1)) for i in range(1, 6)]
        for i, outcome in enumerate(pipelined):
            assert await outcome == Outcome(Verdict.ACCEPTED, 6 + i, 0, -1)
        assert loop.time() - started < 0.3
        assert world.store.puts < 20

        alone = NodeWorld()
        only = await alone.node(wal=WAL)
        [lone] = (await topic(only)).streams
        started = loop.time()
        assert (await sent(only, lone, produced(5))).verdict is Verdict.OUT_OF_ORDER
        assert loop.time() - started < 0.3

    run(told())


@promise("K11")
def test_sequences_start_over() -> None:
    """What follows 2^31 - 1 is no gap."""

    async def told() -> None:
        _, one, two, stream = await two_nodes()
        assert (await sent(two, stream, produced(0))).offset == 0
        for node in (one, two):
            await node.domains[ONE].barrier()
            kept = node.domains[ONE].state.streams[stream].producers
            assert kept is not None
            kept.take(PID, 0, 1, (1 << 31) - 3, 1, writer=2, shared=True, ms=EPOCH_MS)  # as if a client had come so far
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert (await sent(two, stream, produced((1 << 31) - 2, 4))).verdict is Verdict.ACCEPTED
        assert (await sent(two, stream, produced(2))).verdict is Verdict.ACCEPTED
        assert loop.time() - started < 0.3

    run(told())


@promise("M5")
def test_draining_lets_all_go() -> None:
    async def told() -> None:
        _, _, two, stream = await two_nodes()
        held = [send(two, stream, produced(first)) for first in (5, 7)]
        await asyncio.sleep(0.05)
        await two.writers.drain()
        for outcome in held:
            done = await outcome
            assert isinstance(done, Outcome)
            assert done.verdict is Verdict.MOVED

    run(told())


@promise("K12")
def test_batches_of_transactions_wait_too() -> None:
    """In the first epoch and after each bump, and the missing ones are told by an error that clients retry."""

    async def told() -> None:
        _, one, two, stream = await two_nodes()
        transactor = await Transactor.at(one, "a", 500)
        offset = 0
        for _ in range(2):
            first, second = transactor.batch(stream, [b"0"]), transactor.batch(stream, [b"1"])
            early = send(two, stream, second, joins=True)
            await asyncio.sleep(0.05)
            assert not early.done()
            assert (await sent(one, stream, first, joins=True)).offset == offset
            assert await early == Outcome(Verdict.ACCEPTED, offset + 1, 0, -1)
            await transactor.end(commit=True)
            offset += 3
        transactor.batch(stream, [b"lost"])
        await one.domains[ONE].barrier()
        assert (await sent(two, stream, transactor.batch(stream, [b"x"]), joins=True)).verdict is Verdict.MOVED
        assert not two.domains[ONE].state.streams[stream].running, "a batch that is refused joins nothing"

    run(told())


@promise("K12")
def test_a_transaction_does_not_wait_behind_one_that_has_ended() -> None:
    """What is missing of that one cannot come any more, so a batch of it is refused at once."""

    async def told() -> None:
        _, one, two, stream = await two_nodes()
        transactor = await Transactor.at(one, "a", 500)
        transactor.batch(stream, [b"lost"])
        held = send(two, stream, transactor.batch(stream, [b"late"]), joins=True)
        await asyncio.sleep(0.05)
        assert not held.done()
        await transactor.end(commit=False)
        await two.domains[ONE].barrier()
        started = asyncio.get_running_loop().time()
        assert (await sent(two, stream, transactor.batch(stream, [b"x"]), joins=True)).offset == 0
        assert asyncio.get_running_loop().time() - started < WAL.hold_ms / 2000
        assert await held == Outcome(Verdict.STALE_PRODUCER, 0, 0, -1)

    run(told())
