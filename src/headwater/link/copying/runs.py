"""Pieces of a source's partition become runs: batches that follow each other, each appended as one unit.

A unit begins at a given offset, and its batches follow each other without a gap. So a gap ends a run. The gap in front
of a run is left by the unit itself. A gap at the end has no unit yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.errors import CorruptBatch
from headwater.link.source.pieces import Piece
from headwater.log.batch import Batch

MAX_BATCHES = 2_000
"""Batches of one run. A unit of so many fits into a record of the ledger with many others."""
MAX_OFFSETS = (1 << 32) - 1
"""Offsets of one run. The index keeps the length of a run in 32 bits."""


@dataclass(frozen=True, slots=True)
class Run:
    """Batches that follow each other, and the gap in front of them."""

    end: int
    """The end of the log before this run."""
    start: int
    """The offset of the first batch. Offsets from `end` to here are a gap."""
    next: int
    """The offset after the last batch."""
    batches: tuple[Batch, ...]

    @property
    def size(self) -> int:
        """The bytes of the batches."""
        return sum([len(batch.data) for batch in self.batches])


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs of some pieces, and where the last piece ends."""

    runs: tuple[Run, ...]
    end: int
    """The end of the log after the last run."""
    next: int
    """The offset after the last piece. Beyond `end` there is a gap."""


def runs_of(pieces: Iterable[Piece], end: int, max_bytes: int) -> Runs:
    """Divide pieces into runs of about `max_bytes`. `end` is the end of the log; the first piece begins there.

    Raises `CorruptBatch` if a piece does not begin where the one before it ends, or a batch does not fill its piece.
    """
    made: list[Run] = []
    batches: list[Batch] = []
    at = start = end
    size = 0

    def close() -> None:
        nonlocal end, size
        if batches:
            made.append(Run(end, start, at, tuple(batches)))
            batches.clear()
            end, size = at, 0

    for piece in pieces:
        if piece.start != at or piece.next <= at:
            raise CorruptBatch(f"a piece covers {piece.start} to {piece.next}, expected one that begins at {at}")
        if piece.batch is None:
            close()
            at = piece.next
            continue
        batch = piece.batch
        if batch.offsets != piece.next - piece.start:
            raise CorruptBatch(f"the batch at {piece.start} has {batch.offsets} offsets; it should end at {piece.next}")
        full = size + len(batch.data) > max_bytes or len(batches) == MAX_BATCHES
        if full or piece.next - start > MAX_OFFSETS:
            close()
        if not batches:
            start = at
        batches.append(batch)
        size += len(batch.data)
        at = piece.next
    close()
    return Runs(tuple(made), end, at)
