"""A KIP-848 consumer group: members report what they want and own, and the group assigns partitions to them.

Three numbers drive the group. The group epoch rises whenever members, subscriptions or their topics change. The
assignment epoch is the group epoch for which targets were last computed. A member epoch is the assignment epoch that
the member has reached. It rises only when the member has given up the partitions that are not in its target, so no
partition ever has two owners.

Changes that follow each other within `consumer.assignment.interval.ms` have one assignment, as in Apache Kafka. Until
it is computed a member that joins is at the present assignment epoch and has no partitions.

This module does no I/O. The caller passes requests and times, and stores `changes()` before it sends an answer.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

import msgspec

from headwater.coordination.assignors import ASSIGNORS, EMPTY, MemberSpec
from headwater.coordination.common import Change, GroupError, Reply, Topics
from headwater.coordination.consumer.members import (
    FORMAT,
    ConsumerMember,
    Head,
    MemberState,
    Wish,
    decode_head,
    decode_member,
    encode_member,
)
from headwater.coordination.consumer.owners import Owners
from headwater.coordination.consumer.reconcile import reconcile
from headwater.coordination.consumer.requests import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    ConsumerGroupSettings,
    Heartbeat,
    HeartbeatAnswer,
    check_heartbeat,
    check_heartbeat_epoch,
    check_present_epoch,
    updated,
)
from headwater.coordination.group import Commit, GroupContext
from headwater.coordination.regex import Resolver

FIRST_EPOCH = 2
"""The group epoch after the first member has joined. It is one less if the member's expression matches no topic yet."""
MIN_COMMIT_VERSION = 9
"""The first version of OffsetCommit that carries a member epoch."""


class ConsumerGroup:
    """One group. `changes()` has all that must survive. Timers start again when the group is loaded."""

    kind: ClassVar[str] = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str, settings: ConsumerGroupSettings) -> None:
        self.group_id = group_id
        self.settings = settings
        self.epoch = 0
        self.assignment_epoch = 0
        self._topics_digest = b""
        self._topics_version: int | None = None
        self._members: dict[str, ConsumerMember] = {}
        self._instances: dict[str, str] = {}
        self._owners = Owners()
        self._resolver = Resolver(settings.max_regexes)
        self._assigned_ms: int | None = None
        """When targets were last computed here. A coordinator that takes the group over computes them at once."""
        self._sessions: dict[str, int] = {}
        self._rebalances: dict[str, int] = {}
        self._unconfirmed: dict[str, tuple[int, int]] = {}
        """By member that has not confirmed its assignment: when to send it again, and the time until the next."""
        self._head_changed = False
        self._changed: set[str] = set()

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.group_id!r}, {self.state}, epoch {self.epoch}, {len(self._members)} members)"

    @classmethod
    def create(cls, name: str, context: GroupContext, wall_ms: int) -> ConsumerGroup:
        """See `Group`."""
        return cls(name, ConsumerGroupSettings.of(context, name))

    @classmethod
    def restore(
        cls, name: str, context: GroupContext, head: bytes, members: Mapping[str, bytes], now_ms: int
    ) -> ConsumerGroup:
        """See `Group`."""
        return cls.load(name, ConsumerGroupSettings.of(context, name), head, members, now_ms)

    @classmethod
    def load(
        cls,
        group_id: str,
        settings: ConsumerGroupSettings,
        head: bytes,
        members: Mapping[str, bytes],
        now_ms: int,
    ) -> ConsumerGroup:
        """The stored group. Every member has its full session time, and its full time to give up partitions."""
        group = cls(group_id, settings)
        stored = decode_head(head)
        group.epoch, group.assignment_epoch = stored.epoch, stored.assignment_epoch
        group._topics_digest = stored.topics_digest
        for member_id, blob in members.items():
            member = decode_member(member_id, blob)
            group._put(member)
            group._sessions[member_id] = now_ms + settings.session_timeout_ms
            group._time_revocation(member, now_ms)
            # The answer with the assignment may be lost with the coordinator before this one.
            group._unconfirmed[member_id] = (now_ms, settings.heartbeat_interval_ms)
        group._changed.clear()
        return group

    # --- what others see ---------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """See `Group`."""
        if not self._members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled(self.assignment_epoch) for member in self._members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        """See `Group`."""
        return not self._members

    @property
    def members(self) -> Mapping[str, ConsumerMember]:
        """See `Group`."""
        return MappingProxyType(self._members)

    @property
    def weight(self) -> int:
        """See `Group`."""
        return sum([member.weight for member in self._members.values()])

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for. If none asks, the first in the settings."""
        votes = Counter(member.assignor for member in self._members.values() if member.assignor is not None)
        return max(self.settings.assignors, key=lambda name: votes[name])

    def subscribed(self, topics: Topics) -> frozenset[str]:
        """See `Group`. Includes the topics that an expression of a member matches now."""
        return frozenset().union(*self._subscriptions(topics).values())

    def is_subscribed(self, topic: str, topics: Topics) -> bool:
        """See `Group`."""
        return topic in self.subscribed(topics)

    def check_commit(self, commit: Commit, now_ms: int) -> None:
        """See `Group`. A member may commit at its current epoch; a caller without an epoch, if the group is empty."""
        if commit.epoch < 0 and not self._members:
            return
        nameless = not commit.member_id and commit.instance_id is None
        if commit.is_transactional and commit.epoch == -1 and nameless:
            return
        member = self._known(commit.member_id)
        if not commit.is_transactional and commit.version < MIN_COMMIT_VERSION:
            raise GroupError(
                "unsupported_version",
                "OffsetCommit version 9 or above must be used by members using the modern group protocol",
            )
        check_present_epoch(member, commit.epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """See `Group`. A fetch that names a member or an epoch must come from a member at its current epoch."""
        if member_id is None and epoch < 0:
            return
        check_present_epoch(self._known(member_id), epoch)

    # --- requests --------------------------------------------------------------------------------------

    def heartbeat(self, request: Heartbeat, topics: Topics, now_ms: int) -> HeartbeatAnswer:
        """Handle a heartbeat: a member joins, stays, changes its subscription or leaves. A refusal changes nothing."""
        check_heartbeat(self.group_id, request, self.settings)
        if request.member_epoch in (LEAVE, LEAVE_STATIC):
            return self._leave(request)
        known, replaced = self._caller(request)
        member = updated(known, request)
        wants_other = (member.topic_names, member.topic_regex) != (known.topic_names, known.topic_regex)
        if member.topic_regex and member.topic_regex != known.topic_regex:
            others = [m for m in self._members.values() if m.member_id not in (member.member_id, replaced)]
            self._resolver.check(member.topic_regex, {m.topic_regex for m in others if m.topic_regex})
        # The request is accepted. From here on nothing is refused.
        if member.wish != known.wish:
            self._topics_version = None
        if replaced is not None:
            self._drop(replaced)
        self._put(member)
        if self.epoch == 0 and not self.subscribed(topics):
            self._bump(FIRST_EPOCH - 1)
        elif wants_other or self.epoch == 0:
            self._bump()
        else:
            self._follow_topics(topics)
        wait_ms = self._wait_ms(now_ms)
        # Consumers refuse partitions of topics that they do not want any more, so such a change waits for nothing.
        if self.epoch > self.assignment_epoch and (wait_ms <= 0 or (wants_other and known.assigned)):
            self._assign(topics)
            self._assigned_ms = now_ms
        member = self._reconcile(member.member_id, request, now_ms)
        self._sessions[member.member_id] = now_ms + self.settings.session_timeout_ms
        return HeartbeatAnswer(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._beat_ms(),
            assignment=member.assigned if self._must_tell(request, known, member, now_ms) else None,
        )

    def _must_tell(self, request: Heartbeat, known: ConsumerMember, member: ConsumerMember, now_ms: int) -> bool:
        """Whether an answer must contain the member's assignment.

        An answer may be lost, and librdkafka repeats a heartbeat that timed out unchanged, not as a full one. So the
        group sends the assignment again if a member does not confirm it within a heartbeat interval, and after twice
        the time each time after that; Kafka does not. A member that has the assignment already ignores the repetition,
        and does not confirm it. A coordinator that takes the group over does not know what members have confirmed.
        """
        if request.topic_partitions == member.assigned:
            self._unconfirmed.pop(member.member_id, None)
        due_ms, pause_ms = self._unconfirmed.get(member.member_id, (None, 0))
        is_overdue = due_ms is not None and due_ms <= now_ms
        is_news = request.is_full or member.assigned != known.assigned
        if (is_news or is_overdue) and request.topic_partitions != member.assigned:
            longer_ms = min(pause_ms * 2, self.settings.session_timeout_ms)
            pause_ms = self.settings.heartbeat_interval_ms if is_news else longer_ms
            self._unconfirmed[member.member_id] = (now_ms + pause_ms, pause_ms)
        return is_news or is_overdue

    def leave(self, leaving: Iterable[tuple[str, str | None]]) -> list[tuple[str, str | None, str]]:
        """Remove members by LeaveGroup, as administrators do. Returns (member id, instance id, error code) of each. A
        static member may have no member id."""
        outcome, gone = [], dict[str, None]()
        for member_id, instance_id in leaving:
            code, found = "none", member_id
            try:
                if instance_id is None:
                    self._known(member_id)
                else:
                    found = member_id or self._instances.get(instance_id, "")
                    self._static_member(found, instance_id)
                gone[found] = None
            except GroupError as error:
                code = error.code
            outcome.append((member_id, instance_id, code))
        self._fence(list(gone))
        return outcome

    def tick(self, topics: Topics, now_ms: int, wall_ms: int) -> None:
        """See `Group`. Removes members that are silent or give up partitions too late. Follows changes of topics."""
        late = {*_due(self._sessions, now_ms), *_due(self._rebalances, now_ms)}
        self._fence(sorted(late))
        self._follow_topics(topics)

    def next_deadline(self) -> int | None:
        """See `Group`. Changes of topics have no deadline."""
        return min((*self._sessions.values(), *self._rebalances.values()), default=None)

    def changes(self) -> Change | None:
        """See `Group`."""
        if not self._head_changed and not self._changed:
            return None
        head = Head(FORMAT, self.epoch, self.assignment_epoch, self._topics_digest) if self._head_changed else None
        names = sorted(self._changed)
        change = Change(
            head=msgspec.msgpack.encode(head) if head is not None else None,
            put={name: encode_member(self._members[name]) for name in names if name in self._members},
            drop=tuple(name for name in names if name not in self._members),
        )
        self._head_changed = False
        self._changed.clear()
        return change

    def replies(self) -> list[Reply]:
        """See `Group`. No request of this protocol waits."""
        return []

    def abandon(self, code: str) -> list[Reply]:
        """See `Group`."""
        return []

    # --- the caller ------------------------------------------------------------------------------------

    def _known(self, member_id: str | None) -> ConsumerMember:
        member = self._members.get(member_id) if member_id is not None else None
        if member is None:
            raise GroupError("unknown_member_id", f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def _caller(self, request: Heartbeat) -> tuple[ConsumerMember, str | None]:
        """The member that sent a heartbeat, perhaps a new one, and the id of the member that it replaces, if any."""
        if len(self._members) >= self.settings.max_size and request.member_id not in self._members:
            raise GroupError(
                "group_max_size_reached",
                f"The consumer group has reached its maximum capacity of {self.settings.max_size} members.",
            )
        if request.instance_id is not None:
            return self._static_caller(request, request.instance_id)
        if request.member_epoch == JOIN:
            return self._present_or_new(request), None
        member = self._known(request.member_id)
        check_heartbeat_epoch(member, request)
        return member, None

    def _static_caller(self, request: Heartbeat, instance_id: str) -> tuple[ConsumerMember, str | None]:
        if request.member_epoch != JOIN:
            member = self._static_member(request.member_id, instance_id)
            check_heartbeat_epoch(member, request)
            return member, None
        holder = self._instances.get(instance_id)
        known = self._members.get(request.member_id)
        if known is not None and holder != known.member_id:
            raise GroupError(
                "invalid_request", f"Member {known.member_id} cannot join with another instance id than it has."
            )
        if holder is None:
            return self._present_or_new(request), None
        member = self._members[holder]
        if member.epoch != LEAVE_STATIC:
            if member is known:
                return known, None
            raise GroupError(
                "unreleased_instance_id",
                f"Static member {request.member_id} with instance id {instance_id} cannot join the group because "
                f"the instance id is owned by {holder} member.",
            )
        member_id = request.member_id or self.settings.new_member_id()
        return replace(member, member_id=member_id, epoch=0, previous_epoch=0), holder

    def _present_or_new(self, request: Heartbeat) -> ConsumerMember:
        """A member that joins. It may be known already: its last answer was lost, or it was fenced and starts again."""
        member_id = request.member_id or self.settings.new_member_id()
        return self._members.get(member_id) or ConsumerMember(member_id=member_id)

    def _static_member(self, member_id: str, instance_id: str) -> ConsumerMember:
        holder = self._instances.get(instance_id)
        if holder is None:
            raise GroupError("unknown_member_id", f"Instance id {instance_id} is unknown.")
        if holder != member_id:
            raise GroupError(
                "fenced_instance_id",
                f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}.",
            )
        return self._members[holder]

    # --- members that leave --------------------------------------------------------------------------------

    def _leave(self, request: Heartbeat) -> HeartbeatAnswer:
        if request.instance_id is None:
            member = self._known(request.member_id)
        else:
            member = self._static_member(request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_STATIC:
            # The member keeps its partitions until its session ends.
            self._put(replace(member, epoch=LEAVE_STATIC, revoking=EMPTY))
            self._rebalances.pop(member.member_id, None)
        else:
            self._fence([member.member_id])
        return HeartbeatAnswer(member_id=member.member_id, member_epoch=request.member_epoch)

    def _fence(self, member_ids: list[str]) -> tuple[str, ...]:
        """Remove members. Their partitions become free. The others get new targets at the next heartbeat."""
        for member_id in member_ids:
            self._drop(member_id)
        if member_ids:
            self._bump()
            if not self._members:
                self._topics_digest = b""
        return tuple(member_ids)

    # --- targets -----------------------------------------------------------------------------------------------

    def _subscriptions(self, topics: Topics) -> dict[Wish, frozenset[str]]:
        """The topics of each different wish, as of now."""
        wishes = dict.fromkeys(member.wish for member in self._members.values())
        return {wish: frozenset(wish.topic_names) | self._matched(wish, topics) for wish in wishes}

    def _matched(self, wish: Wish, topics: Topics) -> frozenset[str]:
        if not wish.topic_regex:
            return frozenset()
        return topics.visible(wish.principal, wish.host, self._resolver.topics(wish.topic_regex, topics))

    def _follow_topics(self, topics: Topics) -> None:
        """Start a new group epoch if subscribed topics, their partitions, or who may describe them have changed."""
        if topics.version == self._topics_version or not self._members:
            return
        self._topics_version = topics.version
        if (
            self.epoch == self.assignment_epoch
            and digest_of(self._subscriptions(topics), topics) != self._topics_digest
        ):
            self._bump()

    def _assign(self, topics: Topics) -> None:
        """Compute new targets for the current group epoch."""
        counts: dict[uuid.UUID, int] = {}
        wanted: dict[Wish, frozenset[uuid.UUID]] = {}
        for wish, names in self._subscriptions(topics).items():
            found = [topics.get(name) for name in names]
            counts.update(topic for topic in found if topic is not None)
            wanted[wish] = frozenset(topic[0] for topic in found if topic is not None)
        specs = [MemberSpec(m.member_id, m.instance_id, wanted[m.wish], m.target) for m in self._members.values()]
        for member_id, target in ASSIGNORS[self.assignor](specs, counts).items():
            if target != self._members[member_id].target:
                self._put(replace(self._members[member_id], target=target))
        self._topics_digest = digest_of(self._subscriptions(topics), topics)
        self._topics_version = topics.version
        self.assignment_epoch = self.epoch
        self._head_changed = True
        self._resolver.retain(wish.topic_regex for wish in wanted)

    def _wait_ms(self, now_ms: int) -> int:
        """How long the next targets have to wait for further changes; 0 or less if they may be computed."""
        return 0 if self._assigned_ms is None else self._assigned_ms + self.settings.assignment_interval_ms - now_ms

    def _beat_ms(self) -> int:
        """When a member shall come again: soon, if it waits for targets. In Kafka it waits for the usual time."""
        usual = self.settings.heartbeat_interval_ms
        return usual if self.epoch == self.assignment_epoch else min(usual, self.settings.assignment_interval_ms)

    def _reconcile(self, member_id: str, request: Heartbeat, now_ms: int) -> ConsumerMember:
        before = self._members[member_id]
        member = reconcile(before, self.assignment_epoch, request.topic_partitions, self._owners.is_free)
        if member != before:
            self._put(member)
            self._time_revocation(member, now_ms)
        return member

    # --- the books ---------------------------------------------------------------------------------------------

    def _time_revocation(self, member: ConsumerMember, now_ms: int) -> None:
        """Start the rebalance time-out of a member that must give up partitions, or end it."""
        if member.state == MemberState.UNREVOKED_PARTITIONS and member.epoch != LEAVE_STATIC:
            self._rebalances[member.member_id] = now_ms + member.rebalance_timeout_ms
        else:
            self._rebalances.pop(member.member_id, None)

    def _put(self, member: ConsumerMember) -> None:
        before = self._members.get(member.member_id)
        if before == member:
            return
        if before is not None and before.instance_id not in (None, member.instance_id):
            self._instances.pop(before.instance_id, None)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self._owners.move(before, member)
        self._members[member.member_id] = member
        self._changed.add(member.member_id)

    def _drop(self, member_id: str) -> None:
        member = self._members.pop(member_id)
        self._owners.move(member, None)
        if member.instance_id is not None:
            self._instances.pop(member.instance_id, None)
        self._sessions.pop(member_id, None)
        self._rebalances.pop(member_id, None)
        self._unconfirmed.pop(member_id, None)
        self._changed.add(member_id)

    def _bump(self, first: int = FIRST_EPOCH) -> None:
        self.epoch = max(self.epoch + 1, first)
        self._head_changed = True


def _due(deadlines: Mapping[str, int], now_ms: int) -> list[str]:
    return [member_id for member_id, deadline in deadlines.items() if deadline <= now_ms]


def digest_of(subscriptions: Mapping[Wish, frozenset[str]], topics: Topics) -> bytes:
    """A digest of the topics, of what each expression matches, and of which members may describe fewer topics than
    others. A topic that no member may describe does not change the digest. `subscriptions` has the topics of each wish.
    """
    digest = hashlib.blake2b(digest_size=16)
    wanted = frozenset().union(*subscriptions.values())
    found = [(name, topic) for name in wanted if (topic := topics.get(name)) is not None]
    for name, (topic_id, count) in sorted(found):
        digest.update(f"{len(name)}:{name}:{topic_id.hex}:{count};".encode())
    most: dict[tuple[tuple[str, ...], str], frozenset[str]] = {}
    for wish, names in subscriptions.items():
        kind = (wish.topic_names, wish.topic_regex)
        most[kind] = most.get(kind, frozenset()) | names
    for kind, names in sorted(most.items()):
        if kind[1]:
            digest.update(repr((kind, sorted(names))).encode())
    for wish, names in sorted(subscriptions.items()):
        if names != most[wish.topic_names, wish.topic_regex]:
            digest.update(repr((wish, sorted(names))).encode())
    return digest.digest() if found else b""
