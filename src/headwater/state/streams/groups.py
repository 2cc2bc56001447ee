"""The part of the state for groups and their committed offsets.

A group belongs to a shard. A broker claims a shard before it coordinates its groups. Every command of a coordinator
carries the number of its claim, so that `apply` refuses what an earlier holder still writes. The state does not know
what a group's head and members mean. The coordinator decides; the state stores the decisions and fences old claims.
"""

from __future__ import annotations

import uuid
import zlib

import msgspec

from headwater.state.commands.groups import ChangeGroup, ClaimShard, CommitOffsets, DropGroup, DropOffsets
from headwater.state.machine import Part
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.domain import StreamsDomain
from headwater.state.streams.stored_groups import (
    MAX_GROUPS,
    MAX_NAME,
    MAX_OFFSETS,
    NO_KIND,
    SHARDS,
    Claim,
    Committed,
    StoredGroup,
    shard_of,
)


def _claim(state: StreamsDomain, epoch: int, command: ClaimShard) -> Result:
    groups = state.groups
    if not epoch or not 0 <= command.shard < SHARDS:
        return Refused(Reason.INVALID, f"shard {command.shard} cannot be claimed")
    groups.last_claim += 1
    groups.claims[command.shard] = Claim(epoch, groups.last_claim)
    state.roll("claim", command.shard, epoch, groups.last_claim)
    groups.changed(command.shard)
    return Done(groups.last_claim)


def _refusal(state: StreamsDomain, epoch: int, claim: int, name: str) -> Refused | None:
    if not state.groups.holds(epoch, name, claim):
        return Refused(Reason.STALE, f"the group {name!r} is coordinated by another process")
    if len(name) > MAX_NAME:
        return Refused(Reason.INVALID, f"a group's name has {len(name)} characters; the limit is {MAX_NAME}")
    return None


def _of(state: StreamsDomain, name: str) -> StoredGroup | None:
    """A group, which is created if it does not exist. `None` if there are too many groups."""
    group = state.groups.get(name)
    if group is None and len(state.groups) < MAX_GROUPS:
        group = StoredGroup(name, NO_KIND, b"", {}, {}, state.clock_ms, 0)
        state.groups.put(group)
    return group


def _change(state: StreamsDomain, epoch: int, command: ChangeGroup) -> Result:
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
    state.roll("group", command.group, len(group.members), zlib.crc32(group.head))
    return Done()


def _drop(state: StreamsDomain, epoch: int, command: DropGroup) -> Result:
    refusal = _refusal(state, epoch, command.claim, command.group)
    if refusal is not None:
        return refusal
    if state.groups.of_shard(shard_of(command.group)).pop(command.group, None) is None:
        return Refused(Reason.UNKNOWN, f"there is no group {command.group!r}")
    state.roll("group-", command.group)
    return Done()


def _commit(state: StreamsDomain, epoch: int, command: CommitOffsets) -> Result:
    refusal = _refusal(state, epoch, command.claim, command.group)
    if refusal is not None:
        return refusal
    if any(len(topic) != 16 or partition < 0 for topic, partition, *_ in command.offsets):
        return Refused(Reason.INVALID, "an offset has an invalid topic id or partition")
    if state.groups.get(command.group) is None and len(state.groups) >= MAX_GROUPS:
        return Refused(Reason.INVALID, f"there are {MAX_GROUPS} groups already")
    if _count_after(state, command) > MAX_OFFSETS:
        return Refused(Reason.INVALID, f"the group {command.group!r} would have over {MAX_OFFSETS} committed offsets")
    group = _of(state, command.group)
    assert group is not None
    digest = state.digest
    for topic, partition, offset, leader_epoch, metadata in command.offsets:
        partitions = group.offsets.setdefault(uuid.UUID(bytes=topic), {})
        group.count += partition not in partitions
        partitions[partition] = Committed(offset, leader_epoch, metadata, state.clock_ms)
        digest = zlib.crc32(b"%d %d" % (partition, offset), digest)
    state.digest = digest
    return Done()


def _count_after(state: StreamsDomain, command: CommitOffsets) -> int:
    """How many offsets a group has after a commit. Offsets that are replaced do not count twice."""
    group = state.groups.get(command.group)
    count = group.count if group is not None else 0
    if count + len(command.offsets) <= MAX_OFFSETS:
        return count + len(command.offsets)  # at most so many: no need to look at each
    known = group.offsets if group is not None else {}
    named = {(topic, partition) for topic, partition, *_ in command.offsets}
    return count + sum(partition not in known.get(uuid.UUID(bytes=topic), ()) for topic, partition in named)


def _drop_offsets(state: StreamsDomain, epoch: int, command: DropOffsets) -> Result:
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
    state.roll("offsets-", command.group, gone)
    return Done(gone)


class GroupsImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """All groups of a domain inside a checkpoint."""

    claims: dict[int, Claim]
    last_claim: int
    groups: list[StoredGroup]


PART: Part[StreamsDomain, GroupsImage] = Part(
    name="groups",
    commands={
        ClaimShard: _claim,
        ChangeGroup: _change,
        DropGroup: _drop,
        CommitOffsets: _commit,
        DropOffsets: _drop_offsets,
    },
    format=1,
    image=GroupsImage,
    pack=lambda state: GroupsImage(dict(state.groups.claims), state.groups.last_claim, list(state.groups)),
    unpack=lambda state, image: state.groups.replace(image.claims, image.last_claim, image.groups),
    empty=lambda: GroupsImage({}, 0, []),
    fenced=lambda state, epoch: state.groups.release(epoch),
)
