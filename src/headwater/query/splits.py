"""A scan in parts that several readers read at the same time, each of them about the same number of bytes.

The parts together are the rows of one snapshot, each row once: every part has ranges of offsets, and the ranges of a
partition cover its bounds without a gap. Sizes are estimates. They decide where to cut, not what is read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwater.query.snapshot import Offsets, Snapshot, files_of, kept_from, take
from headwater.query.wanted import FOREVER, Wanted
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import DataFile

MAX_SPLITS = 10_000
"""Parts of a scan. They become larger if there would be more."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of a partition, and about how many bytes of the store hold them."""

    partition: int
    offsets: Offsets
    size: int


@dataclass(frozen=True, slots=True)
class Splits:
    """The parts of a scan."""

    snapshot: Snapshot
    kept: Mapping[int, int]
    """By partition, the offset from which on no row was removed."""
    parts: list[list[Range]]


def plan(state: StreamsState, topic: uuid.UUID, streams: Iterable[Stream], wanted: Wanted, most: int) -> Splits:
    """Divide a scan into parts of about `most` bytes at most. The state must have reached the ledger's end."""
    own = list(streams)
    snapshot = take(state, topic, own, wanted)
    table = state.tables.get(topic)
    if table is not None and table.dropped:
        table = None
    files = files_of(table, snapshot.version, snapshot.bounds, wanted) if table is not None else []
    by_number = {stream.partition: stream for stream in own}
    kept = {number: kept_from(table, by_number[number]) for number in snapshot.bounds}
    return Splits(snapshot, kept, _parts(snapshot, files, most))


def _parts(snapshot: Snapshot, files: Sequence[DataFile], most: int) -> list[list[Range]]:
    pieces = _pieces(snapshot, files)
    total = sum(piece.size for found in pieces.values() for piece in found)
    most = max(1, most, -(-total // MAX_SPLITS))
    ranges = [cut for number in sorted(pieces) for cut in _cut(number, snapshot.bounds[number], pieces[number], most)]
    return list(_packed(ranges, most))


def _pieces(snapshot: Snapshot, files: Sequence[DataFile]) -> dict[int, list[Range]]:
    """Where each partition has rows, and how many bytes they take. A file counts for each of its partitions alike."""
    found: dict[int, list[Range]] = {}

    def add(number: int, start: int, end: int, size: int) -> None:
        bounds = snapshot.bounds[number]
        inside = Offsets(max(start, bounds.start), min(end, bounds.end))
        if inside:
            share = size * (inside.end - inside.start) // (end - start)
            found.setdefault(number, []).append(Range(number, inside, max(1, share)))

    for file in files:
        numbers = range(file.first_partition, file.last_partition + 1)
        for number in numbers:
            if number in snapshot.bounds:
                add(number, file.first_offset, file.last_offset + 1, file.size // len(numbers))
    for part in snapshot.hot:
        for run in part.runs:
            add(part.partition, run.start, run.end, run.length)
    return found


def _cut(number: int, bounds: Offsets, pieces: list[Range], most: int) -> Iterator[Range]:
    """Ranges that cover the bounds of a partition, cut where they would become too large."""
    pieces.sort(key=lambda piece: piece.offsets.start)
    end = bounds.end if bounds.end < FOREVER else max(piece.offsets.end for piece in pieces)
    start, size = bounds.start, 0
    for piece in pieces:
        at, left = max(start, piece.offsets.start), piece.size
        if size and size + left > most and at > start:
            yield Range(number, Offsets(start, at), size)
            start, size = at, 0
        while left > most and 0 < (step := (piece.offsets.end - at) * most // left) < piece.offsets.end - at:
            at += step
            yield Range(number, Offsets(start, at), most)
            start, size, left = at, 0, left - most
        size += left
    if start < end:
        yield Range(number, Offsets(start, end), size)


def _packed(ranges: Iterable[Range], most: int) -> Iterator[list[Range]]:
    """Small ranges together, so that a topic with many small partitions does not become as many parts."""
    part: list[Range] = []
    size = 0
    for one in ranges:
        if part and (size + one.size > most or part[-1].partition == one.partition):
            yield part
            part, size = [], 0
        part.append(one)
        size += one.size
    if part:
        yield part
