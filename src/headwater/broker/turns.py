"""Turns of the event loop for requests and answers with many items.

A request may name thousands of topics, and an answer may have thousands of partitions. Such work is done in slices of
`SLICE_ITEMS` items. The whole broker does at most one slice in a turn of the event loop, after the first slice of each
request, so that other clients are served in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from headwater.clock import Clock

_T = TypeVar("_T")

SLICE_ITEMS = 256
"""Items of work between two turns of the event loop. An item is about as much as a partition in an answer."""

REST = 0.25
"""Pause after a slice, as a part of the time that it took."""


class Turns:
    """Gives one slice of work after the other a turn of the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._due = False
        self.taken = 0
        """How many turns were given."""

    def __repr__(self) -> str:
        return f"<Turns, {len(self._waiting)} waiting>"

    async def turn(self) -> None:
        """Wait for a turn of the event loop with no other slice in it."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[None] = loop.create_future()
        self._waiting.append(mine)
        if not self._due:
            self._due = True
            loop.call_soon(self._next, loop)
        await mine

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # its request was not cancelled
                self.taken += 1
                first.set_result(None)
                break
        loop.call_soon(self._rest, loop, self._clock.monotonic())

    def _rest(self, loop: asyncio.AbstractEventLoop, began: float) -> None:
        """After a slice, give others a part of the time that it took, if more than one request has slices to do."""
        self._due = bool(self._waiting)
        if len(self._waiting) > 1:
            loop.call_later((self._clock.monotonic() - began) * REST, self._next, loop)
        elif self._due:
            loop.call_soon(self._next, loop)

    def work(self) -> Work:
        """The work of one request."""
        return Work(self)


class Work:
    """Counts the items of one request, and waits for a turn after each slice."""

    __slots__ = ("_done", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._done = 0

    def __repr__(self) -> str:
        return f"<Work, {self._done} items since the last turn>"

    async def did(self, items: int = 1) -> None:
        """Note that items were processed."""
        self._done += items
        if self._done >= SLICE_ITEMS:
            self._done = 0
            await self._turns.turn()

    async def over(self, items: Iterable[_T]) -> AsyncIterator[_T]:
        """The items, each of which counts. The iterable must not change meanwhile."""
        for item in items:
            yield item
            await self.did()
