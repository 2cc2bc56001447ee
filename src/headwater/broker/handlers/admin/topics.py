"""CreateTopics, versions 2 to 7, CreatePartitions, versions 0 to 3, DeleteTopics, versions 1 to 6.

Replication factors and assignments are checked, accepted and have no effect: object storage replicates.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.errors import Coded, code_of
from headwater.broker.handlers.admin.configs import check_rights, describe_topic_configs
from headwater.broker.handlers.admin.replicas import check_replicas
from headwater.broker.registry import api
from headwater.broker.request import Request, Values
from headwater.configs import topics as topic_configs
from headwater.configs.changes import Change
from headwater.errors import (
    BadInput,
    ConfigError,
    HeadwaterError,
    InvalidPartitions,
    NotFound,
)
from headwater.replica.internal_topics import changeable, topic_by_id, topic_by_name
from headwater.replica.links import check_own_partitions
from headwater.replica.topic_rights import with_setter
from headwater.replica.topic_rules import check_choices, check_growth, within_limit
from headwater.replica.topics import check_name
from headwater.security.quotas import MutationBudget
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.cluster.domain import Topic

DEFAULT = -1
"""The number of partitions or replicas is the broker's default."""

STRICT_CREATIONS, STRICT_GROWTH, STRICT_DELETIONS = 6, 3, 5
"""From these versions on a quota may refuse a request. Clients of older versions are only slowed down."""


_FORBIDDEN: Values = {
    "error_code": ErrorCode.topic_authorization_failed,
    "error_message": "Authorization failed.",
}
_NOTHING_MADE: Values = {"num_partitions": DEFAULT, "replication_factor": DEFAULT, "configs": []}
_CONFIGS_HIDDEN: Values = {
    "topic_config_error_code": ErrorCode.topic_authorization_failed,
    "num_partitions": -1,
    "replication_factor": -1,
    "configs": [],
}


def _fault(error: HeadwaterError) -> Values:
    return {"error_code": code_of(error), "error_message": str(error)}


@api(19, 2, 7)
async def create_topics(broker: Broker, request: Request) -> Values:
    """Create each topic on its own: one that cannot be created does not stop the others."""
    body = request.body
    names = Counter(topic.name for topic in body.topics)
    budget = broker.quotas.mutations(request.user, request.client_id, strict=request.version >= STRICT_CREATIONS)
    anywhere = broker.may(request, Operation.CREATE, AclResource.CLUSTER)
    answers = []
    failure = await broker.read_cluster()
    async for topic in broker.turns.work().over({topic.name: topic for topic in body.topics}.values()):
        try:
            if names[topic.name] > 1:
                raise BadInput("Duplicate topic name.")
            if not anywhere and not broker.may(request, Operation.CREATE, AclResource.TOPIC, topic.name):
                answers.append({"name": topic.name, **_FORBIDDEN, "configs": []})
                continue
            broker.check_contact()
            if failure is not None:
                raise failure
            answer = await _create(broker, request, topic, body.validate_only, budget)
            if not broker.may(request, Operation.DESCRIBE_CONFIGS, AclResource.TOPIC, topic.name):
                answer = {**answer, **_CONFIGS_HIDDEN}
        except HeadwaterError as error:
            answer = {**_fault(error), **_NOTHING_MADE}
        answers.append({"name": topic.name, **answer})
    return {"topics": answers, "throttle_time": budget.throttle_ms}


async def _create(broker: Broker, request: Request, wanted: Any, validate_only: bool, budget: MutationBudget) -> Values:
    check_name(wanted.name)
    broker.check_free(wanted.name)
    configs = _configs(broker, wanted.configs)
    check_rights(broker, request, wanted.name, configs, {})
    check_choices(broker.cluster.state, wanted.name, configs, {})
    count = _partition_count(broker, wanted)
    broker.check_room(count)
    if validate_only:
        return _created(broker, broker.chance.uuid(), count, configs)
    budget.spend(count)
    stored = with_setter(Change(configs), {}, request.connection.principal, request.connection.host)
    topic = await broker.topics.create(wanted.name, count, stored.put)
    return _created(broker, topic.id, count, configs)


def _configs(broker: Broker, wanted: Any) -> dict[str, str]:
    """The configs that are stored with a topic, checked."""
    nulls = [c.name for c in wanted if c.value is None]
    if nulls:
        raise ConfigError(f"Null value not supported for topic configs: {','.join(nulls)}")
    given = {c.name: topic_configs.checked(c.name, c.value) for c in wanted}
    topic_configs.check_together(given, broker.cluster.state.resources.common)
    return given


def _partition_count(broker: Broker, wanted: Any) -> int:
    count, factor = wanted.num_partitions, wanted.replication_factor
    if wanted.assignments:
        return _assigned(broker, wanted)
    if factor < 1 and factor != DEFAULT:
        raise Coded(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count < 1 and count != DEFAULT:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    if count == DEFAULT:
        count = broker.settings.default_partitions
    return within_limit(broker.settings.limits, count)


def _assigned(broker: Broker, wanted: Any) -> int:
    if wanted.replication_factor != DEFAULT:
        raise BadInput("A manual partition assignment was specified, but replication factor was not set to -1.")
    if wanted.num_partitions != DEFAULT:
        raise BadInput("A manual partition assignment was specified, but numPartitions was not set to -1.")
    indexes = [a.partition_index for a in wanted.assignments]
    times = Counter(indexes)
    for assignment in wanted.assignments:
        if times[assignment.partition_index] > 1:
            index = assignment.partition_index
            raise Coded(
                ErrorCode.invalid_replica_assignment,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_replicas(broker, assignment.broker_ids)
    if sorted(indexes) != list(range(len(indexes))):
        raise Coded(ErrorCode.invalid_replica_assignment, "partitions should be a consecutive 0-based integer sequence")
    return within_limit(broker.settings.limits, len(indexes))


def _created(broker: Broker, topic_id: uuid.UUID, count: int, configs: Mapping[str, str]) -> Values:
    return {
        "error_code": ErrorCode.none,
        "topic_id": topic_id,
        "num_partitions": count,
        "replication_factor": 1,
        "configs": describe_topic_configs(broker, configs),
    }


@api(37, 0, 3)
async def create_partitions(broker: Broker, request: Request) -> Values:
    """Add partitions. Their number cannot be reduced."""
    names = Counter(topic.name for topic in request.body.topics)
    budget = broker.quotas.mutations(request.user, request.client_id, strict=request.version >= STRICT_GROWTH)
    results = []
    failure = await broker.read_cluster()
    async for wanted in broker.turns.work().over({topic.name: topic for topic in request.body.topics}.values()):
        answer: Values = {"error_code": ErrorCode.none}
        if not broker.may(request, Operation.ALTER, AclResource.TOPIC, wanted.name):
            results.append({"name": wanted.name, **_FORBIDDEN})
            continue
        try:
            broker.check_contact()
            if names[wanted.name] > 1:
                raise BadInput("Duplicate topic name.")
            if failure is not None:
                raise failure
            topic = changeable(_find(broker, wanted.name))
            check_own_partitions(broker.cluster.state, topic)
            _check_growth(broker, topic, wanted)
            if not request.body.validate_only:
                budget.spend(wanted.count - len(topic.streams))
                await broker.topics.add_partitions(topic, wanted.count)
        except HeadwaterError as error:
            answer = _fault(error)
        results.append({"name": wanted.name, **answer})
    return {"results": results, "throttle_time": budget.throttle_ms}


def _check_growth(broker: Broker, topic: Topic, wanted: Any) -> None:
    now = len(topic.streams)
    check_growth(broker.settings.limits, topic, wanted.count)
    broker.check_room(wanted.count - now)
    if wanted.assignments is None:
        return
    more = wanted.count - now
    if len(wanted.assignments) != more:
        only = "only " if len(wanted.assignments) < more else ""
        raise Coded(
            ErrorCode.invalid_replica_assignment,
            f"Attempted to add {more} additional partition(s), but {only}{len(wanted.assignments)} assignment(s) "
            "were specified.",
        )
    for assignment in wanted.assignments:
        check_replicas(broker, assignment.broker_ids)


def _find(broker: Broker, name: str) -> Topic:
    topic = topic_by_name(broker.cluster.state, name)
    if topic is None:
        raise NotFound(f"This server does not host the topic {name!r}.")
    return topic


@api(20, 1, 6)
async def delete_topics(broker: Broker, request: Request) -> Values:
    """Delete topics by name or, from version 6 on, by id."""
    body = request.body
    wanted = body.topics if request.version >= 6 else [_Named(name) for name in body.topic_names]
    asked = Counter((one.name, one.topic_id) for one in wanted)
    budget = broker.quotas.mutations(request.user, request.client_id, strict=request.version >= STRICT_DELETIONS)
    responses = []
    failure = await broker.read_cluster()
    async for (name, topic_id), times in broker.turns.work().over(asked.items()):
        known: Values = {"name": name, "topic_id": topic_id}
        try:
            broker.check_contact()
            if times > 1:
                raise BadInput("Duplicate topic name." if name is not None else "Duplicate topic id.")
            if failure is not None:
                raise failure
            topic = _deletable(broker, request, name, topic_id)
            known = {"name": topic.name, "topic_id": topic_id}
            if not _may_delete(broker, request, Operation.DELETE, topic.name):
                raise Coded(ErrorCode.topic_authorization_failed, "Authorization failed.")
            known = {"name": topic.name, "topic_id": topic.id}
            changeable(topic)
            budget.spend(len(topic.streams))
            await broker.topics.delete(topic)
            responses.append({**known, "error_code": ErrorCode.none})
        except HeadwaterError as error:
            responses.append({**known, **_fault(error)})
    return {"responses": responses, "throttle_time": budget.throttle_ms}


def _deletable(broker: Broker, request: Request, name: str | None, topic_id: Any) -> Topic:
    """A topic by name or id. If the caller may not describe it, the error does not show whether it exists."""
    if name is not None and topic_id is not None:
        raise BadInput("You may not specify both topic name and topic id.")
    if name is None and topic_id is None:
        raise BadInput("Neither topic name nor id were specified.")
    topic = _find_by_id(broker, topic_id) if name is None else None
    if not _may_delete(broker, request, Operation.DESCRIBE, name if topic is None else topic.name):
        raise Coded(ErrorCode.topic_authorization_failed, "Authorization failed.")
    return _find(broker, name or "") if topic is None else topic


def _may_delete(broker: Broker, request: Request, operation: Operation, name: str | None) -> bool:
    return broker.may(request, Operation.DELETE, AclResource.CLUSTER) or broker.may(
        request, operation, AclResource.TOPIC, name or ""
    )


def _find_by_id(broker: Broker, topic_id: Any) -> Topic:
    topic = topic_by_id(broker.cluster.state, topic_id)
    if topic is None:
        raise Coded(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
    return topic


class _Named:
    """A topic of a request version that has names only."""

    topic_id = None

    def __init__(self, name: str) -> None:
        self.name = name
