"""The part of the state for groups and their committed offsets.

A group belongs to a shard. A broker claims a shard before it coordinates its groups. Every command of a coordinator
carries the number of its claim, so that `apply` refuses what an earlier holder still writes. The state does not know
what a group's head and members mean. The coordinator decides; the state stores the decisions and fences old claims.
"""

from __future__ import annotations

import uuid
import zlib

import msgspec

from headwater.state.commands.groups import (
    ChangeGroup,
    ClaimShard,
    CommitAlone,
    CommitOffsets,
    DropAlone,
    DropGroup,
    DropOffsets,
)
from headwater.state.machine import Part
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams import offsets
from headwater.state.streams.domain import StreamsDomain
from headwater.state.streams.stored.groups import MAX_GROUPS, MAX_NAME, NO_KIND, SHARDS, Claim, StoredGroup, shard_of


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


def _change(state: StreamsDomain, epoch: int, command: ChangeGroup) -> Result:
    refusal = _refusal(state, epoch, command.claim, command.group)
    if refusal is not None:
        return refusal
    group = offsets.group_named(state, command.group)
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
    return _remove(state, command.group)


def _drop_alone(state: StreamsDomain, epoch: int, command: DropAlone) -> Result:
    group = state.groups.get(command.group)
    if group is not None and group.kind != NO_KIND:
        return Refused(Reason.LEASED, f"the group {command.group!r} has a coordinator, which alone may remove it")
    return _remove(state, command.group)


def _remove(state: StreamsDomain, name: str) -> Result:
    if state.groups.of_shard(shard_of(name)).pop(name, None) is None:
        return Refused(Reason.UNKNOWN, f"there is no group {name!r}")
    state.transactions.drop_group(name)
    state.roll("group-", name)
    return Done()


def _commit(state: StreamsDomain, epoch: int, command: CommitOffsets) -> Result:
    refusal = _refusal(state, epoch, command.claim, command.group)
    if refusal is not None:
        return refusal
    return _commit_checked(state, command)


def _commit_alone(state: StreamsDomain, epoch: int, command: CommitAlone) -> Result:
    group = state.groups.get(command.group)
    if group is not None and group.members:
        return Refused(Reason.LEASED, f"the group {command.group!r} has members, which alone may commit")
    return _commit_checked(state, command)


def _commit_checked(state: StreamsDomain, command: CommitOffsets | CommitAlone) -> Result:
    flaw = offsets.flaw_of(state, command.group, command.offsets)
    if flaw:
        return Refused(Reason.INVALID, flaw)
    found = [
        (uuid.UUID(bytes=topic), partition, offset, leader_epoch, metadata)
        for topic, partition, offset, leader_epoch, metadata in command.offsets
    ]
    offsets.commit(state, command.group, found)
    state.transactions.withdraw(command.group, [(topic, partition) for topic, partition, *_ in found])
    return Done()


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
    state.transactions.withdraw(command.group, [(uuid.UUID(bytes=topic), p) for topic, p in command.offsets])
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
        CommitAlone: _commit_alone,
        DropAlone: _drop_alone,
    },
    format=1,
    image=GroupsImage,
    pack=lambda state: GroupsImage(dict(state.groups.claims), state.groups.last_claim, list(state.groups)),
    unpack=lambda state, image: state.groups.replace(image.claims, image.last_claim, image.groups),
    empty=lambda: GroupsImage({}, 0, []),
    fenced=lambda state, epoch: state.groups.release(epoch),
)
