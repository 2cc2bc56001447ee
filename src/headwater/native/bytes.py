"""Compiled loops over bytes: numbers, copies, UTF-8.

Importing this module imports numba. Numba caches the compiled code of a function by the date of the function's file.
After a change here, the cached code of callers in other files is stale: remove `*.nbi` from `__pycache__`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.native.compiling import compiled, inlined

Array = npt.NDArray[Any]
Number = Any
"""A number of numpy: signed, 64 bits, wraps around on overflow."""

LONG_MAX = (1 << 63) - 1


@compiled
def read_number(data: Array, at: int, size: int) -> Number:
    """A signed big-endian number."""
    value = np.int64(data[at])
    if value >= 128:
        value -= 256
    for i in range(at + 1, at + size):
        value = value << 8 | np.int64(data[i])
    return value


@inlined
def read_varint(data: Array, at: int, end: int) -> tuple[Number, int]:
    """A signed varint, and the position after it: -1 if the number is cut short or has more than 64 bits."""
    if at >= end:
        return np.int64(0), -1
    byte = np.int64(data[at])
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    return _read_long_varint(data, at, end)


@compiled
def _read_long_varint(data: Array, at: int, end: int) -> tuple[Number, int]:
    """A varint of several bytes."""
    raw = np.int64(data[at]) & 0x7F
    at += 1
    shift = 7
    while True:
        if at >= end:
            return np.int64(0), -1
        byte = np.int64(data[at])
        at += 1
        if shift == 63 and byte > 1:
            return np.int64(0), -1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((raw >> 1) & LONG_MAX) ^ -(raw & 1), at
        shift += 7


@compiled
def copy_bytes(source: Array, start: int, length: int, target: Array, at: int) -> None:
    """Copy bytes from one array to another. Positions are unsigned, so that the compiler can move many at once."""
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
