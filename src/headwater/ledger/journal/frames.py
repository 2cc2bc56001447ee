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
    64  32   for each image: epoch 8, sequence 8, offset in the frame 4, bytes 4, CRC32C 4, zero 4
    …        the record, the echo, the images, zeros

The echo is header and record of the frame before, in the same file. With it one damaged page costs no record.
An image is a WAL object that the record names. Its last four bytes are the CRC32C of the others.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from headwater.ledger.contract import Image, Pointer
from headwater.types import Buffer

PAGE = 4096
FORMAT = 1
_NAME = b"HWTRJF"
_FILE = struct.Struct(">6scx16sQQQIII")
_FRAME = struct.Struct(">4sIIHBBQQIIQIIII")
FRAME_MAGIC = b"HWJF"
HEAD_BYTES = _FRAME.size
_CRC_AT, _AFTER_CRC = 4, 8
_HEAD_BYTES, _HEAD_BYTES_AT = struct.Struct(">H"), 12
_ROW = struct.Struct(">QQIIII")
IMAGE_CRC_BYTES = 4
MAX_IMAGES = 64
"""Header and table of a frame are within one page."""
MAX_FRAME = 32 << 20
MAX_IMAGES_BYTES = 24 << 20
"""The images of one frame. A frame with them is never longer than `MAX_FRAME`."""
MAX_TOLD = 4 << 20
"""Header, record and echo of a frame are not longer."""
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


class Row(NamedTuple):
    """Where an image is in a frame."""

    epoch: int
    sequence: int
    offset: int
    size: int
    crc: int


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
    images: tuple[Row, ...] = ()

    @property
    def own_bytes(self) -> int:
        """The bytes of the header."""
        return HEAD_BYTES + _ROW.size * len(self.images)

    @property
    def told_bytes(self) -> int:
        """The bytes of header, record and echo."""
        return self.own_bytes + self.record_bytes + self.echo_bytes


class Encoded(NamedTuple):
    """A frame that is written next."""

    pieces: list[Buffer]
    head: Head
    echo: bytes
    """What its successor repeats of it."""


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
    salt: int,
    kind: Kind,
    number: int,
    synced: int,
    domain: int,
    position: int,
    record: bytes,
    echo: bytes,
    images: Sequence[Image] = (),
) -> Encoded:
    """A frame. The pieces of its images are not copied."""
    if len(images) > MAX_IMAGES or sum(image.size for image in images) > MAX_IMAGES_BYTES:
        raise ValueError(f"{len(images)} images do not fit into a frame")
    own_bytes = HEAD_BYTES + _ROW.size * len(images)
    end = own_bytes + len(record) + len(echo)
    rows = []
    for image in images:
        if not IMAGE_CRC_BYTES <= image.size == sum(map(len, image.pieces)):
            raise ValueError(f"image {image.sequence} does not have {image.size} bytes, or lacks its checksum")
        rows.append(Row(image.epoch, image.sequence, end, image.size, image.crc))
        end += image.size
    head = Head(
        padded(end), kind, number, synced, domain, position, len(record), len(echo), crc32c(record), crc32c(echo),
        tuple(rows),
    )  # fmt: skip
    packed = _FRAME.pack(
        FRAME_MAGIC, 0, head.size, own_bytes, kind, len(rows), number, synced, domain, len(record), position, len(echo),
        head.record_crc, head.echo_crc, 0,
    ) + b"".join([_ROW.pack(*row, 0) for row in rows])  # fmt: skip
    told = b"".join((FRAME_MAGIC, _crc(salt, packed), packed[_AFTER_CRC:], record, echo))
    pieces: list[Buffer] = [told]
    for image in images:
        pieces.extend(image.pieces)
    pieces.append(bytes(head.size - end))
    return Encoded(pieces, head, told[: own_bytes + len(record)])


def decode_head(salt: int, data: bytes, at: int = 0) -> Head | None:
    """The header at a place of some bytes; None if it is not sound."""
    if len(data) < at + HEAD_BYTES or data[at : at + 4] != FRAME_MAGIC:
        return None
    [own_bytes] = _HEAD_BYTES.unpack_from(data, at + _HEAD_BYTES_AT)
    packed = data[at : at + own_bytes]
    if not HEAD_BYTES <= own_bytes == len(packed) or packed[_CRC_AT:_AFTER_CRC] != _crc(salt, packed):
        return None
    (_, _, size, _, kind, images, number, synced, domain, record_bytes, position, echo_bytes, record_crc,
     echo_crc, _) = _FRAME.unpack_from(packed)  # fmt: skip
    end = own_bytes + record_bytes + echo_bytes
    if own_bytes != HEAD_BYTES + _ROW.size * images or images > MAX_IMAGES or end > MAX_TOLD:
        return None
    rows = []
    for i in range(images):
        row = Row(*_ROW.unpack_from(packed, HEAD_BYTES + i * _ROW.size)[:-1])
        if row.offset != end or row.size < IMAGE_CRC_BYTES:
            return None
        end += row.size
        rows.append(row)
    if size != padded(end) or size > MAX_FRAME:
        return None
    try:
        known = Kind(kind)
    except ValueError:
        return None
    return Head(
        size, known, number, synced, domain, position, record_bytes, echo_bytes, record_crc, echo_crc, tuple(rows)
    )  # fmt: skip


def record_in(head: Head, data: bytes, at: int = 0) -> bytes | None:
    """The record of the frame at a place of some bytes; None if it is not sound."""
    begin = at + head.own_bytes
    record = data[begin : begin + head.record_bytes]
    return record if len(record) == head.record_bytes and crc32c(record) == head.record_crc else None


def echo_in(head: Head, data: bytes, at: int = 0) -> bytes | None:
    """What a frame repeats of the one before it; None if it is not sound."""
    begin = at + head.own_bytes + head.record_bytes
    echo = data[begin : begin + head.echo_bytes]
    return echo if len(echo) == head.echo_bytes and crc32c(echo) == head.echo_crc else None


def is_image(row: Row, data: Buffer) -> bool:
    """Whether some bytes are the image of a row."""
    if len(data) != row.size:
        return False
    view = memoryview(data)
    body, crc = view[:-IMAGE_CRC_BYTES], view[-IMAGE_CRC_BYTES:]
    return int.from_bytes(crc, "big") == row.crc == crc32c(body)


def _crc(salt: int, packed: bytes) -> bytes:
    return crc32c(packed[_AFTER_CRC:], crc32c(SALT.pack(salt))).to_bytes(4, "big")
