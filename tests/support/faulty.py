"""A ledger that fails on demand."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headwater.errors import HeadwaterError, StoreUnavailable
from headwater.ledger.contract import Beat, Entry, Ledger, Pointer
from headwater.types import Domain, Position

_T = TypeVar("_T")


class FaultyLedger:
    """The ledger as one process uses it. A test can make its calls fail."""

    def __init__(self, inner: Ledger) -> None:
        self.inner = inner
        self.dense = inner.dense
        self.faults: list[tuple[bool, HeadwaterError]] = []
        """For each of the next appends: whether it is committed, and the error that the writer gets."""
        self.deaf = False
        """Whether `watch` reports nothing."""
        self.error: HeadwaterError | None = None
        """The error that every call raises now."""
        self.mute = False
        """Whether no beat arrives, though all else does."""
        self.pause = 0.0
        """The seconds that the next look at beats takes."""
        self.gate = asyncio.Event()
        """Appends wait for this event before they are committed."""
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
        if self.mute:
            raise StoreUnavailable("no beat arrives")
        await self._ask(lambda: self.inner.beat(process))

    async def beats(self) -> list[Beat]:
        pause, self.pause = self.pause, 0.0
        await asyncio.sleep(pause)
        return await self._ask(self.inner.beats)

    async def forget_beat(self, process: str) -> None:
        await self._ask(lambda: self.inner.forget_beat(process))

    async def close(self) -> None:
        return None
