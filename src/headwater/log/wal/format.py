"""WAL object, header version 2: record batches of many streams of one domain in one immutable object.

Big endian throughout:

    header   61 bytes: magic "HWTRWO1", version u16, writer's epoch u64 and sequence u64 (the WAL id),
             domain u32, created at i64 (ms by the writer's clock), ledger time i64 (ms; what the writer had applied),
             flags u32, chunk count u32, position of the chunk index u64
    index    44 bytes per chunk, rising by stream: stream u64, position u64, length u32, records u32,
             batches u32, smallest timestamp i64, largest timestamp i64; a stream may have several chunks in an object
             with the flag for units
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

from headwater.errors import Damaged
from headwater.log.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from headwater.log.batch import Batch, offsets_of, sound_offsets
from headwater.types import Buffer, Domain, WalId

MAGIC = b"HWTRWO1"
VERSION = 2
UNITS, MIRRORS = 1, 2
"""Flags: the object holds units with conditions, or batches at the offsets of another cluster."""
KNOWN_FLAGS = UNITS
"""The flags that this build reads. It refuses an object with others."""
_HEADER = struct.Struct(">7sHQQIqqIIQ")
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
    """The position of each chunk, in the order of the chunks."""


class DamagedRun(Damaged):
    """Batches of a run are not as they were stored. Those before and behind the damage are."""

    def __init__(self, reason: str, before: list[Buffer], behind: list[Buffer]) -> None:
        super().__init__(reason)
        self.before = before
        self.behind = behind


@dataclass(frozen=True, slots=True)
class WalObject:
    """A complete WAL object that was read and has passed its checks."""

    id: WalId
    domain: int
    created_ms: int
    ledger_ms: int
    """The ledger's time that the writer had applied."""
    chunks: list[WalChunk]


def path_of(zone: str, domain: int, created_ms: int, object_id: WalId) -> str:
    """The path of a WAL object below the root of the store."""
    return f"{prefix_of(zone, domain)}date={_day(created_ms // DAY_MS)}/{object_id}{SUFFIX}"


@functools.lru_cache(maxsize=64)
def _day(days: int) -> str:
    return f"{datetime.fromtimestamp(days * DAY_MS / 1000, UTC):%Y/%m/%d}"


def prefix_of(zone: str, domain: int) -> str:
    """The path prefix of the WAL objects of a zone and a domain."""
    return f"{ROOT}zone={zone}/domain={domain}/"


def id_of_path(path: str) -> WalId | None:
    """The WAL id at the end of a path; None if the path is not that of a WAL object."""
    name = path.rsplit("/", 1)[-1]
    epoch, dash, sequence = name.removesuffix(SUFFIX).partition("-")
    if not name.endswith(SUFFIX) or not dash or not epoch.isdecimal() or not sequence.isdecimal():
        return None
    return WalId(int(epoch), int(sequence))


def build(
    object_id: WalId,
    domain: Domain,
    created_ms: int,
    ledger_ms: int,
    chunks: Sequence[tuple[int, Sequence[Batch]]],
    flags: int = 0,
) -> WalImage:
    """Lay out an object of chunks, which are sorted by stream. The bytes of batches are referenced, not copied."""
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
        MAGIC,
        VERSION,
        object_id.epoch,
        object_id.sequence,
        domain,
        created_ms,
        ledger_ms,
        flags,
        len(chunks),
        _HEADER.size,
    ) + b"".join(index)
    crc = crc32c(head)
    for piece in body:
        crc = crc32c(piece, crc)
    return WalImage([head, *body, _FOOTER.pack(crc)], position + _FOOTER.size, positions)


def identity(data: Buffer) -> tuple[WalId, int]:
    """The id and the domain of an object that another broker sent. Checks its CRC first."""
    view = memoryview(data)
    if len(view) < _HEADER.size + _FOOTER.size:
        raise Damaged(f"a WAL object of {len(view)} bytes")
    magic, version, epoch, sequence, domain, _, _, flags, _, _ = _HEADER.unpack_from(view)
    _check_kind(magic, version, flags)
    if not is_whole(view):
        raise Damaged("a WAL object's CRC does not match its bytes")
    return WalId(epoch, sequence), domain


def is_other(data: Buffer, object_id: WalId, domain: int) -> bool:
    """Whether the bytes are another object than the one that was asked for. Damage alone does not make it another."""
    if data[: len(MAGIC)] != MAGIC or len(data) < _HEADER.size + _FOOTER.size:
        return False
    _, _, epoch, sequence, held, *_ = _HEADER.unpack_from(data)
    if (epoch, sequence, held) == (object_id.epoch, object_id.sequence, domain):
        return False
    return is_whole(data)


def is_whole(data: Buffer) -> bool:
    """Whether the CRC of an object matches its bytes."""
    if len(data) < _HEADER.size + _FOOTER.size:
        return False
    (crc,) = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
    return bool(crc32c(memoryview(data)[: -_FOOTER.size]) == crc)


def parse(data: Buffer) -> WalObject:
    """Check a whole object, down to the borders of batches. Any error raises `Damaged`."""
    view = memoryview(data)
    if len(view) < _HEADER.size + _FOOTER.size:
        raise Damaged(f"a WAL object of {len(view)} bytes")
    if not is_whole(view):
        raise Damaged("a WAL object's CRC does not match its bytes")
    magic, version, epoch, sequence, domain, created_ms, ledger_ms, flags, count, index_at = _HEADER.unpack_from(view)
    _check_kind(magic, version, flags)
    body_at = index_at + count * _CHUNK.size
    body_end = len(view) - _FOOTER.size
    if index_at != _HEADER.size or body_at > body_end:
        raise Damaged(f"a chunk index of {count} entries at {index_at}")
    chunks = []
    last_stream, expected = -1, body_at
    for i in range(count):
        chunk = WalChunk(*_CHUNK.unpack_from(view, index_at + i * _CHUNK.size))
        follows = chunk.stream > last_stream or (chunk.stream == last_stream and flags & UNITS)
        if not follows or chunk.position != expected:
            raise Damaged(f"chunk {i} is out of order or misplaced")
        last_stream, expected = chunk.stream, chunk.position + chunk.length
        if expected > body_end:
            raise Damaged(f"chunk {i} reaches beyond the object")
        batches = batches_between(view, chunk.position, expected)
        records = sum(offsets_of(batch) for batch in batches)
        if len(batches) != chunk.batches or records != chunk.records:
            raise Damaged(f"chunk {i} holds {len(batches)} batches of {records} records")
        chunks.append(chunk)
    if expected != body_end:
        raise Damaged("bytes between the last chunk and the footer")
    return WalObject(WalId(epoch, sequence), domain, created_ms, ledger_ms, chunks)


def _check_kind(magic: bytes, version: int, flags: int) -> None:
    if magic != MAGIC:
        raise Damaged("not a WAL object")
    if version != VERSION or flags & ~KNOWN_FLAGS:
        raise Damaged(
            f"a WAL object of version {version} with flags {flags:#x}; this build reads version {VERSION} "
            f"and flags {KNOWN_FLAGS:#x}: use the build that wrote it"
        )


def batches_between(data: Buffer, start: int, end: int) -> list[Buffer]:
    """The batches of a run inside an object, without their length prefixes."""
    view, at, length_at = memoryview(data), start, _LENGTH.unpack_from
    found: list[Buffer] = []
    if not 0 <= start <= end <= len(view):
        raise Damaged(f"a run from {start} to {end} in {len(view)} bytes")
    while at < end:
        if at + PREFIX_BYTES > end:
            raise Damaged("a batch length is cut short")
        (length,) = length_at(view, at)
        at += PREFIX_BYTES
        if not BATCH_HEADER_BYTES <= length <= end - at:
            raise Damaged(f"a batch of {length} bytes in a run of {end - start}")
        found.append(view[at : at + length])
        at += length
    return found


def sound_batches(data: Buffer, start: int, end: int, offsets: int) -> list[Buffer]:
    """The batches of a run that takes a number of offsets, each checked by its CRC. Raises `DamagedRun`.

    Batches behind the damage get their offsets by the end of the run, so all lengths must be intact for them.
    """
    try:
        found = batches_between(data, start, end)
    except Damaged as error:
        found = _batches_up_to_damage(data, start, end)
        sizes = [sound_offsets(batch) for batch in found]
        first, last = sizes.index(-1) if -1 in sizes else len(sizes), len(sizes)
        reason = str(error)
    else:
        sizes = [sound_offsets(batch) for batch in found]
        if -1 not in sizes:
            if sum(sizes) == offsets:
                return found
            raise DamagedRun(f"its batches do not take {offsets} offsets", [], [])
        first, last = sizes.index(-1), len(sizes) - sizes[::-1].index(-1)
        reason = "the CRC of a batch does not match its bytes"
    if sum(sizes[:first]) + sum(sizes[last:]) >= offsets:
        raise DamagedRun(reason, [], [])
    raise DamagedRun(reason, found[:first], found[last:])


def _batches_up_to_damage(data: Buffer, start: int, end: int) -> list[Buffer]:
    """The batches of a run up to a length that is impossible."""
    view, at = memoryview(data), start
    end = min(end, len(view))
    found: list[Buffer] = []
    while at + PREFIX_BYTES <= end:
        (length,) = _LENGTH.unpack_from(view, at)
        at += PREFIX_BYTES
        if not BATCH_HEADER_BYTES <= length <= end - at:
            break
        found.append(view[at : at + length])
        at += length
    return found
