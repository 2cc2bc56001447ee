"""The bytes of a journal: file headers and frames. Big endian.

A file header has a multiple of 4,096 bytes:

    0   7+1  `HWTRJF`, format number as a digit; zero
    8   16   the journal's id
    24  8    number of the file
    32  8    salt, another one for each file
    40  8    number of the file's first frame
    48  4+4  bytes of the header; its CRC32C, with this field as zero
    56  4    bytes of the body
    60  …    the body: `Origin` as MessagePack, zeros

A frame begins at a multiple of 4,096 bytes and has one as its size:

    0   4    `HWJF`
    4   4    CRC32C of salt and the rest of the header
    8   4    bytes of the frame
    12  2    bytes of the header: 64, and 32 an image
    14  1+1  kind; images
    16  8    number
    24  8    the newest number that its writer knew to be synced
    32  4+4  domain; bytes of the record
    40  8    position; kinds other than records repeat the domain's last
    48  4+4  bytes of the echo; CRC32C of the record
    56  4+4  CRC32C of the echo; zero
    64       the record, the echo, zeros

The echo is header and record of the frame before, in the same file. With it one damaged page costs no record.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, replace

import msgspec
from crc32c import crc32c

from headwater.ledger.contract import Pointer

PAGE = 4096
FORMAT = 1
_NAME = b"HWTRJF"
_FILE = struct.Struct(">6scx16sQQQIII")
_FRAME = struct.Struct(">4sIIHBBQQIIQIIII")
FRAME_MAGIC = b"HWJF"
HEAD_BYTES = _FRAME.size
_CRC_AT, _AFTER_CRC = 4, 8
_RECORD_BYTES, _RECORD_BYTES_AT = struct.Struct(">I"), 36
_FILE_CRC_AT = 52
MAX_FILE_HEAD = 16 * PAGE
SALT = struct.Struct(">Q")
THROUGH = struct.Struct(">Q")
"""The record of a truncation: the newest position that is deleted."""


class Kind(enum.IntEnum):
    """What a frame says."""

    RECORD = 1
    TRUNCATION = 2
    POINTER = 3
    NOTHING = 4
    SEAL = 5


class DomainOrigin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A domain before the first frame of a file."""

    last: int
    truncated: int
    pointer: Pointer | None


class Origin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Everything before the first frame of a file."""

    file: int
    """The number of the file before; 0 for the first one."""
    salt: int
    domains: dict[int, DomainOrigin]


@dataclass(frozen=True, slots=True)
class FileHead:
    """A file's header."""

    journal: bytes
    file: int
    salt: int
    first: int
    size: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class Head:
    """A frame's header."""

    size: int
    kind: Kind
    number: int
    synced: int
    domain: int
    position: int
    record_bytes: int
    echo_bytes: int
    record_crc: int
    echo_crc: int


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that was read."""

    head: Head
    record: bytes
    at: int
    echo: bytes
    """What its successor repeats of it."""
    repaired: bool = False
    """Whether it was read from its successor's echo."""


class OtherFormat(Exception):
    """A sound file header of another format."""

    def __init__(self, found: int) -> None:
        super().__init__(f"format {found}")
        self.found = found


def padded(size: int) -> int:
    """The next multiple of a page."""
    return -(-size // PAGE) * PAGE


def sized(head: FileHead) -> FileHead:
    """A header that knows its size."""
    size = padded(_FILE.size + len(msgspec.msgpack.encode(head.origin)))
    if size > MAX_FILE_HEAD:
        raise ValueError(f"the header of a journal file has {size} bytes, and may have {MAX_FILE_HEAD}")
    return replace(head, size=size)


def encode_file_head(head: FileHead) -> bytes:
    """The bytes of a file's header."""
    body = msgspec.msgpack.encode(head.origin)
    packed = _FILE.pack(
        _NAME, str(FORMAT).encode(), head.journal, head.file, head.salt, head.first, head.size, 0, len(body)
    )
    data = (packed + body).ljust(head.size, b"\0")
    return data[:_FILE_CRC_AT] + crc32c(data).to_bytes(4, "big") + data[_FILE_CRC_AT + 4 :]


def decode_file_head(data: bytes) -> FileHead | None:
    """The header at the beginning of a file; None if it is not sound. Raises `OtherFormat`."""
    if len(data) < _FILE.size or not data.startswith(_NAME):
        return None
    _, digit, journal, file, salt, first, size, crc, body = _FILE.unpack_from(data)
    if size > min(len(data), MAX_FILE_HEAD) or _FILE.size + body > size or size % PAGE:
        return None
    if crc32c(data[:_FILE_CRC_AT] + bytes(4) + data[_FILE_CRC_AT + 4 : size]) != crc:
        return None
    if digit != str(FORMAT).encode():
        raise OtherFormat(digit[0] - ord("0"))
    try:
        origin = msgspec.msgpack.decode(data[_FILE.size : _FILE.size + body], type=Origin)
    except msgspec.MsgspecError:
        return None
    return FileHead(journal, file, salt, first, size, origin)


def encode_frame(
    salt: int, kind: Kind, number: int, synced: int, domain: int, position: int, record: bytes, echo: bytes
) -> tuple[bytes, Head]:
    """A frame, and its header."""
    size = padded(HEAD_BYTES + len(record) + len(echo))
    head = Head(
        size, kind, number, synced, domain, position, len(record), len(echo), crc32c(record), crc32c(echo)
    )  # fmt: skip
    packed = _FRAME.pack(
        FRAME_MAGIC, 0, size, HEAD_BYTES, kind, 0, number, synced, domain, len(record), position, len(echo),
        head.record_crc, head.echo_crc, 0,
    )  # fmt: skip
    packed = FRAME_MAGIC + _crc(salt, packed) + packed[_AFTER_CRC:]
    return b"".join((packed, record, echo)).ljust(size, b"\0"), head


def echo_of(frame: bytes) -> bytes:
    """What the next frame repeats of a frame: its header and its record."""
    [record_bytes] = _RECORD_BYTES.unpack_from(frame, _RECORD_BYTES_AT)
    return frame[: HEAD_BYTES + record_bytes]


def decode_head(salt: int, data: bytes, at: int = 0) -> Head | None:
    """The header at a place of some bytes; None if it is not sound."""
    if len(data) < at + HEAD_BYTES or data[at : at + 4] != FRAME_MAGIC:
        return None
    packed = data[at : at + HEAD_BYTES]
    if packed[_CRC_AT:_AFTER_CRC] != _crc(salt, packed):
        return None
    (_, _, size, head_bytes, kind, images, number, synced, domain, record_bytes, position, echo_bytes, record_crc,
     echo_crc, _) = _FRAME.unpack(packed)  # fmt: skip
    if head_bytes != HEAD_BYTES or images or size != padded(HEAD_BYTES + record_bytes + echo_bytes):
        return None
    try:
        known = Kind(kind)
    except ValueError:
        return None
    return Head(size, known, number, synced, domain, position, record_bytes, echo_bytes, record_crc, echo_crc)


def record_in(head: Head, data: bytes, at: int = 0) -> bytes | None:
    """The record of the frame at a place of some bytes; None if it is not sound."""
    record = data[at + HEAD_BYTES : at + HEAD_BYTES + head.record_bytes]
    return record if len(record) == head.record_bytes and crc32c(record) == head.record_crc else None


def echo_in(head: Head, data: bytes, at: int = 0) -> bytes | None:
    """What a frame repeats of the one before it; None if it is not sound."""
    begin = at + HEAD_BYTES + head.record_bytes
    echo = data[begin : begin + head.echo_bytes]
    return echo if len(echo) == head.echo_bytes and crc32c(echo) == head.echo_crc else None


def _crc(salt: int, packed: bytes) -> bytes:
    return crc32c(packed[_AFTER_CRC:], crc32c(SALT.pack(salt))).to_bytes(4, "big")
