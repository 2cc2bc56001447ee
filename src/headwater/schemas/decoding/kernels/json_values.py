"""Compiled loops over JSON text: strings, numbers, values that are only checked.

Each function takes the position where something begins and gives the position after it, or a flaw: a negative number.
Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np

from headwater.native.bytes import Array, Number
from headwater.native.compiling import compiled, inlined
from headwater.native.pointers import address, address_of, copy, ints_of, longs_of, word_at, zeros_below

CUT_SHORT, SYNTAX, DEEP, SURROGATE, CONTROL, NO_NUMBER, TRAILING, NOT_UTF8 = range(-1, -9, -1)
DUPLICATE, MISFIT, UNKNOWN, INEXACT, RANGE, TOO_LARGE, COSTLY = range(-9, -16, -1)
FLAWS = {
    CUT_SHORT: "the JSON text is cut short",
    SYNTAX: "this is not JSON",
    DEEP: "the JSON text is nested too deeply",
    SURROGATE: "a string has half of a surrogate pair",
    CONTROL: "a string has a control character that is not escaped, or an unknown escape",
    NO_NUMBER: "this is no number of JSON",
    TRAILING: "there is more after the JSON value",
    NOT_UTF8: "the text is not UTF-8",
    DUPLICATE: "the name occurs twice in an object",
    MISFIT: "the value has another type than the field",
    UNKNOWN: "the schema has no such field",
    INEXACT: "the number cannot be kept exactly",
    RANGE: "the number is out of range",
    TOO_LARGE: "the lists of the payload have too many elements for its size",
    COSTLY: "the names of the payload take too many looks for its size",
}

MAX_DEPTH = 512
"""How deeply values may be nested that have no columns."""

QUOTE, BACKSLASH, COMMA, COLON, MINUS, PLUS, POINT = 0x22, 0x5C, 0x2C, 0x3A, 0x2D, 0x2B, 0x2E
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D
LOWER_T, LOWER_F, LOWER_N = 0x74, 0x66, 0x6E

_ONES, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES, _SPACES = _ONES * np.uint64(QUOTE), _ONES * np.uint64(BACKSLASH), _ONES * np.uint64(0x20)

# What `read_number` finds, in an array: whether the number has neither point nor exponent, whether `VALUE` has all of
# its digits, its digits as a number with the sign, the power of ten, and whether it has a minus.
WHOLE, FITS, VALUE, POWER, NEGATIVE = range(5)
FOUND_NUMBERS = 5


def is_plain(text: bytes) -> bool:
    """Whether a text is written in JSON as it is."""
    return not any(byte < 0x20 or byte in (QUOTE, BACKSLASH) for byte in text)


@inlined
def skip_space(data: Array, at: int, end: int) -> int:
    """The position of the next character that is no white space."""
    while at < end and (data[at] == 0x20 or data[at] == 0x0A or data[at] == 0x0D or data[at] == 0x09):
        at += 1
    return at


@compiled
def _hex(data: Array, at: int, end: int) -> int:
    """The number of four hexadecimal digits, or -1."""
    if end - at < 4:
        return -1
    value = 0
    for i in range(at, at + 4):
        byte = int(data[i])
        if 0x30 <= byte <= 0x39:
            value = value << 4 | (byte - 0x30)
        elif 0x41 <= byte <= 0x46 or 0x61 <= byte <= 0x66:
            value = value << 4 | ((byte | 0x20) - 0x57)
        else:
            return -1
    return value


@inlined
def _ends_of_strings(word: Number) -> Number:
    """The high bit of each of eight bytes that is a quote, a backslash or a control character.

    A byte behind the first such one may be marked wrongly.
    """
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    found = (quotes - _ONES) & ~quotes | (backslashes - _ONES) & ~backslashes | (word - _SPACES) & ~word
    return found & _HIGH_BITS


@compiled
def read_string(data: Array, at: int, end: int) -> tuple[int, bool]:
    """The position after the closing quote of a string that begins before `at`, and whether it has escapes.

    `data` is a pointer.
    """
    escaped = False
    while at < end:
        while end - at >= 8:
            ends = _ends_of_strings(word_at(address(data) + at))
            if ends:
                at += int(zeros_below(ends)) >> 3
                break
            at += 8
        if at >= end:
            break
        byte = data[at]
        if byte == QUOTE:
            return at + 1, escaped
        if byte < 0x20:
            return CONTROL, False
        at += 1
        if byte != BACKSLASH:
            continue
        escaped = True
        if at >= end:
            return CUT_SHORT, False
        byte = data[at]
        at += 1
        if byte == 0x75:  # \u
            unit = _hex(data, at, end)
            at += 4
            if unit < 0:
                return CONTROL, False
            if 0xDC00 <= unit <= 0xDFFF:
                return SURROGATE, False
            if 0xD800 <= unit <= 0xDBFF:
                if end - at < 6 or data[at] != BACKSLASH or data[at + 1] != 0x75:
                    return SURROGATE, False
                low = _hex(data, at + 2, end)
                if low < 0xDC00 or low > 0xDFFF:
                    return SURROGATE, False
                at += 6
        elif not (
            byte in (QUOTE, BACKSLASH)
            or byte == 47
            or byte == 98
            or byte == 102
            or byte == 110
            or byte == 114
            or byte == 116
        ):
            return CONTROL, False
    return CUT_SHORT, False


@compiled
def unescape(data: Array, at: int, end: int, target: Array, to: int) -> int:
    """Copy the text of a string that `read_string` has checked; returns the position after the copy."""
    while at < end:
        byte = data[at]
        at += 1
        if byte != BACKSLASH:
            target[to] = byte
            to += 1
            continue
        byte = data[at]
        at += 1
        if byte == 0x75:
            unit = _hex(data, at, end)
            at += 4
            if 0xD800 <= unit <= 0xDBFF:
                unit = 0x10000 + ((unit - 0xD800) << 10) + (_hex(data, at + 2, end) - 0xDC00)
                at += 6
            if unit < 0x80:
                target[to] = unit
                to += 1
                continue
            if unit < 0x800:
                target[to] = 0xC0 | unit >> 6
                to += 1
            elif unit < 0x10000:
                target[to] = 0xE0 | unit >> 12
                target[to + 1] = 0x80 | (unit >> 6 & 0x3F)
                to += 2
            else:
                target[to] = 0xF0 | unit >> 18
                target[to + 1] = 0x80 | (unit >> 12 & 0x3F)
                target[to + 2] = 0x80 | (unit >> 6 & 0x3F)
                to += 3
            target[to] = 0x80 | (unit & 0x3F)
            to += 1
            continue
        if byte == 0x62:
            byte = np.uint8(0x08)
        elif byte == 0x66:
            byte = np.uint8(0x0C)
        elif byte == 0x6E:
            byte = np.uint8(0x0A)
        elif byte == 0x72:
            byte = np.uint8(0x0D)
        elif byte == 0x74:
            byte = np.uint8(0x09)
        target[to] = byte
        to += 1
    return to


@compiled
def gather_strings(data: Array, starts_array: Array, lengths_array: Array, ends: Array, target: Array) -> int:
    """Like `gather` of `kernels/slots.py`; a string with a negative length has escapes."""
    source, to = address_of(data), address_of(target)
    starts, lengths, borders = longs_of(starts_array), longs_of(lengths_array), ints_of(ends)
    at = 0
    borders[0] = 0
    for i in range(starts_array.shape[0]):
        length = lengths[i]
        if length < 0:
            at = unescape(data, starts[i], starts[i] - length, target, at)
        else:
            copy(source + starts[i], to + at, length)
            at += length
        borders[i + 1] = at
    return at


@compiled
def read_number(data: Array, at: int, end: int, found: Array) -> int:
    """The position after a number; `found` is what it is."""
    negative = data[at] == MINUS
    if negative:
        at += 1
    digits = np.uint64(0)
    count = 0
    power = 0
    first = at
    while at < end and 0x30 <= data[at] <= 0x39:
        if count < 19:
            digits = digits * np.uint64(10) + np.uint64(data[at] - 0x30)
            if digits:
                count += 1
        else:
            count += 1
            power += 1
        at += 1
    if at == first or (data[first] == 0x30 and at - first > 1):
        return NO_NUMBER
    whole = True
    if at < end and data[at] == POINT:
        whole = False
        at += 1
        first = at
        while at < end and 0x30 <= data[at] <= 0x39:
            if count < 19:
                digits = digits * np.uint64(10) + np.uint64(data[at] - 0x30)
                if digits:
                    count += 1
                power -= 1
            else:
                count += 1
            at += 1
        if at == first:
            return NO_NUMBER
    if at < end and (data[at] == 0x65 or data[at] == 0x45):
        whole = False
        at += 1
        down = False
        if at < end and (data[at] == PLUS or data[at] == MINUS):
            down = data[at] == MINUS
            at += 1
        first = at
        exponent = 0
        while at < end and 0x30 <= data[at] <= 0x39:
            if exponent < 100_000:
                exponent = exponent * 10 + int(data[at] - 0x30)
            at += 1
        if at == first:
            return NO_NUMBER
        power += -exponent if down else exponent
    fits = count < 19 or (count == 19 and digits <= np.uint64(0x7FFFFFFFFFFFFFFF))
    least = negative and count == 19 and digits == np.uint64(0x8000000000000000)
    found[WHOLE] = whole
    found[FITS] = fits or least
    found[VALUE] = -np.int64(digits) if negative else np.int64(digits)
    found[POWER] = power
    found[NEGATIVE] = negative
    return at


@compiled
def skip_literal(data: Array, at: int, end: int) -> int:
    """The position after `true`, `false` or `null`."""
    if data[at] == LOWER_T:
        good = end - at >= 4 and data[at + 1] == 0x72 and data[at + 2] == 0x75 and data[at + 3] == 0x65
        return at + 4 if good else SYNTAX
    if data[at] == LOWER_N:
        good = end - at >= 4 and data[at + 1] == 0x75 and data[at + 2] == 0x6C and data[at + 3] == 0x6C
        return at + 4 if good else SYNTAX
    if data[at] == LOWER_F and end - at >= 5 and data[at + 1] == 0x61:
        return at + 5 if data[at + 2] == 0x6C and data[at + 3] == 0x73 and data[at + 4] == 0x65 else SYNTAX
    return SYNTAX


@compiled
def skip_key(data: Array, at: int, end: int) -> int:
    """The position of the value that follows a name in an object."""
    at = skip_space(data, at, end)
    if at >= end:
        return CUT_SHORT
    if data[at] != QUOTE:
        return SYNTAX
    at, _ = read_string(data, at + 1, end)
    if at < 0:
        return at
    at = skip_space(data, at, end)
    if at >= end:
        return CUT_SHORT
    return at + 1 if data[at] == COLON else SYNTAX


@compiled
def skip_value(data: Array, at: int, end: int, kinds: Array, found: Array) -> tuple[int, bool]:
    """The position after a value, and whether the value has any content: nulls and empty lists and objects have none.

    `kinds` is room for `MAX_DEPTH` bytes. `found` is room for `read_number`.
    """
    depth = 0
    content = False
    while True:
        at = skip_space(data, at, end)
        if at >= end:
            return CUT_SHORT, False
        byte = data[at]
        if byte in (OPEN_OBJECT, OPEN_LIST):
            if depth == MAX_DEPTH:
                return DEEP, False
            close = byte + 2
            at = skip_space(data, at + 1, end)
            if at >= end:
                return CUT_SHORT, False
            if data[at] != close:
                kinds[depth] = close
                depth += 1
                if byte == OPEN_OBJECT:
                    at = skip_key(data, at, end)
                    if at < 0:
                        return at, False
                continue
            at += 1
        elif byte == QUOTE:
            content = True
            at, _ = read_string(data, at + 1, end)
        elif byte == MINUS or 0x30 <= byte <= 0x39:
            content = True
            at = read_number(data, at, end, found)
        else:
            if byte != LOWER_N:
                content = True
            at = skip_literal(data, at, end)
        if at < 0:
            return at, False
        while depth:
            at = skip_space(data, at, end)
            if at >= end:
                return CUT_SHORT, False
            byte = data[at]
            at += 1
            if byte == COMMA:
                if kinds[depth - 1] == CLOSE_OBJECT:
                    at = skip_key(data, at, end)
                    if at < 0:
                        return at, False
                break
            if byte != kinds[depth - 1]:
                return SYNTAX, False
            depth -= 1
        else:
            return at, content
