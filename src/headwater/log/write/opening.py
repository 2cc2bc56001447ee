"""Batches that must be opened before they reach their writer: to check their records, or to recompress them.

A batch of two kilobytes can open to sixty megabytes. So the event loop opens only small batches, and few of them in one
turn. Threads open the others. Meanwhile all later batches of the same connection wait in line, because the sequences of
producers depend on the order.

The budgets of opened bytes follow from that. A connection has one job at a time, and the jobs of all connections take
turns. A job opens batches of `JOB_BYTES` in all. A batch that alone is larger goes to a second thread, one at a time.
So a broker has opened at most one batch of the largest size, and `JOB_BYTES`, and batches of usual sizes do not wait
for huge ones of other connections. The budget of the broker bounds how much waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from headwater.background import Tasks
from headwater.errors import HeadwaterError, OpensTooLarge, TooLarge
from headwater.log.batch import HEADER_BYTES, Batch, BatchRules, checked, codec_of, offsets_of, recompressed
from headwater.log.kernels import switch
from headwater.log.write.budget import Budget
from headwater.log.write.part import Part
from headwater.log.write.writer import Writer
from headwater.threads import Offload
from headwater.wire.codecs import NONE

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


class Target(msgspec.Struct, frozen=True):
    """How a topic's batches are stored."""

    codec: int
    level: int
    max_bytes: int
    max_opened_bytes: int


class Work(msgspec.Struct, frozen=True):
    """What has to be done with a batch before its writer gets it."""

    rules: BatchRules | None
    """What to check; None if the batch is checked."""
    now_ms: int
    target: Target | None
    """The codec in which the batch is stored; None if it stays as it is."""

    def needed(self, batch: Batch) -> bool:
        """Whether there is anything to do."""
        return self.rules is not None or (self.target is not None and codec_of(batch.data) != self.target.codec)


class Wanted(msgspec.Struct, frozen=True):
    """A batch, what has to be done with it, and where it goes then."""

    part: Part
    work: Work
    writer: Writer
    refuse: Callable[[HeadwaterError], None]


class _TooMuch(HeadwaterError):
    """The batch opens to more bytes than this place takes. Another one has to open it."""


def prepare(batch: Batch, work: Work, room: int) -> tuple[Batch, int]:
    """The batch, checked and in the codec of its topic, and how many bytes were opened.

    Raises `_TooMuch` if more than `room` bytes would have to be opened, and the error of the batch if it is refused.
    """
    opened = 0
    if work.rules is not None:
        limit = min(room, work.rules.max_opened_bytes)
        try:
            batch, opened = checked(batch.data, work.rules, work.now_ms, limit)
        except OpensTooLarge as error:
            if limit < work.rules.max_opened_bytes:
                raise _TooMuch from error
            raise
    target = work.target
    if target is None or codec_of(batch.data) == target.codec:
        return batch, opened
    limit = min(room, target.max_opened_bytes)
    try:
        data = recompressed(batch.data, target.codec, target.level, limit)
    except OpensTooLarge as error:
        if limit < target.max_opened_bytes:
            raise _TooMuch from error
        raise
    if len(data) > target.max_bytes:
        raise TooLarge(f"a batch of {len(data)} bytes once it is recompressed; the topic allows {target.max_bytes}")
    return msgspec.structs.replace(batch, data=data), opened + max(opened, len(batch.data))


def _prepare_some(wanted: list[tuple[Batch, Work]], room: int) -> list[Batch | HeadwaterError]:
    """A job of a thread: the outcomes of the first batches, at least of one."""
    outcomes: list[Batch | HeadwaterError] = []
    left = room
    for batch, work in wanted:
        try:
            ready, opened = prepare(batch, work, room)
            outcomes.append(ready)
            left -= opened
        except _TooMuch as error:
            outcomes.append(error)
            break
        except HeadwaterError as error:
            outcomes.append(error)
            left -= min(len(batch.data) * RATIO, room)
        except Exception as error:
            log.exception("a batch cannot be opened")
            outcomes.append(HeadwaterError(f"opening a batch failed: {error!r}"))
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

    def __init__(self, usual: Offload, huge: Offload, budget: Budget, passed: Callable[[Batch], None]) -> None:
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

    def __repr__(self) -> str:
        return f"<Opening, {len(self._line_of)} batches of {len(self._lines)} connections wait>"

    def busy(self, connection: object) -> bool:
        """Whether batches of a connection have to wait in line."""
        return connection in self._lines

    def append(self, connection: object, wanted: Wanted) -> None:
        """Pass a batch to its writer when it is ready, after all earlier batches of its connection."""
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
            self._tasks.spawn(self._work_off(connection, line), "opening")
        self._budget.take(len(part.batch.data))
        line[part] = wanted
        self._line_of[part] = line

    def _at_once(self, batch: Batch, work: Work) -> Batch | None:
        """The batch, ready, if this turn of the event loop has the time for it."""
        if not work.needed(batch):
            return batch
        if self._left <= 0 or _size(batch.data) > SMALL:
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

    async def _work_off(self, connection: object, line: dict[Part, Wanted]) -> None:
        """Open the batches of a connection in order. One that fails is refused; those after it go on."""
        while line:
            some: list[Wanted] = []
            size = 0
            for wanted in line.values():
                some.append(wanted)
                size += _size(wanted.part.batch.data) if wanted.work.needed(wanted.part.batch) else 0
                if size >= JOB_BYTES or len(some) == JOB_BATCHES:
                    break
            job = [(wanted.part.batch, wanted.work) for wanted in some]
            outcomes = await self._usual(_prepare_some, job, JOB_BYTES)
            for wanted, outcome in zip(some, outcomes, strict=False):
                if isinstance(outcome, _TooMuch) and wanted.part in line:
                    alone = [(wanted.part.batch, wanted.work)]
                    [outcome] = await self._huge(_prepare_some, alone, NO_LIMIT)
                if not self.withdraw(wanted.part):
                    continue  # its request was answered meanwhile
                if isinstance(outcome, HeadwaterError):
                    wanted.refuse(outcome)
                else:
                    self._pass_on(wanted, outcome)
        del self._lines[connection]
