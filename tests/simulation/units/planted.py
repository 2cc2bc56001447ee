"""Defects of units, put in on purpose. The scene must find each of them, or it proves nothing.

Each is a context in which the defect is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec

from headwater.lake import planning
from headwater.log.write import layout
from headwater.state.commands.streams import (
    AppendUnits,
    EndIs,
    Once,
    Present,
    StartAt,
    TrimStreams,
    Unit,
)
from headwater.state.results import Appended, ChunkResult, Result, UnitResult, UnitVerdict
from headwater.state.streams import append, conditions, heads
from headwater.state.streams.domain import StreamsDomain
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.keys import KeptAnswer, StoredKeys
from headwater.state.streams.stream import Stream

Defect = Callable[[], contextlib.AbstractContextManager[Any]]
_right_append = append.PART.commands[AppendUnits]
_right_trim = heads.PART.commands[TrimStreams]


def _judges(command: type, judge: Any) -> contextlib.AbstractContextManager[Any]:
    """A command that is judged by something else."""
    parts = tuple(
        dataclasses.replace(part, commands={**part.commands, command: judge}) if command in part.commands else part
        for part in StreamsState.PARTS
    )
    return patch.object(StreamsState, "PARTS", parts)


def _of_stream(unit: Unit, stream: int) -> list[Any]:
    """The conditions of a unit for one of its streams."""
    return [c for c in unit.conditions if isinstance(c, EndIs | StartAt) and c.stream == stream] or [Present()]


def _judged_per_batch() -> contextlib.AbstractContextManager[Any]:
    """A unit whose conditions hold for some of its streams is appended to those."""
    right = conditions.judge

    def units(state: StreamsDomain, epoch: int, command: AppendUnits) -> Result:
        kept, taken = [], []
        for unit in command.units:
            chunks = [c for c in unit.chunks if right(state, Unit(_of_stream(unit, c.stream), [c])) is None]
            if unit.conditions and 0 < len(chunks) < len(unit.chunks):
                kept.append(Unit([Present(), *(c for x in chunks for c in _of_stream(unit, x.stream))], chunks))
                taken += [chunk in chunks for chunk in unit.chunks]
            else:
                kept.append(unit)
                taken += [True] * len(unit.chunks)
        result = _right_append(state, epoch, msgspec.structs.replace(command, units=kept))
        if not isinstance(result, Appended):
            return result
        told = iter(result.chunks)
        return Appended([next(told) if there else ChunkResult(-1, -1, -1, []) for there in taken], result.units)

    return _judges(AppendUnits, units)


def _keys_left_out_of_checkpoints() -> contextlib.AbstractContextManager[Any]:
    right = StreamsState.restore

    def restore(self: StreamsState, image: bytes) -> None:
        right(self, image)
        self.keys = StoredKeys()

    return patch.object(StreamsState, "restore", restore)


def _gap_left_out() -> contextlib.AbstractContextManager[Any]:
    def skip_to(self: Stream, offset: int, most: int, *, grow: bool) -> int:
        skipped = self.next_offset < offset
        self.next_offset = max(self.next_offset, offset)
        return int(skipped)

    return patch.object(Stream, "skip_to", skip_to)


def _readable_end() -> contextlib.AbstractContextManager[Any]:
    right = conditions._present

    def present(state: StreamsDomain, condition: Any) -> int:
        if isinstance(condition, EndIs) and condition.stream in state.streams:
            return state.streams[condition.stream].end
        return right(state, condition)

    return patch.object(conditions, "_present", present)


def _body_not_compared() -> contextlib.AbstractContextManager[Any]:
    right = conditions._judge_key

    def judge(state: StreamsDomain, key: Once) -> UnitResult | None:
        state.keys.expire(state.clock_ms)
        known = state.keys.get(key.key)
        return right(state, msgspec.structs.replace(key, body=known.body) if known is not None else key)

    return patch.object(conditions, "_judge_key", judge)


def _keys_expire(later_ms: int) -> contextlib.AbstractContextManager[Any]:
    """Keys are kept longer, or less long, than they should be."""
    right = StoredKeys.expire
    return patch.object(StoredKeys, "expire", lambda self, now_ms: right(self, now_ms - later_ms))


def _judged_before_the_command() -> contextlib.AbstractContextManager[Any]:
    """No unit sees what those before it in the same command changed."""

    def units(state: StreamsDomain, epoch: int, command: AppendUnits) -> Result:
        judged = iter([conditions.judge(state, unit) for unit in command.units if unit.conditions])
        with patch.object(conditions, "judge", lambda state, unit: next(judged)):
            return _right_append(state, epoch, command)

    return _judges(AppendUnits, units)


def _present_after_the_command() -> contextlib.AbstractContextManager[Any]:
    """The present values of a refused unit are read when the whole command is applied."""

    def units(state: StreamsDomain, epoch: int, command: AppendUnits) -> Result:
        result = _right_append(state, epoch, command)
        if not isinstance(result, Appended):
            return result
        told = [
            msgspec.structs.replace(found, present=[conditions._present(state, c) for c in unit.conditions])
            if found is not None and found.verdict is UnitVerdict.CONFLICT
            else found
            for unit, found in zip(command.units, result.units, strict=bool(result.units))
        ]
        return Appended(result.chunks, told)

    return _judges(AppendUnits, units)


def _settling_stops_at_gaps() -> contextlib.AbstractContextManager[Any]:
    """Neither the plan crosses a gap, nor does the settled end pass over one."""
    right = planning.pending

    def pending(state: StreamsState, stream: Stream) -> Any:
        for entry in right(state, stream):
            if entry.gap:
                return
            yield entry

    stack = contextlib.ExitStack()
    stack.enter_context(patch.object(planning, "pending", pending))
    stack.enter_context(patch.object(Stream, "advance", lambda self: False))
    return stack


def _settling_drops_gaps() -> contextlib.AbstractContextManager[Any]:
    """The rows behind a gap get the offsets that follow those in front of it."""
    right = planning._file

    def file(*args: Any) -> Any:
        task = right(*args)
        parts = []
        for part in task.parts:
            runs, end = [], None
            for run in part.runs:
                start = run.start if end is None else end
                end = start + run.end - run.start
                runs.append(msgspec.structs.replace(run, start=start, end=end))
            parts.append(msgspec.structs.replace(part, runs=runs))
        return msgspec.structs.replace(task, parts=parts)

    return patch.object(planning, "_file", file)


def _trims_a_whole_gap() -> contextlib.AbstractContextManager[Any]:
    """Deleting records up to somewhere in a gap removes the gap, and leaves the log's start inside it."""

    def trim(state: StreamsDomain, epoch: int, command: TrimStreams) -> Result:
        result = _right_trim(state, epoch, command)
        for name, start in command.starts:
            stream = state.streams.get(name)
            if stream is not None and stream.log_start == start and len(stream.index):
                first: IndexEntry = stream.index[0]
                if first.gap and first.start < start:
                    stream.index.drop(1)
        return result

    return _judges(TrimStreams, trim)


def _first_answer_not_kept() -> contextlib.AbstractContextManager[Any]:
    """A key is kept without where its records are."""
    right = StoredKeys.put

    def put(self: StoredKeys, key: bytes, answer: KeptAnswer) -> None:
        right(self, key, msgspec.structs.replace(answer, placed=answer.placed[:1]))

    return patch.object(StoredKeys, "put", put)


def _chunks_of_units_swapped() -> contextlib.AbstractContextManager[Any]:
    """The writer takes the places of a unit's batches in the object for those of the unit before it."""
    right = layout._command

    def command(*args: Any) -> Any:
        *others, judged = args
        if len(judged) > 1 and all(len(unit.chunks) == 1 for unit in judged[:2]):
            first, second = judged[0].chunks[0], judged[1].chunks[0]
            if first.stream == second.stream and first.batches[0][:2] == second.batches[0][:2]:
                one = Unit(judged[0].conditions, [msgspec.structs.replace(first, position=second.position)])
                two = Unit(judged[1].conditions, [msgspec.structs.replace(second, position=first.position)])
                judged = [one, two, *judged[2:]]
        return right(*(*others, judged))

    return patch.object(layout, "_command", command)


PLANTED: dict[str, Defect] = {
    "conditions are judged per batch": _judged_per_batch,
    "keys left out of checkpoints": _keys_left_out_of_checkpoints,
    "a gap left out of the index": _gap_left_out,
    "the expected end is compared with the readable one": _readable_end,
    "a key is compared without the body": _body_not_compared,
    "keys are kept for too long": lambda: _keys_expire(1_500),
    "keys are forgotten early": lambda: _keys_expire(-1_500),
    "a unit does not see the one before it": _judged_before_the_command,
    "present values are read after the append": _present_after_the_command,
    "a repeated answer lacks a stream": _first_answer_not_kept,
    "batches of two units are swapped in the object": _chunks_of_units_swapped,
    "settling stops at gaps": _settling_stops_at_gaps,
    "settling drops gaps": _settling_drops_gaps,
    "deleting into a gap removes all of it": _trims_a_whole_gap,
}
