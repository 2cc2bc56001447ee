"""The compiled loop from Protobuf's wire format to slots. Importing this module imports numba.

A message of a schema, at its place in the shape, has a row in `messages`, and its fields have rows in `entries`, by
number. Fields may come in any order and more than once: the last value of a field counts, elements of lists are added,
and parts of one message are put together. A payload in which this takes more than a second look is odd: Protobuf's own
library writes it anew.

Most steps read a byte. Two kinds do not, and are counted: marking the fields of a message, and looking at the other
members of a oneof. A row with more of them than its size allows is bad.
"""

from __future__ import annotations

import numpy as np

from headwater.native.bytes import Array, Number, is_utf8
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
    VALID,
    clear,
    is_ascii,
    note_flaw,
)

BOOL, INT32, INT64, UINT32, SINT32, SINT64, FIXED32, SFIXED32, FLOAT, FIXED64, DOUBLE, STRING, BYTES = range(13)
MESSAGE, GROUP, TEXT, TEXT_GROUP = range(13, 17)
"""Kinds of fields. Numbers of 64 bits are kept as they are, signed or not. TEXT is a message whose bytes are kept."""

NUMBER, OP, NODE, LIST, ONEOF, INSIDE, TAG, PLAIN = range(8)
ENTRY_BASE, ENTRY_SECOND, ENTRY_VALID, LIST_BASE, LIST_POOL = range(8, 13)
"""Columns of `entries`: the field's number and kind; the node of its values; of its list, or -1; where the other
members of its oneof begin in `members`, or -1; its row in `messages`; its number and wire type as payloads have them;
whether it is one number or text, and in no oneof. The others are those of the node, and the slots and the pool of its
list."""
ENTRY = 13
FIRST, COUNT, MARKS, MARK_COUNT = range(4)
"""Columns of `messages`: where its entries begin, how many they are; where the nodes begin in `marks` that have a value
in every message, and how many they are."""
MESSAGE_WIDTH = 4
COLUMNS = OWN

CUT_SHORT, BAD_NUMBER, BAD_LENGTH, BAD_TAG, BAD_GROUP, BAD_TEXT, DEEP, TOO_LARGE, ODD, COSTLY = range(-1, -11, -1)
FLAWS = {
    CUT_SHORT: "the payload is cut short",
    BAD_NUMBER: "a number has too many bits",
    BAD_LENGTH: "a length goes beyond the payload",
    BAD_TAG: "a field's number or wire type is impossible",
    BAD_GROUP: "a group does not end where it should",
    BAD_TEXT: "a string is not UTF-8",
    DEEP: "the message is nested too deeply",
    TOO_LARGE: "the lists of the payload have too many elements for its size",
    ODD: "the payload has parts of a message in several places",
    COSTLY: "the payload has too many messages for its size",
}

SPARE_MARKS = 1 << 16
"""Marks and looks that a row may take beside those for its bytes: a message in a list may have many fields, and most of
them no value."""
MAX_DEPTH = 100
FRAME = 5
"""The numbers of a level: the message, where it ends, the number of the group or 0, the index, the last entry."""
_VARINT, _LONG, _BYTES, _START, _END, _INT = range(6)
_MAX_NUMBER = (1 << 29) - 1


@inlined
def _read_varint(data: Array, at: int, end: int) -> tuple[Number, Number]:
    """An unsigned number, as 64 signed bits, and the position after it or a flaw. Bits beyond those are dropped."""
    if at >= end:
        return np.int64(0), np.int64(CUT_SHORT)
    byte = np.int64(data[at])
    if byte < 0x80:
        return byte, at + 1
    return _read_long_varint(data, at, end)


@compiled
def _read_long_varint(data: Array, at: int, end: int) -> tuple[Number, Number]:
    """A number of several bytes."""
    value = np.int64(data[at]) & 0x7F
    at += 1
    shift = 7
    while True:
        if at >= end:
            return np.int64(0), np.int64(CUT_SHORT)
        byte = np.int64(data[at])
        at += 1
        if shift == 63 and byte >= 0x80:
            return np.int64(0), np.int64(BAD_NUMBER)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def wire_type(op: int) -> int:
    """The wire type of a kind of field."""
    if op <= SINT64:
        return _VARINT
    if op <= FLOAT:
        return _INT
    if op <= DOUBLE:
        return _LONG
    return _START if op in (GROUP, TEXT_GROUP) else _BYTES


@inlined
def _read_number(data: Array, at: int, end: int, op: int) -> tuple[Number, Number]:
    """The value of a number of a kind, and the position after it or a flaw. `data` is a pointer."""
    if op > FLOAT:
        if end - at < 8:
            return np.int64(0), np.int64(CUT_SHORT)
        return np.int64(word_at(address(data) + at)), at + 8
    if op > SINT64:
        if end - at < 4:
            return np.int64(0), np.int64(CUT_SHORT)
        value = np.int64(half_at(address(data) + at))
        if op == SFIXED32 and value >= 1 << 31:
            value -= 1 << 32
        return value, at + 4
    value, at = _read_varint(data, at, end)
    if op == BOOL:
        value = np.int64(value != 0)
    elif op in (INT32, UINT32, SINT32):
        value &= 0xFFFFFFFF
        if op == SINT32:
            value = (value >> 1) ^ -(value & 1)
        elif op == INT32 and value >= 1 << 31:
            value -= 1 << 32
    elif op == SINT64:
        value = ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
    return value, at


@compiled
def skip_field(data: Array, at: int, end: int, number: int, wire: int, groups: Array) -> int:
    """The position after a field whose tag was read, or a flaw. `groups` is room for a number of each level."""
    depth = 0
    while True:
        if wire == _VARINT:
            _, at = _read_varint(data, at, end)
        elif wire == _LONG:
            at = at + 8 if end - at >= 8 else CUT_SHORT
        elif wire == _INT:
            at = at + 4 if end - at >= 4 else CUT_SHORT
        elif wire == _BYTES:
            size, at = _read_varint(data, at, end)
            if at >= 0:
                at = at + size if 0 <= size <= end - at else BAD_LENGTH
        elif wire == _START:
            if depth == MAX_DEPTH:
                return DEEP
            groups[depth] = number
            depth += 1
        elif wire == _END:
            if depth == 0 or groups[depth - 1] != number:
                return BAD_GROUP
            depth -= 1
        else:
            return BAD_TAG
        if at < 0 or depth == 0:
            return at
        tag, at = _read_varint(data, at, end)
        if at < 0:
            return at
        number, wire = (tag >> 3) & 0x1FFFFFFFFFFFFFFF, tag & 7
        if number == 0 or number > _MAX_NUMBER:
            return BAD_TAG


@compiled
def _find(entries: Array, first: int, count: int, number: int) -> int:
    """The entry of a field number; -1 if there is none."""
    low, high = first, first + count
    while low < high:
        middle = (low + high) >> 1
        if entries[middle * ENTRY + NUMBER] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < first + count and entries[low * ENTRY + NUMBER] == number else -1


@compiled
def _begin(messages: Array, marks: Array, nodes: Array, valid: Array, message: int, index: int) -> None:
    """Mark the fields of a message that have a value even if the payload has none."""
    first = messages[message * MESSAGE_WIDTH + MARKS]
    for i in range(first, first + messages[message * MESSAGE_WIDTH + MARK_COUNT]):
        valid[nodes[marks[i] * COLUMNS + VALID] + index] = 1


@compiled
def read_payloads(
    data_array: Array,
    offsets_array: Array,
    front: int,
    skip_array: Array,
    entries_array: Array,
    messages_array: Array,
    marks_array: Array,
    members_array: Array,
    nodes_array: Array,
    slots_array: Array,
    valid_array: Array,
    used_array: Array,
    saved_array: Array,
    capacity_array: Array,
    stack_array: Array,
    groups_array: Array,
    flaws_array: Array,
    state_array: Array,
) -> int:
    """Decode the rows from `state[ROW]` on. Node 0 and message 0 are the root, whose marks are set.

    `state[SPARE]` is how many steps without bytes a row may take beside those for its bytes.
    """
    data, offsets, skip = bytes_of(data_array), longs_of(offsets_array), bytes_of(skip_array)
    entries, messages = longs_of(entries_array), longs_of(messages_array)
    marks, members = longs_of(marks_array), longs_of(members_array)
    nodes, slots, valid = longs_of(nodes_array), longs_of(slots_array), bytes_of(valid_array)
    used, saved, capacity = longs_of(used_array), longs_of(saved_array), longs_of(capacity_array)
    stack, groups = longs_of(stack_array), longs_of(groups_array)
    flaws, state = longs_of(flaws_array), longs_of(state_array)
    pools = used_array.shape[0]
    spare = state[SPARE]
    for row in range(state[ROW], offsets_array.shape[0] - 1):
        state[ROW] = row
        if skip[row]:
            continue
        for pool in range(pools):
            saved[pool] = used[pool]
        at, end = offsets[row] + front, offsets[row + 1]
        allowed = (end - at) * STEPS_PER_BYTE + spare
        budget = allowed
        flaw = 0
        grow = -1
        place = 0
        depth = 0
        message, group, index, last = 0, 0, row, -1
        first, count = messages[FIRST], messages[COUNT]
        while True:
            if at == end:
                if group:
                    flaw = CUT_SHORT
                    break
                if depth == 0:
                    break
            entry = -1
            packed = False
            tag: Number = np.int64(0)
            ended = at == end
            if not ended:
                tag, after = _read_varint(data, at, end)
                if after < 0:
                    flaw = after
                    break
                at = after
                # Mostly it is the field after the last one, or that one again.
                if last < 0:
                    entry = first if count and entries[first * ENTRY + TAG] == tag else -1
                elif entries[last * ENTRY + TAG] == tag:
                    entry = last
                elif last + 1 < first + count and entries[(last + 1) * ENTRY + TAG] == tag:
                    entry = last + 1
            if entry < 0:
                number, wire = (tag >> 3) & 0x1FFFFFFFFFFFFFFF, tag & 7
                if ended:
                    number, wire = group, _END
                elif number == 0 or number > _MAX_NUMBER:
                    flaw = BAD_TAG
                    break
                elif wire == _END and (group == 0 or number != group):
                    flaw = BAD_GROUP
                    break
                if wire == _END:
                    depth -= 1
                    message, end = stack[depth * FRAME], stack[depth * FRAME + 1]
                    group, index, last = stack[depth * FRAME + 2], stack[depth * FRAME + 3], stack[depth * FRAME + 4]
                    first, count = messages[message * MESSAGE_WIDTH + FIRST], messages[message * MESSAGE_WIDTH + COUNT]
                    continue
                entry = _find(entries, first, count, number)
                if entry >= 0:
                    last = entry
                    packed = (
                        wire == _BYTES and entries[entry * ENTRY + OP] <= DOUBLE and entries[entry * ENTRY + LIST] >= 0
                    )
                if entry < 0 or not (packed or tag == entries[entry * ENTRY + TAG]):
                    after = skip_field(data, at, end, number, wire, groups)
                    if after < 0:
                        flaw = after
                        break
                    at = after
                    continue
            last = entry
            line = entry * ENTRY
            op = entries[line + OP]
            number = entries[line + NUMBER]
            node = entries[line + NODE]
            place = node
            if entries[line + PLAIN]:
                if op <= DOUBLE:
                    value, after = _read_number(data, at, end, op)
                    if after < 0:
                        flaw = after
                        break
                    slots[entries[line + ENTRY_BASE] + index] = value
                else:
                    size, after = _read_varint(data, at, end)
                    if after < 0 or size < 0 or size > end - after:
                        flaw = after if after < 0 else BAD_LENGTH
                        break
                    at = after
                    after = at + size
                    if op == STRING and not is_ascii(data, at, after) and not is_utf8(data, at, after):
                        flaw = BAD_TEXT
                        break
                    slots[entries[line + ENTRY_BASE] + index] = at
                    slots[entries[line + ENTRY_SECOND] + index] = size
                at = after
                valid[entries[line + ENTRY_VALID] + index] = 1
                continue
            stop = end
            if packed or op in (STRING, BYTES, MESSAGE, TEXT):
                size, after = _read_varint(data, at, end)
                if after < 0:
                    flaw = after
                    break
                if size < 0 or size > end - after:
                    flaw = BAD_LENGTH
                    break
                at = after
                stop = at + size
            listed = entries[line + LIST] >= 0
            while not packed or at < stop:
                where = index
                if listed:
                    pool = entries[line + LIST_POOL]
                    where = used[pool]
                    if where == capacity[pool]:
                        grow = pool
                        break
                    used[pool] = where + 1
                    slots[entries[line + LIST_BASE] + index] = where + 1
                elif entries[line + ONEOF] >= 0:
                    member = entries[line + ONEOF]
                    while members[member] >= 0:
                        other = members[member]
                        if other != node and valid[nodes[other * COLUMNS + VALID] + index]:
                            if members[member + 1]:
                                flaw = ODD
                            valid[nodes[other * COLUMNS + VALID] + index] = 0
                        member += 2
                        budget -= 1
                if op <= DOUBLE:
                    value, after = _read_number(data, at, stop, op)
                    if after < 0:
                        flaw = after
                        break
                    at = after
                    slots[entries[line + ENTRY_BASE] + where] = value
                elif op in (STRING, BYTES):
                    if op == STRING and not is_ascii(data, at, stop) and not is_utf8(data, at, stop):
                        flaw = BAD_TEXT
                        break
                    slots[entries[line + ENTRY_BASE] + where] = at
                    slots[entries[line + ENTRY_SECOND] + where] = stop - at
                    at = stop
                elif op in (TEXT, TEXT_GROUP):
                    if not listed and valid[entries[line + ENTRY_VALID] + where]:
                        flaw = ODD
                        break
                    start = at
                    if op == TEXT_GROUP:
                        after = skip_field(data, at, end, number, _START, groups)
                        if after < 0:
                            flaw = after
                            break
                        at = after
                        stop = at - _tag_size(number)
                    else:
                        at = stop
                    slots[entries[line + ENTRY_BASE] + where] = start
                    slots[entries[line + ENTRY_SECOND] + where] = stop - start
                else:
                    if depth == MAX_DEPTH:
                        flaw = DEEP
                        break
                    stack[depth * FRAME] = message
                    stack[depth * FRAME + 1] = end
                    stack[depth * FRAME + 2] = group
                    stack[depth * FRAME + 3] = index
                    stack[depth * FRAME + 4] = last
                    depth += 1
                    message, index, last = entries[line + INSIDE], where, -1
                    first, count = messages[message * MESSAGE_WIDTH + FIRST], messages[message * MESSAGE_WIDTH + COUNT]
                    group = number if op == GROUP else 0
                    end = stop
                    if listed or not valid[entries[line + ENTRY_VALID] + where]:
                        budget -= messages[message * MESSAGE_WIDTH + MARK_COUNT]
                        if budget >= 0:
                            _begin(messages, marks, nodes, valid, message, index)
                if budget < 0:
                    flaw = COSTLY
                    break
                if node >= 0:
                    valid[entries[line + ENTRY_VALID] + where] = 1
                if not packed:
                    break
            if flaw or grow >= 0:
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
def _tag_size(number: int) -> int:
    """How many bytes the tag of a field number has."""
    size = 1
    number = number >> 4
    while number:
        size += 1
        number = number >> 7
    return size
