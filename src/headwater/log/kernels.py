"""Loops over single records, written so that they run as plain Python and compiled alike.

Importing numba takes most of a second and a hundred megabytes, so a broker starts without it: `walk_records` is
used as plain Python until `compile_kernels` has put the compiled one in its place, and `produce_rows` declines.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from headwater import native
from headwater.types import Buffer

log = logging.getLogger("headwater.kernels")
COMPILE_AFTER = 1_000
OK = 0
CUT_SHORT = 1
BAD_LENGTH = 2
BAD_OFFSET = 3
BAD_FIELD = 4

FLAWS = {
    CUT_SHORT: "a record or a number in it reaches too far",
    BAD_LENGTH: "a record's length does not match its fields",
    BAD_OFFSET: "offset deltas do not count up from 0",
    BAD_FIELD: "a key, value or header has an impossible length",
}

WalkResult: TypeAlias = tuple[int, int, int, int]
"""(status, smallest timestamp delta, largest timestamp delta, records with a null key)"""


def _walk_records(data: Buffer, start: int, end: int, count: int) -> WalkResult:
    """Check `count` records between two positions: lengths, offset deltas, and that nothing is left over."""
    position = start
    smallest = largest = null_keys = 0
    for index in range(count):
        field = 0
        record_end = end
        while True:
            # A signed varint: the lowest bit is the sign, so the magnitude always fits 63 bits.
            if field == 1:
                position += 1  # attributes
                field = 2
            if position >= record_end:
                return CUT_SHORT, 0, 0, 0
            byte = data[position]
            position += 1
            sign = byte & 1
            value = (byte & 0x7F) >> 1
            shift = 6
            while byte & 0x80:
                if position >= record_end or shift > 62:
                    return CUT_SHORT, 0, 0, 0
                byte = data[position]
                position += 1
                if shift == 62 and byte > 1:  # more than 64 bits
                    return CUT_SHORT, 0, 0, 0
                value |= (byte & 0x7F) << shift
                shift += 7
            if sign:
                value = -value - 1
            if field == 0:
                if value < 0 or value > end - position:
                    return CUT_SHORT, 0, 0, 0
                record_end = position + value
                field = 1
            elif field == 2:
                if index == 0 or value < smallest:
                    smallest = value
                if index == 0 or value > largest:
                    largest = value
                field = 3
            elif field == 3:
                if value != index:
                    return BAD_OFFSET, 0, 0, 0
                field = 4
            elif field == 4:
                if value < -1 or value > record_end - position:
                    return BAD_FIELD, 0, 0, 0
                if value == -1:
                    null_keys += 1
                else:
                    position += value
                field = 5
            elif field == 5:
                if value < -1 or value > record_end - position:
                    return BAD_FIELD, 0, 0, 0
                if value > 0:
                    position += value
                field = 6
            elif field == 6:
                if value < 0 or value > record_end - position:
                    return BAD_FIELD, 0, 0, 0
                headers = value
                field = 7
                if headers == 0:
                    break
            elif field == 7:
                if value < 0 or value > record_end - position:
                    return BAD_FIELD, 0, 0, 0
                position += value
                field = 8
            else:
                if value < -1 or value > record_end - position:
                    return BAD_FIELD, 0, 0, 0
                if value > 0:
                    position += value
                headers -= 1
                field = 7
                if headers == 0:
                    break
        if position != record_end:
            return BAD_LENGTH, 0, 0, 0
    if position != end:
        return BAD_LENGTH, 0, 0, 0
    return OK, smallest, largest, null_keys


walk_records: Callable[[Buffer, int, int, int], WalkResult] = _walk_records

Rows: TypeAlias = list[list[int]]
MAX_ROWS = 1024


def _no_rows(frame: memoryview, version: int) -> Rows | None:
    return None


produce_rows: Callable[[memoryview, int], Rows | None] = _no_rows
"""The rows of `produce_kernels.read_produce` for a request, or nothing if that declines it or is not compiled yet."""


def compile_when_used() -> None:
    """Count the records that go through the plain loops, and compile in the background once they are many.

    An idle broker never pays for the compiler.
    """
    global walk_records
    seen = 0

    def counting(data: Buffer, start: int, end: int, count: int) -> WalkResult:
        nonlocal seen
        seen += count
        if seen - count < COMPILE_AFTER <= seen:
            threading.Thread(target=_compile_quietly, name="compile", daemon=True).start()
        return _walk_records(data, start, end, count)

    walk_records = counting


def _compile_quietly() -> None:
    try:
        compile_kernels()
    except Exception:
        log.exception("kernels could not be compiled; records are checked by plain Python")


def compile_kernels() -> None:
    """Replace the loops by compiled ones. Takes seconds the first time; safe to call from a thread."""
    global walk_records, produce_rows
    import numpy as np

    from headwater.log import produce_kernels

    compiled = produce_kernels.walk_records
    compiled(b"", 0, 0, 0)
    walk_records = compiled
    read: Any = produce_kernels.read_produce
    rows = np.zeros((MAX_ROWS, produce_kernels.COLUMNS), dtype=np.int64)
    read(memoryview(b""), 0, rows)

    def filled(frame: memoryview, version: int) -> Rows | None:
        used = read(frame, version, rows)
        return rows[:used].tolist() if used > 0 else None

    produce_rows = filled
    native.load()
