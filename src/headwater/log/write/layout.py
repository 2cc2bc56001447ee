"""How batches and units become one WAL object and the command that appends it.

Batches of a stream are one chunk. The chunks of a unit are its own, so that the unit can be refused as a whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.log.batch import NO_PRODUCER, Batch
from headwater.log.wal import format as wal
from headwater.log.write.part import Part, Together
from headwater.state.commands.streams import AppendUnits, AppendWal, Chunk, Unit, UnitChunk
from headwater.types import Domain, WalId


@dataclass(frozen=True, slots=True)
class Layout:
    """An object that is ready to be stored, and its command."""

    chunks: list[tuple[int, list[Part]]]
    """The batches without a unit, by stream."""
    image: wal.WalImage
    command: AppendWal | AppendUnits


def lay_out(
    parts: Sequence[Part],
    units: Sequence[Together],
    object_id: WalId,
    domain: Domain,
    *,
    zone: str,
    created_ms: int,
    ledger_ms: int,
) -> Layout:
    """Lay out an object. A unit is judged after the batches without a unit, and after the units before it."""
    by_stream: dict[int, list[Part]] = {}
    for part in parts:
        by_stream.setdefault(part.stream, []).append(part)
    chunks = sorted(by_stream.items())
    stored: list[tuple[int, Sequence[Batch]]] = [(s, [part.batch for part in of_stream]) for s, of_stream in chunks]
    if not units:
        image = wal.build(object_id, domain, created_ms, ledger_ms, stored)
        command = _command(object_id, image.size, created_ms, zone, chunks, image.positions, ())
        return Layout(chunks, image, command)
    of_units = [_by_stream(unit) for unit in units]
    stored += [chunk for found in of_units for chunk in found]
    order = sorted(range(len(stored)), key=lambda i: stored[i][0])
    image = wal.build(object_id, domain, created_ms, ledger_ms, [stored[i] for i in order], wal.UNITS)
    positions = [position for _, position in sorted(zip(order, image.positions, strict=True))]
    judged, at = [], len(chunks)
    for unit, own in zip(units, of_units, strict=True):
        found = [
            UnitChunk(stream, position, [_facts(batch) for batch in batches], [], b"")
            for (stream, batches), position in zip(own, positions[at:], strict=False)
        ]
        at += len(found)
        judged.append(Unit(unit.conditions, found))
    return Layout(chunks, image, _command(object_id, image.size, created_ms, zone, chunks, positions, judged))


def _command(
    object_id: WalId,
    size: int,
    created_ms: int,
    zone: str,
    chunks: list[tuple[int, list[Part]]],
    positions: Sequence[int],
    units: Sequence[Unit],
) -> AppendWal | AppendUnits:
    """The command of an object. One of plain batches alone is an `AppendWal`, which is smaller."""
    in_units = bool(units) or any([part.batch.transactional for _, parts in chunks for part in parts])
    entered: list[Chunk] = []
    unit_chunks: list[UnitChunk] = []
    for (stream, parts), position in zip(chunks, positions, strict=False):
        batches = [_facts(part.batch) for part in parts]
        producers = []
        if any(p.batch.producer_id != NO_PRODUCER for p in parts):
            producers = [(p.batch.producer_id, p.batch.producer_epoch, p.batch.base_sequence) for p in parts]
        if in_units:
            unit_chunks.append(UnitChunk(stream, position, batches, producers, _modes(parts)))
        else:
            entered.append(Chunk(stream, position, batches, producers))
    if in_units:
        return AppendUnits(object_id.sequence, size, created_ms, zone, [Unit([], unit_chunks), *units])
    return AppendWal(object_id.sequence, size, created_ms, zone, entered)


def _by_stream(unit: Together) -> list[tuple[int, Sequence[Batch]]]:
    """The batches of a unit, by stream."""
    found = itertools.groupby(unit.batches, key=lambda pair: pair[0])
    return [(stream, [batch for _, batch in of_stream]) for stream, of_stream in found]


def _facts(batch: Batch) -> tuple[int, int, int]:
    return len(batch.data), batch.offsets, batch.max_timestamp


def _modes(parts: list[Part]) -> bytes:
    """A byte for the mode of each batch; empty if all are plain."""
    modes = bytes([part.mode for part in parts])
    return modes if any(modes) else b""
