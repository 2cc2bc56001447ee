"""The write path: batches are gathered, stored as one WAL object, committed to the ledger, and then acknowledged.

A flush starts as soon as the store has a free slot and the interval of the profile has passed. It takes all batches
that have arrived. Uploads overlap; their records are appended to the ledger in the order in which the batches arrived.
A committed flush starts the next one before it answers its callers, so that the store is busy in the meantime.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from headwater.background import Background, Duty, OnDeath, Supervised, Tasks
from headwater.clock import Clock
from headwater.errors import (
    EpochLost,
    HeadwaterError,
    NotReady,
    OutcomeUnknown,
    Overloaded,
    Retriable,
    StoreUnavailable,
    TooLarge,
)
from headwater.log.batch import NO_PRODUCER
from headwater.log.wal import format as wal
from headwater.log.wal.cache import WalCache, WrittenWal
from headwater.log.write.budget import Budget
from headwater.log.write.handover import Handover
from headwater.log.write.holding import Holding
from headwater.log.write.layout import Layout, lay_out
from headwater.log.write.part import Outcome, Part, Together
from headwater.log.write.storing import Storing
from headwater.objects import ObjectStore
from headwater.replica.replica import Replica
from headwater.replica.room import OBJECTS
from headwater.settings.settings import Profile
from headwater.state.records import encode_command
from headwater.state.results import Appended, ChunkResult, Reason, Refused, Result, UnitVerdict, Verdict
from headwater.state.streams.index import NO_TIMESTAMP, OffsetIndex
from headwater.state.streams.state import StreamsState
from headwater.types import Epoch, StreamId, WalId

MAX_BATCHES_PER_OBJECT = 10_000
"""Keeps a ledger record well below the ledger's limit, whatever the size of the batches."""

MAX_MISSES = 6
GATHER_FLUSHES = 2
"""The longest wait for clients to send again, as a multiple of the duration of the last flush. A client that shares
the cores of its machine takes about one flush to fill its window again, so a wait of one flush is too short."""
WRITER = Duty("writer", OnDeath.END, "stores batches of one domain and profile and commits them to the ledger")


@dataclass(slots=True)
class _Flush:
    id: WalId
    parts: list[Part]
    units: list[Together]
    size: int
    """The bytes of the batches."""
    layout: Layout
    encoded: msgspec.Raw
    """The bytes of the command, encoded while the object is being uploaded."""
    path: str
    began: float
    storing: Awaitable[None]
    before: asyncio.Future[None] | None
    entered: asyncio.Future[None]
    slot: bool = True
    """Whether the flush still has its slot. If not, the next flush has taken it over."""


class Writer:
    """The write path of one domain and one profile."""

    def __init__(
        self,
        replica: Replica[StreamsState],
        store: ObjectStore,
        cache: WalCache,
        profile: Profile,
        clock: Clock,
        *,
        zone: str,
        hold_ms: int,
        next_sequence: Callable[[], int],
        background: Background,
        name: str,
        budget: Budget,
        handover: Handover,
    ) -> None:
        self._replica = replica
        self._store = store
        self._storing = Storing(store, profile.hedge_ms)
        self._cache = cache
        self._profile = profile
        self._clock = clock
        self._zone = zone
        self._next_sequence = next_sequence
        self._epoch = Epoch(0)
        self._budget = budget
        self._handover = handover
        self._queue: dict[Part, None] = {}
        """In the order of arrival. A batch can be dropped from the middle."""
        self._units: dict[Together, None] = {}
        """In the order of arrival, too. No order is promised between a unit and a batch."""
        self._queued_bytes = 0
        self._expected = 0
        """How many batches should be queued soon: those that are, and as many as were just answered."""
        self._flush_seconds = 0.0
        self._last_start = float("-inf")
        self._misses = self._skip = 0
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(profile.flushes)
        self._flushes = Tasks()
        self._last_entered: asyncio.Future[None] | None = None
        self._background = background
        self._name = name
        self._duty: Supervised | None = None
        self._closing = False
        self._holding = Holding(replica, clock, hold_ms / 1000, self._enqueue)
        self.flushes = 0
        self.bytes_written = 0

    @property
    def hedged(self) -> int:
        """How many objects were sent to the store a second time because it was slow."""
        return self._storing.hedged

    def __repr__(self) -> str:
        return f"<Writer of domain {self._replica.domain}: {self._waiting} queued, {len(self._flushes)} flushing>"

    def start(self) -> None:
        self._duty = self._background.run(WRITER, self._run, self._name)

    def join(self, epoch: Epoch) -> None:
        """Write objects under this epoch from now on."""
        self._epoch = epoch

    def append(self, part: Part) -> None:
        """Take a batch. Its caller is called with the outcome later, never during this call."""
        if self._closing:
            closing = NotReady("the broker is shutting down")
            asyncio.get_running_loop().call_soon(part.caller.decided, part.number, closing)
            return
        self._budget.take(len(part.batch.data))
        if self._handover.enter(self, [part]):
            self.admit(part)

    def append_all(self, parts: list[Part]) -> None:
        """Take batches in order, as `append` does. Faster, because usually no batch has to be checked."""
        if self._closing or self._holding.looks:
            for part in parts:
                self.append(part)
        elif parts:
            size = sum([len(part.batch.data) for part in parts])
            self._budget.take(size)
            entered = self._handover.enter(self, parts)
            if entered is not parts:
                size = sum([len(part.batch.data) for part in entered])
            self._queue.update(dict.fromkeys(entered))
            self._queued_bytes += size
            self._wake.set()

    def admit(self, part: Part) -> None:
        """See `Admits`."""
        if part.batch.producer_id == NO_PRODUCER or not self._holding.hold(part):
            self._enqueue(part)

    def _enqueue(self, part: Part) -> None:
        self._queue[part] = None
        self._queued_bytes += len(part.batch.data)
        self._wake.set()

    def withdraw(self, part: Part) -> bool:
        """See `Admits`."""
        if part in self._queue:
            del self._queue[part]
            self._queued_bytes -= len(part.batch.data)
            self._holding.decided(part)
            return True
        return self._holding.withdraw(part)

    def append_unit(self, unit: Together) -> None:
        """Take a unit. It is called with its outcome later, never during this call."""
        refused: HeadwaterError | None = NotReady("the process is shutting down") if self._closing else None
        if unit.weight > MAX_BATCHES_PER_OBJECT:
            refused = TooLarge(f"a unit of {unit.weight} batches and conditions; {MAX_BATCHES_PER_OBJECT} fit")
        if refused is not None:
            asyncio.get_running_loop().call_soon(unit.decided, refused)
            return
        self._budget.take(unit.size)
        self._units[unit] = None
        self._queued_bytes += unit.size
        self._wake.set()

    def withdraw_unit(self, unit: Together) -> bool:
        """Drop a unit, unless it is already being stored or decided; returns whether it was dropped."""
        if unit not in self._units:
            return False
        del self._units[unit]
        self._queued_bytes -= unit.size
        self._budget.give(unit.size)
        return True

    @property
    def _waiting(self) -> int:
        """How many batches and units are queued."""
        return len(self._queue) + len(self._units)

    @property
    def active(self) -> bool:
        """Whether batches that are taken will be decided."""
        return self._duty is not None and self._duty.active

    async def drain(self) -> None:
        """Refuse further batches, flush the queued ones, and stop."""
        self._closing = True
        self._holding.release_all()
        if self._duty is None:
            return
        while (self._waiting or self._flushes) and self._duty.active:
            await asyncio.sleep(0.001)
        await self._duty.stop()

    # --- gathering -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                pause = self._pause()
                if pause > 0:
                    await self._gather(pause, MAX_BATCHES_PER_OBJECT)
                await self._slots.acquire()
                if self._wants_more():
                    await self._await_answered()
                if self._waiting:
                    self._start_flush()
                else:  # another flush took the queued batches
                    self._slots.release()

    def _pause(self) -> float:
        """How long the profile requires the next flush to wait."""
        return self._last_start + self._profile.min_interval_ms / 1000 - self._clock.monotonic()

    def _wants_more(self) -> bool:
        """Whether a flush should wait a moment for clients that were just answered to send again.

        Otherwise a client with a window of small requests spreads it over two flushes. Each of them takes as long as
        one flush for all, and nearly as much processor time. If the clients do not send in time, the writer waits
        for them less often.
        """
        if not self._profile.gather_ms or self._waiting >= self._enough():
            return False
        if self._skip:
            self._skip -= 1
            return False
        return True

    def _enough(self) -> int:
        return self._expected - self._expected // 10

    async def _await_answered(self) -> None:
        if await self._gather(
            min(self._profile.gather_ms / 1000, GATHER_FLUSHES * self._flush_seconds), self._enough()
        ):
            self._misses = 0
        else:
            self._misses = min(self._misses + 1, MAX_MISSES)
            self._skip = (1 << self._misses) - 1

    async def _gather(self, seconds: float, batches: int) -> bool:
        """Wait until that many batches, or the bytes of a whole object, are queued; false if the time is over first."""
        try:
            async with asyncio.timeout(seconds):
                while self._queued_bytes < self._profile.object_bytes and self._waiting < batches:
                    await self._wake.wait()
                    self._wake.clear()
        except TimeoutError:
            return False
        return True

    def _start_flush(self) -> None:
        """Flush the queued batches. The caller has acquired a slot for it."""
        self._last_start = self._clock.monotonic()
        parts, size = self._take()
        units, of_units = self._take_units(size, len(parts))
        size += of_units
        if not self._epoch:
            lost = EpochLost("this process holds no epoch at present")
            self._budget.give(size)
            for part in parts:
                self._settled(part.stream, [part])
                part.caller.decided(part.number, lost)
            for unit in units:
                unit.decided(lost)
            self._slots.release()
            return
        flush = self._prepare(parts, units, size)
        self._flushes.spawn(self._flush(flush), self._name)

    def _take(self) -> tuple[list[Part], int]:
        """The batches of the next object, and their bytes."""
        limit, size, parts = self._profile.object_bytes, 0, list(self._queue)
        if self._queued_bytes <= limit and len(parts) <= MAX_BATCHES_PER_OBJECT and not self._units:
            size, self._queue, self._queued_bytes = self._queued_bytes, {}, 0
            return parts, size
        count = 0
        for part in parts:
            larger = size + len(part.batch.data)
            if count and (larger > limit or count == MAX_BATCHES_PER_OBJECT):
                break
            size, count = larger, count + 1
        self._queue = dict.fromkeys(parts[count:])
        self._queued_bytes -= size
        return parts[:count], size

    def _take_units(self, size: int, count: int) -> tuple[list[Together], int]:
        """The units that fit into the next object beside its batches, and their bytes."""
        units: list[Together] = []
        taken = 0
        for unit in self._units:
            larger, more = size + taken + unit.size, count + unit.weight
            if (units or count) and (larger > self._profile.object_bytes or more > MAX_BATCHES_PER_OBJECT):
                break
            units.append(unit)
            taken, count = taken + unit.size, more
        for unit in units:
            del self._units[unit]
        self._queued_bytes -= taken
        return units, taken

    def _prepare(self, parts: list[Part], units: list[Together], size: int) -> _Flush:
        object_id = WalId(self._epoch, self._next_sequence())
        created_ms = self._clock.wall_ms()
        layout = lay_out(
            parts,
            units,
            object_id,
            self._replica.domain,
            zone=self._zone,
            created_ms=created_ms,
            ledger_ms=self._replica.state.clock_ms,
        )
        path = wal.path_of(self._zone, self._replica.domain, created_ms, object_id)
        storing = self._storing.begin(path, layout.image.pieces)
        before, entered = self._last_entered, asyncio.get_running_loop().create_future()
        self._last_entered = entered
        self.flushes += 1
        self.bytes_written += layout.image.size
        encoded = encode_command(layout.command)
        return _Flush(object_id, parts, units, size, layout, encoded, path, self._last_start, storing, before, entered)

    # --- storing and committing ------------------------------------------------------------------------

    async def _flush(self, flush: _Flush) -> None:
        try:
            await self._store_and_enter(flush)
        except Exception as error:
            if self._duty is not None:
                self._duty.fail(error)  # the flushes after it wait for it
            raise
        finally:
            if flush.slot:
                self._slots.release()

    async def _store_and_enter(self, flush: _Flush) -> None:
        try:
            try:
                await flush.storing
                self._replica.room.worked(OBJECTS)
            except HeadwaterError as error:
                self._replica.room.failed(OBJECTS, error)
                raise
            finally:
                if flush.before is not None:
                    await flush.before
                    flush.before = None
            if self._replica.epoch != flush.id.epoch:
                raise EpochLost("the epoch changed during a flush")
            committing = self._replica.enqueue([flush.layout.command], [flush.encoded], wake=False)
        except HeadwaterError as error:
            flush.entered.set_result(None)
            self._fail(flush, error)
            return
        flush.entered.set_result(None)
        await self._replica.push()
        await self._finish(flush, committing)

    async def _finish(self, flush: _Flush, committing: asyncio.Future[list[Result]]) -> None:
        try:
            [result] = await committing
        except (StoreUnavailable, Overloaded) as error:
            await self._remove(flush.path)  # certainly no record names this object, now or later
            self._fail(flush, error)
            return
        except HeadwaterError as error:
            self._fail(flush, error, certain=False)  # the object stays until this epoch is fenced
            return
        if not isinstance(result, Appended):
            lost = isinstance(result, Refused) and result.reason is Reason.FENCED
            self._fail(flush, EpochLost("fenced") if lost else NotReady(f"an append was refused: {result}"))
            return
        self._cache.put(self._replica.domain, flush.id, WrittenWal(flush.layout.image))
        self._go_on(flush)
        accepted = self._report(flush, result.chunks)
        if self._report_units(flush, result) or accepted:
            return
        await self._remove(flush.path)

    def _go_on(self, flush: _Flush) -> None:
        """Let the next flush take over the slot of this one, if it does not have to wait."""
        self._flush_seconds = self._clock.monotonic() - flush.began
        self._expected = len(flush.parts) + len(flush.units) + self._waiting
        if self._waiting and self._pause() <= 0 and not self._wants_more():
            flush.slot = False
            self._start_flush()

    def _report(self, flush: _Flush, results: list[ChunkResult]) -> bool:
        """Call every caller with its outcomes; returns whether any batch was accepted."""
        accepted = False
        self._budget.give(flush.size)
        for stream, parts in flush.layout.chunks:
            self._settled(stream, parts)
        for (stream, parts), result in zip(flush.layout.chunks, results, strict=False):
            offset, log_start, append_ms = result.first_offset, result.log_start, result.append_ms
            if result.verdicts is None:
                accepted = True
                for part in parts:
                    part.caller.accepted(part.number, offset, log_start, append_ms)
                    offset += part.batch.offsets
                continue
            for part, (verdict, at) in zip(parts, result.verdicts, strict=True):
                if verdict is Verdict.ACCEPTED:
                    accepted = True
                    part.caller.accepted(part.number, at, log_start, append_ms)
                else:
                    told_ms = append_ms
                    if verdict is Verdict.DUPLICATE:
                        told_ms = self._first_time(stream, part, at, append_ms)
                    part.caller.decided(part.number, Outcome(verdict, at, log_start, told_ms))
        return accepted

    def _report_units(self, flush: _Flush, result: Appended) -> bool:
        """Call every unit with its outcome; returns whether any was accepted. The first unit has the plain batches."""
        accepted = False
        for unit, judged in zip(flush.units, result.units[1:], strict=bool(flush.units)):
            assert judged is not None
            accepted = accepted or judged.verdict is UnitVerdict.ACCEPTED
            unit.decided(judged)
        return accepted

    def _first_time(self, stream: int, part: Part, offset: int, now_ms: int) -> int:
        """The timestamp in the answer to a repeated batch.

        Without log-append time this is the batch's own. With it, this is the time of the first append, which the index
        has as long as the batch is in the WAL.
        """
        if now_ms == NO_TIMESTAMP:
            return part.batch.max_timestamp
        known = self._replica.state.streams.get(StreamId(stream))
        index = known.index if known is not None else OffsetIndex()
        at = index.find(offset)
        if at < len(index) and index[at].start <= offset and index[at].append_time and index[at].in_wal:
            return index[at].max_timestamp
        return now_ms

    def _settled(self, stream: int, parts: list[Part]) -> None:
        """Note that batches of a stream have their outcome."""
        if self._holding.looks:
            for part in parts:
                self._holding.decided(part)
        self._handover.leave(stream, len(parts))

    def _fail(self, flush: _Flush, error: HeadwaterError, *, certain: bool = True) -> None:
        """Call every caller with an error. Without `certain` the flush may still be in the log, or get there."""
        self._budget.give(flush.size)
        for stream, parts in flush.layout.chunks:
            self._settled(stream, parts)
        for part in flush.parts:
            part.caller.decided(part.number, error)
        of_units = error if certain else OutcomeUnknown(f"the append may have taken effect: {error}")
        for unit in flush.units:
            unit.decided(of_units)

    async def _remove(self, path: str) -> None:
        with contextlib.suppress(Retriable):
            await self._store.delete(path)
