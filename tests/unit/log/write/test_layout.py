"""Units in the write path: one object with plain batches, outcomes, failures; what readers and settling see."""

from __future__ import annotations

import asyncio

import pytest

from harness.virtual import EPOCH_MS, run
from headwater.app.node import Node
from headwater.client.records import decode_batches
from headwater.errors import Damaged, EpochLost, HeadwaterError, NotReady, OutcomeUnknown, StoreUnavailable, TooLarge
from headwater.lake.planning import Limits, TopicPlan, pending, plan_settle
from headwater.log.batch import check_batch
from headwater.log.wal import format as wal
from headwater.log.write.part import Outcome, Together
from headwater.settings.settings import Cache
from headwater.state.commands.base import Fence
from headwater.state.commands.streams import AnyCondition, EndIs, Once, Present, StartAt
from headwater.state.results import Placed, UnitResult, UnitVerdict
from headwater.types import Epoch, WalId
from tests.support.batches import batch, values
from tests.support.promise import promise
from tests.support.virtual_nodes import LAX, ONE, NodeWorld, read, send, sent, topic, way_of

PROMISES = ("L4",)

ACCEPTED, CONFLICT = UnitVerdict.ACCEPTED, UnitVerdict.CONFLICT
Answer = UnitResult | HeadwaterError


def give(
    node: Node, records: dict[int, list[bytes]], *conditions: AnyCondition
) -> tuple[Together, asyncio.Future[Answer]]:
    """Append a unit; returns it with a future of its outcome."""
    done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    batches = [(stream, check_batch(batch(found), LAX, EPOCH_MS)) for stream, found in records.items()]
    unit = Together(batches, list(conditions), done.set_result)
    node.writers.of(1, "latency").append_unit(unit)
    return unit, done


async def given(node: Node, records: dict[int, list[bytes]], *conditions: AnyCondition) -> UnitResult:
    outcome = await give(node, records, *conditions)[1]
    if isinstance(outcome, HeadwaterError):
        raise outcome
    return outcome


@promise("L4")
def test_units_and_batches_share_an_object() -> None:
    """Each unit has chunks of its own, so that one can be refused without the others."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        a, b = (await topic(node, partitions=2)).streams
        before = world.store.puts
        plain = [send(node, b, batch([b"p"])), send(node, a, batch([b"q"]))]
        first = give(node, {b: [b"1"], a: [b"2", b"3"]}, EndIs(a, 1), EndIs(b, 1))[1]
        lost = give(node, {a: [b"never"]}, EndIs(a, 1))[1]
        last = give(node, {a: [b"4"]}, EndIs(a, 3))[1]
        assert await first == UnitResult(ACCEPTED, [], [], [Placed(b, 1, 1, -1), Placed(a, 1, 2, -1)])
        assert await lost == UnitResult(CONFLICT, [0], [3], [])
        assert await last == UnitResult(ACCEPTED, [], [], [Placed(a, 3, 1, -1)])
        assert [isinstance(await one, Outcome) for one in plain] == [True, True]
        assert world.store.puts == before + 1
        assert values(await read(node, a)) == [(0, b"q"), (1, b"2"), (2, b"3"), (3, b"4")]
        assert values(await read(node, b)) == [(0, b"p"), (1, b"1")]
        [path] = world.wal_paths()
        found = wal.parse(world.store.objects[path])
        assert [chunk.stream for chunk in found.chunks] == sorted([a, a, a, a, b, b])
        assert node.writers.budget.used == 0

    run(told())


@promise("M5")
def test_an_object_of_units_has_a_flag() -> None:
    """A build that does not know units refuses it; without the flag a stream has one chunk."""
    one = check_batch(batch([b"v"]), LAX, EPOCH_MS)
    flagged = wal.build(WalId(1, 1), ONE, 0, 0, [(5, [one]), (5, [one])], wal.UNITS)
    assert len(wal.parse(b"".join(flagged.pieces)).chunks) == 2
    plain = wal.build(WalId(1, 1), ONE, 0, 0, [(5, [one]), (5, [one])])
    with pytest.raises(Damaged, match="out of order"):
        wal.parse(b"".join(plain.pieces))
    mirrored = wal.build(WalId(1, 1), ONE, 0, 0, [(5, [one])], wal.MIRRORS)
    with pytest.raises(Damaged, match="use the build"):
        wal.parse(b"".join(mirrored.pieces))


@promise("L3")
def test_an_object_without_an_accepted_unit_is_deleted() -> None:
    """Nothing names it. A repeated key needs none either."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [a] = (await topic(node)).streams
        key = Once(b"k", b"body", b"ann", b"")
        assert (await given(node, {a: [b"1"]}, key)).verdict is ACCEPTED
        assert len(world.wal_paths()) == 1
        assert (await given(node, {a: [b"1"]}, key)).verdict is UnitVerdict.REPEATED
        assert (await given(node, {a: [b"1"]}, EndIs(a, 5))).verdict is CONFLICT
        await asyncio.sleep(0.1)
        assert len(world.wal_paths()) == 1

    run(told())


def kept(data: bytes) -> list[tuple[int, bytes | None]]:
    """The records that a consumer keeps of what it read."""
    return [(record.offset, record.value) for one in decode_batches(data) for record in one.records]


@promise("L4", "K4")
def test_gaps_are_read_across() -> None:
    """A consumer gets the records on both sides of a gap in one fetch, at their offsets, cached or not."""

    async def told(cache: Cache) -> None:
        world = NodeWorld()
        node = await world.node(cache=cache)
        [a] = (await topic(node)).streams
        await sent(node, a, batch([b"0"]))
        await given(node, {a: [b"10", b"11"]}, StartAt(a, 10))
        await sent(node, a, batch([b"12"]))
        await given(node, {a: [b"far"]}, StartAt(a, 1 << 33))
        expected = [(0, b"0"), (10, b"10"), (11, b"11"), (12, b"12"), (1 << 33, b"far")]
        assert kept(await read(node, a)) == expected
        at = 0
        for one in decode_batches(await read(node, a)):
            assert one.base_offset == at, "a consumer never waits at a gap"
            at = one.next_offset
        assert at == (1 << 33) + 1
        assert kept(await read(node, a, 12)) == expected[3:]
        inside = list(decode_batches(await read(node, a, 5)))
        assert inside[0].base_offset <= 5 < inside[0].next_offset

    run(told(Cache()))
    run(told(Cache(wal_bytes=1)))


@promise("T1", "L4")
def test_gaps_are_settled_across() -> None:
    """One run for the records on both sides; a leading gap is settled by itself."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        made = await topic(node)
        [a] = made.streams
        await given(node, {a: [b"5"]}, StartAt(a, 5))
        await given(node, {a: [b"9"]}, StartAt(a, 9))
        state = node.domains[ONE].state
        stream = state.streams[a]
        assert stream.settled == 5
        assert [(e.start, e.end) for e in pending(state, stream)] == [(5, 6), (6, 9), (9, 10)]
        plan = TopicPlan(made.id, "root", [stream], 0)
        job = plan_settle(state, [plan], store="memory://", prefix="1-", slots=1, limits=Limits())
        [part] = job.tasks[0].files[0].parts
        assert (part.start, part.end, [(r.start, r.end) for r in part.runs]) == (5, 10, [(5, 6), (9, 10)])

    run(told())


@promise("L1", "H1")
def test_failures() -> None:
    """A unit is told whether its outcome is certain, and its bytes are given back."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [a] = (await topic(node)).streams
        world.store.put_errors.append(StoreUnavailable("full"))
        assert isinstance(await give(node, {a: [b"1"]}, Present())[1], StoreUnavailable)
        way_of(node).gate.clear()
        pending_answer = give(node, {a: [b"2"]}, EndIs(a, 0))[1]
        await asyncio.sleep(1)
        other = await world.node(2)
        await other.domains[ONE].submit([Fence(node.domains[ONE].epoch)])
        way_of(node).gate.set()
        lost = await pending_answer
        assert isinstance(lost, EpochLost | OutcomeUnknown)
        assert node.writers.budget.used == 0
        assert values(await read(other, a)) == []

    run(told())


@promise("H1")
def test_an_unknown_outcome() -> None:
    """The record may be in the ledger. Only a caller that repeats it with a key can know."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [a] = (await topic(node)).streams
        replica = node.domains[ONE]
        way_of(node).gate.clear()
        waiting = give(node, {a: [b"1"]}, Present())[1]
        await asyncio.sleep(1)
        replica.join(Epoch(99))
        way_of(node).gate.set()
        assert isinstance(await waiting, OutcomeUnknown)

    run(told())


@promise("L5")
def test_withdrawn_and_refused_units() -> None:
    """A unit that still waits can be dropped; one that comes while the process shuts down is refused."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [a] = (await topic(node)).streams
        world.store.gate.clear()
        first = give(node, {a: [b"1"]}, Present())
        await asyncio.sleep(0.1)
        second, never = give(node, {a: [b"2"]}, Present())
        writer = node.writers.of(1, "latency")
        assert not writer.withdraw_unit(first[0]), "it is being stored"
        assert writer.withdraw_unit(second) and not writer.withdraw_unit(second)
        world.store.gate.set()
        outcome = await first[1]
        assert isinstance(outcome, UnitResult) and not never.done()
        assert node.writers.budget.used == 0
        third = give(node, {a: [b"3"]}, Present())[1]
        await node.writers.drain()
        assert isinstance(await third, UnitResult)
        assert isinstance(await give(node, {a: [b"4"]}, Present())[1], NotReady)
        assert values(await read(node, a)) == [(0, b"1"), (1, b"3")]

    run(told())


@promise("L4")
def test_a_unit_that_fits_no_ledger_record() -> None:
    """It is refused at once; a record that is too large would end the process."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [a] = (await topic(node)).streams
        assert isinstance(await give(node, {a: [b"1"]}, *[Present()] * 10_000)[1], TooLarge)
        assert node.writers.budget.used == 0
        assert (await given(node, {a: [b"2"]}, Present())).verdict is ACCEPTED

    run(told())


@promise("L3")
def test_many_units_take_several_objects() -> None:
    """An object has a limit of bytes; a larger unit has one of its own."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node()
        [a] = (await topic(node)).streams
        size = node.settings.wal.latency.object_bytes // 2 + 1
        answers = [give(node, {a: [bytes(size)]}, Present())[1] for _ in range(3)]
        assert [isinstance(await answer, UnitResult) for answer in answers] == [True] * 3
        assert len(world.wal_paths()) == 3

    run(told())
