"""The part of the state for mirrors: streams that have the records of another Kafka, at its offsets.

Only units with the condition `MirrorIs` append to a mirror. A stream that is no longer one keeps its generation, so a
link under an earlier generation never writes to it again.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from headwater.state.commands.links import SetMirror, SkipStreams
from headwater.state.machine import Part
from headwater.state.results import Done, Reason, Refused, Result, Skipped, SkipVerdict
from headwater.state.streams.conditions import MAX_GAPS
from headwater.state.streams.domain import I64_MAX, LAST_OFFSET, U32_MAX, StreamsDomain
from headwater.state.streams.stream import Mirror, Stream

MAX_STREAMS = 50_000
"""The limit of streams of one command."""


def set_mirror(state: StreamsDomain, epoch: int, command: SetMirror) -> Result:
    """See `SetMirror`. Returns how many streams it changed."""
    if not 0 < command.generation <= I64_MAX or not 0 < len(command.streams) <= MAX_STREAMS:
        return Refused(Reason.INVALID, f"a mirror has a generation above 0; a command has 1 to {MAX_STREAMS} streams")
    changed = []
    joined = {name for found in state.transactions.opened() for name in found.streams}
    for name in dict.fromkeys(command.streams):
        stream = state.streams.get(name)
        if stream is None:
            return Refused(Reason.UNKNOWN, f"there is no stream {name}")
        now = stream.mirror
        if (now.generation, now.on) == (command.generation, command.mirrored):
            continue
        if command.generation <= now.generation:
            return Refused(Reason.STALE, f"stream {name} is at generation {now.generation}")
        flaw = _flaw(stream, joined) if command.mirrored and not now.on else ""
        if flaw:
            return Refused(Reason.INVALID, f"stream {name} cannot be a mirror: {flaw}")
        changed.append(stream)
    for stream in changed:
        end = stream.next_offset if command.mirrored or stream.mirror.on else stream.mirror.end
        stream.mirror = Mirror(command.generation, command.mirrored, end)
        state.roll("mirror", stream.id, command.generation, command.mirrored, end)
    return Done(len(changed))


def _flaw(stream: Stream, joined: Container[int]) -> str:
    """Why a stream cannot become a mirror; empty if it can."""
    if stream.next_offset != stream.mirror.end:
        return f"its next offset is {stream.next_offset}, and what was copied ends at {stream.mirror.end}"
    if stream.id in joined:
        return "it is part of an open transaction"
    return ""


def skip(state: StreamsDomain, epoch: int, command: SkipStreams) -> Result:
    """See `SkipStreams`."""
    if len(command.skips) > MAX_STREAMS:
        return Refused(Reason.INVALID, f"a command has {MAX_STREAMS} streams at most")
    return Skipped([_skip_one(state, *asked) for asked in command.skips])


def _skip_one(state: StreamsDomain, name: int, generation: int, start: int, end: int) -> tuple[SkipVerdict, int]:
    stream = state.streams.get(name)
    if stream is None:
        return SkipVerdict.NO_STREAM, -1
    if not stream.mirror.on or stream.mirror.generation != generation:
        return SkipVerdict.NOT_MIRRORED, stream.next_offset
    if not start < end <= min(LAST_OFFSET, start + MAX_GAPS * U32_MAX):
        return SkipVerdict.INVALID, stream.next_offset
    if stream.next_offset != start:
        return SkipVerdict.CONFLICT, stream.next_offset
    stream.skip_to(end, U32_MAX, grow=state.gaps_grow(stream))
    state.roll("skip", name, end)
    state.moved(name)
    return SkipVerdict.SKIPPED, end


# --- image ---------------------------------------------------------------------------------------------


class MirrorsImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Streams that are mirrors or were ones, inside a checkpoint."""

    mirrors: list[tuple[int, Mirror]]


def _pack(state: StreamsDomain) -> MirrorsImage:
    return MirrorsImage([(s.id, s.mirror) for s in state.streams.values() if s.mirror.generation])


def _unpack(state: StreamsDomain, image: MirrorsImage) -> None:
    for name, mirror in image.mirrors:
        state.streams[name].mirror = mirror


PART: Part[StreamsDomain, MirrorsImage] = Part(
    name="mirrors",
    commands={SetMirror: set_mirror, SkipStreams: skip},
    format=1,
    image=MirrorsImage,
    pack=_pack,
    unpack=_unpack,
    empty=lambda: MirrorsImage([]),
)
