"""One process's part of a domain: appends of unknown fate, fences, jumps, barriers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from harness.virtual import EPOCH_MS, SeededChance, VirtualClock, run
from headwater.errors import DutyFailed, EpochLost, Halted, OutcomeUnknown, Overloaded, StoreUnavailable
from headwater.ledger.memory import MemoryLedger
from headwater.objects.memory import MemoryStore
from headwater.replica import replica as replica_module
from headwater.replica.checkpoint import write_checkpoint
from headwater.replica.replica import MAX_QUEUED, RECORD_TARGET, Replica
from headwater.replica.watch import Watch
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import Fence, TakeLease, Tick
from headwater.state.commands.cluster import TakeEpoch
from headwater.state.commands.streams import (
    AppendWal,
    Chunk,
    CreateStreams,
    DropStreams,
    ForgetObjects,
    StreamConfig,
    TrimStreams,
)
from headwater.state.records import Record, decode, encode
from headwater.state.results import Appended, Done
from headwater.state.streams.domain import HOUSEKEEPING
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Epoch, Position, WalId
from tests.support.faulty import FaultyLedger
from tests.support.promise import promise
from tests.support.scribe import TOPIC

PROMISES = ("M1", "M2", "L1", "L3")

ONE = Domain(1)
A = 1
UNKNOWN = OutcomeUnknown("no reply")
REFUSED = StoreUnavailable("refused")


class World:
    """A ledger, a store, and processes that follow domain 1."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.store = MemoryStore()

    async def process(self, epoch: int) -> tuple[Replica[StreamsState], FaultyLedger]:
        way = FaultyLedger(self.ledger)
        replica = Replica(way, self.store, StreamsState(ONE), VirtualClock(), SeededChance(epoch))
        await replica.start()
        replica.join(Epoch(epoch))
        return replica, way

    async def records(self) -> list[Record]:
        return [decode(entry.data) for entry in await self.ledger.read(ONE, Position(0), 10_000)]


def wal(sequence: int, offsets: int = 1, producers: list[tuple[int, int, int]] | None = None) -> AppendWal:
    return AppendWal(sequence, 200, EPOCH_MS, "z", [Chunk(A, 93, [(50, offsets, 5)], producers or [])])


CREATE = CreateStreams(TOPIC, 0, (A,), StreamConfig(append_time=False))

Story = Callable[[World], Awaitable[None]]


def story(tell: Story) -> Callable[[], None]:
    """A test that runs in virtual time, in a world of its own."""

    def test() -> None:
        async def told() -> None:
            await tell(World())

        run(told())

    test.__doc__ = tell.__doc__
    test.__name__ = tell.__name__
    return test


# --- appending -----------------------------------------------------------------------------------------


@promise("M1")
@story
async def test_results_come_back_in_order(world: World) -> None:
    """What queues up while one append is under way goes into one record; each caller gets its own results."""
    replica, way = await world.process(1)
    way.gate.clear()
    calls = [replica.enqueue([CREATE])]
    await asyncio.sleep(0.01)
    calls += [replica.enqueue([wal(i, offsets=i), Tick()]) for i in range(1, 6)]
    way.gate.set()
    results = [await call for call in calls]
    assert results[0] == [Done()]
    firsts = []
    for result, tick in results[1:]:
        assert isinstance(result, Appended)
        assert tick == Done()
        firsts.append(result.chunks[0].first_offset)
    assert firsts == [0, 1, 3, 6, 10]
    records = await world.records()
    assert [len(r.commands) for r in records] == [1, 10]
    assert [(r.epoch, r.counter) for r in records] == [(1, 1), (1, 2)]


@promise("M1")
@story
async def test_a_caller_may_append_by_itself(world: World) -> None:
    """Whoever pushes has its result when it goes on; what came meanwhile is not forgotten, nor is an error."""
    replica, way = await world.process(1)
    way.gate.clear()
    first = replica.enqueue([CREATE], wake=False)
    pushing = asyncio.create_task(replica.push())
    await asyncio.sleep(0.01)
    second, third = replica.enqueue([wal(1)], wake=False), replica.enqueue([wal(2)])
    await replica.push()  # one is under way, which takes along the others when it is done
    assert not first.done()
    way.gate.set()
    await pushing
    assert first.result() == [Done()]
    [one], [two] = await second, await third
    assert isinstance(one, Appended)
    assert isinstance(two, Appended)
    assert (one.chunks[0].first_offset, two.chunks[0].first_offset) == (0, 1)
    assert [len(r.commands) for r in await world.records()] == [1, 2]
    way.faults = [(False, REFUSED)]
    fourth = replica.enqueue([wal(3)], wake=False)
    await replica.push()
    with pytest.raises(StoreUnavailable):
        fourth.result()
    await replica.push()  # nothing is queued
    assert len(await world.records()) == 2


@promise("M1", "L1")
@story
async def test_unknown_outcomes_are_repeated_and_applied_once(world: World) -> None:
    """Whichever of the copies stand, the append takes effect once and is answered once."""
    replica, way = await world.process(1)
    other, _ = await world.process(2)
    await replica.submit([CREATE])
    for i, faults in enumerate(
        (
            [(True, UNKNOWN)],
            [(False, UNKNOWN)],
            [(True, UNKNOWN), (True, UNKNOWN), (False, UNKNOWN)],
            [(False, UNKNOWN), (True, UNKNOWN), (True, UNKNOWN)],
            [(False, UNKNOWN), (False, REFUSED), (False, REFUSED)],
        )
    ):
        way.faults = list(faults)
        [result] = await replica.submit([wal(i + 1)])
        assert isinstance(result, Appended)
        assert result.chunks[0].first_offset == i
    await other.barrier()
    assert other.state.streams[A].next_offset == 5
    await replica.barrier()
    assert other.state.image() == replica.state.image()


@promise("M1")
@story
async def test_a_deaf_writer_learns_its_fate_by_repeating(world: World) -> None:
    """Also if no notice ever comes."""
    replica, way = await world.process(1)
    way.deaf = True
    await replica.submit([CREATE])
    way.faults = [(True, UNKNOWN)]
    [result] = await replica.submit([wal(1)])
    assert isinstance(result, Appended)
    assert replica.state.streams[A].next_offset == 1


@promise("M1")
@story
async def test_a_definite_failure_fails_the_call(world: World) -> None:
    """For certain nothing was appended, so the caller may clean up; the next call goes on."""
    replica, way = await world.process(1)
    await replica.submit([CREATE])
    before = await world.ledger.last(ONE)
    way.faults = [(False, REFUSED)]
    with pytest.raises(StoreUnavailable):
        await replica.submit([wal(1)])
    assert await world.ledger.last(ONE) == before
    [result] = await replica.submit([wal(1)])
    assert isinstance(result, Appended)
    assert result.chunks[0].first_offset == 0


@promise("M1")
@story
async def test_a_late_copy_changes_nothing(world: World) -> None:
    """A record that lands long after its repetition, and after others of its writer, is dropped."""
    replica, way = await world.process(1)
    await replica.submit([CREATE])
    way.faults = [(False, UNKNOWN)]
    await replica.submit([wal(1)])
    late = (await world.records())[-1]
    await replica.submit([wal(2)])
    await world.ledger.append(ONE, encode(late))
    await replica.barrier()
    assert replica.state.streams[A].next_offset == 2
    [result] = await replica.submit([wal(3)])
    assert isinstance(result, Appended)
    assert result.chunks[0].first_offset == 2


@promise("L9")
@story
async def test_limits(world: World) -> None:
    """A record's size and a queue's length are bounded."""
    replica, way = await world.process(1)
    with pytest.raises(ValueError, match="a record holds"):
        replica.enqueue([CreateStreams(TOPIC, 0, tuple(range(10**9, 10**9 + RECORD_TARGET // 5)), StreamConfig(False))])
    way.gate.clear()
    first = replica.enqueue([Tick()])
    await asyncio.sleep(0.01)
    calls = [replica.enqueue([Tick()]) for _ in range(MAX_QUEUED)]
    with pytest.raises(Overloaded):
        await replica.enqueue([Tick()])
    way.gate.set()
    await asyncio.gather(first, *calls)
    big = [replica.enqueue([CREATE, DropStreams(tuple(range(10**9, 10**9 + 60_000)))]) for _ in range(10)]
    await asyncio.gather(*big)
    assert all(len(e.data) <= 1 << 20 for e in await world.ledger.read(ONE, Position(0), 10_000))


@promise("M1")
@story
async def test_a_caller_that_gave_up_is_left_out(world: World) -> None:
    """A call that was cancelled before its record was made is not appended."""
    replica, way = await world.process(1)
    way.gate.clear()
    first = replica.enqueue([CREATE])
    await asyncio.sleep(0.01)
    given_up = replica.enqueue([wal(1)])
    other = replica.enqueue([wal(2)])
    given_up.cancel()
    way.gate.set()
    await first
    [result] = await other
    assert isinstance(result, Appended)
    assert result.chunks[0].first_offset == 0


@promise("M1")
@story
async def test_now_and_then_a_digest(world: World) -> None:
    """Every so many records carry the writer's digest, and replicas that agree go on."""
    replica, _ = await world.process(1)
    other, _ = await world.process(2)
    await replica.submit([CREATE])
    for i in range(replica_module.CHECK_EVERY + 1):
        await replica.submit([wal(i + 1)])
    assert any(type(c).__name__ == "Check" for r in await world.records() for c in r.commands)
    await other.barrier()
    assert other.state.image() == replica.state.image()


# --- fences --------------------------------------------------------------------------------------------


@promise("M2", "L3")
@story
async def test_a_fenced_epoch_is_refused_and_told(world: World) -> None:
    """It learns of the fence by following, or by what becomes of its next append."""
    for deaf in (False, True):
        world = World()
        zombie, way = await world.process(1)
        way.deaf = deaf
        other, _ = await world.process(2)
        await other.submit([CREATE])
        lost: list[int] = []
        zombie.on_lost = lambda lost=lost: lost.append(1)
        await other.submit([Fence(1)])
        await asyncio.sleep(0.01)
        assert lost == ([] if deaf else [1])
        with pytest.raises(EpochLost):
            await zombie.submit([wal(1)])
        assert lost == [1]
        assert zombie.epoch == 0
        with pytest.raises(EpochLost):
            await zombie.submit([wal(1)])
        await other.barrier()
        assert other.state.streams[A].next_offset == 0
        zombie.join(Epoch(3))
        [result] = await zombie.submit([wal(1)])
        assert isinstance(result, Appended)


@promise("M2")
@story
async def test_what_waits_fails_when_the_fence_is_seen(world: World) -> None:
    """A call whose record has not landed yet fails retriably; if it lands later it does not count."""
    zombie, way = await world.process(1)
    other, _ = await world.process(2)
    await other.submit([CREATE])
    await zombie.barrier()
    way.gate.clear()
    call = zombie.enqueue([wal(1)])
    queued = zombie.enqueue([wal(2)])
    await asyncio.sleep(0.01)
    await other.submit([Fence(1)])
    for waiting in (call, queued):
        with pytest.raises(EpochLost):
            await waiting
    way.gate.set()
    await asyncio.sleep(1)
    await other.barrier()
    assert [r.epoch for r in await world.records()] == [2, 2, 1]
    assert other.state.streams[A].next_offset == 0
    await zombie.barrier()
    assert zombie.state.image() == other.state.image()


@promise("M2")
@story
async def test_a_record_before_its_fence_counts(world: World) -> None:
    """Unknown outcome, then a fence, then the repetition: the first copy stands and is answered as accepted."""
    zombie, way = await world.process(1)
    other, _ = await world.process(2)
    await other.submit([CREATE])
    way.deaf = True
    way.faults = [(True, UNKNOWN)]
    call = zombie.enqueue([wal(1)])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await other.submit([Fence(1)])
    [result] = await call
    assert isinstance(result, Appended)
    assert result.chunks[0].first_offset == 0
    await other.barrier()
    assert other.state.streams[A].next_offset == 1


@promise("M2", "L3")
@story
async def test_paused_across_a_fence_a_truncation_and_a_collection(world: World) -> None:
    """Its late append is refused though its object is gone, and it must take a new epoch."""
    zombie, way = await world.process(1)
    other, _ = await world.process(2)
    await other.submit([CREATE])
    await zombie.submit([wal(1, producers=[(7, 0, 0)])])
    way.deaf = True
    way.gate.clear()
    late = zombie.enqueue([wal(2, producers=[(7, 0, 1)])])
    await asyncio.sleep(0.01)
    lost: list[int] = []
    zombie.on_lost = lambda: lost.append(1)

    # Meanwhile: fenced, its objects collected, two checkpoints, and its part of the ledger truncated away.
    await other.submit([Fence(1)])
    [lease] = await other.submit([TakeLease(HOUSEKEEPING, 10_000)])
    assert isinstance(lease, Done)
    await other.submit([wal(1, producers=[(7, 0, 1)]), TrimStreams([(A, 1)])])
    assert await other.submit([ForgetObjects(lease.value, [(1, 1)])]) == [Done(1)]
    for _ in range(2):
        await other.submit([Tick()])
        assert await write_checkpoint(world.ledger, world.store, StreamsState(ONE))
    assert other.state.objects.get(WalId(1, 1)) is None

    way.gate.set()
    with pytest.raises(EpochLost):
        await late
    assert lost == [1]
    assert zombie.epoch == 0
    await other.barrier()
    await zombie.barrier()
    assert zombie.state.image() == other.state.image()
    assert other.state.streams[A].next_offset == 2
    assert other.state.objects.get(WalId(1, 2)) is None
    with pytest.raises(EpochLost):
        await zombie.submit([wal(3)])
    zombie.join(Epoch(3))
    [result] = await zombie.submit([wal(1, producers=[(7, 0, 2)])])
    assert isinstance(result, Appended)
    assert result.chunks[0].first_offset == 2


# --- checkpoints ---------------------------------------------------------------------------------------


@promise("M1")
@story
async def test_a_jump_fails_what_waits(world: World) -> None:
    """Results that were jumped over are unknown here, so the calls fail retriably and the epoch is given up."""
    replica, way = await world.process(1)
    other, _ = await world.process(2)
    await other.submit([CREATE])
    await replica.barrier()
    way.deaf = True
    lost: list[int] = []
    replica.on_lost = lambda: lost.append(1)
    way.faults = [(True, UNKNOWN)]
    call = replica.enqueue([wal(1)])
    for _ in range(3):
        await asyncio.sleep(0)
    for _ in range(2):
        await other.submit([Tick()])
        assert await write_checkpoint(world.ledger, world.store, StreamsState(ONE))
    changed = Watch(VirtualClock())
    replica.watch([A], changed)
    with pytest.raises(EpochLost):
        await call
    assert lost == [1]
    await replica.barrier()
    assert replica.state.streams[A].next_offset == 1, "it did stand"
    assert list(changed.changed) == [(ONE, A)], "those that wait for a stream look again"
    assert replica.state.image() == other.state.image()


@promise("M1")
@story
async def test_a_late_start_goes_through_the_checkpoint(world: World) -> None:
    replica, _ = await world.process(1)
    await replica.submit([CREATE])
    for round_ in range(3):
        for i in range(5):
            await replica.submit([wal(round_ * 5 + i + 1)])
        assert await write_checkpoint(world.ledger, world.store, StreamsState(ONE))
    await replica.submit([wal(100)])
    late, _ = await world.process(2)
    assert late.state.image() == replica.state.image()
    assert late.state.streams[A].next_offset == 16


@promise("M1")
@story
async def test_truncated_without_a_checkpoint_halts(world: World) -> None:
    """A ledger that lost records which no checkpoint covers is not guessed at."""
    replica, way = await world.process(1)
    await replica.submit([CREATE])
    way.deaf = True
    await world.ledger.append(ONE, encode(Record(2, 1, EPOCH_MS, 0, [Tick()])))
    await world.ledger.append(ONE, encode(Record(2, 2, EPOCH_MS, 0, [Tick()])))
    await world.ledger.truncate(ONE, Position(3))
    await world.ledger.append(ONE, encode(Record(2, 3, EPOCH_MS, 0, [Tick()])))
    with pytest.raises(Halted, match="no checkpoint"):
        await replica.barrier()


@promise("M1")
@story
async def test_a_corrupt_checkpoint_halts(world: World) -> None:
    """A replica that must jump and cannot fails what waits for it, and its process ends."""
    replica, way = await world.process(1)
    other, _ = await world.process(2)
    await replica.submit([CREATE])
    gate, watch = asyncio.Event(), way.watch

    async def late(domain: Domain, after: Position) -> Position:
        position = await watch(domain, after)
        await gate.wait()
        return position

    way.watch = late  # type: ignore[method-assign]
    await other.submit([Tick()])
    for _ in range(2):
        await other.submit([Tick()])
        assert await write_checkpoint(world.ledger, world.store, StreamsState(ONE))
    for path in list(world.store.objects):
        if "checkpoint" in path:
            world.store.objects[path] = b"nonsense"
    gate.set()
    await asyncio.sleep(1)
    assert "follow-1 died: Damaged" in str(replica._background.failure)
    for call in (replica.barrier(), replica.submit([Tick()])):
        with pytest.raises(Halted, match="cannot be followed"):
            await call


# --- reading -------------------------------------------------------------------------------------------


@promise("L1")
@story
async def test_a_barrier_sees_what_another_appended(world: World) -> None:
    """Everything acknowledged anywhere before the call, also if no notice comes."""
    reader, way = await world.process(1)
    writer, _ = await world.process(2)
    way.deaf = True
    await writer.submit([CREATE])
    for i in range(1, 6):
        await writer.submit([wal(i)])
        await reader.barrier()
        assert reader.state.streams[A].next_offset == i


@promise("L1")
@story
async def test_a_barrier_joins_no_look_that_began_before_it(world: World) -> None:
    """Such a look may have missed what was acknowledged since; many callers share the next one."""
    reader, way = await world.process(1)
    writer, _ = await world.process(2)
    way.deaf = True
    await writer.submit([CREATE])
    looks = 0
    going = asyncio.Event()
    inner = way.last

    async def last(domain: Domain) -> Position:
        nonlocal looks
        looks += 1
        answer = await inner(domain)
        await going.wait()
        return answer

    way.last = last  # type: ignore[method-assign]
    early = asyncio.create_task(reader.barrier())
    await asyncio.sleep(0.01)
    await writer.submit([wal(1)])
    late = [asyncio.create_task(reader.barrier()) for _ in range(20)]
    await asyncio.sleep(0.01)
    going.set()
    await asyncio.gather(early, *late)
    assert reader.state.streams[A].next_offset == 1
    assert looks == 2


@promise("K4")
@story
async def test_followers_wake_waiters(world: World) -> None:
    """A long poll on one process wakes by an append through another."""
    reader, _ = await world.process(1)
    writer, _ = await world.process(2)
    await writer.submit([CREATE])
    await reader.barrier()
    clock = VirtualClock()
    woken, other = Watch(clock), Watch(clock)
    reader.watch([A, 77], woken)
    reader.watch([77], other)
    await writer.submit([wal(1)])
    assert await woken.news(clock.monotonic() + 10) == [(ONE, A)]
    assert await woken.news(clock.monotonic() + 0.01) == [], "the change is told once"
    await writer.submit([wal(2)])
    assert await woken.news(clock.monotonic() + 10) == [(ONE, A)], "it goes on watching"
    assert not other.changed
    reader.unwatch([A, 77], woken)
    reader.unwatch([77], other)
    assert reader._watches == {}


@promise("M6")
@story
async def test_a_store_that_is_away_comes_back(world: World) -> None:
    """Reads and barriers fail retriably meanwhile, following resumes by itself."""
    reader, way = await world.process(1)
    writer, _ = await world.process(2)
    contact = reader.last_contact
    way.error = StoreUnavailable("away")
    await writer.submit([CREATE])
    await writer.submit([wal(1)])
    with pytest.raises(StoreUnavailable):
        await reader.barrier()
    await asyncio.sleep(5)
    assert reader.last_contact == contact
    assert A not in reader.state.streams
    way.error = None
    await asyncio.sleep(5)
    assert reader.state.streams[A].next_offset == 1
    assert reader.last_contact > contact


@promise("M1")
@story
async def test_halting(world: World) -> None:
    """A record that is not understood stops the replica for good, with every call, and says so."""
    replica, way = await world.process(1)
    failures: list[DutyFailed] = []
    replica._background.on_failed = failures.append
    way.gate.clear()
    call = replica.enqueue([Tick()])
    await asyncio.sleep(0.01)
    await world.ledger.append(ONE, b"\x94\x01\x02\x03\x91\x92\xa7unknown\x01")
    for again in (call, replica.barrier(), replica.submit([Tick()])):
        with pytest.raises(Halted):
            await again
    assert [type(failure.__cause__) for failure in failures] == [Halted]


@promise("M5")
@story
async def test_closing_fails_what_waits(world: World) -> None:
    """A process that leaves answers what it still has as retriable."""
    replica, way = await world.process(1)
    way.gate.clear()
    calls = [replica.enqueue([Tick()])]
    await asyncio.sleep(0.01)
    calls.append(replica.enqueue([Tick()]))
    await replica.close()
    calls.append(replica.enqueue([Tick()]))
    for call in calls:
        with pytest.raises(EpochLost):
            await call


@promise("M5")
@story
async def test_closing_while_an_append_is_repeated(world: World) -> None:
    """It ends at once, also while a record of unknown fate waits for its next attempt."""
    replica, way = await world.process(1)
    way.faults = [(False, UNKNOWN)] * 1000
    call = replica.enqueue([Tick()])
    await asyncio.sleep(3)
    closing = asyncio.create_task(replica.close())
    await asyncio.sleep(0.01)
    assert closing.done()
    with pytest.raises(EpochLost):
        await call


@promise("M2")
@story
async def test_epoch_0_takes_an_epoch(world: World) -> None:
    """Two processes without an epoch ask at once, one of them twice: each gets its own."""
    ways = [FaultyLedger(world.ledger) for _ in range(2)]
    replicas = [Replica(w, world.store, ClusterState(), VirtualClock(), SeededChance()) for w in ways]
    for replica in replicas:
        await replica.start()
        with pytest.raises(EpochLost):
            await replica.submit([Tick()])
    ways[0].faults = [(True, UNKNOWN), (True, UNKNOWN)]
    results = await asyncio.gather(
        *(r.submit([TakeEpoch(f"{i}/x", i, "z", (), 1, "b")]) for i, r in enumerate(replicas))
    )
    assert sorted(result.value for [result] in results if isinstance(result, Done)) == [1, 2]
    for replica in replicas:
        await replica.barrier()
    assert replicas[0].state.image() == replicas[1].state.image()
    assert {p.name: e for e, p in replicas[0].state.processes.items()} == {
        f"{i}/x": result.value for i, [result] in enumerate(results) if isinstance(result, Done)
    }
