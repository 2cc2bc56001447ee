"""Record batches, Kafka's format v2: checks on the way in, patches on the way out.

Bytes are kept as received. Base offset and leader epoch lie outside the CRC, so a reader patches them for
nothing; log-append time lies inside it, so the CRC is computed anew where a topic asks for that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from headwater.errors import BadInput, BatchTooLarge, CorruptBatch, UnsupportedBatch
from headwater.log import kernels
from headwater.types import Buffer
from headwater.wire.codecs import NONE, compress, decompress

_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = _HEADER.size
LENGTH_OVERHEAD = 12
"""Base offset and batch length come before what the batch length counts."""

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_BASE = struct.Struct(">q")
_BASE_AND_EPOCH = struct.Struct(">qii")
_CRC = struct.Struct(">I")
_CRC_AT = 17
CRC_FROM = 21
_ATTRIBUTES = struct.Struct(">h")
_LAST_DELTA = struct.Struct(">i")
_LAST_DELTA_AT = 23
_BASE_TIMESTAMP = struct.Struct(">q")
_BASE_TIMESTAMP_AT = 27
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35

MAGIC = 2
CODEC_MASK = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

NO_PRODUCER = -1
LONG_MAX = (1 << 63) - 1


class InvalidTimestamp(BadInput):
    """A record's timestamp lies too far from the broker's clock for this topic."""


class InvalidRecord(CorruptBatch):
    """A batch whose bytes are as sent, but which no client may send."""


class BatchRules(msgspec.Struct, frozen=True):
    """What a topic demands of a batch."""

    max_bytes: int
    max_opened_bytes: int
    timestamp_before_ms: int
    timestamp_after_ms: int
    append_time: bool
    compacted: bool

    def admits(self, first_ms: int, last_ms: int, now_ms: int) -> bool:
        """Whether timestamps are near enough to the broker's clock."""
        return last_ms <= now_ms + self.timestamp_after_ms and not 0 <= first_ms < now_ms - self.timestamp_before_ms


class Batch(msgspec.Struct, frozen=True, gc=False):
    """A batch that passed its checks."""

    data: bytes
    offsets: int
    min_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


def check_batch(data: bytes, rules: BatchRules, now_ms: int) -> Batch:
    """Check one batch that fills `data`; raise the error that says what is wrong with it."""
    size = len(data)
    if size < HEADER_BYTES:
        raise InvalidRecord(f"a record batch of {size} bytes")
    (
        _, length, _, magic, crc, attributes, last_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    ) = _HEADER.unpack_from(data)  # fmt: skip
    if magic != MAGIC:
        raise UnsupportedBatch(f"record format {magic}; only format 2 is written")
    if length + LENGTH_OVERHEAD != size:
        raise InvalidRecord("a produce request carries exactly one record batch per partition")
    if size > rules.max_bytes:
        raise BatchTooLarge(f"a batch of {size} bytes; the topic allows {rules.max_bytes}")
    view = memoryview(data)
    if crc32c(view[CRC_FROM:]) != crc:
        raise CorruptBatch("the batch's CRC does not match its bytes")
    if attributes & CONTROL_BIT:
        raise InvalidRecord("clients cannot write control batches")
    if count <= 0 or last_delta != count - 1:
        raise InvalidRecord(f"{count} records with a last offset delta of {last_delta}")
    if producer_id >= 0 and (base_sequence < 0 or producer_epoch < 0):
        raise InvalidRecord("an idempotent batch without a sequence or an epoch")
    codec = attributes & CODEC_MASK
    if codec == NONE:
        walked = kernels.walk_records(data, HEADER_BYTES, size, count)
    else:
        opened = decompress(codec, view[HEADER_BYTES:], rules.max_opened_bytes)
        walked = kernels.walk_records(opened, 0, len(opened), count)
    status, smallest, largest, null_keys = walked
    if status:
        raise InvalidRecord(kernels.FLAWS[status])
    if null_keys and rules.compacted:
        raise InvalidRecord("a compacted topic takes no records without a key")
    first, last = base_timestamp + smallest, base_timestamp + largest
    if first < -LONG_MAX or last > LONG_MAX:
        raise InvalidTimestamp(f"timestamps {first} to {last} are no timestamps")
    if attributes & APPEND_TIME_BIT:
        raise InvalidTimestamp("clients cannot set log-append time")
    if not rules.append_time:
        if not rules.admits(first, last, now_ms):
            raise InvalidTimestamp(f"timestamps {first} to {last} lie too far from {now_ms}")
        if last != max_timestamp:
            data = _with_max_timestamp(data, attributes, last)
    return Batch(data, count, first, last, producer_id, producer_epoch, base_sequence)


def _with_max_timestamp(data: Buffer, attributes: int, timestamp: int) -> bytes:
    """The batch with its largest timestamp and attributes set, and its CRC computed anew."""
    patched = bytearray(data)
    _ATTRIBUTES.pack_into(patched, CRC_FROM, attributes)
    _MAX_TIMESTAMP.pack_into(patched, _MAX_TIMESTAMP_AT, timestamp)
    _CRC.pack_into(patched, _CRC_AT, crc32c(memoryview(patched)[CRC_FROM:]))
    return bytes(patched)


def with_append_time(data: Buffer, append_ms: int) -> bytes:
    """The batch as a topic with log-append time serves it."""
    (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_FROM)
    return _with_max_timestamp(data, attributes | APPEND_TIME_BIT, append_ms)


def codec_of(data: Buffer) -> int:
    """The codec of a batch."""
    attributes: int = _ATTRIBUTES.unpack_from(data, CRC_FROM)[0]
    return attributes & CODEC_MASK


def recompressed(data: Buffer, codec: int, level: int, limit: int) -> bytes:
    """The batch with the same records in another codec; all else but length and CRC stays."""
    (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_FROM)
    opened = decompress(attributes & CODEC_MASK, memoryview(data)[HEADER_BYTES:], limit)
    made = bytearray(data[:HEADER_BYTES])
    made += compress(codec, opened, level)
    _LENGTH.pack_into(made, _LENGTH_AT, len(made) - LENGTH_OVERHEAD)
    _ATTRIBUTES.pack_into(made, CRC_FROM, attributes & ~CODEC_MASK | codec)
    _CRC.pack_into(made, _CRC_AT, crc32c(memoryview(made)[CRC_FROM:]))
    return bytes(made)


def offsets_of(data: Buffer, at: int = 0) -> int:
    """How many offsets the batch at a position takes."""
    last: int = _LAST_DELTA.unpack_from(data, at + _LAST_DELTA_AT)[0]
    return last + 1


def max_timestamp_of(data: Buffer) -> int:
    """The largest timestamp of a stored batch."""
    timestamp: int = _MAX_TIMESTAMP.unpack_from(data, _MAX_TIMESTAMP_AT)[0]
    return timestamp


def join_patched(batches: list[Buffer], offset: int) -> bytearray:
    """Batches one after another, with their offsets from `offset` on and leader epoch 0."""
    joined = bytearray().join(batches)
    at = 0
    for batch in batches:
        _BASE_AND_EPOCH.pack_into(joined, at, offset, len(batch) - LENGTH_OVERHEAD, 0)
        offset += offsets_of(joined, at)
        at += len(batch)
    return joined


def split_batches(data: Buffer) -> list[Buffer]:
    """The whole batches at the start of fetched bytes; a last one that was cut short is left out."""
    view, at = memoryview(data), 0
    found: list[Buffer] = []
    while at + LENGTH_OVERHEAD <= len(view):
        (length,) = _LENGTH.unpack_from(view, at + _LENGTH_AT)
        end = at + LENGTH_OVERHEAD + length
        if length < HEADER_BYTES - LENGTH_OVERHEAD:
            raise CorruptBatch(f"a batch length of {length}")
        if end > len(view):
            break
        found.append(view[at:end])
        at = end
    return found


def base_offset_of(data: Buffer) -> int:
    """The base offset that a batch carries."""
    offset: int = _BASE.unpack_from(data)[0]
    return offset


def record_timestamps(data: Buffer, limit: int) -> Iterator[tuple[int, int]]:
    """(offset delta, timestamp) of every record of a stored batch, in order."""
    (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_FROM)
    if attributes & APPEND_TIME_BIT:
        timestamp = max_timestamp_of(data)
        for delta in range(offsets_of(data)):
            yield delta, timestamp
        return
    (base,) = _BASE_TIMESTAMP.unpack_from(data, _BASE_TIMESTAMP_AT)
    opened = decompress(attributes & CODEC_MASK, memoryview(data)[HEADER_BYTES:], limit)
    at = 0
    for delta in range(offsets_of(data)):
        length, at = read_varint(opened, at)
        timestamp, _ = read_varint(opened, at + 1)
        yield delta, base + timestamp
        at += length


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """A signed varint and the position behind it."""
    value = shift = 0
    while True:
        if not 0 <= at < len(data):
            raise CorruptBatch("a record is cut short")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise CorruptBatch("a varint of more than ten bytes")
