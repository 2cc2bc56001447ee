"""Compiled loops over the keys of a row group: hashes, and the last row that has a key.

The hash is xxHash's XXH64 with seed 0. Parquet's bloom filters use it too. Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np

from headwater.native.bytes import Array, Number
from headwater.native.compiling import compiled

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_STRIPE = 32


@compiled
def _rotated(word: Number, bits: int) -> Number:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@compiled
def _word(data: Array, at: int, size: int) -> Number:
    """A little-endian number."""
    found = np.uint64(0)
    for i in range(size):
        found |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return found


@compiled
def _round(lane: Number, word: Number) -> Number:
    return _rotated(lane + word * _PRIME_2, 31) * _PRIME_1


@compiled
def _joined(total: Number, lane: Number) -> Number:
    return (total ^ _round(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4


@compiled
def _hash(data: Array, at: int, end: int) -> Number:
    length = np.uint64(end - at)
    if end - at >= _STRIPE:
        one, two, three, four = _PRIME_1 + _PRIME_2, _PRIME_2, np.uint64(0), np.uint64(0) - _PRIME_1
        while end - at >= _STRIPE:
            one, two = _round(one, _word(data, at, 8)), _round(two, _word(data, at + 8, 8))
            three, four = _round(three, _word(data, at + 16, 8)), _round(four, _word(data, at + 24, 8))
            at += _STRIPE
        total = _rotated(one, 1) + _rotated(two, 7) + _rotated(three, 12) + _rotated(four, 18)
        total = _joined(_joined(_joined(_joined(total, one), two), three), four)
    else:
        total = _PRIME_5
    total += length
    while end - at >= 8:
        total = _rotated(total ^ _round(np.uint64(0), _word(data, at, 8)), 27) * _PRIME_1 + _PRIME_4
        at += 8
    if end - at >= 4:
        total = _rotated(total ^ (_word(data, at, 4) * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
        at += 4
    while at < end:
        total = _rotated(total ^ (np.uint64(data[at]) * _PRIME_5), 11) * _PRIME_1
        at += 1
    total = (total ^ (total >> np.uint64(33))) * _PRIME_2
    total = (total ^ (total >> np.uint64(29))) * _PRIME_3
    return total ^ (total >> np.uint64(32))


@compiled
def hash_key(key: Array) -> Number:
    """The hash of one key."""
    return _hash(key, 0, len(key))


@compiled
def _is_null(valid: Array, row: int) -> bool:
    return bool(len(valid) and not (valid[row >> 3] >> (row & 7)) & 1)


@compiled
def hash_keys(borders: Array, data: Array, valid: Array, rows: Array, hashes: Array) -> int:
    """Fill `rows` and `hashes` for all rows that have a key. Returns how many there are."""
    count = 0
    for row in range(len(borders) - 1):
        if _is_null(valid, row):
            continue
        rows[count] = row
        hashes[count] = _hash(data, borders[row], borders[row + 1])
        count += 1
    return count


@compiled
def last_equal(borders: Array, data: Array, valid: Array, key: Array, end: int) -> int:
    """The last row before `end` that has this key, or -1."""
    for row in range(end - 1, -1, -1):
        start = borders[row]
        if borders[row + 1] - start != len(key) or _is_null(valid, row):
            continue
        i = 0
        while i < len(key) and data[start + i] == key[i]:
            i += 1
        if i == len(key):
            return row
    return -1
