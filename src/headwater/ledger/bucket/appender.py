"""Appends to a ring: records are queued, gathered into batches, and a batch is retried until it is in a slot.

Writers that want the same slots take turns: `ledger/bucket/turns.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.background import spawn
from headwater.clock import Chance, Clock
from headwater.errors import HeadwaterError, OutcomeUnknown, Overloaded, StoreUnavailable
from headwater.ledger.bucket.counts import Counts
from headwater.ledger.bucket.ring import DomainRing, Taken
from headwater.ledger.bucket.slots import MAX_BATCH_BYTES, MAX_RECORDS, Identity, Slot, position_of
from headwater.ledger.bucket.turns import Turns
from headwater.types import Position

MAX_QUEUED = 10_000
MAX_FAILURES = 6
"""How often a batch is tried while the store does not answer. If each try fails at once, that takes half a second."""
PAUSE_SECONDS = 0.02
PAUSE_LIMIT_SECONDS = 1.0

log = logging.getLogger("headwater.ledger")


@dataclass(slots=True)
class _Pending:
    record: bytes
    future: asyncio.Future[Position]


class Appender:
    """The appends of one handle to one domain. One slot is under way; the other records wait for the next slot."""

    def __init__(
        self,
        ring: DomainRing,
        writer: bytes,
        counts: Counts,
        clock: Clock,
        chance: Chance,
        patience_seconds: float,
        on_written: Callable[[Slot], None],
    ) -> None:
        self._ring = ring
        self._writer = writer
        self._counts = counts
        self._clock = clock
        self._chance = chance
        self._patience = patience_seconds
        self._on_written = on_written
        self._attempt = 0
        self._queue: deque[_Pending] = deque()
        self._task: asyncio.Task[None] | None = None
        self._turns = Turns(ring, writer, clock, chance)

    def __repr__(self) -> str:
        return f"<Appender of {self._ring}: {len(self._queue)} queued>"

    async def append(self, record: bytes) -> Position:
        """Queue a record and wait for its outcome."""
        if len(self._queue) >= MAX_QUEUED:
            raise Overloaded(f"domain {self._ring.domain} has {MAX_QUEUED} appends waiting")
        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._queue.append(_Pending(record, future))
        if self._task is None or self._task.done():
            self._task = spawn(self._run(), f"ledger-append-{self._ring.domain}")
        return await future

    async def close(self) -> None:
        """Stop. Queued records are not appended. The outcome of a batch under way is unknown."""
        while self._queue:
            _fail(self._queue.popleft(), StoreUnavailable("the ledger is closed"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._turns.close()

    async def _run(self) -> None:
        while self._queue:
            batch = self._take()
            if not batch:
                continue
            try:
                sequence = await self._settle([pending.record for pending in batch])
            except HeadwaterError as error:
                for pending in batch:
                    _fail(pending, error)
            except asyncio.CancelledError:
                for pending in batch:
                    _fail(pending, OutcomeUnknown("the append was interrupted: the ledger is closed"))
                raise
            except Exception as error:
                log.exception("an append failed", extra={"domain": self._ring.domain})
                for pending in batch:
                    _fail(pending, OutcomeUnknown(f"the append was interrupted: {error!r}"))
            else:
                for index, pending in enumerate(batch):
                    if not pending.future.done():
                        pending.future.set_result(position_of(sequence, index))

    def _take(self) -> list[_Pending]:
        batch: list[_Pending] = []
        size = 0
        while self._queue and len(batch) < MAX_RECORDS:
            size += len(self._queue[0].record)
            if batch and size > MAX_BATCH_BYTES:
                break
            pending = self._queue.popleft()
            if not pending.future.done():
                batch.append(pending)
        return batch

    # --- one batch -------------------------------------------------------------------------------------

    async def _settle(self, records: Sequence[bytes]) -> int:
        """Write one batch. Returns the slot that holds it."""
        self._attempt += 1
        attempt = _Attempt(Identity(self._writer, self._attempt), tuple(records))
        try:
            async with asyncio.timeout(self._patience):
                await self._ring.open()
                return await self._write_until_it_stands(attempt)
        except TimeoutError:
            message = f"domain {self._ring.domain}: no slot could be written in {self._patience} seconds"
            raise (OutcomeUnknown(message) if attempt.aimed else StoreUnavailable(message)) from None
        except _Lapped as error:
            raise OutcomeUnknown(str(error)) from error
        except StoreUnavailable as error:
            if attempt.aimed:
                raise OutcomeUnknown(str(error)) from error
            raise

    async def _write_until_it_stands(self, attempt: _Attempt) -> int:
        ring = self._ring
        pause = PAUSE_SECONDS
        while True:
            target = attempt.aimed or ring.end + 1
            slot = Slot(ring.domain, target, attempt.identity, attempt.records)
            try:
                if attempt.aimed and (stands := await self._judge(attempt)) is not None:
                    if stands:
                        return self._won(slot)
                    attempt.aimed = 0
                    self._counts.lost += 1
                    self._turns.lost()
                    continue
                if not attempt.aimed:
                    await self._turns.wait()
                    slot = Slot(ring.domain, ring.end + 1, attempt.identity, attempt.records)
                if await self._put(slot, attempt):
                    return self._won(slot)
            except Taken:
                self._turns.lost()
                await ring.look(width=2)
            except OutcomeUnknown:
                attempt.failures += 1
                if attempt.failures >= MAX_FAILURES:
                    raise
                await asyncio.sleep(pause * (0.5 + self._chance.fraction()))
                pause = min(pause * 2, PAUSE_LIMIT_SECONDS)

    async def _put(self, slot: Slot, attempt: _Attempt) -> bool:
        """Send a slot once. Unless the answer is success, the PUT may have taken effect, or may still do so."""
        began = self._clock.monotonic()
        before, attempt.aimed = attempt.aimed, slot.sequence
        try:
            tag = await self._ring.write(slot)
        except (StoreUnavailable, Taken):
            attempt.aimed = before
            raise
        if tag is None:
            return False
        self._turns.won(self._clock.monotonic() - began)
        self._ring.adopt(slot, tag)
        return True

    async def _judge(self, attempt: _Attempt) -> bool | None:
        """Whether the slot that was aimed at holds this batch (else another, for ever). `None` if it is not written."""
        try:
            # A writer that lost needs the current end soon. The next slot is written, so reading two takes one round.
            await self._ring.look(width=2)
            found = self._ring.known(attempt.aimed) or await self._ring.fetch(attempt.aimed)
        except StoreUnavailable as error:
            raise OutcomeUnknown(str(error)) from error
        if found is None or found.sequence < attempt.aimed:
            return None
        if found.sequence > attempt.aimed:
            raise _Lapped(f"domain {self._ring.domain}: slot {attempt.aimed} was replaced before it could be read back")
        self._ring.adopt(found)
        return found.identity == attempt.identity

    def _won(self, slot: Slot) -> int:
        self._counts.commits += 1
        self._counts.records += len(slot.records)
        self._turns.won()
        self._ring.prepare()
        self._on_written(slot)
        return slot.sequence


@dataclass(slots=True)
class _Attempt:
    identity: Identity
    records: tuple[bytes, ...]
    aimed: int = 0
    """The slot for which a PUT may be under way; 0 if none can be."""
    failures: int = 0
    """How often the outcome of a PUT was unknown."""


class _Lapped(HeadwaterError):
    """The slot was replaced by a later lap, so it is no longer known whether it held the batch."""


def _fail(pending: _Pending, error: Exception) -> None:
    if not pending.future.done():
        pending.future.set_exception(error)
