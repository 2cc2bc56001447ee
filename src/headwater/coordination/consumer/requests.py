"""Requests and answers of a KIP-848 consumer group, its settings, and the checks that need only one member."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from headwater.coordination.assignors import ASSIGNORS, Assignment
from headwater.coordination.common import GroupError
from headwater.coordination.consumer.members import ConsumerMember
from headwater.coordination.consumer.reconcile import is_within
from headwater.coordination.group import GroupContext

JOIN = 0
LEAVE = -1
LEAVE_STATIC = -2
"""Special values of the member epoch: join; leave; leave and come back soon with the same instance id."""

SESSION_CONFIG, HEARTBEAT_CONFIG = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT_CONFIG = "consumer.assignment.interval.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """Kafka's `group.consumer.*`, and limits of Headwater."""

    new_member_id: Callable[[], str]
    """Makes an id for a member whose client does not send one (version 0)."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """The shortest time between two assignments of the group. 0: every change is followed at once."""
    max_size: int = 1_000
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    """The assignors that members may ask for. The first is used if no member asks."""
    max_regexes: int = 100
    """The limit of different regular expressions in one group."""

    @classmethod
    def of(cls, context: GroupContext, name: str) -> ConsumerGroupSettings:
        """The settings of one group: its own configs, else the broker's settings."""
        configs, settings = context.configs_of(name), context.settings
        return cls(
            new_member_id=context.new_id,
            session_timeout_ms=int(configs.get(SESSION_CONFIG, settings.consumer_session_timeout_ms)),
            heartbeat_interval_ms=int(configs.get(HEARTBEAT_CONFIG, settings.consumer_heartbeat_interval_ms)),
            assignment_interval_ms=int(configs.get(ASSIGNMENT_CONFIG, settings.consumer_assignment_interval_ms)),
            max_size=settings.max_members,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat request. `None` means unchanged since the request before."""

    member_id: str
    member_epoch: int
    version: int = 1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: Assignment | None = None
    """The partitions that the member owns now."""
    client_id: str = ""
    client_host: str = ""
    principal: str = ""

    @property
    def is_full(self) -> bool:
        """Whether the request has all fields, as when a member joins and after an error."""
        return self.member_epoch == JOIN or (
            self.rebalance_timeout_ms != -1
            and (self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None)
            and self.topic_partitions is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The answer to a heartbeat that was accepted."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    """All partitions that the member may own. `None` if the member knows them."""


def owned_partitions(pairs: list[tuple[uuid.UUID, list[int]]]) -> Assignment:
    """An assignment from the topics of a request. A topic may occur twice."""
    owned: dict[uuid.UUID, frozenset[int]] = {}
    for topic, partitions in pairs:
        if partitions:
            owned[topic] = owned.get(topic, frozenset()).union(partitions)
    return owned


def check_heartbeat(group_id: str, request: Heartbeat, settings: ConsumerGroupSettings) -> None:
    """Refuse a request that is invalid for every group."""
    if not request.member_id and (request.version >= 1 or request.member_epoch != JOIN):
        raise _invalid("MemberId can't be empty.")
    if not group_id:
        raise _invalid("GroupId can't be empty.")
    if request.instance_id == "":
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOIN:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        raise GroupError(
            "unsupported_assignor",
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(settings.assignors)}.",
        )


def _check_join(request: Heartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _invalid(message: str) -> GroupError:
    return GroupError("invalid_request", message)


def updated(member: ConsumerMember, request: Heartbeat) -> ConsumerMember:
    """The member with the new values of its request."""
    names = request.subscribed_topic_names
    return replace(
        member,
        instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        principal=request.principal,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms if request.rebalance_timeout_ms != -1 else member.rebalance_timeout_ms
        ),
        topic_names=tuple(sorted(set(names))) if names is not None else member.topic_names,
        topic_regex=(
            request.subscribed_topic_regex if request.subscribed_topic_regex is not None else member.topic_regex
        ),
        assignor=request.server_assignor if request.server_assignor is not None else member.assignor,
    )


def check_heartbeat_epoch(member: ConsumerMember, request: Heartbeat) -> None:
    """Refuse another epoch than the member's. The previous epoch passes if the member owns only what is assigned to it,
    because its last answer may be lost."""
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    if epoch == member.previous_epoch < member.epoch and is_within(request.topic_partitions, member.assigned):
        return
    raise GroupError(
        "fenced_member_epoch",
        f"The consumer group member has a {'greater' if epoch > member.epoch else 'smaller'} member epoch ({epoch}) "
        f"than the one known by the group coordinator ({member.epoch}). "
        "The member must abandon all its partitions and rejoin.",
    )


def check_present_epoch(member: ConsumerMember, epoch: int) -> None:
    """Refuse an offset request with another epoch than the member's."""
    if epoch != member.epoch:
        raise GroupError(
            "stale_member_epoch",
            f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.",
        )
