"""The partition of a record, as Kafka's default partitioner chooses it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from headwater.clock import Chance

_SEED, _M = 0x9747B28C, 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of `org.apache.kafka.common.utils.Utils.murmur2`, signed as in Java."""
    size = len(data)
    h = _SEED ^ size
    whole = size & ~3
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if size != whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a record with a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Sticky:
    """Records without a key go to one partition until its batch is closed; then to another random one."""

    __slots__ = ("_chance", "_current", "_last")

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._current: int | None = None
        self._last: int | None = None

    def __repr__(self) -> str:
        return f"<Sticky, now {self._current}>"

    def choose(self, available: Sequence[int]) -> int:
        """The partition for the next record without a key."""
        if self._current is None:
            others = [p for p in available if p != self._last] or list(available)
            self._current = others[int(self._chance.fraction() * len(others))]
        return self._current

    def closed(self, partition: int) -> None:
        """Note that the batch of a partition is closed."""
        if partition == self._current:
            self._current, self._last = None, partition
