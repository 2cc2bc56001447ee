"""The part of `apply` that lets segments into the log without a WAL: bulk appends.

Offsets are reserved first, so that the rows of a file can carry them; readers stop before an open reservation, and
appends go on behind it. Filling it swaps the reserved entries for those of segments and enters the files into the
table's journal, in one command that is judged as a whole. A reservation that is given up, expires, or whose owner is
fenced becomes a gap.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.metadata.commands import Fill, Release, Reserve, SegmentRun
from headwater.metadata.index import NO_TIMESTAMP, RESERVED, SettledEntry
from headwater.metadata.results import Done, Reason, Refused, Result
from headwater.metadata.swaps import U32_MAX, Flaw, Swap, carry_out, check_all_used, check_run, enter, numbered
from headwater.metadata.tables import DataFile, TopicTable

if TYPE_CHECKING:
    from headwater.metadata.streams import Stream, StreamsState

MAX_RESERVATIONS = 1_000
"""In all of a domain."""
MAX_PER_STREAM = 16
MAX_PARTS = 20_000
MAX_ROWS = 100_000_000
"""Offsets of one reservation."""
MAX_LIMIT_MS = 3_600_000
LAST_OFFSET = 1 << 62


class Reservation(msgspec.Struct, frozen=True, array_like=True):
    """Offsets that are given out and wait for their segments."""

    number: int
    owner: int
    """The epoch that made it, and alone may fill it."""
    topic: uuid.UUID
    expires_ms: int
    parts: tuple[tuple[int, int, int], ...]
    """(stream, start, end)"""

    def expired(self, now_ms: int) -> bool:
        """Whether it can no longer be filled."""
        return now_ms >= self.expires_ms


def reserve(state: StreamsState, epoch: int, command: Reserve) -> Result:
    """See `Reserve`. Yields the reservation's number."""
    try:
        streams = _check_reserve(state, command)
    except Flaw as flaw:
        return flaw.refusal
    state.last_reservation += 1
    number = state.last_reservation
    parts = []
    for stream, (name, count) in zip(streams, command.parts, strict=True):
        start, end = stream.next_offset, stream.next_offset + count
        parts.append((name, start, end))
        stream.index.append(
            end=end,
            span=count,
            cumulative_size=stream.size,
            max_timestamp=NO_TIMESTAMP,
            object_epoch=0,
            object_sequence=number,
            position=0,
            length=0,
            flags=RESERVED,
        )
        stream.next_offset = end
        stream.open = (*stream.open, start)
    expires_ms = state.clock_ms + command.limit_ms
    state.reservations[number] = Reservation(number, epoch, command.topic, expires_ms, tuple(parts))
    state._roll("reserve", number, epoch, expires_ms, parts)
    return Done(number)


def fill(state: StreamsState, epoch: int, command: Fill) -> Result:
    """See `Fill`. Yields the journal's sequence."""
    try:
        found = _owned(state, epoch, command.reservation)
        table = state.tables.get(found.topic)
        if table is not None and table.dropped:
            raise Flaw(Reason.UNKNOWN, "the topic is being deleted")
        if not command.root or (table is not None and table.root != command.root):
            raise Flaw(Reason.INVALID, f"the table does not lie at {command.root!r}")
        files = numbered(state, command.files)
        swaps = _plan(state, found, command, files)
        check_all_used(files, swaps)
        if sum(file.rows for file in files) != sum(end - start for _, start, end in found.parts):
            raise Flaw(Reason.INVALID, "as many rows as offsets are needed")
    except Flaw as flaw:
        return flaw.refusal
    if table is None:
        table = state.tables[found.topic] = TopicTable(found.topic, command.root)
    del state.reservations[found.number]
    ends = []
    for swap in swaps:
        stream = swap.stream
        carry_out(state, swap, files)
        stream.size = stream.index.restate(swap.first + len(swap.entries) - 1)
        if _close(state, stream, swap.entries[0].start):
            ends.append((stream.partition, stream.settled))
    state._roll("fill", found.number)
    return enter(state, table, files, (), ends, replaces=False)


def release(state: StreamsState, epoch: int, command: Release) -> Result:
    """See `Release`."""
    found = state.reservations.get(command.reservation)
    if found is None:
        return Refused(Reason.UNKNOWN, f"there is no open reservation {command.reservation}")
    if found.owner != epoch and not found.expired(state.clock_ms):
        return Refused(Reason.LEASED, f"epoch {found.owner} holds reservation {found.number}")
    abandon(state, found)
    return Done()


def abandon(state: StreamsState, found: Reservation) -> None:
    """Turn what is left of a reservation into gaps."""
    del state.reservations[found.number]
    for name, start, end in found.parts:
        stream = state.streams.get(name)
        if stream is None:
            continue
        at = stream.index.find(start)
        size = stream.index[at].cumulative_size
        stream.index.replace(at, at + 1, [SettledEntry(start, end, size, NO_TIMESTAMP, 0, 0, 0, 0)])
        if _close(state, stream, start):
            note_end(state, stream)
    state._roll("release", found.number)


def abandon_all(state: StreamsState, epoch: int) -> None:
    """A fenced epoch fills nothing any more: readers need not wait for its reservations."""
    for found in [r for r in state.reservations.values() if r.owner == epoch]:
        abandon(state, found)


def abandon_streams(state: StreamsState, names: tuple[int, ...]) -> None:
    """Streams are about to be dropped: what was reserved in them, and beside them, will not be filled."""
    gone = set(names)
    for found in [r for r in state.reservations.values() if any(name in gone for name, _, _ in r.parts)]:
        abandon(state, found)


def note_end(state: StreamsState, stream: Stream) -> None:
    """Rows of a bulk append joined the settled part without a settle: the journal tells how far that reaches now."""
    table = state.tables[stream.topic]
    enter(state, table, [], (), [(stream.partition, stream.settled)], replaces=False)


def _close(state: StreamsState, stream: Stream, start: int) -> bool:
    """A reservation of a stream is no longer open: readers may go on. Tells whether rows joined the settled part."""
    stream.open = tuple(other for other in stream.open if other != start)
    if state.on_append:
        state.on_append(stream.id)
    return stream.advance()


# --- the checks ----------------------------------------------------------------------------------------


def _check_reserve(state: StreamsState, command: Reserve) -> list[Stream]:
    """The streams of a reservation that can be made."""
    parts = command.parts
    if not 0 < len(parts) <= MAX_PARTS or len({name for name, _ in parts}) != len(parts):
        raise Flaw(Reason.INVALID, f"a reservation in {len(parts)} streams")
    if any(count < 1 for _, count in parts) or sum(count for _, count in parts) > MAX_ROWS:
        raise Flaw(Reason.INVALID, f"a reservation holds 1 to {MAX_ROWS} offsets")
    if not 0 < command.limit_ms <= MAX_LIMIT_MS:
        raise Flaw(Reason.INVALID, f"a reservation for {command.limit_ms} ms; the limit is {MAX_LIMIT_MS}")
    if len(state.reservations) >= MAX_RESERVATIONS or state.last_reservation >= U32_MAX:
        raise Flaw(Reason.LEASED, f"{len(state.reservations)} reservations are open")
    table = state.tables.get(command.topic)
    if table is not None and table.dropped:
        raise Flaw(Reason.UNKNOWN, "the topic is being deleted")
    streams = []
    for name, count in parts:
        stream = state.streams.get(name)
        if stream is None or stream.topic != command.topic:
            raise Flaw(Reason.UNKNOWN, f"the topic has no stream {name}")
        if len(stream.open) >= MAX_PER_STREAM:
            raise Flaw(Reason.LEASED, f"stream {name} has {MAX_PER_STREAM} open reservations")
        if stream.next_offset + count > LAST_OFFSET:
            raise Flaw(Reason.INVALID, f"stream {name} has no offsets left")
        streams.append(stream)
    return streams


def _owned(state: StreamsState, epoch: int, number: int) -> Reservation:
    """A reservation that this epoch may fill."""
    found = state.reservations.get(number)
    if found is None:
        raise Flaw(Reason.UNKNOWN, f"there is no open reservation {number}")
    if found.owner != epoch:
        raise Flaw(Reason.STALE, f"epoch {found.owner} holds reservation {number}")
    if found.expired(state.clock_ms):
        raise Flaw(Reason.STALE, f"reservation {number} has expired")
    return found


def _plan(state: StreamsState, found: Reservation, command: Fill, files: list[DataFile]) -> list[Swap]:
    """For every stream of a reservation, which entries take its place."""
    if len(command.newest) != len(command.runs):
        raise Flaw(Reason.INVALID, "a run without its largest timestamp")
    by_stream: dict[int, list[tuple[SegmentRun, int]]] = {}
    for run, newest in zip(command.runs, command.newest, strict=True):
        by_stream.setdefault(run.stream, []).append((run, newest))
    if by_stream.keys() != {name for name, _, _ in found.parts}:
        raise Flaw(Reason.INVALID, f"other streams than those of reservation {found.number}")
    return [_plan_part(state.streams[name], start, end, by_stream[name], files) for name, start, end in found.parts]


def _plan_part(stream: Stream, start: int, end: int, runs: list[tuple[SegmentRun, int]], files: list[DataFile]) -> Swap:
    at = stream.index.find(start)
    size, expected, entries = stream.index[at].cumulative_size, start, []
    for run, newest in runs:
        check_run(stream.id, run, expected, files)
        if run.file < 0 or not NO_TIMESTAMP <= newest <= max(files[run.file].max_timestamp, NO_TIMESTAMP):
            raise Flaw(Reason.INVALID, f"stream {stream.id}: no rows of that time from {run.start} on")
        file = files[run.file]
        length = max(1, file.size * (run.end - run.start) // file.rows)
        if length > U32_MAX:
            raise Flaw(Reason.INVALID, f"stream {stream.id}: {length} bytes in one run")
        size += length
        entries.append(SettledEntry(run.start, run.end, size, newest, length, file.number, run.first_group, run.groups))
        expected = run.end
    if expected != end:
        raise Flaw(Reason.INVALID, f"stream {stream.id}: its runs end at {expected}, the reservation at {end}")
    return Swap(stream, at, at + 1, entries)


COMMANDS: dict[type, Callable[[Any, int, Any], Result]] = {Reserve: reserve, Fill: fill, Release: release}
