"""The compiled loop from Avro's binary encoding to slots. Importing this module imports numba.

A schema is a program: a list of steps, in the order in which Avro writes the parts of a value. A union jumps to the
steps of its branch; a list repeats its steps. Values without columns are passed over by the types of the schema,
because a recursive schema has no program that ends.

Types may have values without bytes, and a schema of n such types, of which each has the one before it twice, has values
of 2^n parts. So the loop counts steps, and a row that takes more than its size allows is bad. A value without bytes is
one step of the loop but counts with all of its parts, because fastavro may read it, too.
"""

from __future__ import annotations

import numpy as np

from headwater.native.bytes import Array, Number, is_utf8, read_varint
from headwater.native.compiling import compiled, inlined
from headwater.native.pointers import address, bytes_of, half_at, longs_of, word_at
from headwater.schemas.decoding.kernels.slots import (
    DONE,
    GROW,
    OWN,
    POOL_WANTED,
    ROW,
    SPARE,
    STEPS,
    STEPS_PER_BYTE,
    clear,
    is_ascii,
    note_flaw,
)

BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, FIXED, ENUM, NULL, RECORD, UNION, ARRAY, MAP = range(14)
"""Kinds of types. FIXED has its size, ENUM the number of its symbols, BYTES the most bytes of a value or 0."""
MARK, JUMP, REPEAT, SKIP, END = range(14, 19)
"""Steps that are no types: the value is not null; go to another step; the end of an element; pass over a value of a
type; the end of the payload."""

STEP, NODE, FIRST, OTHER, STEP_POOL, STEP_BASE, STEP_SECOND, STEP_VALID = range(8)
"""Columns of a program. UNION: the number of branches, and where its jumps begin. ARRAY and MAP: the step after the
list, and the pool of the elements. REPEAT: the first step of an element. The last four are those of the node."""
LINE = 8
KIND, NUMBER, LINK, SMALLEST, COST = range(5)
"""Columns of `types`: the kind; a size, a number of symbols or of parts; where its parts begin in `links`; 0 if values
have no bytes at all; the steps of a value, without those of its parts if it has bytes."""
COLUMNS = OWN
WIDTH = 5
"""Columns of `types`."""
MOST_COST = 1 << 31
"""A type without bytes that has more parts counts as this. Times a number of elements it fits 64 bits."""

CUT_SHORT, BAD_NUMBER, BAD_LENGTH, BAD_BOOLEAN, BAD_SYMBOL, BAD_BRANCH, BAD_TEXT, TRAILING, DEEP, TOO_LARGE, COSTLY = (
    range(-1, -12, -1)
)
FLAWS = {
    CUT_SHORT: "the payload is cut short",
    BAD_NUMBER: "a number has too many bits",
    BAD_LENGTH: "a length is negative or goes beyond the payload",
    BAD_BOOLEAN: "a boolean is neither 0 nor 1",
    BAD_SYMBOL: "the enum has no such symbol",
    BAD_BRANCH: "the union has no such branch",
    BAD_TEXT: "a string is not UTF-8",
    TRAILING: "there are bytes after the value",
    DEEP: "the value is nested too deeply",
    TOO_LARGE: "the lists of the payload have too many elements for its size",
    COSTLY: "the value has too many parts for the size of the payload and of the schema",
}

MAX_LEVELS = 64
"""How deeply lists with columns may be nested."""
MAX_DEPTH = 256
"""How deeply values without columns may be nested."""
EMPTY_ELEMENTS = 64
"""Elements without bytes that a list may have, beside one for each byte that is left of the payload."""

LONGEST_DECIMAL = 1_024
"""The bytes of a decimal that is no column of numbers. Making text of one takes the square of its length."""

_INT = 1 << 31


@compiled
def _read_block(data: Array, at: int, end: int, empty: bool) -> tuple[int, int]:
    """The number of elements in the next block of a list or map, and the position after it; or 0 and a flaw."""
    count, after = read_varint(data, at, end)
    if after < 0:
        return 0, CUT_SHORT
    if count < 0:
        count = -count
        size, after = read_varint(data, after, end)
        if after < 0:
            return 0, CUT_SHORT
        if size < 0 or size > end - after or count < 0:
            return 0, BAD_LENGTH
    if count > end - after:
        if not empty:
            return 0, BAD_LENGTH
        if count > end - after + EMPTY_ELEMENTS:
            return 0, TOO_LARGE
    return count, after


@inlined
def _read_scalar(data: Array, at: int, end: int, kind: int, number: int) -> tuple[Number, Number, Number]:
    """The value, its length if it has one, and the position after it or a flaw. `data` is a pointer."""
    nothing = np.int64(0)
    if kind == DOUBLE:
        if end - at < 8:
            return nothing, nothing, np.int64(CUT_SHORT)
        return np.int64(word_at(address(data) + at)), nothing, at + 8
    if kind == FLOAT:
        if end - at < 4:
            return nothing, nothing, np.int64(CUT_SHORT)
        return np.int64(half_at(address(data) + at)), nothing, at + 4
    if kind == BOOLEAN:
        if at >= end:
            return nothing, nothing, np.int64(CUT_SHORT)
        value = np.int64(data[at])
        return value, nothing, at + 1 if value <= 1 else np.int64(BAD_BOOLEAN)
    if kind == FIXED:
        return at, number, at + number if number <= end - at else np.int64(CUT_SHORT)
    if kind == NULL:
        return nothing, nothing, at
    value, after = read_varint(data, at, end)
    if after < 0:
        return nothing, nothing, np.int64(CUT_SHORT) if end - at < 10 else np.int64(BAD_NUMBER)
    if kind in (STRING, BYTES):
        if value < 0 or value > end - after:
            return nothing, nothing, np.int64(BAD_LENGTH)
        if number and value > number:
            return nothing, nothing, np.int64(BAD_NUMBER)
        if kind == STRING and not is_ascii(data, after, after + value) and not is_utf8(data, after, after + value):
            return nothing, nothing, np.int64(BAD_TEXT)
        return after, value, after + value
    if kind == INT and (value < -_INT or value >= _INT):
        return nothing, nothing, np.int64(BAD_NUMBER)
    if kind == ENUM and (value < 0 or value >= number):
        return nothing, nothing, np.int64(BAD_SYMBOL)
    return value, nothing, after


@compiled
def skip_value(
    data: Array, at: int, end: int, kind: int, types: Array, links: Array, stack: Array, budget: int
) -> tuple[int, int]:
    """The position after a value of a type, or a flaw, and what is left of the budget of steps.

    `stack` is room for two numbers a level.
    """
    depth = 0
    while True:
        op = types[kind * WIDTH + KIND]
        first = types[kind * WIDTH + LINK]
        budget -= types[kind * WIDTH + COST]
        if budget < 0:
            return COSTLY, budget
        opened = False
        if op == UNION:
            branch, after = read_varint(data, at, end)
            if after < 0:
                return CUT_SHORT, budget
            if branch < 0 or branch >= types[kind * WIDTH + NUMBER]:
                return BAD_BRANCH, budget
            at = after
            kind = links[first + branch]
            continue
        if op in (RECORD, ARRAY, MAP):
            if types[kind * WIDTH + SMALLEST]:
                if depth == MAX_DEPTH:
                    return DEEP, budget
                stack[2 * depth] = kind
                stack[2 * depth + 1] = 0
                depth += 1
                opened = True
        else:
            _, _, at = _read_scalar(data, at, end, op, types[kind * WIDTH + NUMBER])
            if at < 0:
                return at, budget
        while depth:
            parent = stack[2 * depth - 2]
            left = stack[2 * depth - 1]
            op = types[parent * WIDTH + KIND]
            first = types[parent * WIDTH + LINK]
            if op == RECORD:
                if left < types[parent * WIDTH + NUMBER]:
                    stack[2 * depth - 1] = left + 1
                    kind = links[first + left]
                    break
                depth -= 1
                opened = False
                continue
            kind = links[first]
            if left == 0:
                empty = op == ARRAY and types[kind * WIDTH + SMALLEST] == 0
                left, at = _read_block(data, at, end, empty)
                if at < 0:
                    return at, budget
                if left == 0:
                    depth -= 1
                    opened = False
                    continue
                if empty:
                    budget -= left * types[kind * WIDTH + COST]
                    if budget < 0:
                        return COSTLY, budget
                    continue
            stack[2 * depth - 1] = left - 1
            if op == MAP:
                _, _, at = _read_scalar(data, at, end, STRING, 0)
                if at < 0:
                    return at, budget
            break
        if depth == 0 and not opened:
            return at, budget


@compiled
def read_payloads(
    data_array: Array,
    offsets_array: Array,
    front: int,
    skip_array: Array,
    program_array: Array,
    jumps_array: Array,
    types_array: Array,
    links_array: Array,
    nodes_array: Array,
    slots_array: Array,
    valid_array: Array,
    used_array: Array,
    saved_array: Array,
    capacity_array: Array,
    current_array: Array,
    loops_array: Array,
    stack_array: Array,
    flaws_array: Array,
    state_array: Array,
) -> int:
    """Decode the rows from `state[ROW]` on. `current` and `loops` are room for a number of each pool and level.

    `state[SPARE]` is how many steps a row may take beside those for its bytes.
    """
    data, offsets, skip = bytes_of(data_array), longs_of(offsets_array), bytes_of(skip_array)
    program, jumps = longs_of(program_array), longs_of(jumps_array)
    types, links, stack = longs_of(types_array), longs_of(links_array), longs_of(stack_array)
    slots, valid = longs_of(slots_array), bytes_of(valid_array)
    used, saved, capacity = longs_of(used_array), longs_of(saved_array), longs_of(capacity_array)
    current, loops = longs_of(current_array), longs_of(loops_array)
    flaws, state = longs_of(flaws_array), longs_of(state_array)
    pools = used_array.shape[0]
    spare = state[SPARE]
    for row in range(state[ROW], offsets_array.shape[0] - 1):
        state[ROW] = row
        if skip[row]:
            continue
        for pool in range(pools):
            saved[pool] = used[pool]
        current[0] = row
        at, end = offsets[row] + front, offsets[row + 1]
        flaw = 0
        grow = -1
        depth = 0
        place = 0
        step = 0
        allowed = (end - at) * STEPS_PER_BYTE + spare
        budget = allowed
        while True:
            budget -= 1
            line = step * LINE
            op = program[line + STEP]
            number = program[line + FIRST]
            if op <= ENUM:
                value, length, after = _read_scalar(data, at, end, op, number)
                if after < 0:
                    flaw, place = after, program[line + NODE]
                    break
                at = after
                index = current[program[line + STEP_POOL]]
                slots[program[line + STEP_BASE] + index] = value
                if op in (BYTES, STRING, FIXED):
                    slots[program[line + STEP_SECOND] + index] = length
                valid[program[line + STEP_VALID] + index] = 1
                step += 1
            elif op == UNION:
                branch, after = read_varint(data, at, end)
                if after < 0:
                    flaw, place = CUT_SHORT, program[line + NODE]
                    break
                if branch < 0 or branch >= number:
                    flaw, place = BAD_BRANCH, program[line + NODE]
                    break
                at = after
                step = jumps[program[line + OTHER] + branch]
            elif op == MARK:
                valid[program[line + STEP_VALID] + current[program[line + STEP_POOL]]] = 1
                step += 1
            elif op == JUMP:
                step = number
            elif op == SKIP:
                start = at
                node = program[line + NODE]
                at, budget = skip_value(data, start, end, number, types, links, stack, budget)
                if at < 0:
                    flaw, place, at = at, node, start
                    break
                if node >= 0:
                    index = current[program[line + STEP_POOL]]
                    slots[program[line + STEP_BASE] + index] = start
                    slots[program[line + STEP_SECOND] + index] = at - start
                    valid[program[line + STEP_VALID] + index] = 1
                step += 1
            elif op in (ARRAY, REPEAT):
                # At a list's first step and after each element: the next element, or the end of the list.
                if budget < 0:
                    flaw, place = COSTLY, program[line + NODE]
                    break
                head = line
                own = current[program[line + STEP_POOL]]
                if op == ARRAY:
                    valid[program[line + STEP_VALID] + own] = 1
                    if depth == MAX_LEVELS:
                        flaw, place = DEEP, program[line + NODE]
                        break
                    loops[depth] = 0
                    depth += 1
                else:
                    head = (number - 1) * LINE
                pool = program[head + OTHER] >> 1
                left = loops[depth - 1]
                if left == 0:
                    left, after = _read_block(data, at, end, program[head + OTHER] & 1 == 1)
                    if after < 0:
                        flaw, place = after, program[line + NODE]
                        break
                    at = after
                if left == 0:
                    depth -= 1
                    slots[program[line + STEP_BASE] + own] = used[pool]
                    step = program[head + FIRST]
                else:
                    index = used[pool]
                    if index == capacity[pool]:
                        grow = pool
                        break
                    used[pool] = index + 1
                    current[pool] = index
                    loops[depth - 1] = left - 1
                    step = head // LINE + 1
            else:
                if at != end:
                    flaw = TRAILING
                break
        state[STEPS] += allowed - max(budget, 0)
        if flaw or grow >= 0:
            clear(nodes_array, slots_array, valid_array, used_array, saved_array, row)
        if grow >= 0:
            state[POOL_WANTED] = grow
            return GROW
        if flaw:
            note_flaw(flaws, state, row, flaw, place, at - offsets[row] - front)
    state[ROW] = offsets_array.shape[0] - 1
    return DONE


@compiled
def read_decimals(data: Array, ends: Array, high: Number, low: Number, out: Array, bad: Array) -> None:
    """Big-endian numbers become 128-bit little-endian ones. One that is not below `high`, `low` in size is bad."""
    for i in range(ends.shape[0] - 1):
        start, end = np.int64(ends[i]), np.int64(ends[i + 1])
        negative = end > start and data[start] >= 0x80
        filler = 0xFF if negative else 0
        while end - start > 16 and data[start] == filler:
            start += 1
        upper = np.uint64(0xFFFFFFFFFFFFFFFF) if negative else np.uint64(0)
        lower = upper
        for k in range(start, end):
            upper = upper << np.uint64(8) | lower >> np.uint64(56)
            lower = lower << np.uint64(8) | np.uint64(data[k])
        out[2 * i] = np.int64(lower)
        out[2 * i + 1] = np.int64(upper)
        if negative:
            upper = ~upper
            lower = ~lower + np.uint64(1)
            if lower == 0:
                upper += np.uint64(1)
        large = upper > np.uint64(high) or (upper == np.uint64(high) and lower >= np.uint64(low))
        bad[i] = end - start > 16 or large or upper >> np.uint64(63) != 0
