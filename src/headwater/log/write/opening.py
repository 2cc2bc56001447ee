"""Batches that must be opened before they reach their writer: to check their records, or to recompress them.

A batch of two kilobytes can open to sixty megabytes. So the event loop opens only small batches, and few of them in one
turn. Threads open the others. Meanwhile all later batches of the same connection wait in line, because the sequences of
producers depend on the order.

The budgets of opened bytes follow from that. A connection has one job at a time, and the jobs of all callers take turns
(`Turns`). A job opens batches of `JOB_BYTES` in all. A batch that alone is larger goes to a second thread, one at a
time. So a broker has opened at most one batch of the largest size, and `JOB_BYTES`, and batches of usual sizes do not
wait for huge ones of others. The budget of the broker bounds how much waits, and `Expansion` how much each caller has
opened beyond the size of its batches.

Bytes that are compressed anew count several times (`Target.weight`): a slow level takes hundreds of times as long as
opening does, and the level is a config of the topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from headwater.background import Tasks
from headwater.clock import Clock
from headwater.errors import (
    CorruptBatch,
    HeadwaterError,
    InvalidRecord,
    InvalidTimestamp,
    OpensTooLarge,
    Overloaded,
    TooLarge,
)
from headwater.log.batch import (
    HEADER_BYTES,
    Batch,
    BatchRules,
    BrokenBatch,
    checked,
    codec_of,
    offsets_of,
    recompressed,
)
from headwater.log.kernels import switch
from headwater.log.write.budget import Budget, Expansion, free_bytes
from headwater.log.write.part import Part
from headwater.log.write.writer import Writer
from headwater.threads import CALLER, Offload
from headwater.wire.codecs import GZIP, LZ4, NONE, SNAPPY, ZSTD

log = logging.getLogger("headwater.opening")
SMALL = 128 << 10
"""The event loop opens batches of at most so many bytes, uncompressed. That takes 0.2 ms, about twice what it costs to
pass a batch to a thread and back."""
TURN_BYTES = 2 << 20
"""The event loop opens at most so many bytes in one turn, and one small batch more."""
JOB_BYTES = 4 << 20
"""A job in a thread opens at most so many bytes, and one batch more of at most as many."""
JOB_BATCHES = 256
NO_LIMIT = 1 << 62
SLOW_RECORD = 128
"""A record takes plain Python as long as it takes to open so many bytes."""
RATIO = 8
"""The assumed ratio of uncompressed to compressed bytes."""
JOB_TIMES = 4
"""A single batch that is compressed anew may take this many times as long as a job of others."""
WEIGHTS = {
    NONE: ((0, 1),),
    SNAPPY: ((0, 3),),
    LZ4: ((2, 5), (9, 14), (17, 70)),
    GZIP: ((1, 8), (6, 30), (9, 80)),
    ZSTD: ((2, 4), (4, 8), (6, 15), (9, 25), (12, 45), (15, 120), (22, 400)),
}
"""By codec, up to which level it takes how many times as long to compress bytes as to open them (1.5 ns a byte)."""


class Target(msgspec.Struct, frozen=True):
    """How a topic's batches are stored."""

    codec: int
    level: int
    max_bytes: int
    max_opened_bytes: int

    @property
    def weight(self) -> int:
        """How many bytes could be opened while one is opened and compressed."""
        level = 6 if self.codec == GZIP and self.level < 0 else self.level
        steps = WEIGHTS[self.codec]
        return 1 + next((weight for most, weight in steps if level <= most), steps[-1][1])


class Work(msgspec.Struct, frozen=True):
    """What has to be done with a batch before its writer gets it."""

    rules: BatchRules | None
    """What to check; None if the batch is checked."""
    now_ms: int
    target: Target | None
    """The codec in which the batch is stored; None if it stays as it is."""

    def needed(self, batch: Batch) -> bool:
        """Whether there is anything to do."""
        return self.rules is not None or self._recompresses(batch)

    def weight(self, batch: Batch) -> int:
        """How many times as long as opening it takes."""
        return self.target.weight if self.target is not None and self._recompresses(batch) else 1

    def _recompresses(self, batch: Batch) -> bool:
        # An unchecked batch may be shorter than a header.
        return self.target is not None and len(batch.data) >= HEADER_BYTES and codec_of(batch.data) != self.target.codec


class Wanted(msgspec.Struct, frozen=True):
    """A batch, what has to be done with it, and where it goes then."""

    part: Part
    work: Work
    writer: Writer
    refuse: Callable[[HeadwaterError], None]


class _TooMuch(HeadwaterError):
    """The batch opens to more bytes than this place takes. Another one has to open it."""


def prepare(batch: Batch, work: Work, room: int, *, frugal: bool = False) -> tuple[Batch, int]:
    """The batch, checked and in the codec of its topic, and how many bytes were opened.

    Raises `_TooMuch` if more than `room` bytes would have to be opened, or as many as take that long, and the error of
    the batch if it is refused. With `frugal` a batch is refused that opens to more than is free (`Expansion`).
    """
    opened, weight = 0, work.weight(batch)
    if weight > 1:
        room = min(room, max(1, room * JOB_TIMES // weight))
    free = free_bytes(len(batch.data)) if frugal else NO_LIMIT
    if work.rules is not None:
        limit = min(room, free, work.rules.max_opened_bytes)
        try:
            batch, opened = checked(batch.data, work.rules, work.now_ms, limit)
        except OpensTooLarge as error:
            raise _beyond(error, limit, room, free, work.rules.max_opened_bytes) from None
    target = work.target
    if target is None or codec_of(batch.data) == target.codec:
        return batch, opened
    if max(opened, len(batch.data) if codec_of(batch.data) == NONE else 0) > room:
        raise _TooMuch
    limit = min(room, free, target.max_opened_bytes)
    try:
        data = recompressed(batch.data, target.codec, target.level, limit)
    except OpensTooLarge as error:
        raise _beyond(error, limit, room, free, target.max_opened_bytes) from None
    if len(data) > target.max_bytes:
        raise TooLarge(f"a batch of {len(data)} bytes once it is recompressed; the topic allows {target.max_bytes}")
    return msgspec.structs.replace(batch, data=data), opened + max(opened, len(batch.data))


def _beyond(error: OpensTooLarge, limit: int, room: int, free: int, most: int) -> HeadwaterError:
    """The error of a batch that opens to more than `limit`, by which of the other limits that is."""
    if limit == most:
        return error
    if limit == free and free < room:
        return Overloaded(f"batches of this client opened to far more than their size: this one must wait ({limit})")
    return _TooMuch()


def _opened_by(error: HeadwaterError, batch: Batch, limit: int) -> int:
    """How many bytes were opened before a batch was refused, at most."""
    if isinstance(error, InvalidRecord | InvalidTimestamp):
        return error.opened
    if isinstance(error, Overloaded | BrokenBatch) or len(batch.data) < HEADER_BYTES or codec_of(batch.data) == NONE:
        return 0
    return limit if isinstance(error, _TooMuch | OpensTooLarge | CorruptBatch) else 0


def _alone(error: HeadwaterError) -> HeadwaterError:
    """An error without its trace: the frames there would keep what was opened for as long as the error is kept."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


_Outcome = tuple[Batch | HeadwaterError, int]
"""A batch that is ready, or why it is not, and how many bytes were opened."""


def _prepare_some(wanted: list[tuple[Batch, Work]], room: int, frugal: bool = False) -> list[_Outcome]:
    """A job of a thread: the outcomes of the first batches, at least of one."""
    outcomes: list[_Outcome] = []
    left = room
    for batch, work in wanted:
        weight = work.weight(batch)
        try:
            ready, opened = prepare(batch, work, room, frugal=frugal)
            outcomes.append((ready, opened))
            left -= max(opened, _size(batch.data)) * weight if weight > 1 else opened
        except HeadwaterError as error:
            most = work.rules.max_opened_bytes if work.rules is not None else room
            outcomes.append((_alone(error), _opened_by(error, batch, min(room, most))))
            if isinstance(error, _TooMuch):
                break
            left -= min(len(batch.data) * RATIO * weight, room)
        except Exception as error:
            log.exception("a batch cannot be opened")
            outcomes.append((HeadwaterError(f"opening a batch failed: {error!r}"), 0))
        if left <= 0:
            break
    return outcomes


def _size(data: bytes) -> int:
    """The approximate number of uncompressed bytes. Until the kernels are compiled, records count as well."""
    if len(data) < HEADER_BYTES:
        return len(data)
    size = len(data) if codec_of(data) == NONE else len(data) * RATIO
    return size if switch.is_compiled() else max(size, offsets_of(data) * SLOW_RECORD)


class Opening:
    """The batches of one broker that are opened, or wait in line behind one that is."""

    def __init__(
        self, usual: Offload, huge: Offload, budget: Budget, passed: Callable[[Batch], None], clock: Clock
    ) -> None:
        self._usual = usual
        self._huge = huge
        self._budget = budget
        self._passed = passed
        self._lines: dict[object, dict[Part, Wanted]] = {}
        """By connection, in the order of arrival. A connection is here as long as one of its batches is in a thread."""
        self._line_of: dict[Part, dict[Part, Wanted]] = {}
        self._tasks = Tasks()
        self._left = TURN_BYTES
        self._new_turn: asyncio.Handle | None = None
        self.expansion = Expansion(clock.monotonic)

    def __repr__(self) -> str:
        return f"<Opening, {len(self._line_of)} batches of {len(self._lines)} connections wait>"

    def busy(self, connection: object) -> bool:
        """Whether batches of a connection have to wait in line."""
        return connection in self._lines

    def append(self, connection: object, wanted: Wanted, caller: str = "") -> None:
        """Pass a batch to its writer when it is ready, after all earlier batches of its connection.

        `caller` is for whom the connection works; all that it has in threads takes turns with the others.
        """
        part, line = wanted.part, self._lines.get(connection)
        if line is None:
            try:
                batch = self._at_once(part.batch, wanted.work)
            except HeadwaterError as error:
                wanted.refuse(error)
                return
            if batch is not None:
                self._pass_on(wanted, batch)
                return
            line = self._lines[connection] = {}
            self._tasks.spawn(self._work_off(connection, line, caller), "opening")
        self._budget.take(len(part.batch.data))
        line[part] = wanted
        self._line_of[part] = line

    def _at_once(self, batch: Batch, work: Work) -> Batch | None:
        """The batch, ready, if this turn of the event loop has the time for it."""
        if not work.needed(batch):
            return batch
        weight = work.weight(batch)
        if self._left <= 0 or _size(batch.data) * weight > SMALL:
            return None
        if self._new_turn is None:
            self._new_turn = asyncio.get_running_loop().call_soon(self._begin_turn)
        try:
            ready, opened = prepare(batch, work, SMALL)
        except _TooMuch:
            self._left -= SMALL
            return None
        except HeadwaterError:
            self._left = 0  # plain Python looks for the records that are wrong; threads do that for the next ones
            raise
        opened *= weight
        self._left -= opened if switch.is_compiled() else max(opened, ready.offsets * SLOW_RECORD)
        return ready

    def _begin_turn(self) -> None:
        self._left, self._new_turn = TURN_BYTES, None

    def _pass_on(self, wanted: Wanted, batch: Batch) -> None:
        wanted.part.batch = batch
        self._passed(batch)
        wanted.writer.append(wanted.part)

    def withdraw(self, part: Part) -> bool:
        """Drop a batch that has not reached its writer; returns whether it was here."""
        line = self._line_of.pop(part, None)
        if line is None:
            return False
        del line[part]
        self._budget.give(len(part.batch.data))
        return True

    async def _work_off(self, connection: object, line: dict[Part, Wanted], caller: str) -> None:
        """Open the batches of a connection in order. One that fails is refused; those after it go on."""
        CALLER.set(caller)
        while line:
            some: list[Wanted] = []
            size = 0
            for wanted in line.values():
                batch, work = wanted.part.batch, wanted.work
                some.append(wanted)
                size += _size(batch.data) * work.weight(batch) if work.needed(batch) else 0
                if size >= JOB_BYTES or len(some) == JOB_BATCHES:
                    break
            outcomes = await self._open(self._usual, some, JOB_BYTES, caller)
            for wanted, outcome in zip(some, outcomes, strict=False):
                if isinstance(outcome, _TooMuch) and wanted.part in line:
                    [outcome] = await self._open(self._huge, [wanted], NO_LIMIT, caller)
                if not self.withdraw(wanted.part):
                    continue  # its request was answered meanwhile
                if isinstance(outcome, HeadwaterError):
                    wanted.refuse(outcome)
                else:
                    self._pass_on(wanted, outcome)
        del self._lines[connection]

    async def _open(self, thread: Offload, some: list[Wanted], room: int, caller: str) -> list[Batch | HeadwaterError]:
        """Have batches opened by a thread, at the expense of their caller."""
        job = [(wanted.part.batch, wanted.work) for wanted in some]
        outcomes = await thread(_prepare_some, job, room, self.expansion.exceeded(caller))
        for (batch, _), (outcome, opened) in zip(job, outcomes, strict=False):
            self.expansion.charge(caller, len(batch.data), opened)
            self.expansion.refused += isinstance(outcome, Overloaded)
        return [outcome for outcome, _ in outcomes]
