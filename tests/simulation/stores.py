"""Ledger and object store as a node sees them over a bad network.

The stores themselves are correct: what they hold is what landed. What a node hears of it may be late, lost or wrong.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.loop import SimLoop
from headwater.clock import Chance
from headwater.errors import OutcomeUnknown, StoreUnavailable
from headwater.ledger.contract import Beat, Entry, Ledger, Pointer
from headwater.ledger.memory import MemoryLedger
from headwater.log.wal import format as wal
from headwater.objects.memory import MemoryStore
from headwater.objects.store import ObjectInfo
from headwater.replica.checkpoint import decode_checkpoint
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Pieces, Position

ONE = Domain(1)
CHECKPOINTS = f"meta/v1/domain={ONE}/checkpoint/"
_T = TypeVar("_T")


@dataclass(slots=True)
class Faults:
    """How bad the network is. All are chances per call."""

    append_lost: float = 0.0
    """The record never arrives, and the writer does not know."""
    append_reply_lost: float = 0.0
    append_late: float = 0.0
    """The record arrives long after its writer gave up."""
    late_seconds: float = 8.0
    append_refused: float = 0.0
    put_refused: float = 0.0
    put_reply_lost: float = 0.0
    put_slow: float = 0.0
    slow_seconds: float = 5.0
    read_refused: float = 0.0
    delay: float = 0.005


class World:
    """What all nodes share."""

    def __init__(self, loop: SimLoop, rng: random.Random, faults: Faults) -> None:
        self.loop = loop
        self.rng = rng
        self.faults = faults
        self.ledger = MemoryLedger()
        self.open_ledger: Callable[[Chance], Ledger] = lambda chance: SimLedger(self)
        """One process's way to the ledgers."""
        self.verdict_ledger: Ledger = self.ledger
        """The same ledgers, seen without a network between."""
        self.store = MemoryStore()
        self.outage_until = 0.0
        self.lost: list[str] = []
        """Objects that were deleted although the newest checkpoint needs them."""
        self._needed: tuple[str, set[str]] = ("", set())
        """The path of the newest checkpoint, and the objects that it needs."""

    def delay(self) -> float:
        """Mostly short, sometimes long."""
        mean = self.faults.delay
        return -math.log(1.0 - self.rng.random()) / (1 / mean) if mean else 0.0  # `expovariate`, without its call

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability

    @property
    def outage(self) -> bool:
        return self.loop.now < self.outage_until

    async def delete(self, path: str) -> None:
        """Delete an object. If the ledger were lost now, the newest checkpoint would need some of them."""
        if path.startswith(("wal/", "tables/")) and path in await self._needed_now():
            self.lost.append(path)
        await self.store.delete(path)

    async def _needed_now(self) -> set[str]:
        newest = max((path for path in self.store.objects if path.startswith(CHECKPOINTS)), default="")
        if newest and newest != self._needed[0]:
            state = StreamsState(ONE)
            decode_checkpoint(await self.store.get(newest), state)
            self._needed = newest, set(needed_by(state))
        return self._needed[1]

    async def travel(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Send a request, have it done whether or not the sender still lives, and bring the reply."""
        reply: asyncio.Future[_T] = self.loop.create_future()

        def arrive() -> None:
            try:
                result = _now(work())
            except Exception as error:  # noqa: BLE001 - it is the sender's to see
                self.loop.outside(self.delay(), _fail, reply, error)
            else:
                self.loop.outside(self.delay(), _resolve, reply, result)

        self.loop.outside(self.delay(), arrive)
        return await reply


def needed_by(state: StreamsState) -> Iterator[str]:
    """The objects that the index or the tables of a state name."""
    for found in state.objects:
        if not found.dead_ms:
            yield wal.path_of(found.zone, state.domain, found.created_ms, found.id)
    for table in state.tables.values():
        if not table.dropped:
            yield from (f"{table.root}/{file.name}" for file in table.files.values() if not file.removed)


def _now(work: Awaitable[_T]) -> _T:
    """The result of a coroutine that never waits."""
    try:
        work.__await__().send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("a store in memory must not wait")


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class SimLedger:
    """See `headwater.ledger.contract.Ledger`."""

    dense = True

    def __init__(self, world: World) -> None:
        self._world = world
        self._inner = world.ledger

    async def append(self, domain: Domain, record: bytes) -> Position:
        world, faults = self._world, self._world.faults
        if world.outage or world.chance(faults.append_refused):
            await asyncio.sleep(world.delay())
            raise StoreUnavailable("the ledger refuses")
        if world.chance(faults.append_lost):
            await asyncio.sleep(world.delay())
            raise OutcomeUnknown("lost on the way")
        if world.chance(faults.append_late):
            world.loop.outside(world.rng.random() * faults.late_seconds, self._inner.append_now, domain, record)
            await asyncio.sleep(world.delay())
            raise OutcomeUnknown("still on the way")
        position = await world.travel(lambda: self._inner.append(domain, record))
        if world.chance(faults.append_reply_lost):
            raise OutcomeUnknown("the reply was lost")
        return position

    async def _ask(self, work: Callable[[], Awaitable[_T]]) -> _T:
        world = self._world
        if world.outage or world.chance(world.faults.read_refused):
            await asyncio.sleep(world.delay())
            raise StoreUnavailable("the ledger refuses")
        return await world.travel(work)

    async def read(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        return await self._ask(lambda: self._inner.read(domain, after, limit))

    async def last(self, domain: Domain) -> Position:
        return await self._ask(lambda: self._inner.last(domain))

    async def watch(self, domain: Domain, after: Position) -> Position:
        position = await self._inner.watch(domain, after)
        await asyncio.sleep(self._world.delay())
        return position

    async def truncate(self, domain: Domain, through: Position) -> None:
        await self._ask(lambda: self._inner.truncate(domain, through))

    async def pointer(self, domain: Domain) -> Pointer | None:
        return await self._ask(lambda: self._inner.pointer(domain))

    async def set_pointer(self, domain: Domain, expected: Position, pointer: Pointer) -> bool:
        return await self._ask(lambda: self._inner.set_pointer(domain, expected, pointer))

    async def beat(self, process: str) -> None:
        await self._ask(lambda: self._inner.beat(process))

    async def beats(self) -> list[Beat]:
        return await self._ask(self._inner.beats)

    async def forget_beat(self, process: str) -> None:
        await self._ask(lambda: self._inner.forget_beat(process))

    async def close(self) -> None:
        return None


class SimStore:
    """See `headwater.objects.store.ObjectStore`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._inner = world.store
        self.url = "memory://"

    async def put(self, path: str, pieces: Pieces) -> None:
        world, faults = self._world, self._world.faults
        if world.outage or world.chance(faults.put_refused):
            await asyncio.sleep(world.delay())
            raise StoreUnavailable("the store refuses")
        data = b"".join(pieces)
        if world.chance(faults.put_slow):
            await asyncio.sleep(world.rng.random() * faults.slow_seconds)
        await world.travel(lambda: self._inner.put(path, [data]))
        if world.chance(faults.put_reply_lost):
            raise StoreUnavailable("the reply was lost")

    async def create(self, path: str, pieces: Pieces) -> bool:
        world, faults = self._world, self._world.faults
        if world.outage or world.chance(faults.put_refused):
            await asyncio.sleep(world.delay())
            raise StoreUnavailable("the store refuses")
        data = b"".join(pieces)
        if world.chance(faults.put_slow):
            await asyncio.sleep(world.rng.random() * faults.slow_seconds)
        stored = await world.travel(lambda: self._inner.create(path, [data]))
        if world.chance(faults.put_reply_lost):
            raise OutcomeUnknown("the reply was lost")
        return stored

    async def _ask(self, work: Callable[[], Awaitable[_T]]) -> _T:
        world = self._world
        if world.outage or world.chance(world.faults.read_refused):
            await asyncio.sleep(world.delay())
            raise StoreUnavailable("the store refuses")
        return await world.travel(work)

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._ask(lambda: self._inner.get(path, start, length))

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return await self._ask(lambda: self._inner.get_many(paths))

    async def size(self, path: str) -> int:
        return await self._ask(lambda: self._inner.size(path))

    async def delete(self, path: str) -> None:
        await self._ask(lambda: self._world.delete(path))

    async def scan(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        async for info in self._inner.scan(prefix):
            yield info

    async def close(self) -> None:
        return None
