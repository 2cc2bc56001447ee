"""Virtual time for tests of single parts: an event loop that never sleeps, clocks on it, and seeded chance."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from headwater.errors import HeadwaterError
from headwater.metadata.ledger import Beat, Entry, Ledger, Pointer
from headwater.types import Domain, Position
from tests.simulation.loop import SimLoop

EPOCH_MS = 1_700_000_000_000
LIMIT_SECONDS = 10_000.0

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine in virtual time. What it left running is cancelled."""
    loop = SimLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(asyncio.wait_for(work, LIMIT_SECONDS))
    finally:
        left = [task for task in loop.all_tasks if not task.done()]
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()


class VirtualClock:
    """The running loop's time; the wall clock can be set apart from it."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self.monotonic() * 1000) + self.ahead_ms

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class SeededChance:
    """The same every time."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def fraction(self) -> float:
        return self._random.random()

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)


class FaultyLedger:
    """One process's way to a ledger, which a test makes fail at will."""

    def __init__(self, inner: Ledger) -> None:
        self.inner = inner
        self.dense = inner.dense
        self.faults: list[tuple[bool, HeadwaterError]] = []
        """For the next appends, one each: whether it lands, and what the writer is told."""
        self.deaf = False
        """Whether `watch` hears nothing."""
        self.error: HeadwaterError | None = None
        """What every call raises at present."""
        self.gate = asyncio.Event()
        """Appends wait here before they land."""
        self.gate.set()
        self.appends = 0

    async def _ask(self, work: Callable[[], Awaitable[_T]]) -> _T:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return await work()

    async def append(self, domain: Domain, record: bytes) -> Position:
        self.appends += 1
        await self.gate.wait()
        if self.faults:
            lands, error = self.faults.pop(0)
            if lands:
                await self.inner.append(domain, record)
            raise error
        return await self._ask(lambda: self.inner.append(domain, record))

    async def read(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        return await self._ask(lambda: self.inner.read(domain, after, limit))

    async def last(self, domain: Domain) -> Position:
        return await self._ask(lambda: self.inner.last(domain))

    async def watch(self, domain: Domain, after: Position) -> Position:
        position = await self.inner.watch(domain, after)
        if self.deaf:
            await asyncio.Event().wait()
        return position

    async def truncate(self, domain: Domain, through: Position) -> None:
        await self._ask(lambda: self.inner.truncate(domain, through))

    async def pointer(self, domain: Domain) -> Pointer | None:
        return await self._ask(lambda: self.inner.pointer(domain))

    async def set_pointer(self, domain: Domain, expected: Position, pointer: Pointer) -> bool:
        return await self._ask(lambda: self.inner.set_pointer(domain, expected, pointer))

    async def beat(self, process: str) -> None:
        await self._ask(lambda: self.inner.beat(process))

    async def beats(self) -> list[Beat]:
        return await self._ask(self.inner.beats)

    async def forget_beat(self, process: str) -> None:
        await self._ask(lambda: self.inner.forget_beat(process))

    async def close(self) -> None:
        return None
