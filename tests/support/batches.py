"""Record batches for tests, encoded by hand so that any field can be wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cramjam
import lz4.frame
from crc32c import crc32c

from headwater.log.batch import CONTROL_BIT, HEADER_BYTES, split_batches
from headwater.types import Buffer

NO_PRODUCER = (-1, -1, -1)


@dataclass(frozen=True, slots=True)
class Rec:
    """One record."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int = 1_700_000_000_000
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63) if number < 0 else number << 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(index: int, rec: Rec, base_timestamp: int) -> bytes:
    body = b"\0" + varint(rec.timestamp - base_timestamp) + varint(index) + sized(rec.key) + sized(rec.value)
    body += varint(len(rec.headers)) + b"".join(varint(len(k)) + k + sized(v) for k, v in rec.headers)
    return varint(len(body)) + body


def xerial(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + struct.pack(">i", len(block)) + block


COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    0: lambda data: data,
    1: lambda data: bytes(cramjam.gzip.compress(data)),
    2: xerial,
    3: lambda data: bytes(lz4.frame.compress(data, block_linked=False)),
    4: lambda data: bytes(cramjam.zstd.compress(data)),
}


def batch(
    records: Sequence[Rec | bytes],
    *,
    producer: tuple[int, int, int] = NO_PRODUCER,
    codec: int = 0,
    attributes: int = 0,
    magic: int = 2,
    count: int | None = None,
    last_delta: int | None = None,
    max_timestamp: int | None = None,
    body: bytes | None = None,
    crc: int | None = None,
) -> bytes:
    """A batch with base offset 0; every field can be set wrong."""
    recs = [r if isinstance(r, Rec) else Rec(r) for r in records]
    base = recs[0].timestamp if recs else 0
    if body is None:
        body = b"".join(record(i, r, base) for i, r in enumerate(recs))
    body = COMPRESS[codec](body)
    n = len(recs) if count is None else count
    newest = max((r.timestamp for r in recs), default=-1) if max_timestamp is None else max_timestamp
    checked = struct.pack(
        ">hiqqqhii", attributes | codec, n - 1 if last_delta is None else last_delta, base, newest, *producer, n
    )
    checked += body
    checksum = crc32c(checked) if crc is None else crc
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, magic, checksum) + checked


def values(data: bytes | bytearray | memoryview) -> list[tuple[int, bytes]]:
    """(offset, value) of every record of uncompressed batches without keys and headers."""
    from headwater.log.batch import HEADER_BYTES, base_offset_of, offsets_of, read_varint, split_batches

    found = []
    for one in split_batches(data):
        at = HEADER_BYTES
        for i in range(offsets_of(one)):
            length, at = read_varint(one, at)
            end = at + length
            at += 1
            for _ in range(2):
                _, at = read_varint(one, at)
            size, at = read_varint(one, at)
            at += max(size, 0)
            size, at = read_varint(one, at)
            found.append((base_offset_of(one) + i, bytes(one[at : at + size])))
            at = end
    return found


def is_control(data: Buffer) -> bool:
    """Whether a batch is a control batch."""
    return len(data) >= HEADER_BYTES and bool(data[22] & CONTROL_BIT)


def data_of(records: Buffer) -> bytes:
    """The batches without control batches."""
    return b"".join(bytes(one) for one in split_batches(records) if not is_control(one))
