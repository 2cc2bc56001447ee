"""The part of a process that follows one domain's ledger and appends to it.

A replica has one append in flight and puts all that queued up meanwhile into the next record. A record whose
fate is unknown is repeated with its own counter until one stands; `apply` drops the others. Results become
known when the record is applied here, in ledger order, like everybody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from headwater.clock import Chance, Clock
from headwater.errors import (
    EpochLost,
    Halted,
    HeadwaterError,
    OutcomeUnknown,
    Overloaded,
    Retriable,
    StoreUnavailable,
    Truncated,
)
from headwater.metadata.base import State
from headwater.metadata.checkpoint import check_dense, load_state
from headwater.metadata.commands import Check, Command, Record, TakeEpoch, decode, encode_command, encode_record
from headwater.metadata.ledger import MAX_RECORD_BYTES, Ledger
from headwater.metadata.results import Result
from headwater.objects import ObjectStore
from headwater.types import Epoch, Position

READ_CHUNK = 256
MAX_QUEUED = 10_000
RECORD_TARGET = MAX_RECORD_BYTES - 4096
CHECK_EVERY = 512
RETRY_SECONDS = 0.05
RETRY_LIMIT_SECONDS = 1.0

S = TypeVar("S", bound=State)


@dataclass(slots=True)
class _Pending:
    commands: Sequence[Command]
    encoded: list[msgspec.Raw]
    size: int
    future: asyncio.Future[list[Result]]

    def resolve(self, results: list[Result]) -> None:
        if not self.future.done():
            self.future.set_result(results)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Replica(Generic[S]):
    """One domain, as one process knows it."""

    def __init__(self, ledger: Ledger, store: ObjectStore, state: S, clock: Clock, chance: Chance) -> None:
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._chance = chance
        self.state = state
        self.domain = state.domain
        self.on_lost: Callable[[], None] | None = None
        """Told once when this process's epoch no longer counts here."""
        self.on_halt: Callable[[Halted], None] | None = None
        self.last_contact = clock.monotonic()
        self.bytes_applied = 0
        self.records_applied = 0
        self.attempts = 0
        self.commits = 0
        self._epoch = Epoch(0)
        self._counter = 0
        self._queue: list[_Pending] = []
        self._wake = asyncio.Event()
        self._appending = False
        self._inflight: tuple[int, list[_Pending]] | None = None
        self._inflight_done: asyncio.Event = asyncio.Event()
        self._catching_up = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._waiters: dict[int, dict[asyncio.Future[None], None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._halted: Halted | None = None

    def __repr__(self) -> str:
        return f"<Replica of domain {self.domain} at {self.state.position}, epoch {self._epoch}>"

    @property
    def epoch(self) -> Epoch:
        """The epoch this process writes under here, 0 if none."""
        return self._epoch

    @property
    def checkpoint_records(self) -> int | None:
        """After how many records the ledger wants a checkpoint at the latest; None if it has no such limit."""
        found: int | None = getattr(self._ledger, "checkpoint_records", None)
        return found

    # --- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the newest checkpoint, catch up, and follow from then on."""
        if hasattr(self.state, "on_append"):
            self.state.on_append = self._stream_changed
        await self._load()
        await self.barrier()
        self._tasks = [
            asyncio.create_task(self._follow(), name=f"follow-{self.domain}"),
            asyncio.create_task(self._pump(), name=f"append-{self.domain}"),
        ]

    async def close(self) -> None:
        """Stop following. What is still queued or under way fails as retriable."""
        self._epoch = Epoch(0)
        self._fail_all(EpochLost("the process is shutting down"))
        if self._looking is not None:
            self._tasks.append(self._looking)
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError, HeadwaterError):
                await task

    def join(self, epoch: Epoch) -> None:
        """Write under this epoch from now on. Whatever an older epoch still waited for has failed before."""
        self._fail_all(EpochLost("a new epoch was taken"))
        self._epoch = epoch
        self._counter = self.state.counter(epoch)

    # --- appending -----------------------------------------------------------------------------------

    async def submit(self, commands: Sequence[Command]) -> list[Result]:
        """Append commands and wait for their results. They go into one record, together with others."""
        return await self.enqueue(commands)

    def enqueue(
        self, commands: Sequence[Command], encoded: list[msgspec.Raw] | None = None, *, wake: bool = True
    ) -> asyncio.Future[list[Result]]:
        """As `submit`, but the order of calls is the order in the ledger. Who does not `wake` has to `push`.

        Who has the time before the call gives the commands' bytes along.
        """
        future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        if encoded is None:
            encoded = [encode_command(command) for command in commands]
        size = sum(len(memoryview(raw)) for raw in encoded)
        if self._halted is not None:
            future.set_exception(self._halted)
        elif not self._epoch and not isinstance(commands[0], TakeEpoch):
            future.set_exception(EpochLost(f"no epoch is held in domain {self.domain} at present"))
        elif size > RECORD_TARGET:
            raise ValueError(f"commands of {size} bytes; a record holds {RECORD_TARGET}")
        elif len(self._queue) >= MAX_QUEUED:
            future.set_exception(Overloaded(f"domain {self.domain} has {MAX_QUEUED} appends waiting"))
        else:
            self._queue.append(_Pending(commands, encoded, size, future))
            if wake:
                self._wake.set()
        return future

    async def _pump(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue and not self._appending:
                await self._append_next()

    async def push(self) -> None:
        """Append what is queued in the caller's own task, which thus goes on as soon as it is done.

        If an append is under way already, the next one takes it along.
        """
        if self._queue and not self._appending:
            await self._append_next()

    async def _append_next(self) -> None:
        self._appending = True
        try:
            await self._append_once(self._take())
        finally:
            self._appending = False
            if self._queue:
                self._wake.set()

    def _take(self) -> list[_Pending]:
        size = count = 0
        for pending in self._queue:
            size += pending.size
            if size > RECORD_TARGET:
                break
            count += 1
        taken, self._queue = self._queue[:count], self._queue[count:]
        return [pending for pending in taken if not pending.future.done()]

    async def _append_once(self, batch: list[_Pending]) -> None:
        if not batch:
            return
        epoch = self._epoch
        self._counter += 1
        commands = [command for pending in batch for command in pending.commands]
        encoded = [raw for pending in batch for raw in pending.encoded]
        if self._counter % CHECK_EVERY == 0 and epoch:
            commands.append(Check(self.state.position, self.state.digest))
            encoded.append(encode_command(commands[-1]))
        record = Record(epoch, self._counter, self._clock.wall_ms(), commands)
        data = encode_record(epoch, record.counter, record.clock_ms, encoded)
        self._inflight = (self._counter, batch)
        self._inflight_done.clear()
        pause, unknown = RETRY_SECONDS, False
        try:
            while self._inflight is not None and self._epoch == epoch:
                self.attempts += 1
                try:
                    position = await self._ledger.append(self.domain, data)
                except OutcomeUnknown:
                    unknown = True
                except StoreUnavailable as error:
                    if not unknown:
                        for pending in batch:
                            pending.fail(error)
                        return
                else:
                    self.commits += 1
                    self._contacted()
                    await self._meet_own(position, record, len(data))
                    return
                with contextlib.suppress(TimeoutError):
                    # Not `wait_for`: before Python 3.12 it swallows a cancellation that comes together with the event.
                    async with asyncio.timeout(pause * (0.5 + self._chance.fraction())):
                        await self._inflight_done.wait()
                pause = min(pause * 2, RETRY_LIMIT_SECONDS)
        except Halted as halt:
            self._halt(halt)
        finally:
            self._inflight = None

    async def _meet_own(self, position: Position, record: Record, size: int) -> None:
        """Apply the record that was just appended: at once if it is the next, else by reading up to it."""
        if self._ledger.dense and position == self.state.position + 1:
            self._apply(position, record, size)
            return
        while self.state.position < position and self._inflight is not None:
            try:
                await self._catch_up(position)
            except Retriable:
                await asyncio.sleep(RETRY_SECONDS)

    # --- following ---------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        pause = RETRY_SECONDS
        while True:
            try:
                await self._catch_up(await self._ledger.watch(self.domain, self.state.position))
                pause = RETRY_SECONDS
            except Retriable:
                await asyncio.sleep(pause * (0.5 + self._chance.fraction()))
                pause = min(pause * 2, RETRY_LIMIT_SECONDS)
            except Halted as halt:
                self._halt(halt)
                return

    async def barrier(self) -> None:
        """Catch up with everything that was acknowledged anywhere before this call."""
        if self._halted is not None:
            raise self._halted
        before = self._looking
        if before is not None and not before.done():
            await asyncio.wait([before])  # it began before this call, so it may have missed something
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name=f"look-{self.domain}")
            self._looking.add_done_callback(_consume)
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        last = await self._ledger.last(self.domain)
        self._contacted()
        await self._catch_up(last)

    async def _catch_up(self, target: Position) -> None:
        """Read and apply until `target`, or until there is nothing more."""
        if self.state.position >= target:
            return
        async with self._catching_up:
            while self.state.position < target:
                try:
                    entries = await self._ledger.read(self.domain, self.state.position, READ_CHUNK)
                except Truncated:
                    await self._jump()
                    continue
                self._contacted()
                if not entries:
                    return
                check_dense(self._ledger, self.state, entries)
                for entry in entries:
                    if entry.position > self.state.position:
                        self._apply(entry.position, decode(entry.data), len(entry.data))
                if len(entries) == READ_CHUNK:
                    await asyncio.sleep(0)

    def _apply(self, position: Position, record: Record, size: int) -> None:
        results = self.state.apply(position, record)
        self.bytes_applied += size
        self.records_applied += 1
        if record.epoch != self._epoch or (not self._epoch and not self._is_own(record)):
            if self._epoch and self.state.is_fenced(self._epoch):
                self._lose(EpochLost(f"epoch {self._epoch} is fenced in domain {self.domain}"))
            return
        inflight = self._inflight
        if results is None or inflight is None or inflight[0] != record.counter:
            return
        self._inflight = None
        at = 0
        for pending in inflight[1]:
            pending.resolve(results[at : at + len(pending.commands)])
            at += len(pending.commands)
        self._inflight_done.set()
        if self._epoch and self.state.is_fenced(self._epoch):
            self._lose(EpochLost(f"epoch {self._epoch} is fenced in domain {self.domain}"))

    def _is_own(self, record: Record) -> bool:
        """Records of epoch 0 are told apart by what they say."""
        return self._inflight is not None and [c for p in self._inflight[1] for c in p.commands] == list(
            record.commands
        )

    # --- checkpoints and losses --------------------------------------------------------------------------

    async def _load(self) -> None:
        await load_state(self._ledger, self._store, self.state)

    async def _jump(self) -> None:
        """The ledger was truncated under us. What we wait for may lie in what we jump over."""
        if self._inflight is not None or self._epoch:
            self._lose(EpochLost(f"domain {self.domain} was truncated past {self.state.position}"))
        before = self.state.position
        await self._load()
        if self.state.position == before:
            raise Halted(f"domain {self.domain} is truncated past {before} and no checkpoint reaches further")
        for stream in list(self._waiters):
            self._stream_changed(stream)

    def _lose(self, error: EpochLost) -> None:
        if not self._epoch:
            return
        self._epoch = Epoch(0)
        self._fail_all(error)
        if self.on_lost is not None:
            self.on_lost()

    def _halt(self, halt: Halted) -> None:
        self._halted = halt
        self._fail_all(halt)
        if self.on_halt is not None:
            self.on_halt(halt)

    def _fail_all(self, error: Exception) -> None:
        inflight, self._inflight = self._inflight, None
        queue, self._queue = self._queue, []
        for pending in [*(inflight[1] if inflight else ()), *queue]:
            pending.fail(error)
        self._inflight_done.set()

    def _contacted(self) -> None:
        self.last_contact = self._clock.monotonic()

    # --- waiting for streams -------------------------------------------------------------------------------

    def _stream_changed(self, stream: int) -> None:
        waiting = self._waiters.pop(stream, None)
        if waiting:
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def wait_for(self, streams: Iterable[int]) -> asyncio.Future[None]:
        """A future that is done when one of the streams changes. Give it back to `stop_waiting`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for stream in streams:
            self._waiters.setdefault(stream, {})[future] = None
        return future

    def stop_waiting(self, streams: Iterable[int], future: asyncio.Future[None]) -> None:
        """Forget a future of `wait_for`."""
        for stream in streams:
            waiting = self._waiters.get(stream)
            if waiting is not None:
                waiting.pop(future, None)
                if not waiting:
                    del self._waiters[stream]
        future.cancel()


def _consume(future: asyncio.Future[None]) -> None:
    """Look at a task's exception, so that nobody is told that nobody did."""
    if not future.cancelled():
        future.exception()
