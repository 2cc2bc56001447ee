"""Judging the conditions of a unit, before any of its batches.

Functions here change nothing but the keys that have expired. `Once` is judged first: a caller that repeats a request
gets the first answer, whatever the other conditions say now.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.state.commands.streams import (
    AnyCondition,
    CursorIs,
    EndIs,
    MirrorIs,
    Once,
    Present,
    StartAt,
    Unit,
    VersionIs,
)
from headwater.state.results import UnitResult, UnitVerdict
from headwater.state.streams.domain import LAST_OFFSET, U32_MAX, StreamsDomain
from headwater.state.streams.stored.keys import MAX_HASH, MAX_NOTE

MAX_CONDITIONS = 2_000
MAX_GAPS = 1_024
"""The limit of index entries of one gap. Each covers up to 2^32 - 1 offsets."""
NOTHING = -1


def flaw_of(unit: Unit) -> str:
    """Why a unit with conditions is invalid; empty if it is valid."""
    conditions = unit.conditions
    if len(conditions) > MAX_CONDITIONS:
        return f"a unit has {len(conditions)} conditions; the limit is {MAX_CONDITIONS}"
    if not unit.chunks:
        return "a unit with conditions has no records"
    streams = [chunk.stream for chunk in unit.chunks]
    if len(set(streams)) != len(streams):
        return "a unit has two chunks of one stream"
    if any(chunk.producers or chunk.modes for chunk in unit.chunks):
        return "a unit with conditions has batches of a producer"
    keys = [condition for condition in conditions if isinstance(condition, Once)]
    if len(keys) > 1:
        return "a unit has two keys"
    for key in keys:
        if not all(0 < len(part) <= MAX_HASH for part in (key.key, key.body, key.owner)) or len(key.note) > MAX_NOTE:
            return "a key, its body, its owner or its note is empty or too long"
    starts = [condition.stream for condition in conditions if isinstance(condition, StartAt)]
    if len(set(starts)) != len(starts) or not set(starts) <= set(streams):
        return "a start is named twice, or is that of a stream without records in the unit"
    for condition in conditions:
        if isinstance(condition, EndIs | StartAt) and not 0 <= condition.offset <= LAST_OFFSET:
            return f"the offset {condition.offset} is out of range"
        if isinstance(condition, CursorIs) and not 0 <= condition.offset < condition.to <= LAST_OFFSET:
            return f"a cursor cannot move from {condition.offset} to {condition.to}"
    cursors = [condition.stream for condition in conditions if isinstance(condition, CursorIs)]
    if len(set(cursors)) != len(cursors):
        return "a unit names a cursor twice"
    return ""


def judge(state: StreamsDomain, unit: Unit) -> UnitResult | None:
    """Why a unit is not appended, or `None` if all of its conditions hold."""
    key = next((condition for condition in unit.conditions if isinstance(condition, Once)), None)
    if key is not None:
        refused = _judge_key(state, key)
        if refused is not None:
            return refused
    if any(chunk.stream not in state.streams for chunk in unit.chunks):
        return UnitResult(UnitVerdict.NO_STREAM, [], [], [])
    present = [_present(state, condition) for condition in unit.conditions]
    covered = {condition.stream for condition in unit.conditions if isinstance(condition, MirrorIs)}
    if any(state.streams[chunk.stream].mirror.on and chunk.stream not in covered for chunk in unit.chunks):
        return UnitResult(UnitVerdict.MIRRORED, [], present, [])
    failed = _failed(state, unit.conditions, present)
    if failed:
        return UnitResult(UnitVerdict.CONFLICT, failed, present, [])
    if key is not None and state.keys.full(key.owner):
        return UnitResult(UnitVerdict.FULL, [], present, [])
    return None


def starts_of(unit: Unit) -> dict[int, int]:
    """Where the records of a unit begin, by stream, if a condition says so."""
    return {condition.stream: condition.offset for condition in unit.conditions if isinstance(condition, StartAt)}


def _judge_key(state: StreamsDomain, key: Once) -> UnitResult | None:
    state.keys.expire(state.clock_ms)
    known = state.keys.get(key.key)
    if known is None:
        return None
    if known.body != key.body:
        return UnitResult(UnitVerdict.MISMATCH, [], [], [])
    return UnitResult(UnitVerdict.REPEATED, [], [], known.placed, known.note)


def _present(state: StreamsDomain, condition: AnyCondition) -> int:
    """What is there now, where a condition expects something."""
    if isinstance(condition, EndIs | StartAt):
        stream = state.streams.get(condition.stream)
        return stream.next_offset if stream is not None else NOTHING
    if isinstance(condition, VersionIs):
        table = state.tables.get(condition.topic)
        return table.last_sequence if table is not None else 0
    if isinstance(condition, MirrorIs):
        stream = state.streams.get(condition.stream)
        return stream.mirror.generation if stream is not None and stream.mirror.on else NOTHING
    if isinstance(condition, CursorIs):
        stream = state.streams.get(condition.stream)
        # What is not settled has no dead letters yet.
        return state.letters.get(stream.id, 0) if stream is not None and condition.to <= stream.settled else NOTHING
    return NOTHING


def _failed(state: StreamsDomain, conditions: Sequence[AnyCondition], present: Sequence[int]) -> list[int]:
    """The places of the conditions that do not hold."""
    return [i for i, (c, found) in enumerate(zip(conditions, present, strict=True)) if not _holds(c, found)]


def _holds(condition: AnyCondition, present: int) -> bool:
    if isinstance(condition, EndIs):
        return present == condition.offset
    if isinstance(condition, StartAt):
        return 0 <= present <= condition.offset <= present + MAX_GAPS * U32_MAX
    if isinstance(condition, VersionIs):
        return present == condition.version
    if isinstance(condition, MirrorIs):
        return present == condition.generation
    if isinstance(condition, CursorIs):
        return present == condition.offset
    assert isinstance(condition, Present | Once)
    return True
