"""The part of the state for bulk appends: segments that enter the log without a WAL.

`Reserve` assigns offsets first, so that the rows of a file can carry them. Readers stop before an open reservation.
Appends continue behind it. `Fill` replaces the reserved entries by entries of segments and enters the files into the
table's journal; it is one command and judged as a whole. A reservation becomes a gap if its owner releases it, if it
has expired and is released, or if its owner is fenced.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.state.commands.tables import Fill, Release, Reserve, SegmentRun
from headwater.state.machine import Part
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.domain import LAST_OFFSET, U32_MAX, Reservation, StreamsDomain
from headwater.state.streams.index import NO_TIMESTAMP, RESERVED, SettledEntry
from headwater.state.streams.stream import Stream
from headwater.state.streams.swaps import (
    Flaw,
    Swap,
    carry_out,
    check_all_used,
    check_run,
    check_typings,
    enter,
    new_table,
    note_end,
    note_typings,
    numbered,
)
from headwater.state.streams.tables import DataFile

MAX_RESERVATIONS = 1_000
"""Open reservations of a domain."""
MAX_PER_STREAM = 16
MAX_PARTS = 20_000
MAX_ROWS = 100_000_000
"""The limit of offsets of one reservation."""
MAX_LIMIT_MS = 3_600_000


def reserve(state: StreamsDomain, epoch: int, command: Reserve) -> Result:
    """See `Reserve`. Returns the reservation's number."""
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
    state.roll("reserve", number, epoch, expires_ms, parts)
    return Done(number)


def fill(state: StreamsDomain, epoch: int, command: Fill) -> Result:
    """See `Fill`. Returns the sequence of the journal entry."""
    try:
        found = _owned(state, epoch, command.reservation)
        table = state.tables.get(found.topic)
        if table is not None and table.dropped:
            raise Flaw(Reason.UNKNOWN, "the topic is being deleted")
        if not command.root or (table is not None and table.root != command.root):
            raise Flaw(Reason.INVALID, f"the table's root is not {command.root!r}")
        files = numbered(state, command.files)
        check_typings(state, found.topic, files, command.typings)
        swaps = _plan(state, found, command, files)
        check_all_used(files, swaps)
        if sum(file.rows for file in files) != sum(end - start for _, start, end in found.parts):
            raise Flaw(Reason.INVALID, "the files do not have as many rows as the reservation has offsets")
    except Flaw as flaw:
        return flaw.refusal
    if table is None:
        table = new_table(state, found.topic, command.root)
    del state.reservations[found.number]
    ends = []
    for swap in swaps:
        stream = swap.stream
        carry_out(state, swap, files)
        stream.size = stream.index.restate(swap.first + len(swap.entries) - 1)
        if _close(state, stream, swap.entries[0].start):
            ends.append((stream.partition, stream.settled))
    state.roll("fill", found.number)
    note_typings(state, found.topic, files, command.typings)
    return enter(state, table, files, (), ends, replaces=False)


def release(state: StreamsDomain, epoch: int, command: Release) -> Result:
    """See `Release`."""
    found = state.reservations.get(command.reservation)
    if found is None:
        return Refused(Reason.UNKNOWN, f"there is no open reservation {command.reservation}")
    if found.owner != epoch and not found.expired(state.clock_ms):
        return Refused(Reason.LEASED, f"epoch {found.owner} holds reservation {found.number}")
    abandon(state, found)
    return Done()


def abandon(state: StreamsDomain, found: Reservation) -> None:
    """Turn the offsets of a reservation into gaps."""
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
    state.roll("release", found.number)


def abandon_all(state: StreamsDomain, epoch: int) -> None:
    """Abandon the reservations of a fenced epoch, which can no longer fill them."""
    for found in [r for r in state.reservations.values() if r.owner == epoch]:
        abandon(state, found)


def abandon_streams(state: StreamsDomain, names: Sequence[int]) -> None:
    """Abandon every reservation that has offsets in a stream that is about to be dropped."""
    gone = set(names)
    for found in [r for r in state.reservations.values() if any(name in gone for name, _, _ in r.parts)]:
        abandon(state, found)


def _close(state: StreamsDomain, stream: Stream, start: int) -> bool:
    """Let readers pass a reservation that has ended. Returns whether rows of a segment joined the settled part."""
    stream.open = tuple(other for other in stream.open if other != start)
    state.moved(stream.id)
    return stream.advance()


# --- the checks ----------------------------------------------------------------------------------------


def _check_reserve(state: StreamsDomain, command: Reserve) -> list[Stream]:
    """Check a reservation and return its streams."""
    parts = command.parts
    if not 0 < len(parts) <= MAX_PARTS or len({name for name, _ in parts}) != len(parts):
        raise Flaw(Reason.INVALID, f"a reservation has {len(parts)} parts, or a stream twice")
    if any(count < 1 for _, count in parts) or sum(count for _, count in parts) > MAX_ROWS:
        raise Flaw(Reason.INVALID, f"a reservation has 1 to {MAX_ROWS} offsets, at least one per stream")
    if not 0 < command.limit_ms <= MAX_LIMIT_MS:
        raise Flaw(Reason.INVALID, f"a reservation cannot last {command.limit_ms} ms; the limit is {MAX_LIMIT_MS}")
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
        if stream.mirror.on:
            raise Flaw(Reason.MIRRORED, f"stream {name} is a mirror: only its link appends to it")
        if len(stream.open) >= MAX_PER_STREAM:
            raise Flaw(Reason.LEASED, f"stream {name} has {MAX_PER_STREAM} open reservations")
        if stream.next_offset + count > LAST_OFFSET:
            raise Flaw(Reason.INVALID, f"stream {name} has no offsets left")
        streams.append(stream)
    return streams


def _owned(state: StreamsDomain, epoch: int, number: int) -> Reservation:
    """A reservation that this epoch may fill."""
    found = state.reservations.get(number)
    if found is None:
        raise Flaw(Reason.UNKNOWN, f"there is no open reservation {number}")
    if found.owner != epoch:
        raise Flaw(Reason.STALE, f"epoch {found.owner} holds reservation {number}")
    if found.expired(state.clock_ms):
        raise Flaw(Reason.STALE, f"reservation {number} has expired")
    return found


def _plan(state: StreamsDomain, found: Reservation, command: Fill, files: list[DataFile]) -> list[Swap]:
    """For every stream of a reservation, the entries that replace the reserved one."""
    if len(command.newest) != len(command.runs):
        raise Flaw(Reason.INVALID, "the numbers of runs and of largest timestamps differ")
    by_stream: dict[int, list[tuple[SegmentRun, int]]] = {}
    for run, newest in zip(command.runs, command.newest, strict=True):
        by_stream.setdefault(run.stream, []).append((run, newest))
    if by_stream.keys() != {name for name, _, _ in found.parts}:
        raise Flaw(Reason.INVALID, f"the runs are not in the streams of reservation {found.number}")
    return [_plan_part(state.streams[name], start, end, by_stream[name], files) for name, start, end in found.parts]


def _plan_part(stream: Stream, start: int, end: int, runs: list[tuple[SegmentRun, int]], files: list[DataFile]) -> Swap:
    at = stream.index.find(start)
    size, expected, entries = stream.index[at].cumulative_size, start, []
    for run, newest in runs:
        check_run(stream.id, run, expected, files)
        if run.file < 0 or not NO_TIMESTAMP <= newest <= max(files[run.file].max_timestamp, NO_TIMESTAMP):
            raise Flaw(Reason.INVALID, f"stream {stream.id}: the run at {run.start} has no file or a wrong timestamp")
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


class ReservationsImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The open reservations of a domain inside a checkpoint."""

    reservations: list[Reservation]
    last_reservation: int


def _unpack(state: StreamsDomain, image: ReservationsImage) -> None:
    state.reservations = {found.number: found for found in image.reservations}
    state.last_reservation = image.last_reservation
    for found in image.reservations:
        for name, start, _ in found.parts:
            state.streams[name].open += (start,)


PART: Part[StreamsDomain, ReservationsImage] = Part(
    name="reservations",
    commands={Reserve: reserve, Fill: fill, Release: release},
    format=1,
    image=ReservationsImage,
    pack=lambda state: ReservationsImage(list(state.reservations.values()), state.last_reservation),
    unpack=_unpack,
    empty=lambda: ReservationsImage([], 0),
    fenced=abandon_all,
    dropped=abandon_streams,
)
