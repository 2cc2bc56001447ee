"""The bytes of a fetch as pieces: batches to append as they are, and gaps.

A piece is a whole batch, or offsets without a record to copy. Of transactions only committed records are copied.
Aborted ones and the markers at their ends are gaps, and so is what compaction removed. Batches keep their bytes.
Nothing looks at single records, except in a batch that begins before the position (`headwater.link.source.trimming`).
"""

from __future__ import annotations

import struct

import msgspec
from crc32c import crc32c

from headwater.client.model import Fetched
from headwater.errors import BadInput, CorruptBatch, UnsupportedBatch
from headwater.link.source.errors import SourceDamaged, SourceUnreadable
from headwater.link.source.trimming import from_offset
from headwater.log.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_FROM,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER,
    TRANSACTIONAL_BIT,
    Batch,
)
from headwater.types import Buffer
from headwater.wire.codecs import NAMES

MAX_OPENED_BYTES = 256 << 20
"""The largest size of a batch that must be opened, uncompressed."""
NO_EPOCH = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_START = struct.Struct(">qi")
_MAGIC_AT = 16
_SHORTEST = _MAGIC_AT + 1 - LENGTH_OVERHEAD
"""The least length with a format number. Messages of the old formats may be shorter than a batch header."""
_DELETE_HORIZON_BIT = 0x40
"""Set by Kafka's log cleaner. The base timestamp is then the time at which tombstones go, and no time of a record."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Offsets of a partition, in order and without holes between pieces."""

    start: int
    next: int
    """The offset behind the piece."""
    batch: Batch | None
    """The batch that covers these offsets, for a log without producers and transactions; None for a gap."""
    epoch: int
    """The leader epoch under which the source wrote the last batch of the piece, or the one that ends a gap.

    With it the source is asked later whether it still has this history. -1: it has no epochs."""


def pieces(fetched: Fetched, position: int, max_opened_bytes: int = MAX_OPENED_BYTES) -> list[Piece]:
    """What a fetch of committed records holds from a position on.

    The first piece starts at the position, and each one where the piece before it ends. A last batch that is cut short
    is left out; the next fetch has it. No pieces: there is nothing to copy yet. Raises `SourceUnreadable` for bytes
    that can never be copied, and `SourceDamaged` for a batch that does not match its CRC.
    """
    try:
        return _Pieces(fetched, position, max_opened_bytes).found()
    except BadInput as error:
        raise SourceUnreadable(f"the source's records at offset {position} cannot be copied: {error}") from error


def must_open(fetched: Fetched, position: int) -> bool:
    """Whether `pieces` opens a batch, which may take seconds: the first one begins before the position."""
    view = memoryview(fetched.data)
    return len(view) >= _START.size and 0 <= _START.unpack_from(view)[0] < position


class _Pieces:
    """The state of one pass over the batches of a fetch."""

    def __init__(self, fetched: Fetched, position: int, max_opened_bytes: int) -> None:
        self._view = memoryview(fetched.data)
        self._stable = fetched.stable
        self._max_opened_bytes = max_opened_bytes
        self._coming = sorted(fetched.aborted, key=lambda one: one[1], reverse=True)
        self._aborting: set[int] = set()
        self._gap_from = self._position = position
        self._epoch = NO_EPOCH
        self._found: list[Piece] = []

    def found(self) -> list[Piece]:
        view, at, before = self._view, 0, -1
        while at + LENGTH_OVERHEAD <= len(view):
            base, length = _START.unpack_from(view, at)
            end = at + LENGTH_OVERHEAD + length
            if length < _SHORTEST:
                raise CorruptBatch(f"the batch at offset {base} has a length of {length}")
            if 0 <= self._stable <= base:
                break
            if end > len(view):
                if not at:
                    raise CorruptBatch(f"{len(view)} bytes of a batch of {end}; a broker sends the first batch whole")
                break
            before = self._take(view[at:end], before)
            at = end
        self._end_gap(self._position)
        return self._found

    def _take(self, data: memoryview, before: int) -> int:
        """Take one batch; returns where it ends. `before` is the end of the batch before it."""
        if data[_MAGIC_AT] != MAGIC:
            raise UnsupportedBatch(_other_format(data[_MAGIC_AT]))
        if len(data) < HEADER_BYTES:
            raise CorruptBatch(f"a batch of {len(data)} bytes")
        (
            base, _, epoch, _, crc, attributes, last_delta, base_timestamp, max_timestamp, producer, _, _, count,
        ) = _HEADER.unpack_from(data)  # fmt: skip
        if crc32c(data[CRC_FROM:]) != crc:
            raise SourceDamaged(f"the CRC of the source's batch at offset {base} does not match its bytes")
        if base < 0 or last_delta < 0 or base < before or not 0 <= count <= last_delta + 1:
            raise CorruptBatch(f"the batch at offset {base} has impossible offsets")
        following: int = base + last_delta + 1
        left_out = self._is_left_out(attributes, producer, following) or not count
        if following <= self._position:
            return following
        if attributes & CODEC_MASK not in NAMES:
            raise UnsupportedBatch(f"the batch at offset {base} has an unknown codec, {attributes & CODEC_MASK}")
        self._epoch = epoch
        kept: bytes | None = None
        if not left_out:
            kept = bytes(data) if base >= self._position else from_offset(data, self._position, self._max_opened_bytes)
        if kept is not None:
            start = max(base, self._position)
            self._end_gap(start)
            oldest = max_timestamp if attributes & _DELETE_HORIZON_BIT else min(base_timestamp, max_timestamp)
            batch = Batch(kept, following - start, oldest, max_timestamp, NO_PRODUCER, -1, -1)
            self._found.append(Piece(start, following, batch, epoch))
            self._gap_from = following
        self._position = following
        return following

    def _is_left_out(self, attributes: int, producer: int, following: int) -> bool:
        """Whether a batch is a marker, or a part of an aborted transaction.

        A transaction is aborted from its first offset on. It ends at the next marker of its producer, which has one
        transaction at a time.
        """
        while self._coming and self._coming[-1][1] < following:
            self._aborting.add(self._coming.pop()[0])
        if attributes & CONTROL_BIT:
            self._aborting.discard(producer)
            return True
        return bool(attributes & TRANSACTIONAL_BIT) and producer in self._aborting

    def _end_gap(self, end: int) -> None:
        if self._gap_from < end:
            self._found.append(Piece(self._gap_from, end, None, self._epoch))


def _other_format(magic: int) -> str:
    if magic > MAGIC:
        return f"there is no record format {magic}"
    return (
        f"they have the old record format {magic}, and only format 2 is copied. Kafka 4 has no others; "
        "produce the records anew, or copy them with a consumer and a producer"
    )


def epoch_of(data: Buffer) -> int:
    """The leader epoch that a batch carries."""
    epoch: int = struct.unpack_from(">i", data, LENGTH_OVERHEAD)[0]
    return epoch
