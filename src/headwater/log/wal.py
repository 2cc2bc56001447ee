"""WAL object v1: record batches of many streams of one domain in one immutable object.

Big endian throughout:

    header   49 bytes: magic "HWTRWO1", version u16, writer's epoch u64 and sequence u64 (the WAL id),
             domain u32, created at i64 (ms), chunk count u32, position of the chunk index u64
    index    44 bytes per chunk, rising by stream: stream u64, position u64, length u32, records u32,
             batches u32, smallest timestamp i64, largest timestamp i64
    chunks   per batch its length u32 and its bytes as received; a batch is never split
    footer   CRC32C u32 of everything before it
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from crc32c import crc32c

from headwater.errors import CorruptObject
from headwater.log.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from headwater.log.batch import Batch, offsets_of
from headwater.types import Buffer, Domain, WalId

MAGIC = b"HWTRWO1"
VERSION = 1
_HEADER = struct.Struct(">7sHQQIqIQ")
_CHUNK = struct.Struct(">QQIIIqq")
_LENGTH = struct.Struct(">I")
_FOOTER = struct.Struct(">I")
PREFIX_BYTES = _LENGTH.size
ROOT = "wal/v1/"
SUFFIX = ".wo"
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class WalChunk:
    """One stream's part of a WAL object."""

    stream: int
    position: int
    length: int
    records: int
    batches: int
    min_timestamp: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class WalImage:
    """A WAL object ready to be stored."""

    pieces: list[Buffer]
    size: int
    positions: list[int]
    """Where each chunk begins, in the order the chunks were given."""


@dataclass(frozen=True, slots=True)
class WalObject:
    """A WAL object that was read back whole and passed its checks."""

    id: WalId
    domain: int
    created_ms: int
    chunks: list[WalChunk]


def path_of(zone: str, domain: int, created_ms: int, object_id: WalId) -> str:
    """Where a WAL object lies under the store's root."""
    return f"{prefix_of(zone, domain)}date={_day(created_ms // DAY_MS)}/{object_id}{SUFFIX}"


@functools.lru_cache(maxsize=64)
def _day(days: int) -> str:
    return f"{datetime.fromtimestamp(days * DAY_MS / 1000, UTC):%Y/%m/%d}"


def prefix_of(zone: str, domain: int) -> str:
    """Where the WAL objects of a zone and a domain lie."""
    return f"{ROOT}zone={zone}/domain={domain}/"


def id_of_path(path: str) -> WalId | None:
    """The WAL id that a path ends in, if it is one of ours."""
    name = path.rsplit("/", 1)[-1]
    epoch, dash, sequence = name.removesuffix(SUFFIX).partition("-")
    if not name.endswith(SUFFIX) or not dash or not epoch.isdecimal() or not sequence.isdecimal():
        return None
    return WalId(int(epoch), int(sequence))


def build(object_id: WalId, domain: Domain, created_ms: int, chunks: Sequence[tuple[int, Sequence[Batch]]]) -> WalImage:
    """Lay out an object of chunks that rise by stream. Batch bytes are referred to, not copied."""
    position = _HEADER.size + _CHUNK.size * len(chunks)
    index: list[bytes] = []
    body: list[Buffer] = []
    positions: list[int] = []
    for stream, batches in chunks:
        length = records = 0
        smallest, largest = batches[0].min_timestamp, batches[0].max_timestamp
        for batch in batches:
            data = batch.data
            size = len(data)
            body += (_LENGTH.pack(size), data)
            length += PREFIX_BYTES + size
            records += batch.offsets
            if batch.min_timestamp < smallest:
                smallest = batch.min_timestamp
            if batch.max_timestamp > largest:
                largest = batch.max_timestamp
        index.append(_CHUNK.pack(stream, position, length, records, len(batches), smallest, largest))
        positions.append(position)
        position += length
    head = _HEADER.pack(
        MAGIC, VERSION, object_id.epoch, object_id.sequence, domain, created_ms, len(chunks), _HEADER.size
    ) + b"".join(index)
    crc = crc32c(head)
    for piece in body:
        crc = crc32c(piece, crc)
    return WalImage([head, *body, _FOOTER.pack(crc)], position + _FOOTER.size, positions)


def identity(data: Buffer) -> tuple[WalId, int]:
    """The id and the domain of an object that came from elsewhere, once its CRC is found right."""
    view = memoryview(data)
    if len(view) < _HEADER.size + _FOOTER.size:
        raise CorruptObject(f"a WAL object of {len(view)} bytes")
    (crc,) = _FOOTER.unpack_from(view, len(view) - _FOOTER.size)
    magic, version, epoch, sequence, domain, _, _, _ = _HEADER.unpack_from(view)
    if magic != MAGIC or version != VERSION or crc32c(view[: -_FOOTER.size]) != crc:
        raise CorruptObject("not a WAL object, or its CRC does not match its bytes")
    return WalId(epoch, sequence), domain


def parse(data: Buffer) -> WalObject:
    """Check a whole object, down to the batch borders. Anything odd is a `CorruptObject`."""
    view = memoryview(data)
    if len(view) < _HEADER.size + _FOOTER.size:
        raise CorruptObject(f"a WAL object of {len(view)} bytes")
    (crc,) = _FOOTER.unpack_from(view, len(view) - _FOOTER.size)
    if crc32c(view[: -_FOOTER.size]) != crc:
        raise CorruptObject("a WAL object's CRC does not match its bytes")
    magic, version, epoch, sequence, domain, created_ms, count, index_at = _HEADER.unpack_from(view)
    if magic != MAGIC or version != VERSION:
        raise CorruptObject(f"not a WAL object of version {VERSION}")
    body_at = index_at + count * _CHUNK.size
    body_end = len(view) - _FOOTER.size
    if index_at != _HEADER.size or body_at > body_end:
        raise CorruptObject(f"a chunk index of {count} entries at {index_at}")
    chunks = []
    last_stream, expected = -1, body_at
    for i in range(count):
        chunk = WalChunk(*_CHUNK.unpack_from(view, index_at + i * _CHUNK.size))
        if chunk.stream <= last_stream or chunk.position != expected:
            raise CorruptObject(f"chunk {i} is out of order or misplaced")
        last_stream, expected = chunk.stream, chunk.position + chunk.length
        if expected > body_end:
            raise CorruptObject(f"chunk {i} reaches beyond the object")
        batches = batches_between(view, chunk.position, expected)
        records = sum(offsets_of(batch) for batch in batches)
        if len(batches) != chunk.batches or records != chunk.records:
            raise CorruptObject(f"chunk {i} holds {len(batches)} batches of {records} records")
        chunks.append(chunk)
    if expected != body_end:
        raise CorruptObject("bytes between the last chunk and the footer")
    return WalObject(WalId(epoch, sequence), domain, created_ms, chunks)


def batches_between(data: Buffer, start: int, end: int) -> list[Buffer]:
    """The batches of a run inside an object, without their length prefixes."""
    view, at = memoryview(data), start
    found: list[Buffer] = []
    if not 0 <= start <= end <= len(view):
        raise CorruptObject(f"a run from {start} to {end} in {len(view)} bytes")
    while at < end:
        if at + PREFIX_BYTES > end:
            raise CorruptObject("a batch length is cut short")
        (length,) = _LENGTH.unpack_from(view, at)
        at += PREFIX_BYTES
        if not BATCH_HEADER_BYTES <= length <= end - at:
            raise CorruptObject(f"a batch of {length} bytes in a run of {end - start}")
        found.append(view[at : at + length])
        at += length
    return found
