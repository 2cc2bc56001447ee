"""The group protocol of KIP-848: ConsumerGroupHeartbeat and ConsumerGroupDescribe, versions 0 and 1."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import NO_OPERATIONS, Broker
from headwater.broker.groups.coordinator import Coordinator
from headwater.broker.groups.held import Held
from headwater.broker.groups.shares import caller_of
from headwater.broker.handlers.groups.groups import MILLISECOND, code_of, enter, enter_at_end, stored
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.coordination.assignors import Assignment
from headwater.coordination.common import GroupError, Topics
from headwater.coordination.consumer.group import ConsumerGroup
from headwater.coordination.consumer.members import ConsumerMember
from headwater.coordination.consumer.requests import (
    JOIN,
    ConsumerGroupSettings,
    Heartbeat,
    HeartbeatAnswer,
    check_heartbeat,
    owned_partitions,
    updated,
)
from headwater.errors import HeadwaterError
from headwater.state.cluster.access import AclResource, Operation

HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
CONSUMER_MEMBER = 1
"""The type of a member that uses this protocol."""


@api(68, 0, 1)
async def consumer_group_heartbeat(broker: Broker, request: Request) -> Values:
    """A member joins, stays, changes its subscription or leaves. The answer has the partitions that it should own."""
    try:
        answer = await _heartbeat(broker, request)
    except (GroupError, HeadwaterError) as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    given = answer.assignment
    return {
        "error_code": ErrorCode.none,
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval": answer.heartbeat_interval_ms,
        "assignment": None if given is None else {"topic_partitions": _pairs(given)},
    }


async def _heartbeat(broker: Broker, request: Request) -> HeartbeatAnswer:
    coordinator, name = broker.coordinator, request.body.group_id
    beat = _request(request)
    settings = ConsumerGroupSettings.of(coordinator.context, name)
    check_heartbeat(name, beat, settings)
    await enter(broker, request, Operation.READ, name)
    wanted = beat.subscribed_topic_names or ()
    if len(broker.visible(request, Operation.DESCRIBE, AclResource.TOPIC, wanted)) < len(wanted):
        raise GroupError("topic_authorization_failed")
    held = coordinator.find(name)
    group = _group(coordinator, held, name, beat)
    group.settings = settings
    brings = beat.subscribed_topic_names is not None or beat.subscribed_topic_regex is not None
    caller = caller_of(request.connection.principal, request.connection.host)
    if brings:
        known = group.members.get(beat.member_id)
        member = updated(known or ConsumerMember(member_id=beat.member_id), beat)
        coordinator.shares.check(name, caller, member.weight, known.weight if known is not None else 0)
    answer = group.heartbeat(beat, coordinator.topics, coordinator.now_ms())
    if held is None or held.group is not group:
        held = coordinator.hold(name, group)
    if brings:
        coordinator.shares.note(name, group.weight, caller)
    return await stored(broker, held, answer)


def _group(coordinator: Coordinator, held: Held | None, name: str, beat: Heartbeat) -> ConsumerGroup:
    """The group. A member that joins creates it, if necessary from an empty group of the classic protocol."""
    group = held.of_kind(ConsumerGroup) if held is not None else None
    if group is not None:
        return group
    if beat.member_epoch == JOIN and (held is None or held.group.is_empty):
        return coordinator.new(ConsumerGroup, name)
    what = "not found" if held is None else "is not a consumer group"
    raise GroupError("group_id_not_found", f"Group {name} {what}.")


def _request(request: Request) -> Heartbeat:
    body = request.body
    owned = body.topic_partitions
    return Heartbeat(
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        version=request.version,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout // MILLISECOND,
        subscribed_topic_names=None if body.subscribed_topic_names is None else tuple(body.subscribed_topic_names),
        subscribed_topic_regex=getattr(body, "subscribed_topic_regex", None),
        server_assignor=body.server_assignor,
        topic_partitions=None if owned is None else owned_partitions([(t.topic_id, list(t.partitions)) for t in owned]),
        client_id=request.client_id,
        client_host=f"/{request.connection.host}",
        principal=request.connection.principal,
    )


def _pairs(assignment: Assignment) -> list[Values]:
    return [{"topic_id": topic, "partitions": sorted(partitions)} for topic, partitions in assignment.items()]


@api(69, 0, 1, RequestKind.LOOKUP)
async def consumer_group_describe(broker: Broker, request: Request) -> Values:
    """Groups of this protocol with their members, and the current and target assignment of each member."""
    names = broker.turns.work().over(dict.fromkeys(request.body.group_ids))
    return {"groups": [await _describe(broker, request, name) async for name in names]}


async def _describe(broker: Broker, request: Request, name: str) -> Values:
    wanted = request.body.include_authorized_operations
    operations = broker.operations(request, AclResource.GROUP, name) if wanted else NO_OPERATIONS
    facts: dict[str, Any] = {"group_id": name, "authorized_operations": operations}
    try:
        await enter_at_end(broker, request, Operation.DESCRIBE, name)
        held = broker.coordinator.find(name)
        group = held.of_kind(ConsumerGroup) if held is not None else None
        if group is None:
            what = "not found" if held is None else "is not a consumer group"
            raise GroupError("group_id_not_found", f"Group {name} {what}.")
    except (GroupError, HeadwaterError) as error:
        return {**facts, "error_code": code_of(error), "error_message": str(error)}
    topics = broker.coordinator.topics
    members = [_member(member, topics) for member in group.members.values()]
    shown = _topics_of(members)
    if len(broker.visible(request, Operation.DESCRIBE, AclResource.TOPIC, shown)) < len(shown):
        return {"group_id": name, "error_code": ErrorCode.topic_authorization_failed, "error_message": HIDDEN_TOPICS}
    return {
        **facts,
        "error_code": ErrorCode.none,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
        "members": members,
    }


def _member(member: ConsumerMember, topics: Topics) -> Values:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topic_names,
        "subscribed_topic_regex": member.topic_regex,
        "assignment": {"topic_partitions": _named(member.held, topics)},
        "target_assignment": {"topic_partitions": _named(member.target, topics)},
        "member_type": CONSUMER_MEMBER,
    }


def _topics_of(members: list[Values]) -> set[str]:
    """The topics that a description of members names, besides their subscriptions."""
    assignments = [
        member[kind]["topic_partitions"] for member in members for kind in ("assignment", "target_assignment")
    ]
    return {row["topic_name"] for rows in assignments for row in rows}


def _named(assignment: Assignment, topics: Topics) -> list[Values]:
    found: list[Values] = []
    for topic_id, partitions in assignment.items():
        name = topics.name_of(topic_id)
        if name is not None:
            found.append({"topic_id": topic_id, "topic_name": name, "partitions": sorted(partitions)})
    return found
