"""Counts and times of calls as callers see them, with retries and waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from headwater.clock import Clock
from headwater.errors import ConfigError, HeadwaterError, ObjectMissing
from headwater.objects.stats import OperationStats, StoreStats
from headwater.objects.store import ObjectInfo
from headwater.objects.wrapper import ResumableStore, Wrapper
from headwater.settings.objects import StoreOptions
from headwater.types import Pieces

_T = TypeVar("_T")


class MeasuredStore(Wrapper):
    """Counts every call in `stats`."""

    def __init__(self, inner: ResumableStore, options: StoreOptions, stats: StoreStats, clock: Clock) -> None:
        super().__init__(inner, options.gets_at_once)
        self.stats = stats
        self.guards = options.guard
        """See `headwater.objects.guarding`."""
        self._clock = clock

    async def put(self, path: str, pieces: Pieces) -> None:
        await self._measured(self.stats.put, self.inner.put(path, pieces), lambda _: sum(map(len, pieces)))

    async def create(self, path: str, pieces: Pieces) -> bool:
        created = self.inner.create(path, pieces)
        return await self._measured(self.stats.create, created, lambda stored: stored and sum(map(len, pieces)))

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._measured(self.stats.get, self.inner.get(path, start, length), len)

    async def size(self, path: str) -> int:
        return await self._measured(self.stats.size, self.inner.size(path), _none)

    async def delete(self, path: str) -> None:
        await self._measured(self.stats.delete, self.inner.delete(path), _none)

    async def scan(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Its time is not measured: it contains the caller's work between two objects."""
        try:
            async for info in self.inner.scan(prefix, after):
                yield info
        except HeadwaterError:
            self.stats.scan.errors += 1
            raise
        finally:
            self.stats.scan.calls += 1

    async def _measured(self, counted: OperationStats, call: Awaitable[_T], size: Callable[[_T], int]) -> _T:
        began = self._clock.monotonic()
        try:
            result = await call
        except (ObjectMissing, ConfigError):
            counted.done(self._clock.monotonic() - began)
            raise
        except HeadwaterError:
            counted.done(self._clock.monotonic() - began, failed=True)
            raise
        counted.done(self._clock.monotonic() - began, size(result))
        return result


def _none(_result: object) -> int:
    return 0
