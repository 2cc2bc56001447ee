"""Whether a gateway has more to do than it can: how late its event loop comes to what is due."""

from __future__ import annotations

import asyncio
from collections import deque

from headwater.background import Background, Duty, OnDeath, Supervised
from headwater.clock import Clock
from headwater.gateway.problems import OVERLOADED, Refusal

EVERY_SECONDS = 0.1
LOOKS = 3
"""Each of so many looks, one after the other, must be late: a single pause passes."""
LOAD = Duty("load", OnDeath.RESTART, "measures whether a gateway has more to do than it can")


class Load:
    """Refuses requests while the event loop of the process is late all the time.

    A request that is let in then would only wait behind the others. All of them would become slower, and none faster.
    """

    def __init__(self, most_ms: int, clock: Clock) -> None:
        self._most = most_ms / 1000
        self._clock = clock
        self._late: deque[float] = deque([0.0], maxlen=LOOKS)
        self._duty: Supervised | None = None

    def __repr__(self) -> str:
        return f"<Load, {self.seconds:.3f} s late>"

    @property
    def seconds(self) -> float:
        """How late the event loop is: the least of the last looks."""
        return min(self._late)

    def start(self, background: Background) -> None:
        """Begin to measure."""
        self._duty = background.run(LOAD, self._measure)

    async def close(self) -> None:
        """Measure no more."""
        if self._duty is not None:
            await self._duty.stop()

    async def _measure(self) -> None:
        while True:
            due = self._clock.monotonic() + EVERY_SECONDS
            await asyncio.sleep(EVERY_SECONDS)
            self._late.append(max(0.0, self._clock.monotonic() - due))

    def check(self) -> None:
        """Raise a refusal if the process is late."""
        if self.seconds > self._most:
            raise Refusal(OVERLOADED, f"the gateway is {self.seconds:.1f} s late (gateway.late_ms)")
