"""Storing objects in a store that is sometimes slow.

Flushes append to the ledger in the order in which their batches arrived, so one slow upload delays all after it. After
a while the same bytes are sent a second time to the same path, and the first upload that succeeds counts. This doubles
the cost of one upload in a few dozen and removes the longest waits. An upload may finish after its object was deleted.
It is then an orphan, as after a crash, and is deleted once the epoch of its writer is fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from headwater.background import consume, launch
from headwater.errors import HeadwaterError
from headwater.objects import ObjectStore
from headwater.objects.guarding import put_once
from headwater.types import Pieces


class Storing:
    """Puts objects, with at most two uploads of each."""

    def __init__(self, store: ObjectStore, hedge_ms: int) -> None:
        self._store = store
        self._seconds = hedge_ms / 1000
        self.hedged = 0
        """How many objects were sent a second time."""

    def __repr__(self) -> str:
        return f"<Storing, {self.hedged} sent twice>"

    def begin(self, path: str, pieces: Pieces) -> Awaitable[None]:
        """Store an object. The result completes when the object is stored, and fails when it certainly cannot be.

        Stores that support it begin at once; the others begin when the result is awaited.
        """
        return put_once(self._store, path, pieces) if not self._seconds else self._put(path, pieces)

    async def _put(self, path: str, pieces: Pieces) -> None:
        puts = [self._send(path, pieces)]
        try:
            done, _ = await asyncio.wait(puts, timeout=self._seconds)
            if not done:
                self.hedged += 1
                puts.append(self._send(path, pieces))
            await _first(puts)
        finally:
            for put in puts:
                put.cancel()

    def _send(self, path: str, pieces: Pieces) -> asyncio.Task[None]:
        put = launch(put_once(self._store, path, pieces))
        put.add_done_callback(consume)  # the slower upload may fail after the other has succeeded
        return put


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
