"""Compression of record batches. What is opened stays within a limit."""

from __future__ import annotations

import struct

import cramjam

from headwater.errors import BatchTooLarge, ConfigError, CorruptBatch, UnsupportedBatch
from headwater.types import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
WRITTEN = {"none": NONE, "zstd": ZSTD}
"""What this client writes, by name. It reads them all."""

_ZSTD_LEVEL = 3
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_LENGTH = struct.Struct(">i")
_STREAMS = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}
_GUESS = 8
_SMALLEST_GUESS = 64 << 10


def written_codec(name: str) -> int:
    """The codec of a name that this client can write."""
    if name not in WRITTEN:
        raise ConfigError(f"compression {name!r} is not one of {', '.join(WRITTEN)}")
    return WRITTEN[name]


def compress(codec: int, data: Buffer) -> Buffer:
    """Records as they go into a batch."""
    if codec == NONE:
        return data
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
    raise UnsupportedBatch(f"compression codec {codec} is not written here")


def decompress(codec: int, data: Buffer, limit: int) -> Buffer:
    """The opened records of a batch, at most `limit` bytes."""
    if codec == NONE:
        return data
    try:
        if codec == SNAPPY:
            return _snappy(bytes(data), limit)
        if codec in _STREAMS:
            return _stream(codec, data, limit)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"a batch compressed with codec {codec} cannot be opened: {error}") from error
    raise UnsupportedBatch(f"compression codec {codec} does not exist")


def _stream(codec: int, data: Buffer, limit: int) -> Buffer:
    """Formats that do not tell their size: guess, and guess higher while the buffer is too small."""
    size = min(limit, max(_SMALLEST_GUESS, len(data) * _GUESS))
    while True:
        out = bytearray(size)
        try:
            written = _STREAMS[codec].decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if size == limit:
                raise BatchTooLarge(f"a batch opens to more than {limit} bytes") from None
            size = min(limit, size * 4)
            continue
        return memoryview(out)[:written].toreadonly()


def _snappy(data: bytes, limit: int) -> bytes:
    """One block, or the Java client's format: a header, then blocks, each behind its length."""
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, limit)
    opened: list[bytes] = []
    at = _XERIAL_HEADER
    while at < len(data):
        if at + _LENGTH.size > len(data):
            raise CorruptBatch("snappy data is cut short")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not 0 < length <= len(data) - at:
            raise CorruptBatch(f"a snappy block of {length} bytes")
        block = _snappy_block(data[at : at + length], limit)
        limit -= len(block)
        opened.append(block)
        at += length
    return b"".join(opened)


def _snappy_block(data: bytes, limit: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > limit:
        raise BatchTooLarge("a snappy batch opens to more bytes than allowed")
    return bytes(cramjam.snappy.decompress_raw(data))
