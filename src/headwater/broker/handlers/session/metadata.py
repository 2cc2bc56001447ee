"""Metadata, versions 0 to 13, DescribeCluster, versions 0 to 2, and DescribeTopicPartitions, version 0.

Every broker serves every partition. The answers name as leader the live broker that a rendezvous hash picks, so that
clients spread and caches stay warm. A client that names its zone gets leaders of that zone.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import NO_OPERATIONS, Broker
from headwater.broker.errors import code_of
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.broker.rotation.routing import zone_of
from headwater.broker.turns import Work
from headwater.errors import BadInput, Exists, HeadwaterError
from headwater.replica.internal_topics import is_internal, topic_names
from headwater.replica.placement import choose
from headwater.replica.topics import check_name
from headwater.settings.zones import rack_of
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.cluster.domain import Topic

IDS_IN_THE_ANSWER_SINCE, IDS_SINCE = 10, 12
"""Versions of Metadata since which answers have topic ids, and since which requests may have them."""

BROKER_ENDPOINT, CONTROLLER_ENDPOINT = 1, 2


def brokers(broker: Broker, request: Request) -> list[Values]:
    """The live brokers for a client, with the addresses of the client's listener."""
    found: list[Values] = []
    for member in broker.routing.brokers(zone_of(request.client_id)):
        address = broker.address(member, request.connection.listener)
        if address is not None:
            where = {"host": address[0], "port": address[1], "rack": rack_of(member.zone) or None}
            found.append({"node_id": member.node, "broker_id": member.node, **where})
    return found


async def partitions(
    broker: Broker, request: Request, topic: Topic, work: Work, first: int = 0, count: int | None = None
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
                # Java's admin client fails on null.
                "eligible_leader_replicas": [],
                "last_known_elr": [],
            }
        )
        await work.did()
    return found


def _may_auto_create(broker: Broker, request: Request) -> bool:
    """Whether topics that are missing are created, as far as the cluster and the request say."""
    allowed: bool = request.version < 4 or request.body.allow_auto_topic_creation
    return broker.settings.auto_create_topics and allowed


def _creates(broker: Broker, request: Request) -> bool:
    """Whether a request names a topic that is not known here, and would create it."""
    topics = request.body.topics or ()
    return _may_auto_create(broker, request) and not all(_known(broker, request, wanted) for wanted in topics)


@api(3, 0, 13, RequestKind.LOOKUP, changes=_creates)
async def metadata(broker: Broker, request: Request) -> Values:
    """Topics by name or id, all topics, or none. Creates missing topics if that is allowed."""
    body = request.body
    everything = body.topics is None or (request.version == 0 and not body.topics)
    topics: list[Values] = []
    create = _may_auto_create(broker, request)
    work = broker.turns.work()
    once: dict[tuple[str | None, uuid.UUID | None], Any] = {}  # each topic is answered once, as in Kafka
    known = allowed = True
    async for wanted in work.over([] if everything else body.topics):
        once[wanted.name, _id(request, wanted)] = wanted
        known = known and _known(broker, request, wanted)
        allowed = allowed and _named_as_allowed(request, wanted)
    asked = list(once.values())
    try:
        if not allowed:
            topics = [{**_identity(request, t), "error_code": ErrorCode.invalid_request} for t in asked]
        elif everything:
            await broker.cluster.barrier()
            for topic in _usable(broker, request):
                topics.append(await _describe(broker, request, topic, work))
        else:
            if not known:
                await broker.cluster.barrier()
            for wanted in asked:
                topics.append(await _one(broker, request, wanted, create, work))
    except HeadwaterError:
        topics = [{**_identity(request, t), "error_code": ErrorCode.leader_not_available} for t in asked]
    return {
        "brokers": brokers(broker, request),
        "cluster_id": broker.cluster_id,
        "controller_id": broker.routing.controller(zone_of(request.client_id)),
        "topics": topics,
        "cluster_authorized_operations": _cluster_operations(broker, request, 8 <= request.version <= 10),
        "error_code": ErrorCode.none,
    }


def _usable(broker: Broker, request: Request) -> list[Topic]:
    """All topics that the caller may describe, by name."""
    visible = broker.visible(request, Operation.DESCRIBE, AclResource.TOPIC, topic_names(broker.cluster.state))
    return [view.topic for view in map(broker.by_name, visible) if view is not None]


def _cluster_operations(broker: Broker, request: Request, told: bool) -> int:
    if not told or not request.body.include_cluster_authorized_operations:
        return NO_OPERATIONS
    if not broker.may(request, Operation.DESCRIBE, AclResource.CLUSTER):
        return 0
    return broker.operations(request, AclResource.CLUSTER)


def _named_as_allowed(request: Request, wanted: Any) -> bool:
    """Whether a topic is named in a way that the version allows: before version 12, by name only."""
    return request.version >= IDS_SINCE or (wanted.name is not None and _id(request, wanted) is None)


def _id(request: Request, wanted: Any) -> uuid.UUID | None:
    return wanted.topic_id if request.version >= IDS_IN_THE_ANSWER_SINCE else None


def _identity(request: Request, wanted: Any) -> Values:
    return {"name": wanted.name or "", "topic_id": _id(request, wanted)}


def _known(broker: Broker, request: Request, wanted: Any) -> bool:
    """Whether a topic is in the local state. If not, the ledger may still have it."""
    topic_id = _id(request, wanted)
    if topic_id is not None:
        return broker.by_id(topic_id) is not None
    return wanted.name is None or broker.by_name(wanted.name) is not None


async def _one(broker: Broker, request: Request, wanted: Any, create: bool, work: Work) -> Values:
    await work.did()
    identity = _identity(request, wanted)
    if identity["topic_id"] is not None:
        return await _by_id(broker, request, identity, work)
    if wanted.name is None:
        return {**identity, "error_code": ErrorCode.invalid_request}
    if not broker.may(request, Operation.DESCRIBE, AclResource.TOPIC, wanted.name):
        return {**identity, "error_code": ErrorCode.topic_authorization_failed}
    view = broker.by_name(wanted.name)
    if view is not None:
        return await _describe(broker, request, view.topic, work)
    try:
        check_name(wanted.name)
        if not create:
            return {**identity, "error_code": ErrorCode.unknown_topic_or_partition}
        if not _may_create(broker, request, wanted.name):
            return {**identity, "error_code": ErrorCode.topic_authorization_failed}
        broker.check_free(wanted.name)
        broker.check_room(broker.settings.default_partitions)
        with contextlib.suppress(Exists):  # created by another client just now
            await broker.topics.create(wanted.name, broker.settings.default_partitions, {})
        # As in Kafka: the client asks again, and then gets the topic.
        return {**identity, "is_internal": is_internal(wanted.name), "error_code": ErrorCode.unknown_topic_or_partition}
    except BadInput as error:
        return {**identity, "error_code": code_of(error)}


def _may_create(broker: Broker, request: Request, name: str) -> bool:
    return broker.may(request, Operation.CREATE, AclResource.CLUSTER) or broker.may(
        request, Operation.CREATE, AclResource.TOPIC, name
    )


async def _by_id(broker: Broker, request: Request, identity: Values, work: Work) -> Values:
    view = broker.by_id(identity["topic_id"])
    nameless = None if request.version >= 12 else ""
    if view is None:
        return {**identity, "name": nameless, "error_code": ErrorCode.unknown_topic_id}
    if not broker.may(request, Operation.DESCRIBE, AclResource.TOPIC, view.topic.name):
        return {**identity, "name": nameless, "error_code": ErrorCode.topic_authorization_failed}
    return await _describe(broker, request, view.topic, work)


async def _describe(
    broker: Broker,
    request: Request,
    topic: Topic,
    work: Work,
    *,
    told: bool | None = None,
    part: list[Values] | None = None,
) -> Values:
    """A topic with all its partitions, or with a part of them.

    The answer has the operations that the caller is allowed if `told` is true or, without `told`, if the request asks
    for them.
    """
    if told is None:
        told = request.version >= 8 and request.body.include_topic_authorized_operations
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": is_internal(topic.name),
        "partitions": await partitions(broker, request, topic, work) if part is None else part,
        "topic_authorized_operations": broker.operations(request, AclResource.TOPIC, topic.name)
        if told
        else NO_OPERATIONS,
    }


@api(60, 0, 2, RequestKind.LOOKUP)
async def describe_cluster(broker: Broker, request: Request) -> Values:
    """The live brokers. There are no controllers to list."""
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


@api(75, 0, 0, RequestKind.LOOKUP)
async def describe_topic_partitions(broker: Broker, request: Request) -> Values:
    """Partitions of topics in pages: at most `response_partition_limit` of them, then a cursor."""
    body = request.body
    await broker.cluster.barrier()
    room = max(1, min(body.response_partition_limit, 2000))
    asked = sorted({t.name for t in body.topics})
    names = broker.visible(request, Operation.DESCRIBE, AclResource.TOPIC, asked)
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
    work = broker.turns.work()
    for name in names:
        await work.did()
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if room <= 0:
            following = {"topic_name": name, "partition_index": first}
            break
        view = broker.by_name(name)
        if view is None:
            operations = broker.operations(request, AclResource.TOPIC, name)
            topics.append({"name": name, "error_code": _absence(name), "topic_authorized_operations": operations})
            continue
        part = await partitions(broker, request, view.topic, work, first, room)
        room -= len(part)
        topics.append(await _describe(broker, request, view.topic, work, told=True, part=part))
        if first + len(part) < view.topic.ready:
            following = {"topic_name": name, "partition_index": first + len(part)}
            break
    if cursor is not None:
        hidden = [name for name in hidden if name >= cursor.topic_name]
    topics += [{"name": name, "error_code": ErrorCode.topic_authorization_failed} for name in hidden]
    return {"topics": topics, "next_cursor": following}


def _absence(name: str) -> ErrorCode:
    """The error for a topic that does not exist."""
    try:
        check_name(name)
    except BadInput as error:
        return code_of(error)
    return ErrorCode.unknown_topic_or_partition
