"""Defects of transactions, put in on purpose. The scene must find each of them, or it proves nothing.

Each is a context in which the defect is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import msgspec

from headwater.lake import planning
from headwater.log import looking
from headwater.state.commands.transactions import (
    AbortTransaction,
    EndTransaction,
    InitTransaction,
    StageOffsets,
)
from headwater.state.results import Judgement, Transacted, Verdict
from headwater.state.streams import offsets, settle, transactions
from headwater.state.streams.aborted import Aborted
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.transactions import Ended, Phase, Transactions
from headwater.state.streams.stream import Stream
from tests.simulation.transaction_readers import Read, Rules

Defect = Callable[[], contextlib.AbstractContextManager[Any]]


def _judges(**judges: Any) -> contextlib.AbstractContextManager[Any]:
    """Commands by name, judged by something else."""
    found = {command: judge for command, judge in transactions.PART.commands.items()}
    by_name = {command.__name__: command for command in found}
    found.update({by_name[name]: judge for name, judge in judges.items()})
    part = dataclasses.replace(transactions.PART, commands=found)
    parts = tuple(part if p is transactions.PART else p for p in StreamsState.PARTS)
    return patch.object(StreamsState, "PARTS", parts)


def _epoch_not_compared() -> contextlib.AbstractContextManager[Any]:
    right = Transactions.admit

    def admit(self: Transactions, producer: int, epoch: int, stream: int, mode: int) -> Verdict | None:
        found = self.of_producer(producer)
        return right(self, producer, found.epoch if found is not None else epoch, stream, mode)

    return patch.object(Transactions, "admit", admit)


def _retry_ends_the_next() -> contextlib.AbstractContextManager[Any]:
    def end(state: Any, epoch: int, command: EndTransaction) -> Any:
        found = state.transactions.get(command.id)
        if found is not None and found.open and command.epoch == found.epoch - 1:
            command = msgspec.structs.replace(command, epoch=found.epoch)
        return transactions.end(state, epoch, command)

    return _judges(EndTransaction=end)


def _retry_bumps_twice() -> contextlib.AbstractContextManager[Any]:
    right = transactions._repeated_end

    def repeated(found: Any, command: EndTransaction) -> Any:
        result = right(found, command)
        if isinstance(result, Transacted) and result.judgement is Judgement.DONE:
            found.bump(command.fresh)
            return Transacted(Judgement.DONE, found.producer, found.epoch)
        return result

    return patch.object(transactions, "_repeated_end", repeated)


def _without_a_marker() -> contextlib.AbstractContextManager[Any]:
    right = transactions._close

    def close(state: Any, found: Any, **how: Any) -> None:
        if len(found.streams) > 1:
            found.streams.popitem()
        right(state, found, **how)

    return patch.object(transactions, "_close", close)


def _past_the_stable_offset() -> contextlib.AbstractContextManager[Any]:
    return patch.object(looking, "bound_of", lambda stream, committed: stream.end)


def _aborted_list_taken_late() -> contextlib.AbstractContextManager[Any]:
    def after(read: Read, state: StreamsState) -> Read:
        stream, look = state.streams.get(read.stream), read.look
        if stream is None or not look.entries:
            return read
        now = stream.aborted.between(read.offset, min(look.bound, look.entries[-1].end))
        return dataclasses.replace(read, look=dataclasses.replace(look, aborted=now))

    return patch.object(Rules, "after_reading", staticmethod(after))


def _earlier_aborts_left_out() -> contextlib.AbstractContextManager[Any]:
    right = looking.look

    def look(stream: Stream, offset: int, committed: bool, admit: Any) -> looking.Look:
        found = right(stream, offset, committed, admit)
        return dataclasses.replace(found, aborted=[entry for entry in found.aborted if entry.first >= offset])

    return patch.object(looking, "look", look)


def _left_out_of_checkpoints(drop: Callable[[StreamsState], None]) -> contextlib.AbstractContextManager[Any]:
    right = StreamsState.restore

    def restore(self: StreamsState, image: bytes) -> None:
        right(self, image)
        drop(self)

    return patch.object(StreamsState, "restore", restore)


def _drop_running(state: StreamsState) -> None:
    for stream in state.streams.values():
        stream.running = {}


def _drop_aborted(state: StreamsState) -> None:
    for stream in state.streams.values():
        stream.aborted = Aborted()


def _drop_staged(state: StreamsState) -> None:
    for found in state.transactions:
        for staged in found.groups.values():
            staged.clear()


def _committed_when_staged() -> contextlib.AbstractContextManager[Any]:
    def stage(state: Any, epoch: int, command: StageOffsets) -> Any:
        result = transactions.stage(state, epoch, command)
        if isinstance(result, Transacted) and result.judgement is Judgement.DONE:
            staged = state.transactions.get(command.id).groups[command.group]
            offsets.commit(state, command.group, [(*p, at.offset, -1, "") for p, at in staged.items()])
        return result

    return _judges(StageOffsets=stage)


def _require_stable_ignored() -> contextlib.AbstractContextManager[Any]:
    return patch.object(Transactions, "is_staged", lambda *_: False)


@contextlib.contextmanager
def _settles_past_the_stable_offset() -> Iterator[None]:
    """Neither the plan nor the judge looks at the stable offset. Readers do."""
    judged = settle.settle

    def lenient(state: Any, epoch: int, command: Any) -> Any:
        with patch.object(Stream, "stable", property(lambda stream: stream.end)):
            return judged(state, epoch, command)

    commands = {command: lenient if judge is judged else judge for command, judge in settle.PART.commands.items()}
    part = dataclasses.replace(settle.PART, commands=commands)
    parts = tuple(part if p is settle.PART else p for p in StreamsState.PARTS)
    planned = planning.plan_settle

    def plan(*args: Any, **options: Any) -> planning.Job:
        with patch.object(Stream, "stable", property(lambda stream: stream.end)):
            return planned(*args, **options)

    with patch.object(StreamsState, "PARTS", parts), patch.object(planning, "plan_settle", plan):
        yield


def _aborted_range_not_dropped() -> contextlib.AbstractContextManager[Any]:
    return patch.object(Rules, "dropped", staticmethod(lambda part: []))


def _time_out_without_a_bump() -> contextlib.AbstractContextManager[Any]:
    def abort(state: Any, epoch: int, command: AbortTransaction) -> Any:
        found = state.transactions.get(command.id)
        before = (found.producer, found.epoch) if found is not None else (0, 0)
        result: Any = transactions.abort(state, epoch, command)
        if result.judgement is Judgement.DONE:
            found.producer, found.epoch = before
        return result

    return _judges(AbortTransaction=abort)


def _batch_joins_after_its_end() -> contextlib.AbstractContextManager[Any]:
    right = Transactions.admit

    def admit(self: Transactions, producer: int, epoch: int, stream: int, mode: int) -> Verdict | None:
        found = self.of_producer(producer)
        if found is not None and not found.open and epoch == found.epoch - 1:
            return None
        return right(self, producer, epoch, stream, mode)

    return patch.object(Transactions, "admit", admit)


def _init_ends_first() -> contextlib.AbstractContextManager[Any]:
    def init(state: Any, epoch: int, command: InitTransaction) -> Any:
        found = state.transactions.get(command.id)
        if found is not None and found.open and command.expected_producer >= 0:
            transactions._close(state, found, commit=False, ended=Ended.NOT, bump=False)
            state.transactions.close(found, Phase.EMPTY, Ended.NOT, state.clock_ms)
        return transactions.init(state, epoch, command)

    return _judges(InitTransaction=init)


def _time_out_ends_the_next() -> contextlib.AbstractContextManager[Any]:
    def abort(state: Any, epoch: int, command: AbortTransaction) -> Any:
        found = state.transactions.get(command.id)
        if found is not None:
            command = msgspec.structs.replace(command, number=found.number)
        return transactions.abort(state, epoch, command)

    return _judges(AbortTransaction=abort)


PLANTED: dict[str, Defect] = {
    "the transaction's epoch is not compared": _epoch_not_compared,
    "a retried end ends the next transaction": _retry_ends_the_next,
    "a retried end bumps twice": _retry_bumps_twice,
    "one partition without its marker": _without_a_marker,
    "reading past the stable offset": _past_the_stable_offset,
    "the aborted list is taken after an await": _aborted_list_taken_late,
    "aborts that began before the fetch offset are left out": _earlier_aborts_left_out,
    "running left out of checkpoints": lambda: _left_out_of_checkpoints(_drop_running),
    "aborted left out of checkpoints": lambda: _left_out_of_checkpoints(_drop_aborted),
    "staged left out of checkpoints": lambda: _left_out_of_checkpoints(_drop_staged),
    "offsets are committed when staged": _committed_when_staged,
    "require_stable is ignored": _require_stable_ignored,
    "settling past the stable offset": _settles_past_the_stable_offset,
    "an aborted range is not dropped": _aborted_range_not_dropped,
    "a time-out without a bump": _time_out_without_a_bump,
    "a batch joins after its end": _batch_joins_after_its_end,
    "init ends a successor's transaction before it judges": _init_ends_first,
    "a time-out ends the next transaction": _time_out_ends_the_next,
}
