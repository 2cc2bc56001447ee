"""Compiled loops over bytes: checksums, numbers, copies, UTF-8.

Importing this module imports numba. It keeps compiled code by the date of the file that a function stands in: after a
change here, the cached code of the callers in other files is stale and must be removed (`*.nbi` in `__pycache__`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.native.compiling import compiled

Array = npt.NDArray[Any]
Number = Any
"""A number of numpy: 64 bits, signed, and wrapping around."""

LONG_MAX = (1 << 63) - 1


def _crc_tables() -> Array:
    """CRC32C by eight bytes at a time."""
    tables = np.zeros((8, 256), dtype=np.int64)
    for i in range(256):
        crc = i
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        tables[0, i] = crc
    for k in range(1, 8):
        tables[k] = tables[k - 1] >> 8 ^ tables[0, tables[k - 1] & 0xFF]
    return tables.astype(np.uint32)


_CRC = _crc_tables()


@compiled
def checksum(data: Array, start: int, end: int) -> Number:
    crc = np.uint32(0xFFFFFFFF)
    at, whole = np.uint64(start), np.uint64(start + ((end - start) & ~7))
    while at < whole:
        low = (
            np.uint32(data[at])
            | np.uint32(data[at + np.uint64(1)]) << np.uint32(8)
            | np.uint32(data[at + np.uint64(2)]) << np.uint32(16)
            | np.uint32(data[at + np.uint64(3)]) << np.uint32(24)
        )
        low = np.uint32(crc ^ low)
        crc = np.uint32(
            _CRC[7, np.uint8(low)]
            ^ _CRC[6, np.uint8(low >> np.uint32(8))]
            ^ _CRC[5, np.uint8(low >> np.uint32(16))]
            ^ _CRC[4, np.uint8(low >> np.uint32(24))]
            ^ _CRC[3, data[at + np.uint64(4)]]
            ^ _CRC[2, data[at + np.uint64(5)]]
            ^ _CRC[1, data[at + np.uint64(6)]]
            ^ _CRC[0, data[at + np.uint64(7)]]
        )
        at += np.uint64(8)
    while at < np.uint64(end):
        crc = np.uint32(_CRC[0, np.uint8(crc) ^ data[at]] ^ (crc >> np.uint32(8)))
        at += np.uint64(1)
    return np.int64(crc) ^ 0xFFFFFFFF


@compiled
def read_number(data: Array, at: int, size: int) -> Number:
    """A signed big-endian number."""
    value = np.int64(data[at])
    if value >= 128:
        value -= 256
    for i in range(at + 1, at + size):
        value = value << 8 | np.int64(data[i])
    return value


@compiled
def read_varint(data: Array, at: int, end: int) -> tuple[Number, int]:
    """A signed varint and the position behind it, which is -1 if the number is cut short or has over 64 bits."""
    if at >= end:
        return 0, -1
    byte = np.int64(data[at])
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    raw = byte & 0x7F
    shift = 7
    while True:
        if at >= end:
            return 0, -1
        byte = np.int64(data[at])
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((raw >> 1) & LONG_MAX) ^ -(raw & 1), at
        shift += 7


@compiled
def copy_bytes(source: Array, start: int, length: int, target: Array, at: int) -> None:
    """Bytes from one array to another. Unsigned positions let the compiler move many at once."""
    from_, to = np.uint64(start), np.uint64(at)
    for i in range(np.uint64(length)):
        target[to + i] = source[from_ + i]


@compiled
def is_utf8(data: Array, at: int, end: int) -> bool:
    while at < end:
        first = np.int64(data[at])
        at += 1
        if first < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:  # surrogates
                high = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:  # beyond U+10FFFF
                high = 0x8F
        else:
            return False
        if more > end - at:
            return False
        for _ in range(more):
            byte = np.int64(data[at])
            if byte < low or byte > high:
                return False
            low, high = 0x80, 0xBF
            at += 1
    return True
