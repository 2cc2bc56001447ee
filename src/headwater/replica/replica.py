"""A replica: follows one domain's ledger, applies its records, and appends to it.

A replica has one append in flight. Commands that are queued meanwhile go into the next record. A record with an unknown
outcome is retried with the same counter until one attempt is committed; `apply` drops the others. The results are known
when the record is applied here, in the order of the ledger, like the records of other processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from headwater.background import Background, Duty, OnDeath, Supervised, spawn
from headwater.clock import Chance, Clock
from headwater.errors import (
    EpochLost,
    Halted,
    LedgerWentBack,
    OutcomeUnknown,
    Overloaded,
    Retriable,
    StoreUnavailable,
    Truncated,
)
from headwater.ledger.contract import MAX_RECORD_BYTES, Ledger
from headwater.ledger.marks import crc_of
from headwater.objects import ObjectStore
from headwater.replica.checkpoint import BadCheckpoint, check_dense, load_state, record_of, still_bad
from headwater.replica.room import LEDGER, Room
from headwater.replica.watch import Watch
from headwater.state.commands.base import Accept, Check
from headwater.state.commands.cluster import TakeEpoch
from headwater.state.machine import State
from headwater.state.records import Command, Record, encode_command, encode_record
from headwater.state.results import Result
from headwater.types import Epoch, Position

log = logging.getLogger("headwater.replica")
READ_CHUNK = 256
MAX_QUEUED = 10_000
RECORD_TARGET = MAX_RECORD_BYTES - 4096
CHECK_EVERY = 512
RETRY_SECONDS = 0.05
RETRY_LIMIT_SECONDS = 1.0

FOLLOW = Duty("follow", OnDeath.END, "reads a domain's ledger and applies its records")
APPEND = Duty("append", OnDeath.END, "appends a domain's queued commands to its ledger")

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
    """One domain in one process."""

    def __init__(
        self,
        ledger: Ledger,
        store: ObjectStore,
        state: S,
        clock: Clock,
        chance: Chance,
        background: Background | None = None,
        room: Room | None = None,
    ) -> None:
        self.room = room or Room(clock)
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._chance = chance
        self.state = state
        self.domain = state.domain
        self.on_lost: Callable[[], None] | None = None
        """Called when the process's epoch is no longer valid in this domain."""
        self.bad_checkpoints: list[BadCheckpoint] = []
        """Checkpoints that could not be read when this replica was started."""
        self.last_contact = clock.monotonic()
        self.covered_ms = -1
        """The ledger time of the newest stored checkpoint that this replica knows; -1 if it knows none."""
        self.crc = 0
        """The checksum of the newest record; 0 if a checkpoint was the last that was read."""
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
        self._watches: dict[int, dict[Watch, None]] = {}
        self._background = background or Background(clock)
        self._duties: list[Supervised] = []
        self._halted: Halted | None = None

    def __repr__(self) -> str:
        return f"<Replica of domain {self.domain} at {self.state.position}, epoch {self._epoch}>"

    @property
    def epoch(self) -> Epoch:
        """The epoch with which this process writes to the domain; 0 if it has none."""
        return self._epoch

    @property
    def checkpoint_records(self) -> int | None:
        """The number of records after which the ledger needs a checkpoint. `None` if it has no such limit."""
        found: int | None = getattr(self._ledger, "checkpoint_records", None)
        return found

    # --- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the newest checkpoint, catch up, and follow from then on."""
        if hasattr(self.state, "on_append"):
            self.state.on_append = self._stream_changed
        await self._load()
        await self.barrier()
        run = self._background.run
        self._duties = [run(FOLLOW, self._follow, self.domain), run(APPEND, self._pump, self.domain)]

    async def close(self) -> None:
        """Stop following. Commands that are queued or in flight fail with a retriable error."""
        self._epoch = Epoch(0)
        self._fail_all(EpochLost("the process is shutting down"))
        for duty in self._duties:
            await duty.stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    def join(self, epoch: Epoch) -> None:
        """Write with this epoch from now on. Commands that still wait under an older epoch fail."""
        self._fail_all(EpochLost("a new epoch was taken"))
        self._epoch = epoch
        self._counter = self.state.counter(epoch)

    # --- appending -----------------------------------------------------------------------------------

    async def submit(self, commands: Sequence[Command]) -> list[Result]:
        """Append commands and wait for their results. They are in one record, perhaps together with other commands."""
        return await self.enqueue(commands)

    def enqueue(
        self, commands: Sequence[Command], encoded: list[msgspec.Raw] | None = None, *, wake: bool = True
    ) -> asyncio.Future[list[Result]]:
        """Queue commands. The order of calls is the order in the ledger.

        With `wake=False` the caller must call `push()`. A caller that has encoded the commands before passes their
        bytes as `encoded`.
        """
        future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        if encoded is None:
            encoded = [encode_command(command) for command in commands]
        size = sum(len(memoryview(raw)) for raw in encoded)
        if self._halted is not None:
            future.set_exception(self._halted)
        elif not self._epoch and not isinstance(commands[0], TakeEpoch | Accept):
            future.set_exception(EpochLost(f"the process currently has no epoch in domain {self.domain}"))
        elif size > RECORD_TARGET:
            raise ValueError(f"the commands have {size} bytes; a record holds {RECORD_TARGET}")
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
                try:
                    await self._append_next()
                except Exception as error:
                    self._halt(error)
                    raise

    async def push(self) -> None:
        """Append the queued commands in the caller's own task, which saves a switch of tasks.

        If an append is in flight already, the commands go into the next record.
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
        steady_ms = int(self._clock.monotonic() * 1000)
        record = Record(epoch, self._counter, self._clock.wall_ms(), steady_ms, commands)
        data = encode_record(epoch, record.counter, record.clock_ms, steady_ms, encoded)
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
                    self.room.failed(LEDGER, error)
                    if not unknown:
                        for pending in batch:
                            pending.fail(error)
                        return
                else:
                    self.commits += 1
                    self.room.worked(LEDGER)
                    self._contacted()
                    await self._meet_own(position, record, data)
                    return
                with contextlib.suppress(TimeoutError):
                    # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with the event.
                    async with asyncio.timeout(pause * (0.5 + self._chance.fraction())):
                        await self._inflight_done.wait()
                pause = min(pause * 2, RETRY_LIMIT_SECONDS)
        except Halted as halt:
            self._halt(halt)
            if self._duties:
                self._duties[0].fail(halt)
        finally:
            self._inflight = None

    async def _meet_own(self, position: Position, record: Record, data: bytes) -> None:
        """Apply the record that was just appended: directly if it is the next one, else by reading up to it."""
        if position <= self.state.position and self._inflight is not None:
            raise self._went_back(f"gave position {position} again", self.state.position)
        if self._ledger.dense and position == self.state.position + 1:
            self._apply(position, record, data)
            return
        while self.state.position < position and self._inflight is not None:
            try:
                await self._catch_up(position)
            except Retriable:
                await asyncio.sleep(RETRY_SECONDS)

    # --- following ---------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Follow the ledger for ever. An error that cannot be retried halts the replica and fails the waiting calls."""
        pause = RETRY_SECONDS
        while True:
            try:
                await self._catch_up(await self._ledger.watch(self.domain, self.state.position))
                pause = RETRY_SECONDS
            except Retriable:
                await asyncio.sleep(pause * (0.5 + self._chance.fraction()))
                pause = min(pause * 2, RETRY_LIMIT_SECONDS)
            except Exception as error:
                self._halt(error)
                raise

    async def barrier(self) -> None:
        """Catch up with all records that any process has appended before this call."""
        if self._halted is not None:
            raise self._halted
        before = self._looking
        if before is not None and not before.done():
            await asyncio.wait([before])  # it started before this call, so it may have missed a record
        if self._looking is None or self._looking.done():
            self._looking = spawn(self._look(), f"look-{self.domain}")
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        reached = self.state.position
        last = await self._ledger.last(self.domain)
        if last < reached:
            raise self._went_back(f"ends at {last}", reached)
        self._contacted()
        await self._catch_up(last)

    def _went_back(self, what: str, reached: Position) -> LedgerWentBack:
        return LedgerWentBack(
            f"the ledger has gone back while this process ran: domain {self.domain} {what}, and this process has read "
            f"it up to {reached}. Stop all processes of the cluster before anything else is written"
        )

    async def _catch_up(self, target: Position) -> None:
        """Read and apply records up to `target`, or to the end of the ledger."""
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
                        self._apply(entry.position, record_of(self.domain, entry), entry.data)
                if len(entries) == READ_CHUNK:
                    await asyncio.sleep(0)

    def _apply(self, position: Position, record: Record, data: bytes) -> None:
        results = self.state.apply(position, record)
        self.crc = crc_of(data)
        self.bytes_applied += len(data)
        self.records_applied += 1
        if record.epoch != self._epoch or (not self._epoch and not self._is_own(record)):
            if self._epoch and self.state.is_fenced(self._epoch):
                self._lose(self._fenced())
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
            self._lose(self._fenced())

    def _is_own(self, record: Record) -> bool:
        """Whether a record of epoch 0 is this replica's own. Such records are compared by their commands."""
        return self._inflight is not None and [c for p in self._inflight[1] for c in p.commands] == list(
            record.commands
        )

    # --- checkpoints and losses --------------------------------------------------------------------------

    async def look_for_checkpoint(self) -> int:
        """Read `covered_ms` from the ledger, and return it."""
        pointer = await self._ledger.pointer(self.domain)
        self.covered_ms = pointer.time_ms if pointer is not None else -1
        return self.covered_ms

    async def look_at_checkpoints(self) -> None:
        """Forget damaged checkpoints that were put back or replaced."""
        if self.bad_checkpoints:
            self.bad_checkpoints = await still_bad(self._ledger, self._store, self.domain, self.bad_checkpoints)

    async def _load(self) -> None:
        self.bad_checkpoints = await load_state(self._ledger, self._store, self.state)
        self.crc = 0
        for bad in self.bad_checkpoints:
            log.warning(
                "a checkpoint cannot be read: the records of the ledger are applied instead",
                extra={
                    "domain": self.domain,
                    "object": bad.path,
                    "reason": bad.reason,
                    "from_position": self.state.position,
                },
            )

    async def _jump(self) -> None:
        """Load a checkpoint, because the ledger was truncated past this replica.

        Results of own commands may be among the skipped records, so the epoch is given up.
        """
        if self._inflight is not None or self._epoch:
            self._lose(EpochLost(f"domain {self.domain} was truncated past {self.state.position}"))
        before = self.state.position
        await self._load()
        if self.state.position == before:
            raise Halted(f"domain {self.domain} is truncated past {before} and no checkpoint reaches further")
        for stream in list(self._watches):
            self._stream_changed(stream)

    def _fenced(self) -> EpochLost:
        return EpochLost(
            f"another process took this one for dead and fenced it (epoch {self._epoch}, domain {self.domain}); "
            "what it was doing may have happened: look, then try again"
        )

    def _lose(self, error: EpochLost) -> None:
        if not self._epoch:
            return
        self._epoch = Epoch(0)
        self._fail_all(error)
        if self.on_lost is not None:
            self.on_lost()

    def _halt(self, error: Exception) -> None:
        """Fail all waiting and later calls with this error."""
        halt = error if isinstance(error, Halted) else Halted(f"domain {self.domain} cannot be followed: {error!r}")
        self._halted = halt
        self._fail_all(halt)

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
        for watch in self._watches.get(stream, ()):
            watch.note(self.domain, stream)

    def watch(self, streams: Iterable[int], watch: Watch) -> None:
        """Let a watch note changes of streams. The caller passes both to `unwatch` at the end."""
        for stream in streams:
            self._watches.setdefault(stream, {})[watch] = None

    def unwatch(self, streams: Iterable[int], watch: Watch) -> None:
        """End `watch`."""
        for stream in streams:
            watching = self._watches.get(stream)
            if watching is not None:
                watching.pop(watch, None)
                if not watching:
                    del self._watches[stream]
