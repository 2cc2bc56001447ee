"""Compiled loops of bulk appends. Importing this module imports numba."""

from __future__ import annotations

import numpy as np

from headwater.native.bytes import Array
from headwater.native.compiling import compiled

_SEED, _M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)
_R = np.uint32(24)


@compiled
def key_partitions(borders: Array, data: Array, valid: Array, partitions: int, keyless: int, found: Array) -> None:
    """Find the partition of each key by the hash of Kafka's default partitioner. Rows without a key get `keyless`."""
    for row in range(len(borders) - 1):
        if not valid[row]:
            found[row] = keyless
            continue
        at, end = borders[row], borders[row + 1]
        h = _SEED ^ np.uint32(end - at)
        while end - at >= 4:
            k = (
                np.uint32(data[at])
                | np.uint32(data[at + 1]) << np.uint32(8)
                | np.uint32(data[at + 2]) << np.uint32(16)
                | np.uint32(data[at + 3]) << np.uint32(24)
            )
            k = np.uint32(k * _M)
            k ^= k >> _R
            h = np.uint32(np.uint32(h * _M) ^ np.uint32(k * _M))
            at += 4
        if end > at:
            for i in range(end - at):
                h ^= np.uint32(data[at + i]) << np.uint32(8 * i)
            h = np.uint32(h * _M)
        h ^= h >> np.uint32(13)
        h = np.uint32(h * _M)
        h ^= h >> np.uint32(15)
        found[row] = np.int64(h & np.uint32(0x7FFFFFFF)) % partitions
