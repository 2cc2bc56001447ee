"""Checking a whole segment: every page of every column is decoded, and compared with what the metadata says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.errors import Damaged
from headwater.log.segment.digest import MASK, digest
from headwater.log.segment.write import Piece, read_pieces
from headwater.types import Buffer


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The rows that a row group has: of which partition, which offsets, how many."""

    partition: int
    first_offset: int
    last_offset: int
    rows: int
    digest: int
    """See `log/segment/digest.py`."""


def verify_segment(data: Buffer, checksum: int) -> list[GroupRows | Damaged]:
    """Decode a whole segment, row group by row group. A damaged footer raises `Damaged`."""
    found: list[GroupRows | Damaged] = []
    for piece in read_pieces(data, checksum):
        try:
            found.append(_decoded(piece))
        except Damaged as error:
            found.append(error)
    return found


def _decoded(piece: Piece) -> GroupRows:
    import pyarrow.compute as pc

    piece.check_typed()
    rows, first, last, total = 0, -1, -1, 0
    for batch in piece.batches():
        batch.validate(full=True)
        offsets: Any = batch.column("offset").to_numpy()
        partitions = pc.min_max(batch.column("partition")).as_py()
        if partitions != {"min": piece.partition, "max": piece.partition}:
            raise Damaged(f"{piece!r} has rows of another partition")
        if (rows and offsets[0] <= last) or (offsets[1:] <= offsets[:-1]).any():
            raise Damaged(f"{piece!r} has offsets that do not rise")
        first = int(offsets[0]) if not rows else first
        last, rows, total = int(offsets[-1]), rows + len(offsets), total + digest(batch)
    if first != piece.first_offset:
        raise Damaged(f"{piece!r} begins at offset {first}")
    return GroupRows(piece.partition, first, last, rows, total & MASK)
