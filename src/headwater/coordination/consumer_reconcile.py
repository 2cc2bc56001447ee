"""The way of one member from what it has to what it should have, a step at each heartbeat.

First it gives up what is not its any more and stays at its epoch until it says that it did. Then it moves to the
target's epoch and gets what is free. What others still hold it gets at later heartbeats.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

from headwater.coordination.assignors import EMPTY, Assignment
from headwater.coordination.consumer_members import Member, MemberState

IsFree = Callable[[uuid.UUID, int], bool]
"""Whether no member holds a partition, not even to give it up."""


def reconcile(member: Member, target_epoch: int, owned: Assignment | None, is_free: IsFree) -> Member:
    """The member after its next step; the same one if it cannot take one. `owned` is what it says it has, or `None`."""
    if member.state == MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state == MemberState.UNREVOKED_PARTITIONS:
        if _holds_any(owned, member.revoking):
            return member
        return _step(member, member.epoch + 1, target_epoch, owned, is_free)
    return _step(member, member.epoch, target_epoch, owned, is_free)


def is_within(owned: Assignment | None, assigned: Assignment) -> bool:
    """Whether a member says what it owns and all of it is its."""
    return owned is not None and all(partitions <= assigned.get(t, frozenset()) for t, partitions in owned.items())


def _holds_any(owned: Assignment | None, wanted: Assignment) -> bool:
    """Whether it has any of them. A member that does not say has all it had."""
    return owned is None or any(partitions & wanted.get(t, frozenset()) for t, partitions in owned.items())


def _step(member: Member, epoch: int, target_epoch: int, owned: Assignment | None, is_free: IsFree) -> Member:
    keep: dict[uuid.UUID, frozenset[int]] = {}
    revoke: dict[uuid.UUID, frozenset[int]] = {}
    for topic, partitions in member.assigned.items():
        wanted = partitions & member.target.get(topic, frozenset())
        if wanted:
            keep[topic] = wanted
        if len(wanted) < len(partitions):
            revoke[topic] = partitions - wanted
    if revoke and _holds_any(owned, revoke):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, keep, revoke)
    is_waiting = False
    for topic, partitions in member.target.items():
        missing = partitions - keep.get(topic, frozenset())
        free = frozenset(partition for partition in missing if is_free(topic, partition))
        is_waiting = is_waiting or len(free) < len(missing)
        if free:
            keep[topic] = keep.get(topic, frozenset()) | free
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _moved(member, target_epoch, state, keep, EMPTY)


def _moved(member: Member, epoch: int, state: MemberState, assigned: Assignment, revoking: Assignment) -> Member:
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch if epoch != member.epoch else member.previous_epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
