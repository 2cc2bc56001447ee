"""What all loops that decode payloads share: where values go, and how the loop goes back from a bad row.

A value of a schema has a node; a row of `nodes` describes it. The values of a node are in slots of 64 bits: a number,
the borders of text in the payloads, or where a list ends. Nodes whose values are counted together share a pool: pool 0
has a value for every row, and every list has a pool for its elements. A struct's fields are in the pool of the struct,
at its index, so that a null needs no slot to be written.
"""

from __future__ import annotations

import numpy as np

from headwater.native.bytes import Array
from headwater.native.compiling import compiled, inlined
from headwater.native.pointers import (
    address,
    address_of,
    byte_at,
    copy,
    half_at,
    ints_of,
    longs_of,
    word_at,
)

OP, POOL, BASE, SECOND, VALID, INNER, CHILD, NEXT = range(8)
"""Columns of `nodes`: the format's own kind of the node; its pool; where its slots, its second slots and its marks of
values begin; the pool of its elements; its first child; the next child of its parent. -1 stands for none."""
OWN = 8
"""The first column that belongs to a format."""

DONE, GROW = range(2)
"""Why a loop stopped: all rows are decoded, or the pool `state[POOL_WANTED]` must grow."""

ROW, POOL_WANTED, LATE, FLAWED, SPARE, STEPS = range(6)
"""Numbers in `state`: the row where the loop continues, the pool that must grow, how many numbers are `late`, how many
rows are in `flaws`, how many steps a row may take beside those for its bytes, and how many steps were taken."""
STATE_NUMBERS = 6

STEPS_PER_BYTE = 32
SPARE_STEPS = 256
"""A row may take so many steps for each byte of its payload, and so many beyond that and the size of the schema. A row
that would take more is bad, so that a short payload cannot stop the loop for long."""

FLAW_ROW, FLAW_CODE, FLAW_NODE, FLAW_AT = range(4)
"""Columns of `flaws`: the row, what is wrong with it, the node or -1, and the position in the payload."""
FLAW_NUMBERS = 4

SLOTS_PER_BYTE = 16
SPARE_SLOTS = 1 << 20
"""The elements of lists may have so many slots for each byte of the payloads, and so many beyond that."""
_HIGH_BITS = np.uint64(0x8080808080808080)


@compiled
def clear(nodes: Array, slots: Array, valid: Array, used: Array, saved: Array, row: int) -> None:
    """Forget what a row has written, also the elements of its lists."""
    for node in range(nodes.shape[0]):
        pool = nodes[node, POOL]
        low, high = row, row + 1
        if pool:
            low, high = saved[pool], used[pool]
        mark = nodes[node, VALID]
        base, second = nodes[node, BASE], nodes[node, SECOND]
        for i in range(low, high):
            valid[mark + i] = 0
            if base >= 0:
                slots[base + i] = 0
            if second >= 0:
                slots[second + i] = 0
    for pool in range(used.shape[0]):
        used[pool] = saved[pool]


@inlined
def note_flaw(flaws: Array, state: Array, row: int, code: int, node: int, at: int) -> None:
    """Note what is wrong with a row. Both arrays are pointers."""
    line = FLAW_NUMBERS * state[FLAWED]
    flaws[line + FLAW_ROW] = row
    flaws[line + FLAW_CODE] = code
    flaws[line + FLAW_NODE] = node
    flaws[line + FLAW_AT] = at
    state[FLAWED] += 1


@inlined
def is_ascii(data: Array, at: int, end: int) -> bool:
    """Whether no byte has its high bit set. `data` is a pointer; many bytes are looked at at once."""
    start, length = address(data) + at, end - at
    if length >= 8:
        last = start + length - 8
        seen = word_at(last)
        while start < last:
            seen |= word_at(start)
            start += 8
        return bool(seen & _HIGH_BITS == 0)
    if length >= 4:
        return bool((half_at(start) | half_at(start + length - 4)) & np.uint32(0x80808080) == 0)
    rest = np.uint8(0)
    for i in range(length):
        rest |= byte_at(start + i)
    return bool(rest < 0x80)


@compiled
def total_length(lengths_array: Array) -> int:
    """The sum of lengths; those of strings with escapes are negative."""
    lengths = longs_of(lengths_array)
    total = 0
    for i in range(lengths_array.shape[0]):
        total += abs(lengths[i])
    return total


@compiled
def gather(data: Array, starts_array: Array, lengths_array: Array, ends: Array, target: Array) -> int:
    """Copy texts from the payloads, one after the other; `ends[i + 1]` is where text i ends. Returns the last end."""
    source, to = address_of(data), address_of(target)
    starts, lengths, borders = longs_of(starts_array), longs_of(lengths_array), ints_of(ends)
    at = 0
    borders[0] = 0
    for i in range(starts_array.shape[0]):
        length = lengths[i]
        copy(source + starts[i], to + at, length)
        at += length
        borders[i + 1] = at
    return at


@compiled
def run_up(numbers_array: Array, ends_array: Array) -> None:
    """Where lists end: a list without an end of its own has that of the list before it."""
    numbers, ends = longs_of(numbers_array), ints_of(ends_array)
    last = np.int64(0)
    ends[0] = 0
    for i in range(numbers_array.shape[0]):
        last = max(last, numbers[i])
        ends[i + 1] = last
