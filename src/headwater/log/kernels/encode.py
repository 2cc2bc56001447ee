"""Compiled loops from the columns of a row group to Kafka record batches, format v2.

Importing this module imports numba. `plan_batches` decides where batches begin and how long they are;
`write_batches` writes them by that plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headwater.native.bytes import LONG_MAX, Array, copy_bytes
from headwater.native.compiling import compiled

HEADER_BYTES = 61
LENGTH_OVERHEAD = 12
APPEND_TIME = 0x08

FIRST_ROW, END_ROW, SIZE, MAX_TIME = range(4)
PLAN_NUMBERS = 4
"""Numbers of a plan per batch."""

_INT_MAX = (1 << 31) - 1


class Columns(NamedTuple):
    """A row group: numbers, and for byte columns the borders, the bytes and a bitmap (empty if nothing is null)."""

    offsets: Array
    times: Array
    attributes: Array
    key_borders: Array
    key: Array
    key_valid: Array
    value_borders: Array
    value: Array
    value_valid: Array
    raw_borders: Array
    raw: Array
    raw_valid: Array
    headers: Array
    name_borders: Array
    name: Array
    content_borders: Array
    content: Array
    content_valid: Array


@compiled
def _varint_size(number: int) -> int:
    rest = np.uint64((number << 1) ^ (number >> 63))
    size = 1
    while rest >= np.uint64(0x80):
        rest >>= np.uint64(7)
        size += 1
    return size


@compiled
def _put_varint(out: Array, at: int, number: int) -> int:
    rest = np.uint64((number << 1) ^ (number >> 63))
    while rest >= np.uint64(0x80):
        out[at] = (rest & np.uint64(0x7F)) | np.uint64(0x80)
        rest >>= np.uint64(7)
        at += 1
    out[at] = rest
    return at + 1


@compiled
def _put_number(out: Array, at: int, number: int, size: int) -> None:
    """Write a big-endian number."""
    for i in range(size):
        out[at + size - 1 - i] = (number >> (8 * i)) & 0xFF


@compiled
def _length(borders: Array, valid: Array, i: int) -> int:
    """The length of a row's bytes; -1 for null."""
    if len(valid) and not (valid[i >> 3] >> (i & 7)) & 1:
        return -1
    return borders[i + 1] - borders[i]  # type: ignore[no-any-return]


@compiled
def _headers_size(first: int, end: int, name_borders: Array, content_borders: Array, content_valid: Array) -> int:
    """The encoded length of some headers, their count included."""
    size = _varint_size(end - first)
    for i in range(first, end):
        name = name_borders[i + 1] - name_borders[i]
        content = _length(content_borders, content_valid, i)
        size += _varint_size(name) + name + _varint_size(content) + max(content, 0)
    return size


@compiled
def _starts_anew(first: int, row: int, offsets: Array, times: Array, attributes: Array) -> bool:
    """Whether a row must begin a new batch: its kind of time differs from the batch's, or a delta does not fit."""
    append = attributes[row] & APPEND_TIME
    if append != attributes[first] & APPEND_TIME:
        return True
    time, base = times[row], times[first]
    if append:
        return time != base  # type: ignore[no-any-return]
    if (base < 0 and time > LONG_MAX + base) or (base > 0 and time < base - LONG_MAX):
        return True
    return offsets[row] - offsets[first] > _INT_MAX  # type: ignore[no-any-return]


@compiled
def plan_batches(
    columns: Columns, row: int, end: int, batch_bytes: int, max_bytes: int, plan: Array, sizes: Array
) -> tuple[int, int]:
    """Divide rows into batches until one more row would exceed `max_bytes`; returns (batches, bytes of all).

    Only the first row may exceed it. The length of every record is stored in `sizes`.
    """
    offsets, times, attributes = columns.offsets, columns.times, columns.attributes
    key_borders, key_valid = columns.key_borders, columns.key_valid
    value_borders, value_valid = columns.value_borders, columns.value_valid
    raw_borders, raw_valid, headers = columns.raw_borders, columns.raw_valid, columns.headers
    name_borders, content_borders, content_valid = columns.name_borders, columns.content_borders, columns.content_valid
    count = total = 0
    first = row
    while row < end and count < len(plan):
        fixed = _length(raw_borders, raw_valid, row)
        if fixed < 0:
            fixed = _headers_size(headers[row], headers[row + 1], name_borders, content_borders, content_valid)
        key, value = _length(key_borders, key_valid, row), _length(value_borders, value_valid, row)
        fixed += 2 + _varint_size(key) + max(key, 0) + _varint_size(value) + max(value, 0)
        joins = count > 0 and not _starts_anew(first, row, offsets, times, attributes)
        size = fixed
        if joins:
            size += _varint_size(times[row] - times[first]) - 1
            size += _varint_size(offsets[row] - offsets[first])
            joins = plan[count - 1, SIZE] + _varint_size(size) + size <= batch_bytes
        if not joins:
            size = fixed + 1
        needed = _varint_size(size) + size + (0 if joins else HEADER_BYTES)
        if total and total + needed > max_bytes:
            break
        sizes[row] = size
        if joins:
            plan[count - 1, SIZE] += needed
            plan[count - 1, END_ROW] = row + 1
            plan[count - 1, MAX_TIME] = max(plan[count - 1, MAX_TIME], times[row])
        else:
            plan[count, FIRST_ROW], plan[count, END_ROW] = row, row + 1
            plan[count, SIZE], plan[count, MAX_TIME] = needed, times[row]
            first = row
            count += 1
        total += needed
        row += 1
    return count, total


@compiled
def _put_bytes(out: Array, at: int, borders: Array, data: Array, length: int, i: int) -> int:
    """Write a length and bytes. Null is written as length -1."""
    at = _put_varint(out, at, length)
    if length > 0:
        copy_bytes(data, borders[i], length, out, at)
        at += length
    return at


@compiled
def _put_batch_header(
    out: Array, at: int, base: int, size: int, attributes: int, last: int, base_time: int, max_time: int, count: int
) -> None:
    """Write a batch header without its CRC: leader epoch 0, no producer."""
    _put_number(out, at, base, 8)
    _put_number(out, at + 8, size - LENGTH_OVERHEAD, 4)
    _put_number(out, at + 12, 0, 4)
    out[at + 16] = 2
    _put_number(out, at + 21, attributes, 2)
    _put_number(out, at + 23, last, 4)
    _put_number(out, at + 27, base_time, 8)
    _put_number(out, at + 35, max_time, 8)
    for k in range(at + 43, at + 57):
        out[k] = 0xFF
    _put_number(out, at + 57, count, 4)


@compiled
def write_batches(columns: Columns, plan: Array, sizes: Array, end_offset: int, out: Array) -> None:
    """Write the planned batches, without their CRCs.

    A batch covers the offsets up to the first row of the next batch; the last batch covers them up to `end_offset`.
    """
    offsets, times, attributes = columns.offsets, columns.times, columns.attributes
    key_borders, key, key_valid = columns.key_borders, columns.key, columns.key_valid
    value_borders, value, value_valid = columns.value_borders, columns.value, columns.value_valid
    raw_borders, raw, raw_valid, headers = columns.raw_borders, columns.raw, columns.raw_valid, columns.headers
    name_borders, name = columns.name_borders, columns.name
    content_borders, content, content_valid = columns.content_borders, columns.content, columns.content_valid
    at = 0
    for i in range(len(plan)):
        first, end = plan[i, FIRST_ROW], plan[i, END_ROW]
        base, base_time = offsets[first], times[first]
        following = offsets[end] if i + 1 < len(plan) else end_offset
        last = min(max(following - 1, offsets[end - 1]) - base, _INT_MAX)
        append = attributes[first] & APPEND_TIME
        _put_batch_header(out, at, base, plan[i, SIZE], append, last, base_time, plan[i, MAX_TIME], end - first)
        at += HEADER_BYTES
        for row in range(first, end):
            at = _put_varint(out, at, sizes[row])
            out[at] = 0
            at = _put_varint(out, at + 1, times[row] - base_time)
            at = _put_varint(out, at, offsets[row] - base)
            at = _put_bytes(out, at, key_borders, key, _length(key_borders, key_valid, row), row)
            at = _put_bytes(out, at, value_borders, value, _length(value_borders, value_valid, row), row)
            raw_length = _length(raw_borders, raw_valid, row)
            if raw_length >= 0:
                copy_bytes(raw, raw_borders[row], raw_length, out, at)
                at += raw_length
                continue
            at = _put_varint(out, at, headers[row + 1] - headers[row])
            for h in range(headers[row], headers[row + 1]):
                at = _put_bytes(out, at, name_borders, name, name_borders[h + 1] - name_borders[h], h)
                at = _put_bytes(out, at, content_borders, content, _length(content_borders, content_valid, h), h)
