"""The shard of a route in Oxia: the shard whose range contains the route's XXH3 hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import StoreUnavailable

_MASK = (1 << 64) - 1
_SECRET = bytes.fromhex(
    "7240a4a4b7b3671f"  # bytes 24 to 31 of the default secret
    "cb79e64eccc0e578"
    "825ad07dccff7221"
    "b8084674f743248e"  # up to byte 55
)
_MIX = 0x165667919E3779F9


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard and the server that leads it."""

    number: int
    leader: str
    first: int
    last: int
    """The range of hashes includes both `first` and `last`."""


def find_shard(shards: Sequence[Shard], route: str) -> Shard:
    """The shard of a route."""
    hashed = hash_of(route)
    for shard in shards:
        if shard.first <= hashed <= shard.last:
            return shard
    raise StoreUnavailable(f"no shard of Oxia currently holds {route!r}")


def hash_of(route: str) -> int:
    """The lower half of XXH3's 64 bits, for names of 9 to 16 bytes."""
    data = route.encode()
    if not 9 <= len(data) <= 16:
        raise ValueError(f"a route has 9 to 16 bytes, not {len(data)}: {route!r}")
    words = [int.from_bytes(_SECRET[i : i + 8], "little") for i in range(0, 32, 8)]
    low = int.from_bytes(data[:8], "little") ^ words[0] ^ words[1]
    high = int.from_bytes(data[-8:], "little") ^ words[2] ^ words[3]
    product = low * high
    mixed = len(data) + int.from_bytes(low.to_bytes(8, "little"), "big") + high + ((product & _MASK) ^ (product >> 64))
    mixed &= _MASK
    mixed ^= mixed >> 37
    mixed = (mixed * _MIX) & _MASK
    return (mixed ^ (mixed >> 32)) & 0xFFFFFFFF
