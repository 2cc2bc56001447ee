"""Loops over single records that run both as plain Python and compiled.

This module does not import numba; `log/kernels/switch.py` decides which of the two is in use.
"""

from __future__ import annotations

from typing import TypeAlias

from headwater.types import Buffer

OK = 0
CUT_SHORT = 1
BAD_LENGTH = 2
BAD_OFFSET = 3
BAD_FIELD = 4

FLAWS = {
    CUT_SHORT: "a record, or a number in it, is cut short",
    BAD_LENGTH: "a record's length does not match its fields",
    BAD_OFFSET: "offset deltas do not count up from 0",
    BAD_FIELD: "a key, value or header has an impossible length",
}

WalkResult: TypeAlias = tuple[int, int, int, int]
"""(status, smallest timestamp delta, largest timestamp delta, records with a null key)"""


def walk_records(data: Buffer, start: int, end: int, count: int) -> WalkResult:
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
