"""Writers of one ring take turns, also with one that is much slower than the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest

from harness.virtual import SeededChance, VirtualClock, run
from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.ledger.bucket.cells import Wish
from headwater.ledger.bucket.ledger import BucketLedger
from headwater.ledger.bucket.turns import LISTEN_SECONDS, YIELD_SECONDS
from headwater.objects.registers import Held, MemoryRegisters, Tag
from headwater.types import Domain, Position
from tests.support.promise import promise

PROMISES = ("M1",)

ONE = Domain(1)
RECORDS = 6
QUICK, SLOW = 0.001, 0.03
WISH = "ledger/v1/domain=1/wish"
T = TypeVar("T")


class Distant:
    """The same registers over a longer way. See `headwater.objects.registers.Registers`."""

    def __init__(self, inner: MemoryRegisters, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds
        self.wishes = 0
        self.looks = 0
        self.no_wishes = False
        """Whether this way is closed to wishes."""

    def _check(self, path: str) -> bool:
        """Whether it is a wish; refused if they are."""
        if path == WISH and self.no_wishes:
            raise StoreUnavailable("no wishes here")
        return path == WISH

    async def _travel(self, call: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(self._seconds)
        found = await call()
        await asyncio.sleep(self._seconds)
        return found

    async def read(self, path: str) -> Held | None:
        self.looks += self._check(path)
        return await self._travel(lambda: self._inner.read(path))

    async def create(self, path: str, data: bytes) -> Tag | None:
        return await self._travel(lambda: self._inner.create(path, data))

    async def replace(self, path: str, data: bytes, tag: Tag) -> Tag | None:
        return await self._travel(lambda: self._inner.replace(path, data, tag))

    async def put(self, path: str, data: bytes) -> None:
        self.wishes += self._check(path)
        await self._travel(lambda: self._inner.put(path, data))

    async def delete(self, path: str) -> None:
        await self._travel(lambda: self._inner.delete(path))

    async def tags(self, prefix: str) -> dict[str, str]:
        return await self._travel(lambda: self._inner.tags(prefix))

    async def close(self) -> None:
        return None


def ledger_on(way: Distant, seed: int) -> BucketLedger:
    return BucketLedger(way, clock=VirtualClock(), chance=SeededChance(seed))


async def beside_quick_ones(registers: MemoryRegisters, seed: int, work: Callable[[], Awaitable[None]]) -> None:
    """Do something while two writers on short ways never pause."""
    quick = [ledger_on(Distant(registers, QUICK), seed * 10 + i) for i in range(2)]
    done = asyncio.Event()

    async def never_pause(ledger: BucketLedger) -> None:
        while not done.is_set():
            await ledger.append(ONE, b"quick")

    writing = [asyncio.create_task(never_pause(ledger)) for ledger in quick]
    await asyncio.sleep(1)  # virtual seconds
    await work()
    done.set()
    await asyncio.gather(*writing)
    for ledger in quick:
        await ledger.close()


@promise("M1")
@pytest.mark.parametrize("seed", range(3))
def test_a_slow_writer_is_not_left_out(seed: int) -> None:
    """Beside writers that never pause, one that is thirty times as slow gets all its records in, by asking."""
    registers, waits = MemoryRegisters(), list[float]()
    far = Distant(registers, SLOW)

    async def go() -> None:
        slow = ledger_on(far, 1000 + seed)
        await slow.last(ONE)

        async def write() -> None:
            for number in range(RECORDS):
                began = asyncio.get_running_loop().time()
                await slow.append(ONE, str(number).encode())
                waits.append(asyncio.get_running_loop().time() - began)

        await beside_quick_ones(registers, seed, write)
        found, after = list[bytes](), Position(0)
        while entries := await slow.read(ONE, after, 1000):
            found += [entry.data for entry in entries]
            after = entries[-1].position
        assert [data for data in found if data != b"quick"] == [str(n).encode() for n in range(RECORDS)]
        await slow.close()

    run(go())
    assert far.wishes
    assert max(waits) < 2.0, waits  # virtual seconds: one round of a slow writer takes up to half of one


@promise("M1")
def test_without_wishes_it_would_be_left_out() -> None:
    """The other test tests something: who cannot ask gets no slot in five seconds."""
    registers = MemoryRegisters()
    far = Distant(registers, SLOW)
    far.no_wishes = True

    async def go() -> None:
        slow = ledger_on(far, 1000)

        async def write() -> None:
            with pytest.raises((OutcomeUnknown, StoreUnavailable), match="no slot could be written"):
                await slow.append(ONE, b"never")

        await beside_quick_ones(registers, 1, write)
        await slow.close()

    run(go())


@promise("M1")
def test_a_wish_of_one_that_died_costs_a_moment_once() -> None:
    """A writer waits for it once and not longer than the limit, and for an old wish not at all."""
    registers = MemoryRegisters()
    way = Distant(registers, QUICK)

    async def go() -> None:
        loop = asyncio.get_running_loop()
        ledger = ledger_on(way, 1)

        async def slowest(seconds: float) -> float:
            longest, until = 0.0, loop.time() + seconds
            while loop.time() < until:
                began = loop.time()
                await ledger.append(ONE, b"quick")
                longest = max(longest, loop.time() - began)
            return longest

        wish = Wish("ab" * 8, 0, "old")
        await registers.put(WISH, msgspec.json.encode(wish))
        usual = await slowest(3)
        assert usual < YIELD_SECONDS / 4
        await registers.put(WISH, msgspec.json.encode(msgspec.structs.replace(wish, name="of one that died")))
        assert YIELD_SECONDS <= await slowest(3) < YIELD_SECONDS + 0.2
        assert await slowest(3) < YIELD_SECONDS / 4
        await asyncio.sleep(60)
        await registers.put(WISH, msgspec.json.encode(msgspec.structs.replace(wish, name="made while it was idle")))
        assert await slowest(3) < YIELD_SECONDS / 4
        await ledger.close()

    run(go())


@promise("M1")
@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"writer":"nobody","end":0,"name":"n"}', b'{"writer":"","end":0,"name":"n"}']
)
def test_what_is_no_wish_is_not_granted(data: bytes) -> None:
    """Whatever lies there, writers go on."""
    registers = MemoryRegisters()
    way = Distant(registers, QUICK)

    async def go() -> None:
        loop = asyncio.get_running_loop()
        ledger = ledger_on(way, 1)
        await ledger.append(ONE, b"before")
        await registers.put(WISH, data)
        while loop.time() < 3:
            began = loop.time()
            await ledger.append(ONE, b"quick")
            assert loop.time() - began < YIELD_SECONDS / 4
        assert way.looks > 1
        await ledger.close()

    run(go())


@promise("M1")
def test_listening_costs_a_few_requests_a_second() -> None:
    """One look for wishes in a quarter of a second, and only while there is something to write."""
    registers = MemoryRegisters()
    way = Distant(registers, QUICK)

    async def go() -> None:
        loop = asyncio.get_running_loop()
        ledger = ledger_on(way, 1)
        while loop.time() < 10:
            await ledger.append(ONE, b"quick")
        assert 0 < way.looks <= 10 / LISTEN_SECONDS + 1
        before = way.looks
        await asyncio.sleep(10)
        assert way.looks == before
        assert not way.wishes
        await ledger.close()

    run(go())
