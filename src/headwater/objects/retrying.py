"""Retries within limits: their number, their time, and a budget over all calls.

The bound of a pause doubles up to a limit, and each pause is a random part of it ("full jitter"), so that calls which
failed together do not come back together. The budget keeps an outage from being multiplied: once it is used up a call
fails at once, and only as many retries are made as the budget gains per second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from headwater.clock import Chance, Clock
from headwater.errors import OutcomeUnknown, Retriable, StoreFull, StoreUnavailable
from headwater.objects.stats import OperationStats, StoreStats
from headwater.objects.store import ObjectInfo, StoreRefused
from headwater.objects.wrapper import ResumableStore, Wrapper
from headwater.settings.objects import StoreOptions
from headwater.types import Pieces

_T = TypeVar("_T")
_LASTING = (StoreRefused, StoreFull)
"""Failures that a retry would meet too."""


class RetryBudget:
    """A token bucket: each retry takes a token, and some are added every second."""

    def __init__(self, size: int, per_second: int, clock: Clock) -> None:
        self._size = size
        self._per_second = per_second
        self._clock = clock
        self._tokens = float(size)
        self._seen = clock.monotonic()

    def __repr__(self) -> str:
        return f"<RetryBudget {self._tokens:.1f} of {self._size}>"

    def take(self) -> bool:
        """Take a token for one retry; false if there is none."""
        now = self._clock.monotonic()
        self._tokens = min(self._size, self._tokens + (now - self._seen) * self._per_second)
        self._seen = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class RetryingStore(Wrapper):
    """Retries calls after failures that may pass.

    A `put` may be repeated because objects are immutable: the same path gets the same bytes. A `create` may be repeated
    because the inner store compares what it finds with what it sent. If the outcome of one attempt is unknown, so is
    that of the whole call, unless a later attempt is answered.
    """

    def __init__(
        self, inner: ResumableStore, options: StoreOptions, stats: StoreStats, clock: Clock, chance: Chance
    ) -> None:
        super().__init__(inner, options.gets_at_once)
        self._options = options
        self._stats = stats
        self._clock = clock
        self._chance = chance
        self._budget = RetryBudget(options.retry_budget, options.retry_budget_per_second, clock)

    async def put(self, path: str, pieces: Pieces) -> None:
        await self._in_time(path, self._repeated(self._stats.put, lambda: self.inner.put(path, pieces)))

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        got = self._repeated(self._stats.get, lambda: self.inner.get(path, start, length))
        return await self._in_time(path, got)

    async def size(self, path: str) -> int:
        return await self._in_time(path, self._repeated(self._stats.size, lambda: self.inner.size(path)))

    async def delete(self, path: str) -> None:
        await self._in_time(path, self._repeated(self._stats.delete, lambda: self.inner.delete(path)))

    async def create(self, path: str, pieces: Pieces) -> bool:
        try:
            async with asyncio.timeout(self._options.total_ms / 1000):
                return await self._created(path, pieces)
        except TimeoutError:
            raise OutcomeUnknown(f"{path}: no answer within {self._options.total_ms} ms") from None

    async def _created(self, path: str, pieces: Pieces) -> bool:
        unknown: OutcomeUnknown | None = None
        failure: Retriable
        for attempt in range(self._options.retries + 1):
            try:
                return await self.inner.create(path, pieces)
            except OutcomeUnknown as error:
                unknown, failure = error, error
            except StoreUnavailable as error:
                if isinstance(error, _LASTING):
                    raise unknown or error from None
                failure = error
            if not await self._may_go_on(self._stats.create, attempt):
                break
        raise unknown or failure

    async def scan(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """A listing that fails continues behind its last path: stores list in the order of the bytes."""
        attempt = 0
        while True:
            try:
                async for info in self.inner.scan(prefix, after):
                    after, attempt = info.path, 0
                    yield info
                return
            except StoreUnavailable as error:
                if isinstance(error, _LASTING) or not await self._may_go_on(self._stats.scan, attempt):
                    raise
                attempt += 1

    async def _in_time(self, path: str, call: Awaitable[_T]) -> _T:
        try:
            async with asyncio.timeout(self._options.total_ms / 1000):
                return await call
        except TimeoutError:
            raise StoreUnavailable(f"{path}: no answer within {self._options.total_ms} ms") from None

    async def _repeated(self, counted: OperationStats, call: Callable[[], Awaitable[_T]]) -> _T:
        attempt = 0
        while True:
            try:
                return await call()
            except StoreUnavailable as error:
                if isinstance(error, _LASTING) or not await self._may_go_on(counted, attempt):
                    raise
                attempt += 1

    async def _may_go_on(self, counted: OperationStats, attempt: int) -> bool:
        """Pause before the next attempt; false if there may be none."""
        if attempt >= self._options.retries:
            return False
        if not self._budget.take():
            self._stats.retries_denied += 1
            return False
        counted.retries += 1
        await asyncio.sleep(pause_ms(attempt, self._options, self._chance) / 1000)
        return True


def pause_ms(attempt: int, options: StoreOptions, chance: Chance) -> float:
    """A random part of a bound that doubles with every attempt."""
    return min(options.max_backoff_ms, options.backoff_ms << min(attempt, 30)) * chance.fraction()
