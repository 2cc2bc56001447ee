"""Defects of mirrors, put in on purpose. The scene must find each of them, or it proves nothing.

Each is a context in which the defect is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from headwater.replica.topics import Topics
from headwater.state.commands.links import SetMirror
from headwater.state.commands.streams import AnyCondition, MirrorIs
from headwater.state.streams import append, conditions, mirrors
from headwater.state.streams.domain import StreamsDomain
from headwater.state.streams.mirrors import MirrorsImage
from headwater.state.streams.stream import Stream

Defect = Callable[[], contextlib.AbstractContextManager[Any]]


def _stale_brokers_append() -> contextlib.AbstractContextManager[Any]:
    """Batches without conditions get into a mirror."""
    right = append._append_chunks

    def append_chunks(*arguments: Any, copied: bool = False) -> int:
        return right(*arguments, copied=True)

    return patch.object(append, "_append_chunks", append_chunks)


def _units_of_others_append() -> contextlib.AbstractContextManager[Any]:
    """Units with other conditions get into a mirror."""
    right = conditions.judge

    def judge(state: StreamsDomain, unit: Any) -> Any:
        outcome = right(state, unit)
        return None if outcome is not None and outcome.verdict.name == "MIRRORED" else outcome

    return patch.object(conditions, "judge", judge)


def _old_generations_append() -> contextlib.AbstractContextManager[Any]:
    """A link that was promoted, paused or stopped meanwhile appends all the same."""
    right = conditions._holds

    def holds(condition: AnyCondition, present: int) -> bool:
        return isinstance(condition, MirrorIs) or right(condition, present)

    return patch.object(conditions, "_holds", holds)


def _a_gap_is_left_out() -> contextlib.AbstractContextManager[Any]:
    """Records behind a gap are appended at the end of the log."""

    def skip(state: StreamsDomain, stream: Stream, start: int) -> None:
        """No gap."""

    return patch.object(append, "_skip", skip)


def _a_gap_is_too_long() -> contextlib.AbstractContextManager[Any]:
    """A gap without records behind it takes an offset more."""
    right = mirrors._skip_one

    def skip_one(state: StreamsDomain, name: int, generation: int, start: int, end: int) -> Any:
        verdict, present = right(state, name, generation, start, end + 1)
        return verdict, end if present == end + 1 else present

    return patch.object(mirrors, "_skip_one", skip_one)


def _gaps_grow_too_far() -> contextlib.AbstractContextManager[Any]:
    """The head of the log does not move with a gap that grows."""
    right = Stream.skip_to

    def skip_to(self: Stream, offset: int, most: int, *, grow: bool) -> int:
        before = self.next_offset
        entries = right(self, offset, most, grow=grow)
        if grow and len(self.index) > 1 and self.index[-1].start < before:
            self.next_offset = before
        return entries

    return patch.object(Stream, "skip_to", skip_to)


def _histories_are_mixed() -> contextlib.AbstractContextManager[Any]:
    """A topic is copied again, though producers have written to it."""
    return patch.object(mirrors, "_flaw", lambda stream, joined: "")


def _the_end_is_forgotten() -> contextlib.AbstractContextManager[Any]:
    """A second promotion says that all records up to now were copied."""
    right = mirrors.set_mirror

    def set_mirror(state: StreamsDomain, epoch: int, command: Any) -> Any:
        before = {name: state.streams[name].mirror for name in command.streams if name in state.streams}
        result = right(state, epoch, command)
        for name, mirror in before.items():
            stream = state.streams[name]
            if stream.mirror is not mirror:
                stream.mirror = type(mirror)(stream.mirror.generation, stream.mirror.on, stream.next_offset)
        return result

    return _replaced(set_mirror)


def _generations_go_back() -> contextlib.AbstractContextManager[Any]:
    """An earlier generation is taken over, too: a process that was late undoes a promotion."""
    right = mirrors.set_mirror

    def set_mirror(state: StreamsDomain, epoch: int, command: Any) -> Any:
        for name in command.streams:
            stream = state.streams.get(name)
            if stream is not None and stream.mirror.generation > command.generation:
                stream.mirror = type(stream.mirror)(0, stream.mirror.on, stream.mirror.end)
        return right(state, epoch, command)

    return _replaced(set_mirror)


def _replaced(set_mirror: Any) -> contextlib.AbstractContextManager[Any]:
    """Another judge of `SetMirror`."""
    return patch.dict(mirrors.PART.commands, {SetMirror: set_mirror})


def _mirrors_come_later() -> contextlib.AbstractContextManager[Any]:
    """New partitions of a linked topic take records until they are made mirrors."""

    async def create_streams(self: Topics, topic: Any, command: Any) -> None:
        await self._in_domain(topic, command)

    return patch.object(Topics, "_create_streams", create_streams)


def _not_in_checkpoints() -> contextlib.AbstractContextManager[Any]:
    """A process that begins with a checkpoint knows no mirrors."""

    def unpack(state: StreamsDomain, image: MirrorsImage) -> None:
        """Nothing is taken over."""

    return patch.object(type(mirrors.PART), "unpack", _unpacking(mirrors.PART, unpack))


def _unpacking(part: Any, unpack: Any) -> Any:
    """The attribute `unpack` of parts, with another one for a part."""
    slot = type(part).unpack

    class Slot:
        def __get__(self, found: Any, kind: Any = None) -> Any:
            return unpack if found is part else slot.__get__(found, kind)

    return Slot()


PLANTED: dict[str, Defect] = {
    "a stale broker appends to a mirror": _stale_brokers_append,
    "a unit of somebody else is appended to a mirror": _units_of_others_append,
    "an old generation appends after a promotion": _old_generations_append,
    "a gap is left out": _a_gap_is_left_out,
    "a gap at the end is too long": _a_gap_is_too_long,
    "the head does not move with a gap": _gaps_grow_too_far,
    "two histories are mixed": _histories_are_mixed,
    "a second promotion forgets what was copied": _the_end_is_forgotten,
    "generations go back": _generations_go_back,
    "new partitions are not mirrors at once": _mirrors_come_later,
    "mirrors are not in checkpoints": _not_in_checkpoints,
}
