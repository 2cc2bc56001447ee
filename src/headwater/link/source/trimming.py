"""Batches that begin before the offset from which on a partition is copied.

The source sends whole batches. If its log starts within one (records were deleted up to an offset), or if a copy begins
within one, the records before that offset must not be copied. This is the only place where a link looks at records.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from headwater.errors import CorruptBatch
from headwater.log.batch import APPEND_TIME_BIT, CODEC_MASK, CRC_FROM, HEADER_BYTES, LENGTH_OVERHEAD, read_varint
from headwater.types import Buffer
from headwater.wire.codecs import compress, decompress

_HEADER = struct.Struct(">qiibIhiqqqhii")
_START = struct.Struct(">qiibI")
_CHECKED = struct.Struct(">hiqqqhii")
_SEQUENCES = 1 << 31
"""Sequence numbers begin again at 0 behind the largest."""
_SMALL = 0x80


def written_varint(number: int) -> bytes:
    """A signed varint."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number >= _SMALL:
        out.append(number & 0x7F | _SMALL)
        number >>= 7
    out.append(number)
    return bytes(out)


def from_offset(data: Buffer, offset: int, limit: int) -> bytes | None:
    """The batch with its records from an offset on; None if it has none of them.

    The new batch begins at `offset` and ends where the old one ends. Its records, their times and the codec are the
    same. The old one begins before `offset` and ends behind it; its CRC was checked. `limit` bounds it uncompressed.
    """
    (
        base, _, epoch, magic, _, attributes, last_delta, base_timestamp, max_timestamp,
        producer, producer_epoch, sequence, count,
    ) = _HEADER.unpack_from(data)  # fmt: skip
    codec = attributes & CODEC_MASK
    opened = bytes(decompress(codec, memoryview(data)[HEADER_BYTES:], limit))
    kept, records, newest = _kept(opened, count, last_delta, offset - base)
    if not records:
        return None
    if not attributes & APPEND_TIME_BIT:
        max_timestamp = base_timestamp + newest
    if sequence >= 0:
        sequence = (sequence + offset - base) % _SEQUENCES
    last_delta -= offset - base
    checked = _CHECKED.pack(
        attributes, last_delta, base_timestamp, max_timestamp, producer, producer_epoch, sequence, records
    ) + bytes(compress(codec, kept))
    length = _START.size + len(checked) - LENGTH_OVERHEAD
    assert _START.size == CRC_FROM
    return _START.pack(offset, length, epoch, magic, crc32c(checked)) + checked


def _kept(opened: bytes, count: int, last_delta: int, first: int) -> tuple[bytes, int, int]:
    """The records whose delta is at least `first`, with deltas counted from there, their number and largest time delta.

    They take about as much memory as the batch, however small each of them is.
    """
    kept, records = bytearray(), 0
    newest, at, before = 0, 0, -1
    for _ in range(count):
        length, start = read_varint(opened, at)
        at = start + length
        if length < 1 or at > len(opened):
            raise CorruptBatch("a record is cut short")
        time, delta_at = read_varint(opened, start + 1)
        delta, rest = read_varint(opened, delta_at)
        if not before < delta <= last_delta or rest > at:
            raise CorruptBatch(f"a record with the offset delta {delta} in a batch up to {last_delta}")
        before = delta
        if delta >= first:
            body = opened[start:delta_at] + written_varint(delta - first) + opened[rest:at]
            newest = max(newest, time) if records else time
            kept += written_varint(len(body)) + body
            records += 1
    if at != len(opened):
        raise CorruptBatch(f"{len(opened) - at} bytes behind the last record of a batch")
    return bytes(kept), records, newest
