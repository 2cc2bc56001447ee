"""Metadata, versions 0 to 13, DescribeCluster, versions 0 to 2, and DescribeTopicPartitions, version 0.

Every broker serves every partition; the leader that clients are told is the one a rendezvous hash picks among the live
ones, so that clients spread and caches stay warm. A client that names its zone is told the brokers of that zone.
"""

from __future__ import annotations

import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker
from headwater.broker.handlers.topics import check_free
from headwater.broker.registry import Request, Values, api
from headwater.broker.routing import zone_of
from headwater.errors import HeadwaterError
from headwater.metadata.access import Operation, ResourceKind
from headwater.metadata.cluster import Topic
from headwater.metadata.placement import choose
from headwater.metadata.topics import InvalidTopicName, TopicExists, check_name

NO_OPERATIONS = -(1 << 31)
"""Says that authorized operations were not asked for."""

IDS_IN_THE_ANSWER_SINCE, IDS_SINCE = 10, 12
"""Versions of Metadata that tell topic ids, and that take them."""

BROKER_ENDPOINT, CONTROLLER_ENDPOINT = 1, 2


def brokers(broker: Broker, request: Request) -> list[Values]:
    """The live brokers that a client is told of, as clients of its listener reach them."""
    found: list[Values] = []
    for member in broker.routing.brokers(zone_of(request.client_id)):
        address = broker.address(member, request.connection.listener)
        if address is not None:
            where = {"host": address[0], "port": address[1], "rack": member.zone or None}
            found.append({"node_id": member.node, "broker_id": member.node, **where})
    return found


def partitions(
    broker: Broker, request: Request, topic: Topic, first: int = 0, count: int | None = None
) -> list[Values]:
    """A topic's partitions with the brokers that a client should use."""
    nodes = broker.routing.leaders(zone_of(request.client_id))
    last = topic.ready if count is None else min(topic.ready, first + count)
    found: list[Values] = []
    for index in range(first, last):
        leader = choose(topic.streams[index], nodes)
        found.append(
            {
                "error_code": ErrorCode.none if leader >= 0 else ErrorCode.leader_not_available,
                "partition_index": index,
                "leader_id": leader,
                "leader_epoch": 0,
                "replica_nodes": [leader],
                "isr_nodes": [leader],
                # Java's admin client fails over null ones.
                "eligible_leader_replicas": [],
                "last_known_elr": [],
            }
        )
    return found


@api(3, 0, 13)
async def metadata(broker: Broker, request: Request) -> Values:
    """Topics by name or id, all of them, or none; creates topics on the way if that is allowed."""
    body = request.body
    everything = body.topics is None or (request.version == 0 and not body.topics)
    topics: list[Values]
    create = broker.settings.auto_create_topics and (request.version < 4 or body.allow_auto_topic_creation)
    try:
        if not everything and not _named_as_allowed(request):
            topics = [{**_identity(request, t), "error_code": ErrorCode.invalid_request} for t in body.topics]
        elif everything:
            await broker.cluster.barrier()
            topics = [_describe(broker, request, t) for t in _usable(broker, request)]
        else:
            topics = [await _one(broker, request, wanted, create) for wanted in body.topics]
    except HeadwaterError:
        topics = []
        if not everything:
            topics = [{**_identity(request, t), "error_code": ErrorCode.leader_not_available} for t in body.topics]
    return {
        "brokers": brokers(broker, request),
        "cluster_id": broker.cluster_id,
        "controller_id": broker.routing.controller(zone_of(request.client_id)),
        "topics": topics,
        "cluster_authorized_operations": _cluster_operations(broker, request, 8 <= request.version <= 10),
        "error_code": ErrorCode.none,
    }


def _usable(broker: Broker, request: Request) -> list[Topic]:
    """All topics that the caller may know of, by name."""
    names = broker.cluster.state.names
    visible = broker.visible(request, Operation.DESCRIBE, ResourceKind.TOPIC, names)
    return [names[name] for name in sorted(visible) if names[name].ready]


def _cluster_operations(broker: Broker, request: Request, told: bool) -> int:
    if not told or not request.body.include_cluster_authorized_operations:
        return NO_OPERATIONS
    if not broker.may(request, Operation.DESCRIBE, ResourceKind.CLUSTER):
        return 0
    return broker.operations(request, ResourceKind.CLUSTER)


def _named_as_allowed(request: Request) -> bool:
    """Versions before 12 have a place for topic ids, but take names only."""
    ids = request.version >= IDS_IN_THE_ANSWER_SINCE
    return request.version >= IDS_SINCE or all(
        t.name is not None and (not ids or t.topic_id is None) for t in request.body.topics
    )


def _identity(request: Request, wanted: Any) -> Values:
    return {
        "name": wanted.name or "",
        "topic_id": wanted.topic_id if request.version >= IDS_IN_THE_ANSWER_SINCE else None,
    }


async def _one(broker: Broker, request: Request, wanted: Any, create: bool) -> Values:
    identity = _identity(request, wanted)
    if identity["topic_id"] is not None:
        return await _by_id(broker, request, identity)
    if wanted.name is None:
        return {**identity, "error_code": ErrorCode.invalid_request}
    if not broker.may(request, Operation.DESCRIBE, ResourceKind.TOPIC, wanted.name):
        return {**identity, "error_code": ErrorCode.topic_authorization_failed}
    view = broker.by_name(wanted.name)
    if view is None:
        await broker.cluster.barrier()
        view = broker.by_name(wanted.name)
    if view is not None:
        return _describe(broker, request, view.topic)
    try:
        check_name(wanted.name)
        if not create:
            return {**identity, "error_code": ErrorCode.unknown_topic_or_partition}
        if not _may_create(broker, request, wanted.name):
            return {**identity, "error_code": ErrorCode.topic_authorization_failed}
        check_free(broker, wanted.name)
        topic = await broker.topics.create(wanted.name, broker.settings.default_partitions, {})
        return _describe(broker, request, topic)
    except InvalidTopicName:
        return {**identity, "error_code": ErrorCode.invalid_topic_exception}
    except TopicExists:
        return {**identity, "error_code": ErrorCode.leader_not_available}


def _may_create(broker: Broker, request: Request, name: str) -> bool:
    return broker.may(request, Operation.CREATE, ResourceKind.CLUSTER) or broker.may(
        request, Operation.CREATE, ResourceKind.TOPIC, name
    )


async def _by_id(broker: Broker, request: Request, identity: Values) -> Values:
    topic_id: uuid.UUID = identity["topic_id"]
    view = broker.by_id(topic_id)
    if view is None:
        await broker.cluster.barrier()
        view = broker.by_id(topic_id)
    nameless = None if request.version >= 12 else ""
    if view is None:
        return {**identity, "name": nameless, "error_code": ErrorCode.unknown_topic_id}
    if not broker.may(request, Operation.DESCRIBE, ResourceKind.TOPIC, view.topic.name):
        return {**identity, "name": nameless, "error_code": ErrorCode.topic_authorization_failed}
    return _describe(broker, request, view.topic)


def _describe(
    broker: Broker, request: Request, topic: Topic, *, told: bool | None = None, part: list[Values] | None = None
) -> Values:
    """A topic with all its partitions, or with a part of them.

    What the caller may do to it is told where the request asks for that, or `told` says so.
    """
    if told is None:
        told = request.version >= 8 and request.body.include_topic_authorized_operations
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.id,
        "partitions": partitions(broker, request, topic) if part is None else part,
        "topic_authorized_operations": broker.operations(request, ResourceKind.TOPIC, topic.name)
        if told
        else NO_OPERATIONS,
    }


@api(60, 0, 2)
async def describe_cluster(broker: Broker, request: Request) -> Values:
    """The live brokers; controllers are not listed, since there are none."""
    if request.version >= 1 and request.body.endpoint_type != BROKER_ENDPOINT:
        controller = request.body.endpoint_type == CONTROLLER_ENDPOINT
        wrong = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return {
            "error_code": ErrorCode.mismatched_endpoint_type if controller else ErrorCode.unsupported_endpoint_type,
            "error_message": wrong if controller else f"Unsupported endpoint type {request.body.endpoint_type}",
            "endpoint_type": BROKER_ENDPOINT,
            "cluster_id": "",
            "controller_id": -1,
            "cluster_authorized_operations": NO_OPERATIONS,
        }
    await broker.cluster.barrier()
    return {
        "error_code": ErrorCode.none,
        "cluster_id": broker.cluster_id,
        "controller_id": broker.routing.controller(zone_of(request.client_id)),
        "endpoint_type": BROKER_ENDPOINT,
        "brokers": brokers(broker, request),
        "cluster_authorized_operations": _cluster_operations(broker, request, True),
    }


@api(75, 0, 0)
async def describe_topic_partitions(broker: Broker, request: Request) -> Values:
    """Partitions of topics in pages: at most `response_partition_limit` of them, then a cursor."""
    body = request.body
    await broker.cluster.barrier()
    room = max(1, min(body.response_partition_limit, 2000))
    asked = sorted({t.name for t in body.topics})
    names = broker.visible(request, Operation.DESCRIBE, ResourceKind.TOPIC, asked)
    hidden = sorted(set(asked) - set(names))
    if not asked:
        names = [t.name for t in _usable(broker, request)]
    cursor = body.cursor
    if cursor is not None:
        if cursor.partition_index < 0:
            return {"topics": [{"name": name, "error_code": ErrorCode.invalid_request} for name in names]}
        names = [name for name in names if name >= cursor.topic_name]
    topics: list[Values] = []
    following = None
    for name in names:
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if room <= 0:
            following = {"topic_name": name, "partition_index": first}
            break
        view = broker.by_name(name)
        if view is None:
            operations = broker.operations(request, ResourceKind.TOPIC, name)
            topics.append({"name": name, "error_code": _absence(name), "topic_authorized_operations": operations})
            continue
        part = partitions(broker, request, view.topic, first, room)
        room -= len(part)
        topics.append(_describe(broker, request, view.topic, told=True, part=part))
        if first + len(part) < view.topic.ready:
            following = {"topic_name": name, "partition_index": first + len(part)}
            break
    if cursor is not None:
        hidden = [name for name in hidden if name >= cursor.topic_name]
    topics += [{"name": name, "error_code": ErrorCode.topic_authorization_failed} for name in hidden]
    return {"topics": topics, "next_cursor": following}


def _absence(name: str) -> ErrorCode:
    """Why there is no such topic."""
    try:
        check_name(name)
    except InvalidTopicName:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition
