"""The part of the state that appends WAL objects: the hot path of every replica.

Batches are judged one by one in the order of the ledger. Offsets of batches are assigned here and nowhere else. A unit
with conditions is judged as a whole, before its batches. Commands remove expired producers and deleted WAL objects.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import msgspec

from headwater.state.commands.streams import (
    AppendUnits,
    AppendWal,
    Chunk,
    CursorIs,
    ExpireProducers,
    ForgetObjects,
    Mode,
    Once,
    Unit,
    UnitChunk,
)
from headwater.state.machine import Part
from headwater.state.results import (
    Appended,
    ChunkResult,
    Done,
    Placed,
    Reason,
    Refused,
    Result,
    UnitResult,
    UnitVerdict,
    Verdict,
)
from headwater.state.streams import conditions
from headwater.state.streams.domain import HOUSEKEEPING, I64_MAX, U32_MAX, StreamsDomain
from headwater.state.streams.index import APPEND_TIME, NO_TIMESTAMP
from headwater.state.streams.producers import Producers
from headwater.state.streams.stored.keys import KeptAnswer
from headwater.state.streams.stream import Stream
from headwater.state.streams.wal_objects import WalObjects
from headwater.types import WalId

PREFIX_BYTES = 4
"""The bytes of the length that precedes each batch inside a WAL object."""

MAX_OBJECT_BYTES = U32_MAX

_MODES = bytes(Mode)
_PAIR = struct.Struct("<qq")


def _append(state: StreamsDomain, epoch: int, command: AppendWal) -> Result:
    flaw = _flaw(state, epoch, command, command.chunks)
    if flaw:
        return Refused(Reason.INVALID, flaw)
    results: list[ChunkResult] = []
    _refer(state, epoch, command, _append_chunks(state, epoch, command.sequence, command.chunks, results))
    return Appended(results)


def _append_units(state: StreamsDomain, epoch: int, command: AppendUnits) -> Result:
    units = command.units
    conditional = any(unit.conditions for unit in units)
    flaw = _flaw(state, epoch, command, [chunk for unit in units for chunk in unit.chunks])
    for unit in units:
        flaw = flaw or (conditions.flaw_of(unit) if unit.conditions else "")
    if flaw:
        return Refused(Reason.INVALID, flaw)
    results: list[ChunkResult] = []
    judged: list[UnitResult | None] = []
    references = 0
    for unit in units:
        outcome = conditions.judge(state, unit) if unit.conditions else None
        if outcome is not None:
            results += [ChunkResult(-1, -1, NO_TIMESTAMP, [])] * len(unit.chunks)
            judged.append(outcome)
            continue
        for name, start in conditions.starts_of(unit).items():
            _skip(state, state.streams[name], start)
        first = len(results)
        copied = bool(unit.conditions)
        references += _append_chunks(state, epoch, command.sequence, unit.chunks, results, copied=copied)
        judged.append(_accept(state, unit, results[first:]) if unit.conditions else None)
    _refer(state, epoch, command, references)
    return Appended(results, judged if conditional else [])


def _skip(state: StreamsDomain, stream: Stream, start: int) -> None:
    """Leave a gap up to where the records of a unit begin."""
    if stream.skip_to(start, U32_MAX, grow=state.gaps_grow(stream)):
        state.roll("skip", stream.id, start)


def _accept(state: StreamsDomain, unit: Unit, results: Sequence[ChunkResult]) -> UnitResult:
    """The result of a unit whose batches are in the log. Its key is kept with it, and its cursors move."""
    placed = [
        Placed(chunk.stream, result.first_offset, sum(batch[1] for batch in chunk.batches), result.append_ms)
        for chunk, result in zip(unit.chunks, results, strict=True)
    ]
    for condition in unit.conditions:
        if isinstance(condition, Once):
            kept = KeptAnswer(state.clock_ms, condition.owner, condition.body, condition.note, placed)
            state.keys.put(condition.key, kept)
            state.roll("once", condition.key)
        elif isinstance(condition, CursorIs):
            state.letters[condition.stream] = condition.to
            state.roll("letters", condition.stream, condition.to)
    return UnitResult(UnitVerdict.ACCEPTED, [], [], placed)


def _append_chunks(
    state: StreamsDomain,
    epoch: int,
    sequence: int,
    chunks: Sequence[Chunk | UnitChunk],
    results: list[ChunkResult],
    *,
    copied: bool = False,
) -> int:
    """Append chunks and add their results. Returns how many index entries name the object.

    Without `copied`, batches for mirrors are refused.
    """
    references, shared = 0, state.shared
    for chunk in chunks:
        stream = state.streams.get(chunk.stream)
        if stream is None:
            missing = [(Verdict.NO_STREAM, -1)] * len(chunk.batches)
            results.append(ChunkResult(-1, -1, NO_TIMESTAMP, missing))
            continue
        if stream.mirror.on and not copied:
            mirrored = [(Verdict.MIRRORED, -1)] * len(chunk.batches)
            results.append(ChunkResult(-1, stream.log_start, NO_TIMESTAMP, mirrored))
            continue
        entries = len(stream.index)
        results.append(_append_chunk(state, epoch, sequence, stream, chunk, shared))
        references += len(stream.index) - entries
    return references


def _refer(state: StreamsDomain, epoch: int, command: AppendWal | AppendUnits, references: int) -> None:
    """Enter the object of a command, if index entries name it."""
    if references:
        state.objects.add(
            epoch,
            command.sequence,
            zone=command.zone,
            created_ms=command.created_ms,
            arrived_ms=state.clock_ms,
            size=command.size,
            references=references,
        )


def _flaw(
    state: StreamsDomain, epoch: int, command: AppendWal | AppendUnits, chunks: Sequence[Chunk | UnitChunk]
) -> str:
    """Why the command is invalid; empty if it is valid. The check runs before anything is changed."""
    if not 0 < command.size <= MAX_OBJECT_BYTES:
        return f"a WAL object cannot have {command.size} bytes"
    if not 0 <= command.sequence <= U32_MAX or not state.objects.fits(epoch, command.sequence):
        return f"WAL object {command.sequence} of epoch {epoch} is out of sequence or known already"
    if epoch > U32_MAX or not -I64_MAX <= command.created_ms <= I64_MAX:
        return f"a WAL object cannot be of epoch {epoch} and created at {command.created_ms}"
    for chunk in chunks:
        if isinstance(chunk, UnitChunk) and chunk.modes and not _modes_fit(chunk):
            return f"stream {chunk.stream}: the modes do not fit the batches"
        if chunk.producers and len(chunk.producers) != len(chunk.batches):
            return f"stream {chunk.stream}: some batches lack a producer"
        end, span = chunk.position + PREFIX_BYTES * len(chunk.batches), 0
        for length, offsets, timestamp in chunk.batches:
            if length <= 0 or offsets <= 0:
                return f"stream {chunk.stream}: a batch is empty"
            if timestamp > I64_MAX:
                return f"stream {chunk.stream}: the timestamp {timestamp} is out of range"
            end += length
            span += offsets
        if chunk.position <= 0 or end > command.size:
            return f"stream {chunk.stream}: batches are outside the object"
        if span > U32_MAX:
            return f"stream {chunk.stream}: {span} offsets are too many for one object"
    return ""


def _modes_fit(chunk: UnitChunk) -> bool:
    """Whether every batch has a known mode, and every transactional one a producer."""
    modes = chunk.modes
    if not len(modes) == len(chunk.batches) == len(chunk.producers) or modes.strip(_MODES):
        return False
    return not any([producer[0] < 0 and modes[i] for i, producer in enumerate(chunk.producers)])


def _append_chunk(
    state: StreamsDomain, epoch: int, sequence: int, stream: Stream, chunk: Chunk | UnitChunk, shared: bool
) -> ChunkResult:
    first = offset = stream.next_offset
    append_ms = state.date_ms if stream.append_time and not stream.mirror.on else NO_TIMESTAMP
    position = run_position = chunk.position
    run_offset, run_timestamp = offset, NO_TIMESTAMP
    verdicts: list[tuple[Verdict, int]] | None = None
    producers = chunk.producers
    modes = chunk.modes if isinstance(chunk, UnitChunk) else b""
    for i, (length, offsets, timestamp) in enumerate(chunk.batches):
        refused = None
        if producers and producers[i][0] >= 0:
            if stream.producers is None:
                stream.producers = Producers()
            if modes and modes[i]:
                if offset != run_offset and producers[i][0] not in stream.running:
                    # The stable offset may come to lie here, so an entry ends here.
                    _add_run(
                        epoch, sequence, stream, run_position, position, run_offset, offset, run_timestamp, append_ms
                    )
                    run_position, run_offset, run_timestamp = position, offset, NO_TIMESTAMP
                refused = _take_transactional(state, stream, modes[i], producers[i], offsets, offset, epoch, shared)
            elif stream.running and producers[i][0] in stream.running:
                refused = Verdict.IN_TRANSACTION, 0
            else:
                refused = stream.producers.take(*producers[i], offsets, offset, epoch, shared, state.clock_ms)
        if refused is None:
            if verdicts is not None:
                verdicts.append((Verdict.ACCEPTED, offset))
            offset += offsets
            if timestamp > run_timestamp:
                run_timestamp = timestamp
            position += PREFIX_BYTES + length
            continue
        if verdicts is None:
            verdicts = _accepted_so_far(first, chunk, i)
        verdicts.append(refused)
        _add_run(epoch, sequence, stream, run_position, position, run_offset, offset, run_timestamp, append_ms)
        position += PREFIX_BYTES + length
        run_position, run_offset, run_timestamp = position, offset, NO_TIMESTAMP
    _add_run(epoch, sequence, stream, run_position, position, run_offset, offset, run_timestamp, append_ms)
    stream.next_offset = offset
    state.digest = zlib.crc32(_PAIR.pack(stream.id, offset), state.digest)
    if offset != first and state.on_append is not None:
        state.on_append(stream.id)
    return ChunkResult(first, stream.log_start, append_ms, verdicts)


def _take_transactional(
    state: StreamsDomain,
    stream: Stream,
    mode: int,
    producer: tuple[int, int, int],
    offsets: int,
    offset: int,
    writer: int,
    shared: bool,
) -> tuple[Verdict, int] | None:
    """Judge a batch by its transaction, then by its sequence. Only an accepted batch joins the transaction."""
    verdict = state.transactions.admit(producer[0], producer[1], stream.id, mode)
    if verdict is not None:
        return verdict, 0
    assert stream.producers is not None
    refused = stream.producers.take(*producer, offsets, offset, writer, shared, state.clock_ms)
    if refused is None:
        state.transactions.enter(producer[0], stream.id, state.clock_ms)
        stream.running.setdefault(producer[0], offset)
    return refused


def _accepted_so_far(first: int, chunk: Chunk | UnitChunk, count: int) -> list[tuple[Verdict, int]]:
    verdicts = []
    for _, offsets, _ in chunk.batches[:count]:
        verdicts.append((Verdict.ACCEPTED, first))
        first += offsets
    return verdicts


def _add_run(
    epoch: int,
    sequence: int,
    stream: Stream,
    position: int,
    end_position: int,
    offset: int,
    end_offset: int,
    timestamp: int,
    append_ms: int,
) -> None:
    """Add one index entry for the accepted batches between two positions, if there are any."""
    if end_offset == offset:
        return
    stream.size += end_position - position
    flags = 0
    if append_ms != NO_TIMESTAMP:
        timestamp, flags = append_ms, APPEND_TIME
    length, span = end_position - position, end_offset - offset
    stream.index.append(end_offset, span, stream.size, timestamp, epoch, sequence, position, length, flags)


def _expire(state: StreamsDomain, epoch: int, command: ExpireProducers) -> Result:
    gone = 0
    for stream in state.streams.values():
        if stream.producers is not None:
            gone += stream.producers.expire(command.before_ms, stream.running)
    state.roll("expire", gone)
    return Done(gone)


def _forget(state: StreamsDomain, epoch: int, command: ForgetObjects) -> Result:
    if not state.holds(epoch, HOUSEKEEPING, command.lease):
        return Refused(Reason.STALE, "the writer does not hold the housekeeping lease")
    gone = 0
    for name in (WalId(e, s) for e, s in command.objects):
        found = state.objects.get(name)
        if found is not None and not state.held.keeps(found.dead_ms):
            gone += state.objects.forget(name)
    state.roll("forget", gone)
    return Done(gone)


class ObjectsImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The WAL objects of a domain inside a checkpoint."""

    objects: list[tuple[int, str, int, bytes]]


def _unpack(state: StreamsDomain, image: ObjectsImage) -> None:
    state.objects = WalObjects.unpack(image.objects)


PART: Part[StreamsDomain, ObjectsImage] = Part(
    name="objects",
    commands={
        AppendWal: _append,
        AppendUnits: _append_units,
        ExpireProducers: _expire,
        ForgetObjects: _forget,
    },
    format=1,
    image=ObjectsImage,
    pack=lambda state: ObjectsImage(state.objects.pack()),
    unpack=_unpack,
    empty=lambda: ObjectsImage([]),
)
