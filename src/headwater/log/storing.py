"""Storing an object in spite of a store that is now and then slow.

Flushes enter the ledger in the order their batches came, so one slow upload holds up all behind it. After a while the
same bytes are sent a second time to the same path, and whichever arrives first counts: one upload in a few dozen costs
twice, and the longest waits are gone. An upload that lands after its object was collected is an orphan, like those that
a crash leaves, and goes with them once its writer's epoch is fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from headwater.errors import HeadwaterError
from headwater.objects import ObjectStore
from headwater.objects.guarding import put_once
from headwater.types import Pieces


class Storing:
    """Puts objects, at most twice each at the same time."""

    def __init__(self, store: ObjectStore, hedge_ms: int) -> None:
        self._store = store
        self._seconds = hedge_ms / 1000
        self.hedged = 0
        """How many were sent a second time."""

    def __repr__(self) -> str:
        return f"<Storing, {self.hedged} sent twice>"

    def begin(self, path: str, pieces: Pieces) -> Awaitable[None]:
        """Store an object; whoever waits for it goes on when it is stored, or for certain cannot be.

        A store that can begins at once, any other when it is waited for.
        """
        return put_once(self._store, path, pieces) if not self._seconds else self._put(path, pieces)

    async def _put(self, path: str, pieces: Pieces) -> None:
        puts = [asyncio.ensure_future(put_once(self._store, path, pieces))]
        try:
            done, _ = await asyncio.wait(puts, timeout=self._seconds)
            if not done:
                self.hedged += 1
                puts.append(asyncio.ensure_future(put_once(self._store, path, pieces)))
            await _first(puts)
        finally:
            for put in puts:
                put.cancel()


async def _first(puts: Sequence[asyncio.Future[None]]) -> None:
    """Wait for the first that succeeds, or until all have failed."""
    left = set(puts)
    error: BaseException | None = None
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for put in done:
            failure = put.exception()
            if failure is None:
                return
            if not isinstance(failure, HeadwaterError):
                raise failure
            error = failure
    assert error is not None
    raise error
