"""The group protocol of KIP-848: ConsumerGroupHeartbeat and ConsumerGroupDescribe, versions 0 and 1."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.coordinator import Coordinator
from headwater.broker.core import Broker
from headwater.broker.handlers.groups import MILLISECOND, code_of, enter, stored
from headwater.broker.handlers.metadata import NO_OPERATIONS
from headwater.broker.held_groups import Held
from headwater.broker.registry import Request, Values, api
from headwater.coordination.assignors import Assignment
from headwater.coordination.common import GroupError, Topics
from headwater.coordination.consumer import ConsumerGroup
from headwater.coordination.consumer_members import Member
from headwater.coordination.consumer_requests import JOIN, Heartbeat, HeartbeatAnswer, check_heartbeat, owned_partitions
from headwater.errors import HeadwaterError
from headwater.metadata.access import Operation, ResourceKind

HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
CONSUMER_MEMBER = 1
"""The type of a member that speaks this protocol."""


@api(68, 0, 1)
async def consumer_group_heartbeat(broker: Broker, request: Request) -> Values:
    """A member joins, stays, changes its mind or goes; it is told what it should own."""
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
    check_heartbeat(name, beat, coordinator.settings_of(name))
    await enter(broker, request, Operation.READ, name)
    wanted = beat.subscribed_topic_names or ()
    if len(broker.visible(request, Operation.DESCRIBE, ResourceKind.TOPIC, wanted)) < len(wanted):
        raise GroupError("topic_authorization_failed")
    held = coordinator.find(name)
    group = _group(coordinator, held, name, beat)
    group.settings = coordinator.settings_of(name)
    answer = group.heartbeat(beat, coordinator.topics, coordinator.now_ms())
    if held is None or held.group is not group:
        held = coordinator.hold(name, group)
    return await stored(broker, held, answer)


def _group(coordinator: Coordinator, held: Held | None, name: str, beat: Heartbeat) -> ConsumerGroup:
    """The group, perhaps a new one: who joins makes it, also out of an empty group of the classic protocol."""
    if held is not None and isinstance(held.group, ConsumerGroup):
        return held.group
    if beat.member_epoch == JOIN and (held is None or held.group.is_empty):
        return coordinator.new_consumer(name)
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


@api(69, 0, 1)
async def consumer_group_describe(broker: Broker, request: Request) -> Values:
    """Groups of this protocol with their members, what those have and what they should have."""
    return {"groups": [await _describe(broker, request, name) for name in request.body.group_ids]}


async def _describe(broker: Broker, request: Request, name: str) -> Values:
    wanted = request.body.include_authorized_operations
    operations = broker.operations(request, ResourceKind.GROUP, name) if wanted else NO_OPERATIONS
    facts: dict[str, Any] = {"group_id": name, "authorized_operations": operations}
    try:
        await enter(broker, request, Operation.DESCRIBE, name)
        await broker.coordinator.replica.barrier()
        held = broker.coordinator.find(name)
        if held is None or not isinstance(held.group, ConsumerGroup):
            what = "not found" if held is None else "is not a consumer group"
            raise GroupError("group_id_not_found", f"Group {name} {what}.")
    except (GroupError, HeadwaterError) as error:
        return {**facts, "error_code": code_of(error), "error_message": str(error)}
    group, topics = held.group, broker.coordinator.topics
    members = [_member(member, topics) for member in group.members.values()]
    shown = _topics_of(members)
    if len(broker.visible(request, Operation.DESCRIBE, ResourceKind.TOPIC, shown)) < len(shown):
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


def _member(member: Member, topics: Topics) -> Values:
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
    """The topics that a description of members names, besides what they subscribe to."""
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
