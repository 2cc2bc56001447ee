"""The ring of a ledger in a bucket: laps, late and lost PUTs, sleeping writers, truncation, and what it costs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from headwater.errors import ConfigError, Halted, OutcomeUnknown, StoreUnavailable, Truncated
from headwater.ledger import open_ledger
from headwater.ledger.bucket.ledger import BucketLedger
from headwater.ledger.contract import Entry, Pointer
from headwater.objects.registers import Held, MemoryRegisters, Tag
from headwater.types import Domain, Position
from tests.support.promise import promise

PROMISES = ("M1",)

ONE = Domain(1)
START = Position(0)
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(limited())


class Network(MemoryRegisters):
    """Registers whose PUTs a test may hold back or whose replies it may lose."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[Callable[[], Awaitable[Tag | None]]] = []
        self.hold = False
        self.lose_replies = False

    async def _send(self, put: Callable[[], Awaitable[Tag | None]]) -> Tag | None:
        if self.hold:
            self.late.append(put)
            raise OutcomeUnknown("no answer")
        tag = await put()
        if self.lose_replies:
            raise OutcomeUnknown("the reply was lost")
        return tag

    async def create(self, path: str, data: bytes) -> Tag | None:
        return await self._send(lambda: super(Network, self).create(path, data))

    async def replace(self, path: str, data: bytes, tag: Tag) -> Tag | None:
        return await self._send(lambda: super(Network, self).replace(path, data, tag))

    async def arrive(self) -> list[bool]:
        """What was held back arrives now; whether each was taken."""
        self.hold = False
        late, self.late = self.late, []
        return [await put() is not None for put in late]


def ledger_on(registers: MemoryRegisters, places: int = 8, append_seconds: float = 5.0) -> BucketLedger:
    return BucketLedger(registers, places=places, poll_seconds=0.001, append_seconds=append_seconds)


async def fill(ledger: BucketLedger, count: int, name: str = "") -> list[Entry]:
    """Append, and truncate all but the last record each time, so that every lap is free."""
    entries: list[Entry] = []
    for i in range(count):
        data = f"{name}{i}".encode()
        entries.append(Entry(await ledger.append(ONE, data), data))
        if len(entries) > 1:
            await ledger.truncate(ONE, entries[-2].position)
    return entries


# --- laps ----------------------------------------------------------------------------------------------


@promise("M1")
@pytest.mark.parametrize("places", [4, 5, 16])
def test_a_ring_is_lapped_many_times(places: int) -> None:
    """Positions go on over every lap, for those who follow and for those who come later."""

    async def go() -> None:
        registers = MemoryRegisters()
        one, other = ledger_on(registers, places), ledger_on(registers, places)
        last = START
        for lap in range(5 * places):
            writer, reader = (one, other) if lap % 3 else (other, one)
            position = await writer.append(ONE, str(lap).encode())
            assert position > last
            assert await reader.read(ONE, last, 10) == [Entry(position, str(lap).encode())]
            late = ledger_on(registers, places)
            assert await late.last(ONE) == position
            assert await late.read(ONE, last, 10) == [Entry(position, str(lap).encode())]
            await writer.truncate(ONE, position)
            last = position

    run(go())


@promise("M1")
@pytest.mark.parametrize("written", range(23))
def test_the_end_is_found_from_anywhere(written: int) -> None:
    """A process that starts finds the end after any number of slots, truncated early or late."""

    async def go() -> None:
        for truncated in range(max(0, written - 6), written + 1):
            registers = MemoryRegisters()
            ledger = ledger_on(registers)
            entries = await fill(ledger, written)
            if truncated:
                await ledger.truncate(ONE, entries[truncated - 1].position)
            fresh = ledger_on(registers)
            assert await fresh.last(ONE) == (entries[-1].position if entries else 0)
            assert await fresh.append(ONE, b"next") > (entries[-1].position if entries else 0)

    run(go())


@promise("M1")
def test_a_full_ring_refuses_until_it_is_truncated() -> None:
    """Nothing that is not truncated is overwritten; the error says what to do and nothing was appended."""

    async def go() -> None:
        ledger = ledger_on(MemoryRegisters(), 4)
        entries = [Entry(await ledger.append(ONE, bytes([i])), bytes([i])) for i in range(4)]
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="a checkpoint must be written"):
                await ledger.append(ONE, b"no room")
            assert await ledger.read(ONE, START, 10) == entries
        await ledger.truncate(ONE, entries[1].position)
        position = await ledger.append(ONE, b"room")
        assert await ledger.read(ONE, entries[1].position, 10) == [*entries[2:], Entry(position, b"room")]
        with pytest.raises(Truncated):
            await ledger.read(ONE, START, 10)

    run(go())


@promise("M1")
def test_what_a_checkpoint_covers_gives_way_in_need() -> None:
    """A ring that filled up before its second checkpoint is not stuck for ever."""

    async def go() -> None:
        ledger = ledger_on(MemoryRegisters(), 16)
        entries = [await ledger.append(ONE, bytes([i])) for i in range(16)]
        assert await ledger.set_pointer(ONE, START, Pointer(entries[-1], "the first checkpoint"))
        assert await ledger.append(ONE, b"next") > entries[-1]
        with pytest.raises(Truncated):
            await ledger.read(ONE, START, 10)
        left = await ledger.read(ONE, entries[4], 100)
        assert [entry.position for entry in left[:-1]] == entries[5:], "no more than needed was given up"

    run(go())


@promise("M1")
def test_a_reader_that_was_lapped_is_told() -> None:
    """Where a slot holds a later lap, its records are truncated, whatever the reader knew of the mark."""

    async def go() -> None:
        registers = MemoryRegisters()
        writer, reader = ledger_on(registers, 4), ledger_on(registers, 4)
        entries = await fill(writer, 3)
        assert await reader.read(ONE, entries[1].position, 10) == entries[2:]
        more = await fill(writer, 9, "more")
        with pytest.raises(Truncated):
            await reader.read(ONE, entries[2].position, 10)
        assert await reader.last(ONE) == more[-1].position
        assert await reader.read(ONE, more[-2].position, 10) == more[-1:]

    run(go())


# --- PUTs of unknown fate --------------------------------------------------------------------------------


@promise("M1")
def test_a_lost_reply_is_settled_by_reading_back() -> None:
    """The record stands once, and the writer is told where."""

    async def go() -> None:
        network = Network()
        ledger = ledger_on(network, 4)
        last = await ledger.append(ONE, b"before")
        for i in range(10):
            await ledger.truncate(ONE, last)
            network.lose_replies = True
            position = await ledger.append(ONE, bytes([i]))
            network.lose_replies = False
            assert await ledger.read(ONE, last, 10) == [Entry(position, bytes([i]))]
            last = position

    run(go())


@promise("M1")
@pytest.mark.parametrize("before", [0, 2, 12])
def test_a_late_put_lands_where_it_was_aimed(before: int) -> None:
    """A PUT that arrives after its writer gave up takes the next slot if it is free, and nobody notices more."""

    async def go() -> None:
        network = Network()
        ledger, other = ledger_on(network, 8, 0.1), ledger_on(network)
        await fill(ledger, before)
        last = await ledger.last(ONE)
        network.hold = True
        with pytest.raises(OutcomeUnknown):
            await ledger.append(ONE, b"late")
        assert await other.last(ONE) == last
        arrived = await network.arrive()
        assert sum(arrived) == 1, "the same PUT, however often it was sent, lands once"
        after = await other.append(ONE, b"after")
        assert [entry.data for entry in await other.read(ONE, last, 10)] == [b"late", b"after"]
        assert await ledger.append(ONE, b"own") > after

    run(go())


@promise("M1")
@pytest.mark.parametrize("before", [0, 2, 12])
def test_a_late_put_is_refused_once_the_slot_is_taken(before: int) -> None:
    """Also after the ring was lapped, a writer that slept cannot put anything anywhere."""

    async def go() -> None:
        network = Network()
        ledger, other = ledger_on(network, 8, 0.1), ledger_on(network)
        await fill(ledger, before)
        last = await ledger.last(ONE)
        network.hold = True
        with pytest.raises(OutcomeUnknown):
            await ledger.append(ONE, b"late")
        held, network.late, network.hold = network.late, [], False
        position = await other.append(ONE, b"quicker")
        network.late = held[:1]
        assert await network.arrive() == [False]
        assert await ledger.read(ONE, last, 10) == [Entry(position, b"quicker")]
        await other.truncate(ONE, position)
        lapped = await fill(other, 17, "lap")
        network.late = held[1:]
        assert not any(await network.arrive())
        assert await ledger.last(ONE) == lapped[-1].position
        assert await ledger.append(ONE, b"awake") > lapped[-1].position

    run(go())


@promise("M1")
def test_a_refusal_is_not_believed_before_it_is_read_back() -> None:
    """A store that says "exists" of one's own write, or of nothing, leads neither to a loss nor to a double."""

    class Confused(MemoryRegisters):
        """Answers every first PUT with a refusal, after doing it or not."""

        puts = 0

        async def create(self, path: str, data: bytes) -> Tag | None:
            tag = None
            if "slot" not in path or self.puts % 3 != 1:
                tag = await super().create(path, data)
            self.puts += "slot" in path
            return tag if "slot" not in path or self.puts % 3 == 0 else None

    async def go() -> None:
        ledger = ledger_on(Confused(), 64)
        entries = [Entry(await ledger.append(ONE, bytes([i])), bytes([i])) for i in range(20)]
        assert await ledger_on(ledger._registers).read(ONE, START, 100) == entries  # type: ignore[arg-type]

    run(go())


@promise("M1")
def test_what_was_lapped_before_it_could_be_read_back_is_unknown() -> None:
    """A writer that cannot find out whether its record stood says so."""

    async def go() -> None:
        network = Network()
        sleeper, other = ledger_on(network, 4), ledger_on(network, 4)
        await sleeper.append(ONE, b"before")
        await other.last(ONE)
        network.hold = True
        append = asyncio.create_task(sleeper.append(ONE, b"asleep"))
        while not network.late:
            await asyncio.sleep(0)
        network.late, network.hold = [], False
        await fill(other, 12)
        with pytest.raises(OutcomeUnknown):
            await append

    run(go())


# --- many at once ------------------------------------------------------------------------------------------


class Jumbled(MemoryRegisters):
    """Every request and every reply takes its time, some PUTs arrive late and some replies never."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.tasks: set[asyncio.Task[Any]] = set()

    async def _time(self) -> None:
        for _ in range(self._rng.choice((0, 0, 1, 2, 7))):
            await asyncio.sleep(0)

    async def _send(self, put: Awaitable[Tag | None]) -> Tag | None:
        async def arrive() -> Tag | None:
            await self._time()
            return await put

        task = asyncio.create_task(arrive())
        self.tasks.add(task)
        fate = self._rng.random()
        if fate < 0.1:
            await self._time()
            raise OutcomeUnknown("given up")
        tag = await asyncio.shield(task)
        await self._time()
        if fate < 0.2:
            raise OutcomeUnknown("the reply was lost")
        return tag

    async def read(self, path: str) -> Held | None:
        await self._time()
        held = await super().read(path)
        await self._time()
        if self._rng.random() < 0.02:
            raise StoreUnavailable("no answer")
        return held

    async def create(self, path: str, data: bytes) -> Tag | None:
        return await self._send(super().create(path, data))

    async def replace(self, path: str, data: bytes, tag: Tag) -> Tag | None:
        return await self._send(super().replace(path, data, tag))


@promise("M1")
@pytest.mark.parametrize("seed", range(12))
def test_writers_and_readers_on_a_bad_network_agree(seed: int) -> None:
    """Every acknowledged record is read once, where its writer was told, in one order, over several laps."""

    async def go() -> None:
        registers = Jumbled(random.Random(seed))
        told: dict[int, bytes] = {}
        sent: set[bytes] = set()
        seen: list[Entry] = []
        done = asyncio.Event()

        async def write(name: str) -> None:
            ledger = ledger_on(registers, 16, 1.0)
            for i in range(25):
                data = f"{name} {i}".encode()
                sent.add(data)
                try:
                    told[await ledger.append(ONE, data)] = data
                except (OutcomeUnknown, StoreUnavailable):
                    continue
            await ledger.close()

        async def follow() -> None:
            """Read everything; what was read may go."""
            ledger = ledger_on(registers, 16)
            while not done.is_set() or len(await attempt(lambda: ledger.read(ONE, after(seen), 5))):
                seen.extend(await attempt(lambda: ledger.read(ONE, after(seen), 5)))
                await attempt(lambda: ledger.truncate(ONE, after(seen)))
            await ledger.close()

        following = asyncio.create_task(follow())
        await asyncio.gather(*(write(name) for name in "abc"))
        await asyncio.gather(*registers.tasks)
        done.set()
        await following
        positions = [entry.position for entry in seen]
        assert positions == sorted(set(positions))
        assert len({entry.data for entry in seen}) == len(seen), "a record stands twice"
        assert {entry.data for entry in seen} <= sent
        found = {entry.position: entry.data for entry in seen}
        assert {position: found.get(Position(position)) for position in told} == told
        assert len(told) > 40

    run(go())


def after(seen: list[Entry]) -> Position:
    return seen[-1].position if seen else START


async def attempt(call: Callable[[], Awaitable[T]]) -> T:
    """Until the network lets it through."""
    while True:
        try:
            return await call()
        except (OutcomeUnknown, StoreUnavailable):
            await asyncio.sleep(0)


@promise("M1")
def test_concurrent_appends_share_a_slot() -> None:
    """What waits while a slot is written goes into the next one together."""

    async def go() -> None:
        ledger = ledger_on(MemoryRegisters(), 64)
        positions = await asyncio.gather(*(ledger.append(ONE, bytes([i])) for i in range(200)))
        assert positions == sorted(set(positions))
        assert [entry.data for entry in await ledger.read(ONE, START, 1000)] == [bytes([i]) for i in range(200)]
        assert [e.data for e in await ledger.read(ONE, positions[9], 3)] == [bytes([i]) for i in (10, 11, 12)]
        assert ledger.counts.commits < 5
        await ledger.truncate(ONE, positions[100])
        assert (await ledger.read(ONE, positions[100], 1))[0].data == bytes([101])
        with pytest.raises(Truncated):
            await ledger.read(ONE, positions[99], 1)

    run(go())


# --- what it costs ---------------------------------------------------------------------------------------


@promise("M1")
def test_an_uncontended_commit_is_one_put() -> None:
    """On every lap, and the writer reads its own records from memory."""

    async def go() -> None:
        registers = MemoryRegisters()
        ledger = ledger_on(registers, 256)
        last = await ledger.last(ONE)
        for lap in range(3):
            before = (ledger.counts.puts, ledger.counts.gets)
            for i in range(200):
                position = await ledger.append(ONE, bytes([i]))
                assert [entry.position for entry in await ledger.read(ONE, last, 10)] == [position]
                last = position
            puts, gets = ledger.counts.puts - before[0], ledger.counts.gets - before[1]
            assert puts == 200
            assert gets <= 200 // 8 + 1, f"lap {lap}: {gets} GETs"
            await ledger.truncate(ONE, last)
        late = ledger_on(registers, 256)
        await late.last(ONE)
        puts, gets = late.counts.puts, late.counts.gets
        for i in range(100):
            await late.append(ONE, bytes([i]))
        assert late.counts.puts - puts == 100
        assert late.counts.gets - gets <= 250, "one look ahead for each slot that it had not seen"

    run(go())


@promise("M1")
def test_a_look_that_many_wait_for_is_made_once() -> None:
    """Concurrent calls of `last` cost two reads at most."""

    async def go() -> None:
        ledger = ledger_on(MemoryRegisters())
        position = await ledger.append(ONE, b"x")
        gets = ledger.counts.gets
        assert set(await asyncio.gather(*(ledger.last(ONE) for _ in range(50)))) == {position}
        assert ledger.counts.gets - gets <= 2

    run(go())


@promise("M1")
def test_beats_are_one_put_and_one_list() -> None:
    """Seeing who lives costs one request, however many there are."""

    async def go() -> None:
        ledger = ledger_on(MemoryRegisters())
        for name in ("1/a/1", "2/b/1", "3/c%/1"):
            await ledger.beat(name)
        assert {beat.process for beat in await ledger.beats()} == {"1/a/1", "2/b/1", "3/c%/1"}
        assert (ledger.counts.puts, ledger.counts.lists, ledger.counts.gets) == (3, 1, 0)

    run(go())


@promise("M1")
def test_closing_ends_what_waits() -> None:
    """Whoever waits for an append, a look or news when a handle is closed is told, and not cancelled."""

    class Slow(MemoryRegisters):
        async def read(self, path: str) -> Held | None:
            if self.stuck:
                self.waiting += 1
                await asyncio.Event().wait()
            return await super().read(path)

        async def create(self, path: str, data: bytes) -> Tag | None:
            if self.stuck:
                self.waiting += 1
                await asyncio.Event().wait()
            return await super().create(path, data)

        stuck = False
        waiting = 0

    async def go() -> None:
        registers = Slow()
        ledger = ledger_on(registers)
        last = await ledger.append(ONE, b"x")
        registers.stuck = True
        calls: list[Coroutine[Any, Any, object]] = [ledger.append(ONE, b"y"), ledger.last(ONE), ledger.watch(ONE, last)]
        waiting = [asyncio.create_task(call) for call in calls]
        while registers.waiting < 2:
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        await ledger.close()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(end) for end in ends] == [OutcomeUnknown, StoreUnavailable, StoreUnavailable]
        with pytest.raises(StoreUnavailable):
            await ledger.append(ONE, b"z")

    run(go())


# --- what is wrong -------------------------------------------------------------------------------------------


@promise("M1")
def test_a_store_without_conditions_is_refused() -> None:
    """Before the first record, not after the first loss."""

    class Careless(MemoryRegisters):
        async def create(self, path: str, data: bytes) -> Tag | None:
            return self._write(path, data)

    with pytest.raises(ConfigError, match="conditional"):
        run(ledger_on(Careless()).last(ONE))


@promise("M1")
def test_damage_halts() -> None:
    """A slot with other bytes, one that is gone and one of another place are not guessed about."""

    async def go() -> None:
        for damage in (b"rubbish", b"", None):
            registers = MemoryRegisters()
            ledger = ledger_on(registers)
            for i in range(5):
                await ledger.append(ONE, bytes([i]))
            path = "ledger/v1/domain=1/slot/00000002"
            if damage is None:
                other = await registers.read("ledger/v1/domain=1/slot/00000003")
                assert other is not None
                await registers.put(path, other.data)
            else:
                await registers.put(path, damage)
            fresh = ledger_on(registers)
            with pytest.raises(Halted):
                await fresh.read(ONE, START, 10)

    run(go())


@promise("M1")
def test_the_shape_of_a_ring_stays() -> None:
    """Who comes later uses the ring that is there, whatever the settings say."""

    async def go() -> None:
        registers = MemoryRegisters()
        first, second = ledger_on(registers, 4), ledger_on(registers, 1024)
        for _ in range(4):
            await first.append(ONE, b"x")
        with pytest.raises(StoreUnavailable, match="all 4 slots"):
            await second.append(ONE, b"y")
        assert second.checkpoint_records == 1

    run(go())


@promise("M1")
def test_urls() -> None:
    """A bucket is named by a URL; anything else is a mistake that says so."""
    assert isinstance(open_ledger("s3://bucket/prefix?slots=64"), BucketLedger)
    for url in ("s3:///nothing", "s3://bucket?slots=x", "s3://bucket?speed=9", "s3://bucket?slots=2"):
        with pytest.raises(ConfigError):
            open_ledger(url)


@promise("M1")
def test_an_unexpected_failure_does_not_hold_up_the_next_append(caplog: pytest.LogCaptureFixture) -> None:
    """The outcome of its batch is unknown, the log has it, and what waits behind it goes on."""

    async def go() -> None:
        ledger = ledger_on(MemoryRegisters())
        await ledger.append(ONE, b"first")
        appender = ledger._appenders[ONE]
        settle, failed = appender._settle, False

        async def planted(records: Any) -> int:
            nonlocal failed
            if not failed:
                failed = True
                behind.append(asyncio.create_task(ledger.append(ONE, b"behind")))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                raise RuntimeError("planted")
            return await settle(records)

        behind: list[asyncio.Task[Position]] = []
        appender._settle = planted  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknown, match="planted"):
            await ledger.append(ONE, b"second")
        assert await behind[0] > START
        await ledger.close()

    run(go())
    assert "an append failed" in caplog.text
