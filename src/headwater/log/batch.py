"""Record batches, Kafka's format v2: checks on the way in, patches on the way out.

The bytes of a batch are stored as received. Its CRC does not cover the base offset and the leader epoch, so the reader
patches both without a new CRC. It covers the timestamps: a topic with log-append time needs a new CRC per batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from headwater.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, TooLarge, UnsupportedBatch
from headwater.log.kernels import switch
from headwater.log.kernels.records import FLAWS
from headwater.types import Buffer
from headwater.wire.codecs import LZ4, NONE, compress, decompress, has_linked_blocks

_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = _HEADER.size
LENGTH_OVERHEAD = 12
_BEFORE_CRC = struct.Struct(">qiib")
_AFTER_CRC = struct.Struct(">hiqqqhii")
MAX_EMPTY = 1 << 31
"""The most offsets that one batch covers."""
"""Base offset and batch length come before what the batch length counts."""

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_BASE = struct.Struct(">q")
_BASE_AND_EPOCH = struct.Struct(">qii")
_STORED = struct.Struct(">iibIhi")
"""Length, leader epoch, magic, CRC, attributes and last offset delta of a stored batch, from its length on."""
_MAGIC_AT = 16
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
_PRODUCER = struct.Struct(">qh")
_PRODUCER_AT = 43

MAGIC = 2
CODEC_MASK = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

NO_PRODUCER = -1
_NO_TIMESTAMP = -1
LONG_MAX = (1 << 63) - 1


MAX_RECORD_ERRORS = 1_000
"""At most this many records of a refused batch are reported one by one."""


class NotABatch(InvalidRecord):
    """Not exactly one whole batch."""


class BrokenBatch(CorruptBatch):
    """The bytes of the batch changed on the way, or are in an unknown format."""


UNREAD = (NotABatch, BrokenBatch, UnsupportedBatch, TooLarge)
"""The errors of batches that are refused before their records are checked."""


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
    transactional: bool = False
    """Whether the batch is part of a transaction. As in Kafka, one that claims it without a producer is not."""


def unchecked(data: bytes) -> Batch:
    """Bytes that should be a batch, before they are checked."""
    return Batch(data, 0, 0, 0, NO_PRODUCER, -1, -1)


def check_batch(data: bytes, rules: BatchRules, now_ms: int) -> Batch:
    """Check `data`, which must be exactly one batch. Raises the error that says what is wrong with it."""
    return checked(data, rules, now_ms, rules.max_opened_bytes)[0]


def checked(data: bytes, rules: BatchRules, now_ms: int, limit: int) -> tuple[Batch, int]:
    """Like `check_batch`, with a limit on uncompressed bytes; also returns how many there were."""
    size = len(data)
    if size < HEADER_BYTES:
        raise NotABatch(f"a record batch of {size} bytes")
    (
        _, length, _, magic, crc, attributes, last_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    ) = _HEADER.unpack_from(data)  # fmt: skip
    if not 0 <= magic <= MAGIC:
        raise BrokenBatch(f"there is no record format {magic}")
    if magic != MAGIC:
        raise UnsupportedBatch(f"record format {magic}; only format 2 is written")
    if length + LENGTH_OVERHEAD != size:
        raise NotABatch("a produce request carries exactly one record batch per partition")
    if size > rules.max_bytes:
        raise TooLarge(f"a batch of {size} bytes; the topic allows {rules.max_bytes}")
    view = memoryview(data)
    if crc32c(view[CRC_FROM:]) != crc:
        raise BrokenBatch("the batch's CRC does not match its bytes")
    if attributes & CONTROL_BIT:
        raise InvalidRecord("clients cannot write control batches")
    if count <= 0 or last_delta != count - 1:
        raise InvalidRecord(f"{count} records with a last offset delta of {last_delta}")
    if producer_id >= 0 and (base_sequence < 0 or producer_epoch < 0):
        raise InvalidRecord("an idempotent batch without a sequence or an epoch")
    transactional = attributes & TRANSACTIONAL_BIT != 0 and producer_id >= 0
    codec = attributes & CODEC_MASK
    opened, at = _opened(codec, data, limit)
    try:
        first, last = _walked(opened, at, count, base_timestamp, attributes, rules, now_ms)
    except (InvalidRecord, InvalidTimestamp) as error:
        error.opened = len(opened) - at
        raise
    if not rules.append_time and last != max_timestamp:
        data = _with_max_timestamp(data, attributes, last)
    made = Batch(data, count, first, last, producer_id, producer_epoch, base_sequence, transactional)
    return made, len(opened) - at


def _walked(
    opened: Buffer, at: int, count: int, base_timestamp: int, attributes: int, rules: BatchRules, now_ms: int
) -> tuple[int, int]:
    """The first and the last timestamp of records. Raises the error of those that the topic does not take."""
    status, smallest, largest, null_keys = switch.walk_records(opened, at, len(opened), count)
    if status:
        raise InvalidRecord(FLAWS[status])
    first, last = base_timestamp + smallest, base_timestamp + largest
    if first < -LONG_MAX or last > LONG_MAX:
        raise InvalidTimestamp(f"timestamps {first} to {last} are out of range")
    if attributes & APPEND_TIME_BIT:
        raise InvalidTimestamp("clients cannot set log-append time")
    in_time = rules.append_time or rules.admits(first, last, now_ms)
    if not in_time or (null_keys and rules.compacted):
        raise _refusal(opened, at, count, base_timestamp, rules, now_ms)
    return first, last


def _opened(codec: int, data: bytes, limit: int) -> tuple[Buffer, int]:
    """The uncompressed records of a batch: a buffer, and the position of the first record in it."""
    if codec == NONE:
        return data, HEADER_BYTES
    view = memoryview(data)[HEADER_BYTES:]
    if codec == LZ4 and has_linked_blocks(view):
        raise InvalidRecord("lz4 blocks that refer to each other, which the Java client cannot read")
    try:
        return decompress(codec, view, limit), 0
    except UnsupportedBatch as error:
        raise InvalidRecord(str(error)) from error


def _refusal(
    opened: Buffer, at: int, count: int, base_timestamp: int, rules: BatchRules, now_ms: int
) -> InvalidRecord | InvalidTimestamp:
    """The error for valid records that the topic does not accept, with the reason for each record.

    It is an `InvalidTimestamp` if any record has a wrong time, else an `InvalidRecord`.
    """
    keyless: list[tuple[int, str]] = []
    untimely: list[tuple[int, str]] = []
    for index in range(count):
        length, at = read_varint(opened, at)
        delta, field = read_varint(opened, at + 1)
        _, field = read_varint(opened, field)
        key, _ = read_varint(opened, field)
        at += length
        timestamp = base_timestamp + delta
        if key < 0 and rules.compacted:
            keyless.append((index, "a compacted topic takes no records without a key"))
        elif not rules.append_time and not rules.admits(timestamp, timestamp, now_ms):
            untimely.append((index, f"timestamp {timestamp} is too far from {now_ms}"))
        if len(keyless) + len(untimely) == MAX_RECORD_ERRORS:
            break
    error = InvalidTimestamp(untimely[0][1]) if untimely else InvalidRecord(keyless[0][1])
    error.records = tuple(sorted(keyless + untimely))
    return error


def _with_max_timestamp(data: Buffer, attributes: int, timestamp: int) -> bytes:
    """The batch with its largest timestamp and attributes set, and a new CRC."""
    patched = bytearray(data)
    _ATTRIBUTES.pack_into(patched, CRC_FROM, attributes)
    _MAX_TIMESTAMP.pack_into(patched, _MAX_TIMESTAMP_AT, timestamp)
    _CRC.pack_into(patched, _CRC_AT, crc32c(memoryview(patched)[CRC_FROM:]))
    return bytes(patched)


def with_append_time(data: Buffer, append_ms: int) -> bytes:
    """The batch as a topic with log-append time serves it, with a new CRC. The caller has checked the old one."""
    (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_FROM)
    return _with_max_timestamp(data, attributes | APPEND_TIME_BIT, append_ms)


def transactional_producer(data: Buffer) -> tuple[int, int] | None:
    """Producer id and epoch, if the data for a partition begins with a transactional batch."""
    if len(data) < HEADER_BYTES or data[_MAGIC_AT] != MAGIC:
        return None
    attributes: int = _ATTRIBUTES.unpack_from(data, CRC_FROM)[0]
    producer: tuple[int, int] = _PRODUCER.unpack_from(data, _PRODUCER_AT)
    return producer if attributes & TRANSACTIONAL_BIT else None


def codec_of(data: Buffer) -> int:
    """The codec of a batch."""
    attributes: int = _ATTRIBUTES.unpack_from(data, CRC_FROM)[0]
    return attributes & CODEC_MASK


def recompressed(data: Buffer, codec: int, level: int, limit: int) -> bytes:
    """The batch with the same records in another codec. Of the header only codec, length and CRC change."""
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


def sound_offsets(data: Buffer) -> int:
    """How many offsets a stored batch takes; -1 if its bytes are not those that were stored.

    Of the header, only base offset and leader epoch are not checked. The reader replaces both.
    """
    length, _, magic, crc, _, last_delta = _STORED.unpack_from(data, _LENGTH_AT)
    if magic != MAGIC or length != len(data) - LENGTH_OVERHEAD or crc32c(memoryview(data)[CRC_FROM:]) != crc:
        return -1
    offsets: int = last_delta + 1
    return offsets


def max_timestamp_of(data: Buffer) -> int:
    """The largest timestamp of a stored batch."""
    timestamp: int = _MAX_TIMESTAMP.unpack_from(data, _MAX_TIMESTAMP_AT)[0]
    return timestamp


def join_patched(batches: list[Buffer], offset: int, leader_epoch: int = 0) -> bytearray:
    """The batches joined into one buffer, with base offsets counted from `offset` and a leader epoch."""
    joined = bytearray().join(batches)
    at, patch, last_delta = 0, _BASE_AND_EPOCH.pack_into, _LAST_DELTA.unpack_from
    for size in map(len, batches):
        patch(joined, at, offset, size - LENGTH_OVERHEAD, leader_epoch)
        offset += last_delta(joined, at + _LAST_DELTA_AT)[0] + 1
        at += size
    return joined


def with_leader_epoch(data: Buffer, leader_epoch: int) -> bytearray:
    """Whole batches with another leader epoch, which no CRC covers."""
    patched, at = bytearray(data), 0
    while at < len(patched):
        base, length, _ = _BASE_AND_EPOCH.unpack_from(patched, at)
        _BASE_AND_EPOCH.pack_into(patched, at, base, length, leader_epoch)
        at += LENGTH_OVERHEAD + length
    return patched


def split_batches(data: Buffer) -> list[Buffer]:
    """The complete batches of fetched bytes. A last batch that is cut short is left out."""
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


def empty_batch(base_offset: int, end_offset: int) -> bytes:
    """A batch without records that covers offsets, as Kafka's log cleaner leaves them. Consumers continue after it.

    A batch covers at most `MAX_EMPTY` offsets; a longer range takes several batches.
    """
    last = min(end_offset - base_offset, MAX_EMPTY) - 1
    checked = _AFTER_CRC.pack(0, last, _NO_TIMESTAMP, _NO_TIMESTAMP, NO_PRODUCER, -1, -1, 0)
    start = _BEFORE_CRC.pack(base_offset, HEADER_BYTES - LENGTH_OVERHEAD, 0, MAGIC)
    return b"".join((start, _CRC.pack(crc32c(checked)), checked))


def empty_batches(start: int, end: int) -> list[Buffer]:
    """Batches without records that cover a range of any length."""
    return [empty_batch(at, end) for at in range(start, end, MAX_EMPTY)]


def first_at(data: Buffer, base_offset: int, timestamp: int, offset: int, limit: int) -> tuple[int, int] | None:
    """Offset and timestamp of the first record of a stored batch that is not before a timestamp and an offset."""
    for delta, stamp in record_timestamps(data, limit):
        if stamp >= timestamp and base_offset + delta >= offset:
            return base_offset + delta, stamp
    return None


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
    """A signed varint, and the position after it."""
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
