"""Groups as their coordinators stored them: heads, members and committed offsets; and the claims to shards."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator

import msgspec

SHARDS = 64
"""The number never changes: groups must not move between shards."""

MAX_GROUPS = 100_000
MAX_OFFSETS = 1_000_000
"""The limit of committed offsets of one group."""
MAX_NAME = 1_000
NO_KIND = ""
"""The kind of a group that has only offsets."""


def shard_of(group: str) -> int:
    """The shard that a group belongs to."""
    return zlib.crc32(group.encode(errors="surrogatepass")) % SHARDS


class Committed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int


class StoredGroup(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A group as its coordinator stored it."""

    name: str
    kind: str
    head: bytes
    members: dict[str, bytes]
    offsets: dict[uuid.UUID, dict[int, Committed]]
    changed_ms: int
    """The time of the last change of head or members."""
    count: int
    """The number of committed offsets."""


class Claim(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The right to coordinate a shard. `holder` is an epoch; `number` rises with every claim."""

    holder: int
    number: int


class Groups:
    """The groups of a domain."""

    def __init__(self) -> None:
        self._shards: list[dict[str, StoredGroup]] = [{} for _ in range(SHARDS)]
        self.claims: dict[int, Claim] = {}
        self.last_claim = 0
        self.on_claim: Callable[[int], None] | None = None
        """Called for every shard whose claim has changed. The coordinator sets it; it is not part of the state."""

    def __repr__(self) -> str:
        return f"<Groups: {len(self)}>"

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def __iter__(self) -> Iterator[StoredGroup]:
        for shard in self._shards:
            yield from shard.values()

    def get(self, name: str) -> StoredGroup | None:
        """A group by its name."""
        return self._shards[shard_of(name)].get(name)

    def of_shard(self, shard: int) -> dict[str, StoredGroup]:
        """The groups of a shard by name."""
        return self._shards[shard]

    def release(self, epoch: int) -> None:
        """Remove the claims of a fenced epoch. Its shards have no holder until they are claimed again."""
        for shard in [shard for shard, claim in self.claims.items() if claim.holder == epoch]:
            del self.claims[shard]
            self.changed(shard)

    def changed(self, shard: int) -> None:
        """Notify the listener that a shard's claim has changed."""
        if self.on_claim:
            self.on_claim(shard)

    def holds(self, epoch: int, group: str, number: int) -> bool:
        """Whether a command comes from the current holder of the group's shard."""
        claim = self.claims.get(shard_of(group))
        return claim is not None and claim.holder == epoch and claim.number == number

    def put(self, group: StoredGroup) -> None:
        """Add a group, or replace the one of its name."""
        self._shards[shard_of(group.name)][group.name] = group

    def replace(self, claims: dict[int, Claim], last_claim: int, groups: Iterable[StoredGroup]) -> None:
        """Replace all groups by those of a checkpoint. Notifies the listener of every shard that had or has a claim."""
        before, self.claims, self.last_claim = self.claims, claims, last_claim
        self._shards = [{} for _ in range(SHARDS)]
        for group in groups:
            self.put(group)
        for shard in {*before, *claims}:
            self.changed(shard)
