"""Kafka's compression codecs. Decompression has a limit, so that a small batch cannot become a huge one."""

from __future__ import annotations

import mmap
import struct

import cramjam

from headwater.errors import ConfigError, CorruptBatch, OpensTooLarge, UnsupportedBatch
from headwater.types import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

WRITTEN = {name: codec for codec, name in NAMES.items()}
DEFAULT_LEVELS = {NONE: 0, GZIP: 6, SNAPPY: 0, LZ4: 9, ZSTD: 3}
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_XERIAL_VERSIONS = struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT = 0x20
_FIRST_GUESS = 8
_SMALLEST_GUESS = 64 << 10
_LARGE_BUFFER = 8 << 20
"""A larger buffer is memory of its own from the kernel. Clearing it would hold the interpreter's lock for long."""
_STREAMS = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}


def written_codec(name: str) -> int:
    """The codec that a name stands for, among those that Headwater writes."""
    if name not in WRITTEN:
        raise ConfigError(f"compression {name!r} is not one of {', '.join(WRITTEN)}")
    return WRITTEN[name]


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Compressed records, in a form that every client reads."""
    if codec == NONE:
        return data
    if codec not in NAMES:
        raise UnsupportedBatch(f"compression codec {codec} does not exist")
    if level is None:
        level = DEFAULT_LEVELS[codec]
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level=level if level >= 0 else DEFAULT_LEVELS[GZIP]))
    if codec == LZ4:
        # The Java client accepts only blocks that do not refer to each other.
        compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    return _xerial(data)


def _xerial(data: Buffer) -> bytes:
    """The block format of the Java client's snappy."""
    view, pieces = memoryview(data), [_XERIAL_MAGIC, _XERIAL_VERSIONS]
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK]))
        pieces += (struct.pack(">i", len(block)), block)
    return b"".join(pieces)


def has_linked_blocks(data: Buffer) -> bool:
    """Whether lz4 data has blocks that refer to each other, which the Java client cannot read."""
    flags_at = len(_LZ4_MAGIC)
    return len(data) > flags_at and data[:flags_at] == _LZ4_MAGIC and not data[flags_at] & _LZ4_INDEPENDENT


def decompress(codec: int, data: Buffer, limit: int) -> Buffer:
    """The decompressed records of a batch, at most `limit` bytes."""
    if codec == NONE:
        return data
    if codec == SNAPPY:
        return _snappy(data, limit)
    if codec not in _STREAMS:
        raise UnsupportedBatch(f"compression codec {codec} does not exist")
    size = min(limit, max(_SMALLEST_GUESS, len(data) * _FIRST_GUESS))
    while True:
        out = memoryview(bytearray(size) if size <= _LARGE_BUFFER else mmap.mmap(-1, size))
        try:
            written = _STREAMS[codec].decompress_into(data, out)
        except cramjam.DecompressionError as error:
            del out  # an error keeps the variables of its frame for as long as it is kept itself
            if "whole buffer" not in str(error):
                raise CorruptBatch(f"{NAMES[codec]} data cannot be decompressed: {error}") from error
            if size == limit:
                raise OpensTooLarge(f"a batch decompresses to more than {limit} bytes") from None
            size = min(limit, size * 4)
            continue
        return out[:written].toreadonly()


def _snappy(data: Buffer, limit: int) -> Buffer:
    """Decompress plain snappy, or the Java client's block format: a header, then blocks with a length each."""
    data = bytes(data)
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, limit)
    opened: list[Buffer] = []
    position = _XERIAL_HEADER
    while position < len(data):
        if position + 4 > len(data):
            raise CorruptBatch("snappy data is cut short")
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if not 0 < length <= len(data) - position:
            raise CorruptBatch(f"a snappy block has an invalid length of {length} bytes")
        block = _snappy_block(data[position : position + length], limit)
        limit -= len(block)
        opened.append(block)
        position += length
    return b"".join(opened)


def _snappy_block(data: bytes, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > limit:
            raise OpensTooLarge("a snappy batch decompresses to more bytes than allowed")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy data cannot be decompressed: {error}") from error
