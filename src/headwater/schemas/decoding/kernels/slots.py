"""What all loops that decode payloads share: where values go, and how the loop goes back from a bad row.

A value of a schema has a node; a row of `nodes` describes it. The values of a node are in slots of 64 bits: a number,
the borders of text in the payloads, or where a list ends. Nodes whose values are counted together share a pool: pool 0
has a value for every row, and every list has a pool for its elements. A struct's fields are in the pool of the struct,
at its index, so that a null needs no slot to be written.
"""

from __future__ import annotations

import numpy as np

from headwater.native.bytes import Array, copy_bytes
from headwater.native.compiling import compiled

OP, POOL, BASE, SECOND, VALID, INNER, CHILD, NEXT = range(8)
"""Columns of `nodes`: the format's own kind of the node; its pool; where its slots, its second slots and its marks of
values begin; the pool of its elements; its first child; the next child of its parent. -1 stands for none."""
OWN = 8
"""The first column that belongs to a format."""

DONE, GROW = range(2)
"""Why a loop stopped: all rows are decoded, or the pool `state[POOL_WANTED]` must grow."""

ROW, POOL_WANTED, LATE = range(3)
"""Numbers in `state`: the row where the loop continues, the pool that must grow, and how many numbers are `late`."""
STATE_NUMBERS = 3

SLOTS_PER_BYTE = 16
SPARE_SLOTS = 1 << 20
"""The elements of lists may have so many slots for each byte of the payloads, and so many beyond that."""


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


@compiled
def is_ascii(data: Array, at: int, end: int) -> bool:
    """Whether no byte has its high bit set. The compiler looks at many bytes at once."""
    seen = np.uint8(0)
    for i in range(np.uint64(at), np.uint64(end)):
        seen |= data[i]
    return bool(seen < 0x80)


@compiled
def gather(data: Array, starts: Array, lengths: Array, ends: Array, target: Array) -> int:
    """Copy texts from the payloads, one after the other; `ends[i + 1]` is where text i ends. Returns the last end."""
    at = 0
    ends[0] = 0
    for i in range(starts.shape[0]):
        copy_bytes(data, starts[i], lengths[i], target, at)
        at += lengths[i]
        ends[i + 1] = at
    return at
