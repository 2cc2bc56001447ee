"""The write path: batches are gathered, stored as one WAL object, entered into the ledger, and then acknowledged.

Natural batching: a flush starts as soon as the store has a free slot and the profile's interval has passed, and takes
all that has arrived meanwhile. Uploads overlap; their records enter the ledger in the order the batches came. A flush
that is entered starts the next one before it tells its clients, so that the store is at work meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec

from headwater.clock import Clock
from headwater.config import Profile
from headwater.errors import EpochLost, HeadwaterError, NotReady, Retriable, StoreUnavailable
from headwater.log import wal
from headwater.log.batch import NO_PRODUCER
from headwater.log.holding import Holding
from headwater.log.parts import Outcome, Part
from headwater.log.storing import Storing
from headwater.log.wal_cache import WalCache, WrittenWal
from headwater.metadata.commands import AppendWal, Chunk, encode_command
from headwater.metadata.index import NO_TIMESTAMP, OffsetIndex
from headwater.metadata.replica import Replica
from headwater.metadata.results import Appended, ChunkResult, Reason, Refused, Result, Verdict
from headwater.metadata.streams import StreamsState
from headwater.objects import ObjectStore
from headwater.types import Domain, Epoch, StreamId, WalId

MAX_BATCHES_PER_OBJECT = 10_000
"""Keeps a record well below the ledger's limit, whatever the size of the batches."""

MAX_MISSES = 6
GATHER_FLUSHES = 2
"""For how many times the length of the last flush clients are waited for. A client that shares its machine's cores with
others takes about as long to fill its window again as a flush takes; half of that would be waited for in vain."""


@dataclass(slots=True)
class _Flush:
    id: WalId
    parts: list[Part]
    chunks: list[tuple[int, list[Part]]]
    image: wal.WalImage
    command: AppendWal
    encoded: msgspec.Raw
    """The command's bytes, made while the object is on its way to the store."""
    path: str
    began: float
    storing: Awaitable[None]
    before: asyncio.Future[None] | None
    entered: asyncio.Future[None]
    slot: bool = True
    """Whether it still has its slot, or has passed it on to the next flush."""


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
        self._queue: list[Part] = []
        self._queued_bytes = 0
        self._expected = 0
        """How many batches will be here soon: those that wait, and as many as were just answered."""
        self._flush_seconds = 0.0
        self._last_start = float("-inf")
        self._misses = self._skip = 0
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(profile.flushes)
        self._flushes: set[asyncio.Task[None]] = set()
        self._last_entered: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._holding = Holding(replica, clock, hold_ms / 1000, self._enqueue)
        self.flushes = 0
        self.bytes_written = 0

    @property
    def hedged(self) -> int:
        """How many objects were sent to the store a second time, because it was slow."""
        return self._storing.hedged

    def __repr__(self) -> str:
        return f"<Writer of domain {self._replica.domain}: {len(self._queue)} queued, {len(self._flushes)} flushing>"

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"writer-{self._replica.domain}")

    def join(self, epoch: Epoch) -> None:
        """Write objects under this epoch from now on."""
        self._epoch = epoch

    def append(self, part: Part) -> None:
        """Take a batch. Its outcome is told later, never from within this call."""
        if self._closing:
            closing = NotReady("the broker is shutting down")
            asyncio.get_running_loop().call_soon(part.caller.decided, part.number, closing)
        elif part.batch.producer_id == NO_PRODUCER or not self._holding.hold(part):
            self._enqueue(part)

    def append_all(self, parts: list[Part]) -> None:
        """Take batches one after the other, as `append` does; mostly nothing has to be looked at."""
        if self._closing or self._holding.looks:
            for part in parts:
                self.append(part)
        elif parts:
            self._queue += parts
            self._queued_bytes += sum([len(part.batch.data) for part in parts])
            self._wake.set()

    def _enqueue(self, part: Part) -> None:
        self._queue.append(part)
        self._queued_bytes += len(part.batch.data)
        self._wake.set()

    async def drain(self) -> None:
        """Take nothing more, flush what is there, and stop."""
        self._closing = True
        self._holding.release_all()
        while self._queue or self._flushes:
            await asyncio.sleep(0.001)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    # --- gathering -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                pause = self._pause()
                if pause > 0:
                    await self._gather(pause, MAX_BATCHES_PER_OBJECT)
                await self._slots.acquire()
                if self._wants_more():
                    await self._await_answered()
                if self._queue:
                    self._start_flush()
                else:  # another flush took it along
                    self._slots.release()

    def _pause(self) -> float:
        """How long the profile wants to wait before the next flush."""
        return self._last_start + self._profile.min_interval_ms / 1000 - self._clock.monotonic()

    def _wants_more(self) -> bool:
        """Whether a flush had better wait a moment for clients that were just answered to send again.

        A client with a window of small requests would otherwise spread it over two flushes, each of which takes as long
        as one for all, and nearly as much of a processor. Where they do not come back in time, they are waited for ever
        more seldom.
        """
        if not self._profile.gather_ms or len(self._queue) >= self._enough():
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
        """Wait until that many batches, or a whole object's bytes, are there; false if the time is over before."""
        try:
            async with asyncio.timeout(seconds):
                while self._queued_bytes < self._profile.object_bytes and len(self._queue) < batches:
                    await self._wake.wait()
                    self._wake.clear()
        except TimeoutError:
            return False
        return True

    def _start_flush(self) -> None:
        """Flush what is queued. The caller has a slot for it."""
        self._last_start = self._clock.monotonic()
        parts = self._take()
        if not self._epoch:
            for part in parts:
                part.caller.decided(part.number, EpochLost("no epoch is held at present"))
            self._slots.release()
            return
        flush = self._prepare(parts)
        task = asyncio.create_task(self._flush(flush))
        self._flushes.add(task)
        task.add_done_callback(self._flushes.discard)

    def _take(self) -> list[Part]:
        limit, size, count = self._profile.object_bytes, 0, 0
        if self._queued_bytes <= limit and len(self._queue) <= MAX_BATCHES_PER_OBJECT:
            parts, self._queue, self._queued_bytes = self._queue, [], 0
            return parts
        for part in self._queue:
            size += len(part.batch.data)
            if count and (size > limit or count == MAX_BATCHES_PER_OBJECT):
                size -= len(part.batch.data)
                break
            count += 1
        parts, self._queue = self._queue[:count], self._queue[count:]
        self._queued_bytes -= size
        return parts

    def _prepare(self, parts: list[Part]) -> _Flush:
        by_stream: dict[int, list[Part]] = {}
        for part in parts:
            by_stream.setdefault(part.stream, []).append(part)
        chunks = sorted(by_stream.items())
        object_id = WalId(self._epoch, self._next_sequence())
        created_ms = self._clock.wall_ms()
        image = wal.build(
            object_id,
            self._replica.domain,
            created_ms,
            [(stream, [part.batch for part in of_stream]) for stream, of_stream in chunks],
        )
        path = wal.path_of(self._zone, self._replica.domain, created_ms, object_id)
        storing = self._storing.begin(path, image.pieces)
        before, entered = self._last_entered, asyncio.get_running_loop().create_future()
        self._last_entered = entered
        self.flushes += 1
        self.bytes_written += image.size
        command = self._command(object_id, image, created_ms, chunks)
        encoded = encode_command(command)
        return _Flush(
            object_id, parts, chunks, image, command, encoded, path, self._last_start, storing, before, entered
        )

    # --- storing and entering --------------------------------------------------------------------------

    async def _flush(self, flush: _Flush) -> None:
        try:
            await self._store_and_enter(flush)
        finally:
            if flush.slot:
                self._slots.release()

    async def _store_and_enter(self, flush: _Flush) -> None:
        try:
            try:
                await flush.storing
            finally:
                if flush.before is not None:
                    await flush.before
                    flush.before = None
            if self._replica.epoch != flush.id.epoch:
                raise EpochLost("the epoch changed under a flush")
            committing = self._replica.enqueue([flush.command], [flush.encoded], wake=False)
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
        except StoreUnavailable as error:
            await self._remove(flush.path)  # for certain no record names this object, now or later
            self._fail(flush, error)
            return
        except HeadwaterError as error:
            self._fail(flush, error)  # its fate is unknown here: it stays until this epoch is fenced
            return
        if not isinstance(result, Appended):
            lost = isinstance(result, Refused) and result.reason is Reason.FENCED
            self._fail(flush, EpochLost("fenced") if lost else NotReady(f"an append was refused: {result}"))
            return
        self._cache.put(self._replica.domain, flush.id, WrittenWal(flush.image))
        self._go_on(flush)
        if not self._report(flush, result.chunks):
            await self._remove(flush.path)

    def _go_on(self, flush: _Flush) -> None:
        """Have the next flush take over this one's slot, if it need not wait for anything."""
        self._flush_seconds = self._clock.monotonic() - flush.began
        self._expected = len(flush.parts) + len(self._queue)
        if self._queue and self._pause() <= 0 and not self._wants_more():
            flush.slot = False
            self._start_flush()

    def _command(
        self, object_id: WalId, image: wal.WalImage, created_ms: int, chunks: list[tuple[int, list[Part]]]
    ) -> AppendWal:
        entered = []
        for (stream, parts), position in zip(chunks, image.positions, strict=True):
            batches = [(len(p.batch.data), p.batch.offsets, p.batch.max_timestamp) for p in parts]
            producers = []
            if any(p.batch.producer_id != NO_PRODUCER for p in parts):
                producers = [(p.batch.producer_id, p.batch.producer_epoch, p.batch.base_sequence) for p in parts]
            entered.append(Chunk(stream, position, batches, producers))
        return AppendWal(object_id.sequence, image.size, created_ms, self._zone, entered)

    def _report(self, flush: _Flush, results: list[ChunkResult]) -> bool:
        """Tell everybody; answer whether anything was accepted."""
        accepted = False
        if self._holding.looks:
            for part in flush.parts:
                self._holding.decided(part)
        for (stream, parts), result in zip(flush.chunks, results, strict=True):
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

    def _first_time(self, stream: int, part: Part, offset: int, now_ms: int) -> int:
        """The time that is told of a repeated batch: its own where the log keeps no other, else that of its first
        append, which the index knows as long as the batch lies in the WAL."""
        if now_ms == NO_TIMESTAMP:
            return part.batch.max_timestamp
        known = self._replica.state.streams.get(StreamId(stream))
        index = known.index if known is not None else OffsetIndex()
        at = index.find(offset)
        if at < len(index) and index[at].start <= offset and index[at].append_time and index[at].in_wal:
            return index[at].max_timestamp
        return now_ms

    def _fail(self, flush: _Flush, error: HeadwaterError) -> None:
        for part in flush.parts:
            self._holding.decided(part)
            part.caller.decided(part.number, error)

    async def _remove(self, path: str) -> None:
        with contextlib.suppress(Retriable):
            await self._store.delete(path)


class Writers:
    """All write paths of a process. WAL sequences rise per epoch, over all of them."""

    def __init__(
        self,
        replicas: Mapping[Domain, Replica[StreamsState]],
        store: ObjectStore,
        cache: WalCache,
        profiles: Mapping[str, Profile],
        clock: Clock,
        *,
        zone: str,
        hold_ms: int,
        make: Callable[..., Writer] = Writer,
    ) -> None:
        self._sequence = 0
        self._writers = {
            (domain, name): make(
                replica,
                store,
                cache,
                profile,
                clock,
                zone=zone,
                hold_ms=hold_ms,
                next_sequence=self._next_sequence,
            )
            for domain, replica in replicas.items()
            for name, profile in profiles.items()
        }

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def of(self, domain: int, profile: str) -> Writer:
        return self._writers[(Domain(domain), profile)]

    def all(self) -> list[Writer]:
        return list(self._writers.values())

    def start(self) -> None:
        for writer in self._writers.values():
            writer.start()

    def join(self, epoch: Epoch) -> None:
        """A new epoch: sequences start over."""
        self._sequence = 0
        for writer in self._writers.values():
            writer.join(epoch)

    async def drain(self) -> None:
        for writer in self._writers.values():
            await writer.drain()
