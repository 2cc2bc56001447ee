"""A compiled loop that sums a hash of every row over the log's columns.

A sum does not depend on the order of the rows, nor on the files that they are in. The hash takes a row as words of
eight bytes. Every step is reversible, so two rows that differ in one word never have the same hash. It finds faults of
programs and storage; it is no defence against somebody who makes up rows.

The loop takes addresses instead of arrays: numba counts references to arrays, which takes longer than the hash.
Importing this module imports numba, see `native/bytes.py`.
"""

from __future__ import annotations

import numpy as np

from headwater.native.bytes import Number
from headwater.native.compiling import compiled
from headwater.native.pointers import byte_at, half_at, word_at

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_SHIFT = np.uint64(32)
_NULL = np.uint64(0xFFFFFFFFFFFFFFFF)
"""The length of what is null."""
_STRIPE = 32


@compiled
def _mixed(total: Number, word: Number) -> Number:
    total = (total ^ word) * _PRIME_1
    return total ^ (total >> _SHIFT)


@compiled
def _pair(high: int, low: int) -> Number:
    """The two numbers of 32 bits at these addresses, as one word."""
    return np.uint64(half_at(high)) << _SHIFT | np.uint64(half_at(low))


@compiled
def _blob(total: Number, at: Number, length: Number) -> Number:
    """Add the length and the bytes of a value. Long ones are taken in four lanes, which do not wait for each other."""
    total = _mixed(total, np.uint64(length))
    stop = at + length
    if length >= 2 * _STRIPE:
        one, two, three, four = _PRIME_1, _PRIME_2, _PRIME_3, _NULL
        while stop - at >= _STRIPE:
            one = _mixed(one, word_at(at))
            two = _mixed(two, word_at(at + 8))
            three = _mixed(three, word_at(at + 16))
            four = _mixed(four, word_at(at + 24))
            at += _STRIPE
        total = _mixed(_mixed(_mixed(_mixed(total, one), two), three), four)
    while stop - at >= 8:
        total = _mixed(total, word_at(at))
        at += 8
    if at < stop:
        word = np.uint64(0)
        while stop > at:
            stop -= 1
            word = word << np.uint64(8) | np.uint64(byte_at(stop))
        total = _mixed(total, word)
    return total


@compiled
def _value(total: Number, column: tuple[int, int, int, int], row: int) -> Number:
    """Add a value of a column of bytes, which may be null."""
    borders, data, valid, first = column
    place = first + row
    if valid != 0 and not (byte_at(valid + (place >> 3)) >> np.uint8(place & 7)) & 1:
        return _mixed(total, _NULL)
    start = np.int64(half_at(borders + 4 * row))
    return _blob(total, data + start, np.int64(half_at(borders + 4 * row + 4)) - start)


@compiled
def sum_rows(
    rows: int,
    longs: tuple[int, int, int],
    ints: tuple[int, int, int, int],
    blobs: tuple[tuple[int, int, int, int], tuple[int, int, int, int], tuple[int, int, int, int]],
    headers: tuple[int, int, int, int],
    names: tuple[int, int, int, int],
    contents: tuple[int, int, int, int],
) -> Number:
    """The sum of the hashes of all rows, modulo 2^64. All arguments but `rows` are addresses of the first row.

    A column of bytes has the addresses of its borders, its bytes, and its validity bits (0 if nothing is null), and the
    place of the first row in the bits. The borders of `headers` count in `names` and `contents`.
    """
    total = np.uint64(0)
    for row in range(rows):
        found = _mixed(_PRIME_3, word_at(longs[0] + 8 * row))
        found = _mixed(found, word_at(longs[1] + 8 * row))
        found = _mixed(found, word_at(longs[2] + 8 * row))
        found = _mixed(found, _pair(ints[0] + 4 * row, ints[1] + 4 * row))
        found = _mixed(found, _pair(ints[2] + 4 * row, ints[3] + 4 * row))
        found = _value(found, blobs[0], row)
        found = _value(found, blobs[1], row)
        found = _value(found, blobs[2], row)
        borders, _, valid, first = headers
        place = first + row
        if valid != 0 and not (byte_at(valid + (place >> 3)) >> np.uint8(place & 7)) & 1:
            found = _mixed(found, _NULL)
        else:
            start, end = np.int64(half_at(borders + 4 * row)), np.int64(half_at(borders + 4 * row + 4))
            found = _mixed(found, np.uint64(end - start))
            for i in range(start, end):
                found = _value(_value(found, names, i), contents, i)
        found = (found ^ (found >> np.uint64(29))) * _PRIME_2
        total += found ^ (found >> _SHIFT)
    return total
