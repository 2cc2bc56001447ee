"""The compiled loop over the prefixes of payloads. Importing this module imports numba."""

from __future__ import annotations

import numpy as np

from headwater.native.bytes import Array
from headwater.native.compiling import compiled
from headwater.native.pointers import bytes_of, ints_of, longs_of

MAGIC, PREFIX_BYTES, NO_ID = 0, 5, -1


@compiled
def read_ids(data_array: Array, borders_array: Array, ids_array: Array) -> bool:
    """The id in the prefix of each payload, or -1 if it has none. Returns whether all are the same."""
    data, borders, ids = bytes_of(data_array), ints_of(borders_array), longs_of(ids_array)
    rows = ids_array.shape[0]
    same = True
    for row in range(rows):
        at = np.int64(borders[row])
        found = np.int64(NO_ID)
        if np.int64(borders[row + 1]) - at >= PREFIX_BYTES and data[at] == MAGIC:
            found = np.int64(data[at + 1])
            for i in range(2, PREFIX_BYTES):
                found = found << 8 | np.int64(data[at + i])
        ids[row] = found
        same = same and found == ids[0]
    return same
