"""The compiled loop from JSON texts to slots. Importing this module imports numba."""

from __future__ import annotations

import numpy as np

from headwater.native.bytes import Array, is_utf8
from headwater.native.compiling import compiled, inlined
from headwater.native.pointers import address, bytes_of, is_same, longs_of
from headwater.schemas.decoding.kernels.json_values import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    COSTLY,
    CUT_SHORT,
    DEEP,
    DUPLICATE,
    FITS,
    INEXACT,
    LOWER_F,
    LOWER_N,
    LOWER_T,
    MINUS,
    MISFIT,
    NEGATIVE,
    NOT_UTF8,
    OPEN_LIST,
    OPEN_OBJECT,
    POWER,
    QUOTE,
    RANGE,
    SYNTAX,
    TRAILING,
    UNKNOWN,
    VALUE,
    WHOLE,
    read_number,
    read_string,
    skip_literal,
    skip_space,
    skip_value,
    unescape,
)
from headwater.schemas.decoding.kernels.slots import (
    BASE,
    CHILD,
    DONE,
    GROW,
    INNER,
    LATE,
    NEXT,
    OP,
    OWN,
    POOL_WANTED,
    ROW,
    SECOND,
    SPARE,
    STEPS,
    STEPS_PER_BYTE,
    VALID,
    clear,
    is_ascii,
    note_flaw,
)

STRUCT, MAP, LIST, BOOLEAN, INT, LONG, DOUBLE, DIGITS, REAL, STRING, TEXT, NOTHING = range(12)
"""Kinds of nodes. DIGITS is a whole number as text, REAL any number as text, TEXT any value as it is written. NOTHING
takes null and what is empty."""

VARIANT, NAME, NAME_SIZE, PARENT, IS_PLAIN = range(OWN, OWN + 5)
"""The next node of the same name and another kind; where the name is in `names`, how long it is; the struct; 1 if the
name needs no escapes."""
COLUMNS = OWN + 5

MAX_LEVELS = 64
"""How deeply values with columns may be nested."""

LATE_NUMBERS = 5
"""The numbers of a late number: node, index, where its text begins, how long it is, and the row."""

_EXACT = 1 << 53
_INT = 1 << 31
_LONG = (1 << 63) - 1
_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_TENS = np.array([10.0**power for power in range(23)])


@compiled
def hash_name(data: Array, at: int, end: int, parent: int) -> int:
    """The hash of a name in a struct, for the table of names."""
    value = _OFFSET ^ parent
    for i in range(at, end):
        value = ((value ^ int(data[i])) * _PRIME) & _MASK
    return value ^ value >> 15


@inlined
def _same(data: Array, at: int, size: int, names: Array, nodes: Array, node: int) -> bool:
    if nodes[node * COLUMNS + NAME_SIZE] != size:
        return False
    return is_same(address(data) + at, address(names) + nodes[node * COLUMNS + NAME], size)


@inlined
def _after_name(data: Array, at: int, end: int, names: Array, nodes: Array, node: int) -> int:
    """The position after the quote, if the name of a field begins here and needs no escapes; else -1."""
    if node < 0 or nodes[node * COLUMNS + IS_PLAIN] != 1:
        return -1
    size: int = nodes[node * COLUMNS + NAME_SIZE]
    if end - at <= size or data[at + size] != QUOTE or not _same(data, at, size, names, nodes, node):
        return -1
    return at + size + 1


@compiled
def find_field(
    data: Array, at: int, end: int, parent: int, expected: int, nodes: Array, names: Array, table: Array, mask: int
) -> tuple[int, int]:
    """The field of a struct with a name, or -1, and how many names were looked at.

    `expected` is the field after the last one. Names may be chosen so that many have one place in the table.
    """
    size = end - at
    if expected >= 0 and _same(data, at, size, names, nodes, expected):
        return expected, 0
    looks = 0
    place = hash_name(data, at, end, parent) & mask
    while table[place] >= 0:
        node = table[place]
        if nodes[node * COLUMNS + PARENT] == parent and _same(data, at, size, names, nodes, node):
            return int(node), looks
        place = (place + 1) & mask
        looks += 1
    return -1, looks


@inlined
def _variant(nodes: Array, node: int, first: int, second: int) -> int:
    """The node of a name for one of two kinds, or for any text; -1 if there is none."""
    return node if nodes[node * COLUMNS + OP] == first else _other_variant(nodes, node, first, second)


@compiled
def _other_variant(nodes: Array, node: int, first: int, second: int) -> int:
    text = -1
    other = -1
    while node >= 0:
        op = nodes[node * COLUMNS + OP]
        if op == first:
            return node
        if op == second and other < 0:
            other = node
        if op == TEXT:
            text = node
        node = nodes[node * COLUMNS + VARIANT]
    return other if other >= 0 else text


@compiled
def _number(
    nodes: Array, node: int, index: int, found: Array, slots: Array, late: Array, state: Array, start: int, end: int
) -> tuple[int, int]:
    """Put a number into the best node of a name; gives that node and 0, or -1 and the flaw."""
    flaw = MISFIT
    text = -1
    rounded = -1
    value = found[VALUE]
    while node >= 0:
        op = nodes[node * COLUMNS + OP]
        base = nodes[node * COLUMNS + BASE] + index
        if (op in (LONG, INT)) and found[WHOLE]:
            if found[FITS] and (op == LONG or -_INT <= value < _INT):
                slots[base] = value
                return node, 0
            flaw = RANGE
        elif op in (LONG, INT):
            rounded = node
        elif op == DOUBLE:
            exact = found[FITS] and -_EXACT <= value <= _EXACT
            if found[WHOLE] and not exact:
                flaw = INEXACT
            elif exact and value == 0:
                slots[base] = np.int64(-_LONG - 1) if found[NEGATIVE] and not found[WHOLE] else 0
                return node, 0
            elif exact and -22 <= found[POWER] <= 22:
                tens = _TENS[abs(found[POWER])]
                real = float(value) / tens if found[POWER] < 0 else float(value) * tens
                slots[base] = np.float64(real).view(np.int64)
                return node, 0
            else:
                at = state[LATE]
                late[LATE_NUMBERS * at + 0] = node
                late[LATE_NUMBERS * at + 1] = index
                late[LATE_NUMBERS * at + 2] = start
                late[LATE_NUMBERS * at + 3] = end - start
                late[LATE_NUMBERS * at + 4] = state[ROW]
                state[LATE] = at + 1
                return node, 0
        elif op == REAL or (op == DIGITS and found[WHOLE]):
            slots[base] = start
            slots[nodes[node * COLUMNS + SECOND] + index] = end - start
            return node, 0
        elif op == TEXT:
            text = node
        node = nodes[node * COLUMNS + VARIANT]
    if rounded >= 0 and found[FITS] and value != 0:  # such as 1.0, where there is no column for 1.5
        power = found[POWER]
        while power < 0 and value % 10 == 0:
            value //= 10
            power += 1
        if power == 0 and (nodes[rounded * COLUMNS + OP] == LONG or -_INT <= value < _INT):
            slots[nodes[rounded * COLUMNS + BASE] + index] = value
            return rounded, 0
    if text >= 0:
        slots[nodes[text * COLUMNS + BASE] + index] = start
        slots[nodes[text * COLUMNS + SECOND] + index] = end - start
        return text, 0
    return -1, flaw


@compiled
def read_texts(
    data_array: Array,
    offsets_array: Array,
    front: int,
    skip_array: Array,
    strict: bool,
    nodes_array: Array,
    names_array: Array,
    table_array: Array,
    slots_array: Array,
    valid_array: Array,
    used_array: Array,
    saved_array: Array,
    capacity_array: Array,
    late_array: Array,
    flaws_array: Array,
    scratch_array: Array,
    kinds_array: Array,
    found_array: Array,
    stack_array: Array,
    state_array: Array,
) -> int:
    """Decode the rows from `state[ROW]` on. Node 0 is the root. With `strict`, a field without a node is a flaw.

    Most steps read a byte. Looking for names among others does not: a row may look at so many names as its bytes allow,
    and at `state[SPARE]` more.
    """
    data, offsets, skip = bytes_of(data_array), longs_of(offsets_array), bytes_of(skip_array)
    nodes, names, table = longs_of(nodes_array), bytes_of(names_array), longs_of(table_array)
    slots, valid = longs_of(slots_array), bytes_of(valid_array)
    used, saved, capacity = longs_of(used_array), longs_of(saved_array), longs_of(capacity_array)
    late, flaws, state = longs_of(late_array), longs_of(flaws_array), longs_of(state_array)
    scratch, kinds = bytes_of(scratch_array), bytes_of(kinds_array)
    found, stack = longs_of(found_array), longs_of(stack_array)  # of each level the node, the index, the last field
    pools = used_array.shape[0]
    spare = state[SPARE]
    mask = table_array.shape[0] - 1
    for row in range(state[ROW], offsets_array.shape[0] - 1):
        state[ROW] = row
        if skip[row]:
            continue
        for pool in range(pools):
            saved[pool] = used[pool]
        late_before = state[LATE]
        at, end = offsets[row] + front, offsets[row + 1]
        allowed = (end - at) * STEPS_PER_BYTE + spare
        budget = allowed
        flaw = 0
        grow = -1
        if not is_ascii(data, at, end) and not is_utf8(data, at, end):
            flaw = NOT_UTF8
        if end - at >= 3 and data[at] == 0xEF and data[at + 1] == 0xBB and data[at + 2] == 0xBF:
            at += 3  # the byte order mark
        depth = 0
        node = 0
        index = row
        place = 0
        while flaw == 0:
            at = skip_space(data, at, end)
            if at >= end:
                flaw = CUT_SHORT
                break
            byte = data[at]
            start = at
            taken = -1
            if node < 0:
                at, content = skip_value(data, at, end, kinds, found)
                if strict and content and at >= 0:
                    at = start
                    flaw = UNKNOWN
                    break
            elif byte == LOWER_N:
                at = skip_literal(data, at, end)
                taken = node
            elif byte in (OPEN_OBJECT, OPEN_LIST):
                wanted = STRUCT if byte == OPEN_OBJECT else LIST
                taken = _variant(nodes, node, wanted, MAP if byte == OPEN_OBJECT else LIST)
                if taken >= 0 and nodes[taken * COLUMNS + OP] == TEXT:
                    at, _ = skip_value(data, at, end, kinds, found)
                    slots[nodes[taken * COLUMNS + BASE] + index] = start
                    slots[nodes[taken * COLUMNS + SECOND] + index] = at - start
                elif taken >= 0:
                    if depth == MAX_LEVELS:
                        flaw = DEEP
                        break
                    stack[3 * depth + 0] = taken
                    stack[3 * depth + 1] = index
                    stack[3 * depth + 2] = -1
                    depth += 1
                    at += 1
                else:
                    at, content = skip_value(data, at, end, kinds, found)
                    if content or at < 0:
                        flaw = at if at < 0 else MISFIT
                        place = node
                        at = start
                        break
                    taken = -2
            elif byte == QUOTE:
                at, escaped = read_string(data, at + 1, end)
                taken = _variant(nodes, node, STRING, STRING)
                if taken >= 0 and at >= 0:
                    if nodes[taken * COLUMNS + OP] == TEXT:
                        slots[nodes[taken * COLUMNS + BASE] + index] = start
                        slots[nodes[taken * COLUMNS + SECOND] + index] = at - start
                    else:
                        size = at - start - 2
                        slots[nodes[taken * COLUMNS + BASE] + index] = start + 1
                        slots[nodes[taken * COLUMNS + SECOND] + index] = -size if escaped else size
            elif byte in (LOWER_T, LOWER_F):
                at = skip_literal(data, at, end)
                taken = _variant(nodes, node, BOOLEAN, BOOLEAN)
                if taken >= 0 and at >= 0:
                    if nodes[taken * COLUMNS + OP] == TEXT:
                        slots[nodes[taken * COLUMNS + BASE] + index] = start
                        slots[nodes[taken * COLUMNS + SECOND] + index] = at - start
                    else:
                        slots[nodes[taken * COLUMNS + BASE] + index] = byte == LOWER_T
            elif byte == MINUS or 0x30 <= byte <= 0x39:
                at = read_number(data, at, end, found)
                if at >= 0:
                    taken, flaw = _number(nodes, node, index, found, slots, late, state, start, at)
                    if flaw:
                        place = node
                        break
            else:
                flaw = SYNTAX
                break
            if at < 0:
                flaw = at
                at = start
                break
            opened = False
            if node >= 0 and taken != -2:
                place = node
                if taken < 0:
                    at = start
                    flaw = MISFIT
                    break
                other = node
                while other >= 0:
                    if valid[nodes[other * COLUMNS + VALID] + index]:
                        flaw = DUPLICATE
                    other = nodes[other * COLUMNS + VARIANT]
                if flaw:
                    break
                if byte != LOWER_N:
                    valid[nodes[taken * COLUMNS + VALID] + index] = 1
                op = nodes[taken * COLUMNS + OP]
                opened = (byte == OPEN_OBJECT and op != TEXT) or (byte == OPEN_LIST and op == LIST)
            # The value is read, or a list or object is opened. Look for the next value.
            node = -2
            while depth:
                at = skip_space(data, at, end)
                if at >= end:
                    flaw = CUT_SHORT
                    break
                parent = stack[3 * depth - 3 + 0]
                op = nodes[parent * COLUMNS + OP]
                byte = data[at]
                close = CLOSE_LIST if op == LIST else CLOSE_OBJECT
                if byte == close:
                    at += 1
                    if op != STRUCT:
                        line = parent * COLUMNS
                        slots[nodes[line + BASE] + stack[3 * depth - 3 + 1]] = used[nodes[line + INNER]]
                    depth -= 1
                    opened = False
                    continue
                if not opened:
                    if byte != COMMA:
                        flaw = SYNTAX
                        break
                    at = skip_space(data, at + 1, end)
                    if at >= end:
                        flaw = CUT_SHORT
                        break
                if op != STRUCT:
                    pool = nodes[parent * COLUMNS + INNER]
                    index = used[pool]
                    if index == capacity[pool]:
                        grow = pool
                        break
                    used[pool] = index + 1
                    node = nodes[parent * COLUMNS + CHILD]
                    if op == LIST:
                        break
                else:
                    index = stack[3 * depth - 3 + 1]
                if data[at] != QUOTE:
                    flaw = SYNTAX
                    break
                start = at + 1
                expected = -1
                if op == STRUCT:
                    expected = stack[3 * depth - 3 + 2]
                    expected = nodes[parent * COLUMNS + CHILD] if expected < 0 else nodes[expected * COLUMNS + NEXT]
                    after = _after_name(data, start, end, names, nodes, expected)
                    if after >= 0 and after < end and data[after] == COLON:  # as nearly always
                        at = after + 1
                        node = expected
                        stack[3 * depth - 3 + 2] = node
                        break
                at, escaped = read_string(data, start, end)
                if at < 0:
                    flaw = at
                    at = start
                    break
                if op == MAP:
                    size = at - 1 - start
                    slots[nodes[node * COLUMNS + BASE] + index] = start
                    slots[nodes[node * COLUMNS + SECOND] + index] = -size if escaped else size
                    valid[nodes[node * COLUMNS + VALID] + index] = 1
                    node = nodes[node * COLUMNS + NEXT]
                else:
                    if escaped:
                        size = unescape(data, start, at - 1, scratch, 0)
                        node, looks = find_field(scratch, 0, size, parent, expected, nodes, names, table, mask)
                    else:
                        node, looks = find_field(data, start, at - 1, parent, expected, nodes, names, table, mask)
                    budget -= looks
                    if budget < 0:
                        flaw, place = COSTLY, parent
                        break
                    if node >= 0:
                        stack[3 * depth - 3 + 2] = node
                    else:
                        place = parent
                at = skip_space(data, at, end)
                if at >= end:
                    flaw = CUT_SHORT
                elif data[at] != COLON:
                    flaw = SYNTAX
                at += 1
                break
            if flaw or grow >= 0:
                break
            if node == -2:
                at = skip_space(data, at, end)
                if at < end:
                    flaw = TRAILING
                break
        state[STEPS] += allowed - max(budget, 0)
        if flaw or grow >= 0:
            clear(nodes_array, slots_array, valid_array, used_array, saved_array, row)
            state[LATE] = late_before
        if grow >= 0:
            state[POOL_WANTED] = grow
            return GROW
        if flaw:
            note_flaw(flaws, state, row, flaw, place, at - offsets[row] - front)
    state[ROW] = offsets_array.shape[0] - 1
    return DONE
