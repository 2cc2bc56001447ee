"""CRC32C in compiled loops: by the processor's own instruction where it has one, else by tables.

The instruction takes eight bytes and three cycles, but a new one can start in every cycle. So three parts of the data
are taken side by side, and their checksums are then combined: a checksum moves over the bytes of a part by a table.

Importing this module imports numba, see `native/bytes.py`.
"""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from headwater.native.bytes import Array, Number
from headwater.native.compiling import compiled

PART = 512
"""The bytes of each of the three parts."""
_POLYNOMIAL = 0x82F63B78


def _one_byte() -> Array:
    """How one byte changes a checksum."""
    table = np.zeros(256, dtype=np.int64)
    for i in range(256):
        crc = i
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table[i] = crc
    return table


def _eight_bytes() -> Array:
    """Tables for eight bytes at a time."""
    tables = np.zeros((8, 256), dtype=np.int64)
    tables[0] = _one_byte()
    for k in range(1, 8):
        tables[k] = tables[k - 1] >> 8 ^ tables[0, tables[k - 1] & 0xFF]
    return tables.astype(np.uint32)


def _over_a_part() -> Array:
    """Tables that move a checksum over PART zero bytes, by each of its four bytes."""
    step = _one_byte()
    moved: Array = np.arange(256, dtype=np.int64)[None, :] << np.array([[0], [8], [16], [24]])
    for _ in range(PART):
        moved = moved >> 8 ^ step[moved & 0xFF]
    return moved.astype(np.uint32)


_CRC = _eight_bytes()
_OVER = _over_a_part()


def _instructions() -> tuple[str, str] | None:
    """The processor's instructions for eight bytes and for one; None if it has none or numba must not use them."""
    if os.environ.get("NUMBA_CPU_NAME") or os.environ.get("NUMBA_CPU_FEATURES"):
        return None
    features = binding.get_host_cpu_features()
    if platform.machine() == "x86_64" and features.get("sse4.2"):
        return "llvm.x86.sse42.crc32.64.64", "llvm.x86.sse42.crc32.32.8"
    if platform.machine() == "aarch64" and features.get("crc"):
        return "llvm.aarch64.crc32cx", "llvm.aarch64.crc32cb"
    return None


INSTRUCTIONS = _instructions()


def _calling(name: str, loaded: int) -> Any:
    """A function of a checksum and an address, which adds the `loaded` bytes there to the checksum."""
    arm = name.startswith("llvm.aarch64")
    state = ir.IntType(64 if loaded == 8 and not arm else 32)
    taken = ir.IntType(max(8 * loaded, 32) if arm else 8 * loaded)

    @intrinsic
    def call(typing_context: Any, crc: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            pointer = builder.inttoptr(values[1], ir.IntType(8 * loaded).as_pointer())
            data = builder.load(pointer, align=1)
            if data.type != taken:
                data = builder.zext(data, taken)
            function = builder.module.globals.get(name) or ir.Function(
                builder.module, ir.FunctionType(state, [state, taken]), name
            )
            given = builder.zext(values[0], state) if state.width > 32 else values[0]
            result = builder.call(function, [given, data])
            return builder.trunc(result, ir.IntType(32)) if state.width > 32 else result

        return types.uint32(types.uint32, types.int64), generate

    return call


if INSTRUCTIONS is not None:
    _word: Any = _calling(INSTRUCTIONS[0], 8)
    _byte: Any = _calling(INSTRUCTIONS[1], 1)


@compiled
def by_tables(data: Array, start: int, end: int) -> Number:
    """CRC32C of bytes, on any processor."""
    crc = np.uint32(0xFFFFFFFF)
    at, whole = np.uint64(start), np.uint64(start + ((end - start) & ~7))
    while at < whole:
        low = (
            np.uint32(data[at])
            | np.uint32(data[at + np.uint64(1)]) << np.uint32(8)
            | np.uint32(data[at + np.uint64(2)]) << np.uint32(16)
            | np.uint32(data[at + np.uint64(3)]) << np.uint32(24)
        )
        low = np.uint32(crc ^ low)
        crc = np.uint32(
            _CRC[7, np.uint8(low)]
            ^ _CRC[6, np.uint8(low >> np.uint32(8))]
            ^ _CRC[5, np.uint8(low >> np.uint32(16))]
            ^ _CRC[4, np.uint8(low >> np.uint32(24))]
            ^ _CRC[3, data[at + np.uint64(4)]]
            ^ _CRC[2, data[at + np.uint64(5)]]
            ^ _CRC[1, data[at + np.uint64(6)]]
            ^ _CRC[0, data[at + np.uint64(7)]]
        )
        at += np.uint64(8)
    while at < np.uint64(end):
        crc = np.uint32(_CRC[0, np.uint8(crc) ^ data[at]] ^ (crc >> np.uint32(8)))
        at += np.uint64(1)
    return np.int64(crc) ^ 0xFFFFFFFF


@compiled
def _moved(crc: Number) -> Number:
    """A checksum, moved over a part."""
    return np.uint32(
        _OVER[0, np.uint8(crc)]
        ^ _OVER[1, np.uint8(crc >> np.uint32(8))]
        ^ _OVER[2, np.uint8(crc >> np.uint32(16))]
        ^ _OVER[3, np.uint8(crc >> np.uint32(24))]
    )


@compiled
def by_instructions(data: Array, start: int, end: int) -> Number:
    """CRC32C of bytes, which are next to each other in memory."""
    base = np.int64(data.ctypes.data)
    at, stop = base + np.int64(start), base + np.int64(end)
    crc = np.uint32(0xFFFFFFFF)
    while stop - at >= 3 * PART:
        second, third = np.uint32(0), np.uint32(0)
        border = at + PART
        while at < border:
            crc = _word(crc, at)
            second = _word(second, at + PART)
            third = _word(third, at + 2 * PART)
            at += 8
        crc = np.uint32(_moved(np.uint32(_moved(crc) ^ second)) ^ third)
        at += 2 * PART
    while stop - at >= 8:
        crc = _word(crc, at)
        at += 8
    while at < stop:
        crc = _byte(crc, at)
        at += 1
    return np.int64(crc) ^ 0xFFFFFFFF


checksum = by_tables if INSTRUCTIONS is None else by_instructions
