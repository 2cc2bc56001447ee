"""Arrays as bare pointers, for compiled loops that call each other for every few bytes.

An array that is passed to a compiled function costs a count of references and a check of each index for a negative one.
A pointer has neither. The loop must stay within the array. The array must be an argument of the function that Python
calls, or Python must keep it: an array that is made in compiled code is freed after its last use, and a pointer is no
use. Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from headwater.native.bytes import Array, Number
from headwater.native.compiling import inlined

_pointer: Any = types.CPointer
_BYTES, _INTS, _LONGS = _pointer(types.uint8), _pointer(types.int32), _pointer(types.int64)


def _cast(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    return builder.inttoptr(values[0], context.get_value_type(signature.return_type))


def _pointing(result: Any) -> Any:
    """A function that makes a pointer of an address."""

    @intrinsic
    def point(typing_context: Any, address: Any) -> Any:
        return result(types.int64), _cast

    return point


def _loading(bits: int, result: Any) -> Any:
    """A function that loads a number of the processor from an address."""

    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.load(builder.inttoptr(values[0], ir.IntType(bits).as_pointer()), align=1)

        return result(types.int64), generate

    return load


def _storing(bits: int, stored: Any) -> Any:
    """A function that stores a number of the processor at an address."""

    @intrinsic
    def store(typing_context: Any, address: Any, number: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            builder.store(values[1], builder.inttoptr(values[0], ir.IntType(bits).as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, stored), generate

    return store


@intrinsic
def _copying(typing_context: Any, source: Any, target: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.IntType(8).as_pointer()
        source, target = builder.inttoptr(values[0], kind), builder.inttoptr(values[1], kind)
        cgutils.raw_memcpy(builder, target, source, values[2], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _counting(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.cttz(values[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), generate


@intrinsic
def _addressing(typing_context: Any, pointer: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.ptrtoint(values[0], ir.IntType(64))

    return types.int64(pointer), generate


bytes_at: Any = _pointing(_BYTES)
ints_at: Any = _pointing(_INTS)
longs_at: Any = _pointing(_LONGS)
word_at: Any = _loading(64, types.uint64)
half_at: Any = _loading(32, types.uint32)
byte_at: Any = _loading(8, types.uint8)
address: Any = _addressing
"""The address of a pointer."""
zeros_below: Any = _counting
"""How many bits of a word are zero below its lowest one; 64 of zero."""
_put_word: Any = _storing(64, types.uint64)
_put_half: Any = _storing(32, types.uint32)
_put_byte: Any = _storing(8, types.uint8)
_copy_long: Any = _copying


@inlined
def copy(source: int, target: int, length: int) -> None:
    """Copy bytes between addresses. A few bytes are copied without a call; the two parts of them may overlap."""
    if length > 16:
        _copy_long(source, target, length)
    elif length >= 8:
        first, last = word_at(source), word_at(source + length - 8)
        _put_word(target, first)
        _put_word(target + length - 8, last)
    elif length >= 4:
        front, back = half_at(source), half_at(source + length - 4)
        _put_half(target, front)
        _put_half(target + length - 4, back)
    else:
        for at in range(length):
            _put_byte(target + at, byte_at(source + at))


@inlined
def is_same(one: int, other: int, size: int) -> bool:
    """Whether so many bytes at two addresses are the same."""
    if size >= 8:
        last = size - 8
        if word_at(one + last) != word_at(other + last):
            return False
        for at in range(0, last, 8):  # noqa: SIM110 - a generator is not compiled
            if word_at(one + at) != word_at(other + at):
                return False
        return True
    if size >= 4:
        last = size - 4
        return bool(half_at(one) == half_at(other) and half_at(one + last) == half_at(other + last))
    for at in range(size):  # noqa: SIM110 - a generator is not compiled
        if byte_at(one + at) != byte_at(other + at):
            return False
    return True


@inlined
def address_of(array: Array) -> Number:
    """Where an array is that outlives the caller."""
    return np.int64(array.ctypes.data)


@inlined
def bytes_of(array: Array) -> Any:
    """The bytes of an array that outlives the caller."""
    return bytes_at(np.int64(array.ctypes.data))


@inlined
def ints_of(array: Array) -> Any:
    """The numbers of 32 bits of an array that outlives the caller."""
    return ints_at(np.int64(array.ctypes.data))


@inlined
def longs_of(array: Array) -> Any:
    """The numbers of an array that outlives the caller."""
    return longs_at(np.int64(array.ctypes.data))
