"""A bucket over a bad network, for the simulation: `BucketLedger` itself, over registers in memory.

What the store holds is what landed, under its conditions. A PUT may arrive long after its sender gave up, a reply may
be lost, a request may be refused. So the ledger's own reasoning about such PUTs is what runs here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from harness.virtual import SeededChance
from headwater.clock import Chance
from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.ledger.bucket.ledger import BucketLedger
from headwater.ledger.contract import Ledger
from headwater.objects.registers import Held, MemoryRegisters, Tag
from tests.simulation.stores import World

_T = TypeVar("_T")
PLACES = 128


class SimRegisters:
    """See `headwater.objects.registers.Registers`."""

    def __init__(self, world: World, inner: MemoryRegisters) -> None:
        self._world = world
        self._inner = inner

    async def _ask(self, work: Callable[[], Awaitable[_T]]) -> _T:
        world = self._world
        if world.outage or world.chance(world.faults.read_refused):
            await asyncio.sleep(world.delay())
            raise StoreUnavailable("the bucket refuses")
        return await world.travel(work)

    async def _write(self, work: Callable[[], Awaitable[_T]]) -> _T:
        world, faults = self._world, self._world.faults
        if world.outage or world.chance(faults.append_refused):
            await asyncio.sleep(world.delay())
            raise StoreUnavailable("the bucket refuses")
        if world.chance(faults.append_lost):
            await asyncio.sleep(world.delay())
            raise OutcomeUnknown("lost on the way")
        if world.chance(faults.append_late):
            world.loop.outside(world.rng.random() * faults.late_seconds, _land, work)
            await asyncio.sleep(world.delay())
            raise OutcomeUnknown("still on the way")
        result = await world.travel(work)
        if world.chance(faults.append_reply_lost):
            raise OutcomeUnknown("the reply was lost")
        return result

    async def read(self, path: str) -> Held | None:
        return await self._ask(lambda: self._inner.read(path))

    async def create(self, path: str, data: bytes) -> Tag | None:
        return await self._write(lambda: self._inner.create(path, data))

    async def replace(self, path: str, data: bytes, tag: Tag) -> Tag | None:
        return await self._write(lambda: self._inner.replace(path, data, tag))

    async def put(self, path: str, data: bytes) -> None:
        await self._write(lambda: self._inner.put(path, data))

    async def delete(self, path: str) -> None:
        await self._write(lambda: self._inner.delete(path))

    async def tags(self, prefix: str) -> dict[str, str]:
        return await self._ask(lambda: self._inner.tags(prefix))

    async def close(self) -> None:
        return None


class _SimClock:
    """The world's time. See `headwater.clock.Clock`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wall_ms(self) -> int:
        return int(self._world.loop.now * 1000)

    def monotonic(self) -> float:
        return self._world.loop.now


def _land(work: Callable[[], Awaitable[object]]) -> None:
    """Do what was held up. A store in memory never waits."""
    with contextlib.suppress(StopIteration):
        work().__await__().send(None)
        raise AssertionError("a store in memory must not wait")


def use_bucket(world: World) -> None:
    """Let a world's ledger lie in a bucket, in a ring that is soon lapped."""
    registers, clock = MemoryRegisters(), _SimClock(world)

    def open_ledger(chance: Chance) -> Ledger:
        return BucketLedger(SimRegisters(world, registers), places=PLACES, clock=clock, chance=chance)

    world.open_ledger = open_ledger
    world.verdict_ledger = BucketLedger(registers, places=PLACES, clock=clock, chance=SeededChance())
