"""Record batches, Kafka's format v2: records to bytes and bytes to records."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from crc32c import crc32c

from headwater.errors import BadInput, CorruptBatch, TooLarge, UnsupportedBatch
from headwater.types import Buffer
from headwater.wire.codecs import NONE, compress, decompress

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

OPENED_LIMIT = 64 << 20
"""Largest size of a batch after decompression."""
MAX_RECORDS = 1 << 20
"""Most records in a batch that is encoded here."""
MAX_BATCH_BYTES = 64 << 20
NO_PRODUCER = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_START = struct.Struct(">qi")
_CRC_FROM = 21
_PRODUCER = struct.Struct(">q")
_PRODUCER_AT = 43
_MAGIC = 2
_CODEC_MASK, _APPEND_TIME_BIT, _TRANSACTIONAL_BIT, _CONTROL_BIT = 0x07, 0x08, 0x10, 0x20
_CONTROL_KEY = struct.Struct(">hh")
_ABORT = 0
"""The kind of a control record that ends an aborted transaction."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record. Its offset has no meaning until it is in a log."""

    offset: int
    timestamp: int
    """Milliseconds since the Unix epoch."""
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a log. Control batches and those that compaction emptied have no records."""

    base_offset: int
    next_offset: int
    control: bool
    records: tuple[Record, ...]
    producer: int = NO_PRODUCER
    """The producer id of a batch of a transaction; -1 for other batches."""
    aborts: bool = False
    """Whether a control batch ends an aborted transaction."""


# --- writing -----------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    """A signed varint."""
    value = (value << 1) ^ (value >> 63)
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def _blob(data: bytes | None) -> bytes:
    """A length and bytes; null is the length -1."""
    return b"\x01" if data is None else _varint(len(data)) + data


def _body(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    parts = [b"\x00", _varint(timestamp_delta), _varint(offset_delta), _blob(record.key), _blob(record.value)]
    parts.append(_varint(len(record.headers)))
    for name, value in record.headers:
        parts += (_blob(name.encode()), _blob(value))
    return b"".join(parts)


def _join(records: Sequence[Record]) -> bytes:
    first = records[0].timestamp
    pieces: list[bytes] = []
    for delta, record in enumerate(records):
        body = _body(record, record.timestamp - first, delta)
        pieces += (_varint(len(body)), body)
    return b"".join(pieces)


def encode_batch(
    records: Sequence[Record],
    *,
    codec: int = NONE,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One batch, with base offset 0 as producers send it."""
    if not 0 < len(records) <= MAX_RECORDS:
        raise TooLarge(f"a batch has {len(records)} records, but must have 1 to {MAX_RECORDS}")
    try:
        payload = compress(codec, _join(records))
        checked = _AFTER_CRC.pack(
            codec,
            len(records) - 1,
            records[0].timestamp,
            max(record.timestamp for record in records),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    except (struct.error, UnicodeEncodeError) as error:
        raise BadInput(f"a record cannot be encoded: {error}") from error
    size = _HEADER.size + len(payload)
    if size > MAX_BATCH_BYTES:
        raise TooLarge(f"a batch has {size} bytes; the limit of the client is {MAX_BATCH_BYTES}")
    start = _START.pack(0, size - _START.size) + struct.pack(">ib", -1, _MAGIC)
    crc = crc32c(payload, crc32c(checked))
    return b"".join((start, struct.pack(">I", crc), checked, payload))


def producer_of(batch: Buffer) -> int:
    """The producer id that a batch carries; -1 if its producer is not idempotent."""
    if len(batch) < _HEADER.size:
        raise CorruptBatch(f"a record batch has only {len(batch)} bytes")
    producer: int = _PRODUCER.unpack_from(batch, _PRODUCER_AT)[0]
    return producer


# --- reading -----------------------------------------------------------------------------------------


def decode_batches(data: Buffer, opened_limit: int = OPENED_LIMIT) -> Iterator[Batch]:
    """The batches of a fetch. A last batch that is cut short is left out."""
    view, at = memoryview(data), 0
    while at + _START.size <= len(view):
        base, length = _START.unpack_from(view, at)
        end = at + _START.size + length
        if length < 0:
            raise CorruptBatch(f"the batch at offset {base} has a length of {length}")
        if end > len(view):
            return
        yield _decode(view[at:end], base, opened_limit)
        at = end


def _decode(view: memoryview, base: int, opened_limit: int) -> Batch:
    if len(view) <= _CRC_FROM or view[16] != _MAGIC:
        magic = view[16] if len(view) > 16 else "unknown"
        raise UnsupportedBatch(f"the batch at offset {base} has format {magic}; only format 2 is read")
    if len(view) < _HEADER.size:
        raise CorruptBatch(f"the batch at offset {base} has only {len(view)} bytes")
    _, _, _, _, crc, attributes, last, first_ms, max_ms, producer, _, _, count = _HEADER.unpack_from(view)
    if crc32c(view[_CRC_FROM:]) != crc:
        raise CorruptBatch(f"the CRC of the batch at offset {base} does not match its bytes")
    control = bool(attributes & _CONTROL_BIT)
    records: tuple[Record, ...] = ()
    if count > 0:
        opened = bytes(decompress(attributes & _CODEC_MASK, view[_HEADER.size :], opened_limit))
        append_ms = max_ms if attributes & _APPEND_TIME_BIT else None
        try:
            records = tuple(_records(opened, count, base, first_ms, append_ms))
        except IndexError:
            raise CorruptBatch(f"the batch at offset {base} ends within a record") from None
    if not attributes & _TRANSACTIONAL_BIT:
        producer = NO_PRODUCER
    if not control:
        return Batch(base, base + last + 1, control, records, producer)
    return Batch(base, base + last + 1, control, (), producer, _is_abort(records))


def record_at(batch: Buffer, base: int, offset: int, opened_limit: int = OPENED_LIMIT) -> tuple[int, Record | None]:
    """The record of a batch at an offset, without the others; None if there is none, or only a control record.

    Also the producer id of a batch of a transaction, -1 for other batches. `base` is the offset of the batch. The
    caller has checked the CRC.
    """
    view = memoryview(batch)
    _, _, _, _, _, attributes, _, first_ms, max_ms, producer, _, _, count = _HEADER.unpack_from(view)
    producer = producer if attributes & _TRANSACTIONAL_BIT else NO_PRODUCER
    if attributes & _CONTROL_BIT:
        return producer, None
    data, at = bytes(decompress(attributes & _CODEC_MASK, view[_HEADER.size :], opened_limit)), 0
    append_ms = max_ms if attributes & _APPEND_TIME_BIT else None
    try:
        for _ in range(count):
            length, start = _read_varint(data, at)
            _, delta_at = _read_varint(data, start + 1)
            delta, _ = _read_varint(data, delta_at)
            if base + delta == offset:
                [found] = _records(data[at : start + length], 1, base, first_ms, append_ms)
                return producer, found
            at = start + length
    except IndexError:
        raise CorruptBatch(f"the batch at offset {base} ends within a record") from None
    return producer, None


def _is_abort(records: tuple[Record, ...]) -> bool:
    """Whether these are the records of a control batch that ends an aborted transaction."""
    key = records[0].key if records else None
    if key is None or len(key) < _CONTROL_KEY.size:
        return False
    kind: int = _CONTROL_KEY.unpack_from(key)[1]
    return kind == _ABORT


def _records(data: bytes, count: int, base: int, first_ms: int, append_ms: int | None) -> Iterator[Record]:
    at = 0
    for _ in range(count):
        length, at = _read_varint(data, at)
        end = at + length
        timestamp, at = _read_varint(data, at + 1)
        delta, at = _read_varint(data, at)
        key, at = _read_blob(data, at)
        value, at = _read_blob(data, at)
        header_count, at = _read_varint(data, at)
        headers: Headers = ()
        if header_count:
            headers, at = _read_headers(data, at, header_count)
        if at != end:
            raise CorruptBatch(f"the record at offset {base + delta} has a wrong length")
        yield Record(base + delta, first_ms + timestamp if append_ms is None else append_ms, key, value, headers)
    if at != len(data):
        raise CorruptBatch(f"the batch at offset {base} has {len(data) - at} bytes behind its last record")


def _read_headers(data: bytes, at: int, count: int) -> tuple[Headers, int]:
    if not 0 <= count <= len(data) - at:
        raise CorruptBatch(f"a record claims {count} headers")
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_blob(data, at)
        value, at = _read_blob(data, at)
        if name is None:
            raise CorruptBatch("a record header has no name")
        found.append((name.decode(errors="replace"), value))
    return tuple(found), at


def _read_blob(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _read_varint(data, at)
    if length < 0:
        if length != -1:
            raise CorruptBatch(f"a field has a length of {length}")
        return None, at
    end = at + length
    if end > len(data):
        raise IndexError
    return data[at:end], end


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
        if shift > 63:
            raise CorruptBatch("a varint has more than ten bytes")
