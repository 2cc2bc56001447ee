"""Bloom filters of keys, as Parquet has them: split blocks of 32 bytes, probed by a 64-bit hash.

A filter never denies a key that is there. It says "perhaps" to about one key in a hundred that is not there. A probe
needs one block, so a caller may read that block alone.
"""

from __future__ import annotations

import struct

BLOCK_BYTES = 32
_WORDS = struct.Struct("<8I")
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_WORD = 0xFFFFFFFF
_MAX_HEADER = 31
"""The header is shorter than a block, so the blocks are the greatest power of two in a filter's length."""


def key_hash(key: bytes) -> int:
    """The hash by which filters and indexes know a key."""
    import numpy as np

    from headwater.log.kernels.keys import hash_key

    return int(hash_key(np.frombuffer(key, dtype=np.uint8)))


def blocks_of(start: int, length: int) -> tuple[int, int] | None:
    """Where the blocks of a filter are, behind its header: start and length. None if it is not one of ours."""
    size = 1 << max(length.bit_length() - 1, 0)
    header = length - size
    if size < BLOCK_BYTES or not 0 < header <= _MAX_HEADER:
        return None
    return start + header, size


def header_of(size: int) -> bytes:
    """The header that pyarrow writes in front of blocks of a size: split blocks, XXH64, not compressed."""
    number, out = size << 1, bytearray(b"\x15")
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out) + b"\x1c\x1c\x00\x00" * 3 + b"\x00"


def block_at(size: int, hashed: int) -> int:
    """Where the block of a hash is, in blocks of a size."""
    return ((hashed >> 32) * (size // BLOCK_BYTES) >> 32) * BLOCK_BYTES


def may_have(block: bytes | memoryview, hashed: int) -> bool:
    """Whether a block may have been told of a hash."""
    low = hashed & _WORD
    words = _WORDS.unpack(block)
    return all(word >> ((low * salt & _WORD) >> 27) & 1 for word, salt in zip(words, _SALTS, strict=True))
