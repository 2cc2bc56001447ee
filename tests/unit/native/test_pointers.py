"""Loops over bare addresses: copies and comparisons of every length, and nothing beyond it."""

import random

import numpy as np

from headwater.native.bytes import Array
from headwater.native.compiling import compiled
from headwater.native.pointers import address_of, copy, is_same, zeros_below

DATA = np.frombuffer(random.Random(1).randbytes(200), dtype=np.uint8)


@compiled
def copied(source: Array, start: int, target: Array, at: int, length: int) -> None:
    copy(address_of(source) + start, address_of(target) + at, length)


@compiled
def same(one: Array, start: int, other: Array, at: int, length: int) -> bool:
    return is_same(address_of(one) + start, address_of(other) + at, length)


@compiled
def zeros(word: int) -> int:
    return int(zeros_below(np.uint64(word)))


def test_copies_of_every_length() -> None:
    for length in range(70):
        for start, at in ((0, 0), (1, 3), (7, 2)):
            target = np.zeros(100, dtype=np.uint8)
            copied(DATA, start, target, at, length)
            wanted = bytes(at) + DATA[start : start + length].tobytes() + bytes(100 - at - length)
            assert target.tobytes() == wanted


def test_comparisons_see_every_byte() -> None:
    for length in range(40):
        other = np.zeros(60, dtype=np.uint8)
        other[5 : 5 + length] = DATA[3 : 3 + length]
        assert same(DATA, 3, other, 5, length)
        for at in range(length):
            other[5 + at] ^= 1
            assert not same(DATA, 3, other, 5, length)
            other[5 + at] ^= 1


def test_zeros_below_the_lowest_bit() -> None:
    assert [zeros(1 << place) for place in range(63)] == list(range(63))
    assert zeros(0) == 64
