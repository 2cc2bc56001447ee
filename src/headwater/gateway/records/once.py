"""Idempotency keys: what the state keeps of one, and how the first answer is made again of that."""

from __future__ import annotations

import hashlib
import struct
import uuid

from headwater.settings.limits import Limits
from headwater.shares import fits
from headwater.state.commands.streams import Once
from headwater.state.results import Placed
from headwater.state.streams.domain import StreamsDomain
from headwater.state.streams.stored.keys import KEPT_MS, KEY_BYTES, MAX_HASH, KeptAnswer

_NOTE = struct.Struct(">I")
PLACED_BYTES = 30
"""What a partition of a request takes in the answer that is kept, at most."""


def hashed(*parts: bytes) -> bytes:
    """A hash of several parts. Where one ends and the next begins counts."""
    found = hashlib.blake2b(digest_size=MAX_HASH)
    for part in parts:
        found.update(struct.pack(">Q", len(part)))
        found.update(part)
    return found.digest()


def once(principal: str, topic: uuid.UUID, key: str, content: bytes, partitions: int, account: str = "") -> Once:
    """The condition of a request with a key. `content` is a hash of all in the request that matters.

    The key counts for `account`: the principal, or the address of a caller who has not logged in.

    The note is the number of partitions that placed the records: it may have grown when the answer is repeated.
    """
    owner = principal.encode()
    return Once(
        hashed(owner, topic.bytes, key.encode()), content, hashed(account.encode() or owner), _NOTE.pack(partitions)
    )


def partitions_of(note: bytes) -> int:
    """The number of partitions when a key was used first."""
    count: int = _NOTE.unpack(note)[0]
    return count


def keyless_of(condition: Once) -> int:
    """The number that chooses the partition of records without a key. It is the same whenever a request is repeated."""
    return int.from_bytes(condition.key[:4])


def known(state: StreamsDomain, condition: Once) -> KeptAnswer | None:
    """What this process knows of a key. It may have been used although nothing is known here."""
    found = state.keys.get(condition.key)
    return found if found is not None and found.ms + KEPT_MS > state.clock_ms else None


def has_room(state: StreamsDomain, condition: Once, partitions: int, limits: Limits) -> bool:
    """Whether the state has room for one more key of its owner. Keys that have expired go with the next request."""
    keys, size = state.keys, KEY_BYTES + PLACED_BYTES * partitions
    mine = keys.owned_bytes(condition.owner) + size
    if fits(mine, keys.bytes + size, limits.caller_keys_bytes, limits.keys_bytes):
        return True
    oldest = keys.oldest_ms()
    return oldest is not None and oldest + KEPT_MS <= state.clock_ms


def where(answer: KeptAnswer) -> tuple[list[Placed], int]:
    """Where the records of a kept answer are, and the number of partitions then."""
    return answer.placed, partitions_of(answer.note)
