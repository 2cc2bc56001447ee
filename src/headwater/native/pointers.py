"""Arrays as bare pointers, for compiled loops that call each other for every few bytes.

An array that is passed to a compiled function costs a count of references and a check of each index for a negative one.
A pointer has neither. The loop must stay within the array. The array must be an argument of the function that Python
calls: an array that is made in compiled code is freed after its last use, and a pointer is no use.
Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from headwater.native.bytes import Array
from headwater.native.compiling import compiled

_pointer: Any = types.CPointer
_BYTES, _LONGS = _pointer(types.uint8), _pointer(types.int64)


def _cast(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    return builder.inttoptr(values[0], context.get_value_type(signature.return_type))


@intrinsic
def _bytes_at(typing_context: Any, address: Any) -> Any:
    """The bytes at an address."""
    return _BYTES(types.uintp), _cast


@intrinsic
def _longs_at(typing_context: Any, address: Any) -> Any:
    """The signed numbers of 64 bits at an address."""
    return _LONGS(types.uintp), _cast


_bytes: Any = _bytes_at
_longs: Any = _longs_at


@compiled
def bytes_of(array: Array) -> Any:
    """The bytes of an array that outlives the caller."""
    return _bytes(array.ctypes.data)


@compiled
def longs_of(array: Array) -> Any:
    """The numbers of an array that outlives the caller."""
    return _longs(array.ctypes.data)
