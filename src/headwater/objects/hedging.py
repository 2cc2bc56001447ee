"""A second request for reads whose answer is late: two requests are rarely both slow.

A second request costs money, so only a small share of reads may have one. While the whole store is slow there are
almost none: all reads are late, and the share is used up at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from headwater.background import launch
from headwater.clock import Clock
from headwater.errors import ObjectMissing
from headwater.objects.stats import StoreStats
from headwater.objects.wrapper import ResumableStore, Wrapper
from headwater.settings.objects import StoreOptions

SAMPLES = 256
FEWEST_SAMPLES = 32
"""Reads that must be measured before the time of a late answer is known."""
SAMPLES_PER_LOOK = 16
LATE = 0.95
MOST_CREDIT = 10.0
"""Second requests that may follow each other after a long time without any."""


class Lateness:
    """When a read is late, and whether it may be sent again. No I/O."""

    def __init__(self, percent: int, fixed_ms: int) -> None:
        self._share = percent / 100
        self._credit = 0.0
        self._seconds: deque[float] = deque(maxlen=SAMPLES)
        self._fixed = fixed_ms / 1000
        self._late = self._fixed
        self._unseen = 0

    @property
    def seconds(self) -> float:
        """How long to wait for the first answer; 0 while it is not known."""
        return self._late

    def begun(self) -> None:
        """Count a read, which adds its share to the credit."""
        self._credit = min(MOST_CREDIT, self._credit + self._share)

    def took(self, seconds: float) -> None:
        """Note the time that a read took."""
        self._seconds.append(seconds)
        self._unseen += 1
        if not self._fixed and len(self._seconds) >= FEWEST_SAMPLES and self._unseen >= SAMPLES_PER_LOOK:
            self._unseen = 0
            self._late = sorted(self._seconds)[int(len(self._seconds) * LATE)]

    def take(self) -> bool:
        """Take one second request from the credit; false if there is none."""
        if self._credit < 1:
            return False
        self._credit -= 1
        return True


class HedgedStore(Wrapper):
    """Sends late reads a second time. The first answer counts; the other request is cancelled."""

    def __init__(self, inner: ResumableStore, options: StoreOptions, stats: StoreStats, clock: Clock) -> None:
        super().__init__(inner, options.gets_at_once)
        self._stats = stats
        self._clock = clock
        self._lateness = Lateness(options.hedge_percent, options.hedge_ms)

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self._lateness.begun()
        began = self._clock.monotonic()
        asked = [launch(self.inner.get(path, start, length))]
        try:
            if late := self._lateness.seconds:
                await asyncio.wait(asked, timeout=late)
                if not asked[0].done() and self._lateness.take():
                    self._stats.hedges += 1
                    asked.append(launch(self.inner.get(path, start, length)))
            data = await self._first(asked)
        finally:
            for request in asked:
                request.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        self._lateness.took(self._clock.monotonic() - began)
        return data

    async def _first(self, asked: Sequence[asyncio.Future[bytes]]) -> bytes:
        """The first answer. A failure is raised only if no other request is under way."""
        waiting = set(asked)
        while True:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for request in done:
                error = request.exception()
                if error is None or isinstance(error, ObjectMissing) or not waiting:
                    if error is None and request is not asked[0]:
                        self._stats.hedges_won += 1
                    return request.result()
