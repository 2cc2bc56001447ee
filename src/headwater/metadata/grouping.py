"""The part of `apply` that keeps groups and their committed offsets.

A group belongs to a shard. Whoever coordinates a shard claims it first; every command of a coordinator carries the
number of its claim, so that what an earlier holder still writes is refused. What a group's head and members mean is
not known here: the coordinator decides, this fences and keeps.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.metadata.commands import ChangeGroup, ClaimShard, CommitOffsets, DropGroup, DropOffsets
from headwater.metadata.results import Done, Reason, Refused, Result

if TYPE_CHECKING:
    from headwater.metadata.streams import StreamsState

SHARDS = 64
"""A constant: groups must not move between shards."""

MAX_GROUPS = 100_000
MAX_OFFSETS = 1_000_000
"""Committed offsets of one group."""
MAX_NAME = 1_000
NO_KIND = ""
"""The kind of a group that only has offsets."""


def shard_of(group: str) -> int:
    """The shard that a group belongs to."""
    return zlib.crc32(group.encode(errors="surrogatepass")) % SHARDS


class Committed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int


class StoredGroup(msgspec.Struct, array_like=True):
    """A group as its coordinator left it."""

    name: str
    kind: str
    head: bytes
    members: dict[str, bytes]
    offsets: dict[uuid.UUID, dict[int, Committed]]
    changed_ms: int
    """When head or members last changed."""
    count: int
    """How many offsets it has."""


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """Who coordinates a shard. The number rises with every claim."""

    holder: int
    number: int


class GroupsImage(msgspec.Struct, array_like=True):
    """All groups of a domain inside a checkpoint."""

    claims: dict[int, Claim]
    last_claim: int
    groups: list[StoredGroup]


class Groups:
    """The groups of a domain."""

    def __init__(self) -> None:
        self._shards: list[dict[str, StoredGroup]] = [{} for _ in range(SHARDS)]
        self.claims: dict[int, Claim] = {}
        self.last_claim = 0
        self.on_claim: Callable[[int], None] | None = None
        """Told of every shard whose claim has changed; set by the coordinator, no part of the state."""

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
        """An epoch is fenced: nobody holds its shards until they are claimed again."""
        for shard in [shard for shard, claim in self.claims.items() if claim.holder == epoch]:
            del self.claims[shard]
            self.told(shard)

    def told(self, shard: int) -> None:
        """A shard's claim has changed."""
        if self.on_claim:
            self.on_claim(shard)

    def holds(self, epoch: int, group: str, number: int) -> bool:
        """Whether a command comes from the present holder of the group's shard."""
        claim = self.claims.get(shard_of(group))
        return claim is not None and claim.holder == epoch and claim.number == number

    def pack(self) -> GroupsImage:
        return GroupsImage(dict(self.claims), self.last_claim, list(self))

    @classmethod
    def unpack(cls, image: GroupsImage, before: Groups) -> Groups:
        """The groups of a checkpoint; whoever listened to those before it goes on listening."""
        groups = cls()
        groups.on_claim = before.on_claim
        groups.claims, groups.last_claim = dict(image.claims), image.last_claim
        for group in image.groups:
            groups._shards[shard_of(group.name)][group.name] = group
        for shard in {*groups.claims, *before.claims}:
            groups.told(shard)
        return groups


def _claim(state: StreamsState, epoch: int, command: ClaimShard) -> Result:
    groups = state.groups
    if not epoch or not 0 <= command.shard < SHARDS:
        return Refused(Reason.INVALID, f"shard {command.shard} cannot be claimed")
    groups.last_claim += 1
    groups.claims[command.shard] = Claim(epoch, groups.last_claim)
    state._roll("claim", command.shard, epoch, groups.last_claim)
    groups.told(command.shard)
    return Done(groups.last_claim)


def _refusal(state: StreamsState, epoch: int, claim: int, name: str) -> Refused | None:
    if not state.groups.holds(epoch, name, claim):
        return Refused(Reason.STALE, f"the group {name!r} is coordinated by somebody else")
    if len(name) > MAX_NAME:
        return Refused(Reason.INVALID, f"a group's name of {len(name)} characters")
    return None


def _of(state: StreamsState, name: str) -> StoredGroup | None:
    """A group, made if need be; nothing if there are too many."""
    group = state.groups.get(name)
    if group is None and len(state.groups) < MAX_GROUPS:
        group = StoredGroup(name, NO_KIND, b"", {}, {}, state.clock_ms, 0)
        state.groups.of_shard(shard_of(name))[name] = group
    return group


def _change(state: StreamsState, epoch: int, command: ChangeGroup) -> Result:
    refusal = _refusal(state, epoch, command.claim, command.group)
    if refusal is not None:
        return refusal
    group = _of(state, command.group)
    if group is None:
        return Refused(Reason.INVALID, f"there are {MAX_GROUPS} groups already")
    if group.kind != command.kind:
        group.kind, group.head, group.members = command.kind, b"", {}
    if command.head is not None:
        group.head = command.head
    for member in command.drop:
        group.members.pop(member, None)
    group.members.update(command.put)
    group.changed_ms = state.clock_ms
    state._roll("group", command.group, len(group.members), zlib.crc32(group.head))
    return Done()


def _drop(state: StreamsState, epoch: int, command: DropGroup) -> Result:
    refusal = _refusal(state, epoch, command.claim, command.group)
    if refusal is not None:
        return refusal
    if state.groups.of_shard(shard_of(command.group)).pop(command.group, None) is None:
        return Refused(Reason.UNKNOWN, f"there is no group {command.group!r}")
    state._roll("group-", command.group)
    return Done()


def _commit(state: StreamsState, epoch: int, command: CommitOffsets) -> Result:
    refusal = _refusal(state, epoch, command.claim, command.group)
    if refusal is not None:
        return refusal
    if any(len(topic) != 16 or partition < 0 for topic, partition, *_ in command.offsets):
        return Refused(Reason.INVALID, "an offset of no partition")
    group = _of(state, command.group)
    if group is None or group.count + len(command.offsets) > MAX_OFFSETS:
        return Refused(Reason.INVALID, "there are too many groups or committed offsets already")
    digest = state.digest
    for topic, partition, offset, leader_epoch, metadata in command.offsets:
        partitions = group.offsets.setdefault(uuid.UUID(bytes=topic), {})
        group.count += partition not in partitions
        partitions[partition] = Committed(offset, leader_epoch, metadata, state.clock_ms)
        digest = zlib.crc32(b"%d %d" % (partition, offset), digest)
    state.digest = digest
    return Done()


def _drop_offsets(state: StreamsState, epoch: int, command: DropOffsets) -> Result:
    refusal = _refusal(state, epoch, command.claim, command.group)
    if refusal is not None:
        return refusal
    group = state.groups.get(command.group)
    gone = 0
    if group is not None:
        for topic, partition in command.offsets:
            partitions = group.offsets.get(uuid.UUID(bytes=topic), {})
            if partitions.pop(partition, None) is not None:
                gone += 1
                if not partitions:
                    del group.offsets[uuid.UUID(bytes=topic)]
        group.count -= gone
    state._roll("offsets-", command.group, gone)
    return Done(gone)


COMMANDS: dict[type, Callable[[Any, int, Any], Result]] = {
    ClaimShard: _claim,
    ChangeGroup: _change,
    DropGroup: _drop,
    CommitOffsets: _commit,
    DropOffsets: _drop_offsets,
}
