"""A limit on the requests under way, over all callers, and a count of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from headwater.objects.stats import OperationStats, StoreStats
from headwater.objects.store import ObjectInfo
from headwater.objects.wrapper import ResumableStore, Wrapper
from headwater.settings.objects import StoreOptions
from headwater.types import Pieces

_T = TypeVar("_T")


class LimitedStore(Wrapper):
    """Lets a number of requests through at once; the others wait in line.

    Listings are counted but not limited: a caller often deletes objects while it lists them, and would wait for itself.
    """

    def __init__(self, inner: ResumableStore, options: StoreOptions, stats: StoreStats) -> None:
        super().__init__(inner, options.gets_at_once)
        self._turns = asyncio.Semaphore(options.requests)
        self._stats = stats

    async def put(self, path: str, pieces: Pieces) -> None:
        await self._in_turn(self._stats.put, lambda: self.inner.put(path, pieces))

    async def create(self, path: str, pieces: Pieces) -> bool:
        return await self._in_turn(self._stats.create, lambda: self.inner.create(path, pieces))

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._in_turn(self._stats.get, lambda: self.inner.get(path, start, length))

    async def size(self, path: str) -> int:
        return await self._in_turn(self._stats.size, lambda: self.inner.size(path))

    async def delete(self, path: str) -> None:
        await self._in_turn(self._stats.delete, lambda: self.inner.delete(path))

    def scan(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        self._stats.scan.requests += 1
        return self.inner.scan(prefix, after)

    async def _in_turn(self, counted: OperationStats, call: Callable[[], Awaitable[_T]]) -> _T:
        async with self._turns:
            counted.requests += 1
            self._stats.under_way += 1
            try:
                return await call()
            finally:
                self._stats.under_way -= 1
