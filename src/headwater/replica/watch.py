"""Waiting for streams to change, without a look at those that did not."""

from __future__ import annotations

import asyncio
from typing import Any

from headwater.clock import Clock


class Watch:
    """Notes which streams have changed, of those for which it is registered at replicas (`Replica.watch`)."""

    __slots__ = ("_clock", "_woken", "changed")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._woken: asyncio.Future[None] | None = None
        self.changed: dict[tuple[int, int], None] = {}
        """(domain, stream), in the order of the first change."""

    def __repr__(self) -> str:
        return f"<Watch, {len(self.changed)} streams have changed>"

    def note(self, domain: int, stream: int) -> None:
        """A stream has changed."""
        self.changed[(domain, stream)] = None
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def news(self, deadline: float, *ends: asyncio.Future[Any]) -> list[tuple[int, int]]:
        """The streams that have changed since the last call, as soon as there is one.

        Empty after the deadline, or when one of `ends` is done.
        """
        left = deadline - self._clock.monotonic()
        if not self.changed and left > 0:
            self._woken = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait([self._woken, *ends], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._woken.cancel()
                self._woken = None
        found = list(self.changed)
        self.changed.clear()
        return found
