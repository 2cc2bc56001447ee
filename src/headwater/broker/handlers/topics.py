"""CreateTopics, versions 2 to 7, CreatePartitions, versions 0 to 3, DeleteTopics, versions 1 to 6.

Replication factors and assignments are accepted and have no effect: object storage replicates.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker
from headwater.broker.faults import code_of
from headwater.broker.handlers.configs import describe_topic_configs
from headwater.broker.registry import Request, Values, api
from headwater.errors import ConfigError, HeadwaterError
from headwater.metadata.access import Operation, ResourceKind
from headwater.metadata.cluster import Topic
from headwater.metadata.topic_configs import checked
from headwater.metadata.topics import (
    InvalidPartitions,
    InvalidTopicName,
    TopicExists,
    TopicUnknown,
    check_name,
)

_CODES: list[tuple[type[HeadwaterError], ErrorCode]] = [
    (InvalidTopicName, ErrorCode.invalid_topic_exception),
    (TopicExists, ErrorCode.topic_already_exists),
    (TopicUnknown, ErrorCode.unknown_topic_or_partition),
    (InvalidPartitions, ErrorCode.invalid_partitions),
    (ConfigError, ErrorCode.invalid_config),
]


_FORBIDDEN: Values = {
    "error_code": ErrorCode.topic_authorization_failed,
    "error_message": "Authorization failed.",
}
_CONFIGS_HIDDEN: Values = {
    "topic_config_error_code": ErrorCode.topic_authorization_failed,
    "num_partitions": -1,
    "replication_factor": -1,
    "configs": [],
}


def _fault(error: HeadwaterError) -> Values:
    for kind, code in _CODES:
        if isinstance(error, kind):
            return {"error_code": code, "error_message": str(error)}
    return {"error_code": code_of(error), "error_message": str(error)}


@api(19, 2, 7)
async def create_topics(broker: Broker, request: Request) -> Values:
    """Each topic on its own: one that cannot be created does not stop the others."""
    body = request.body
    names = Counter(topic.name for topic in body.topics)
    anywhere = broker.may(request, Operation.CREATE, ResourceKind.CLUSTER)
    answers = []
    for topic in body.topics:
        if names[topic.name] > 1:
            answer: Values = {
                "error_code": ErrorCode.invalid_request,
                "error_message": "the topic is named twice in one request",
            }
        elif not anywhere and not broker.may(request, Operation.CREATE, ResourceKind.TOPIC, topic.name):
            answer = _FORBIDDEN
        else:
            answer = await _create(broker, topic, body.validate_only)
            if answer["error_code"] is ErrorCode.none and not broker.may(
                request, Operation.DESCRIBE_CONFIGS, ResourceKind.TOPIC, topic.name
            ):
                answer = {**answer, **_CONFIGS_HIDDEN}
        answers.append({"name": topic.name, **answer})
    return {"topics": answers}


async def _create(broker: Broker, wanted: Any, validate_only: bool) -> Values:
    try:
        broker.check_contact()
        check_name(wanted.name)
        count = _partition_count(broker, wanted)
        configs = {c.name: checked(c.name, c.value) for c in wanted.configs}
        if validate_only:
            await broker.cluster.barrier()
            if wanted.name in broker.cluster.state.names:
                raise TopicExists(f"Topic '{wanted.name}' already exists.")
            return _created(broker, None, count, configs)
        topic = await broker.topics.create(wanted.name, count, configs)
        return _created(broker, topic, count, configs)
    except HeadwaterError as error:
        return _fault(error)


def _partition_count(broker: Broker, wanted: Any) -> int:
    count = wanted.num_partitions
    if wanted.assignments:
        indexes = sorted(a.partition_index for a in wanted.assignments)
        if count not in (-1, len(indexes)) or indexes != list(range(len(indexes))):
            raise InvalidPartitions("assignments must name partitions 0 to n-1, without a partition count")
        count = len(indexes)
    if count == -1:
        count = broker.settings.default_partitions
    if not 0 < count <= broker.settings.limits.partitions_per_topic:
        raise InvalidPartitions(
            f"Number of partitions must be 1 to {broker.settings.limits.partitions_per_topic}, not {count}."
        )
    return int(count)


def _created(broker: Broker, topic: Topic | None, count: int, configs: dict[str, str]) -> Values:
    return {
        "error_code": ErrorCode.none,
        "topic_id": topic.id if topic is not None else None,
        "num_partitions": count,
        "replication_factor": 1,
        "configs": describe_topic_configs(configs),
    }


@api(37, 0, 3)
async def create_partitions(broker: Broker, request: Request) -> Values:
    """Only ever more partitions."""
    results = []
    for wanted in request.body.topics:
        answer: Values = {"error_code": ErrorCode.none}
        if not broker.may(request, Operation.ALTER, ResourceKind.TOPIC, wanted.name):
            results.append({"name": wanted.name, **_FORBIDDEN})
            continue
        try:
            broker.check_contact()
            topic = await _find(broker, wanted.name)
            if not len(topic.streams) < wanted.count <= broker.settings.limits.partitions_per_topic:
                raise InvalidPartitions(
                    f"Topic currently has {len(topic.streams)} partitions, {wanted.count} is not an increase."
                )
            if not request.body.validate_only:
                await broker.topics.add_partitions(topic, wanted.count)
        except HeadwaterError as error:
            answer = _fault(error)
        results.append({"name": wanted.name, **answer})
    return {"results": results}


async def _find(broker: Broker, name: str) -> Topic:
    await broker.cluster.barrier()
    topic = broker.cluster.state.names.get(name)
    if topic is None:
        raise TopicUnknown(f"This server does not host the topic {name!r}.")
    return topic


@api(20, 1, 6)
async def delete_topics(broker: Broker, request: Request) -> Values:
    """By name or, from version 6 on, by id."""
    body = request.body
    wanted = body.topics if request.version >= 6 else [_Named(name) for name in body.topic_names]
    return {"responses": [await _delete(broker, request, one) for one in wanted]}


async def _delete(broker: Broker, request: Request, one: Any) -> Values:
    """A topic that the caller may not even describe looks the same whether it exists or not."""
    name = one.name
    try:
        if name is None:
            await broker.cluster.barrier()
            found = broker.cluster.state.topics.get(one.topic_id)
            if found is None or found.deleting:
                return {"topic_id": one.topic_id, "error_code": ErrorCode.unknown_topic_id}
            name = found.name
        if not _may_delete(broker, request, Operation.DESCRIBE, name):
            return {"name": one.name, "topic_id": one.topic_id if one.name is None else None, **_FORBIDDEN}
        broker.check_contact()
        topic = await _find(broker, name)
        if not _may_delete(broker, request, Operation.DELETE, name):
            return {"name": name, "topic_id": one.topic_id if one.name is None else None, **_FORBIDDEN}
        await broker.topics.delete(topic)
        return {"name": name, "error_code": ErrorCode.none, "topic_id": topic.id}
    except HeadwaterError as error:
        return {"name": name, **_fault(error)}


def _may_delete(broker: Broker, request: Request, operation: Operation, name: str) -> bool:
    return broker.may(request, Operation.DELETE, ResourceKind.CLUSTER) or broker.may(
        request, operation, ResourceKind.TOPIC, name
    )


class _Named:
    """A topic of a request that knows names only."""

    topic_id = None

    def __init__(self, name: str) -> None:
        self.name = name
