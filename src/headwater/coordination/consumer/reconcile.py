"""The steps of one member from its current partitions to its target, one step at each heartbeat.

First the member gives up the partitions that are not in its target. It stays at its epoch until it has confirmed this.
Then it moves to the target's epoch and gets the free partitions. It gets those that others still hold at later
heartbeats.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

from headwater.coordination.assignors import EMPTY, Assignment
from headwater.coordination.consumer.members import ConsumerMember, MemberState

IsFree = Callable[[uuid.UUID, int], bool]
"""Whether no member holds a partition. A member that is giving up a partition still holds it."""


def reconcile(member: ConsumerMember, target_epoch: int, owned: Assignment | None, is_free: IsFree) -> ConsumerMember:
    """The member after its next step, or unchanged if it must wait. `owned` is what it reports to own, or `None`."""
    if member.state == MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state == MemberState.UNREVOKED_PARTITIONS:
        if _holds_any(owned, member.revoking):
            return member
        return _step(member, member.epoch + 1, target_epoch, owned, is_free)
    return _step(member, member.epoch, target_epoch, owned, is_free)


def is_within(owned: Assignment | None, assigned: Assignment) -> bool:
    """Whether a member reports what it owns, and all of it is assigned to it."""
    return owned is not None and all(partitions <= assigned.get(t, frozenset()) for t, partitions in owned.items())


def _holds_any(owned: Assignment | None, wanted: Assignment) -> bool:
    """Whether a member still owns some of these partitions. A member that reports nothing owns what it had."""
    return owned is None or any(partitions & wanted.get(t, frozenset()) for t, partitions in owned.items())


def _step(
    member: ConsumerMember, epoch: int, target_epoch: int, owned: Assignment | None, is_free: IsFree
) -> ConsumerMember:
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


def _moved(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Assignment, revoking: Assignment
) -> ConsumerMember:
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch if epoch != member.epoch else member.previous_epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
