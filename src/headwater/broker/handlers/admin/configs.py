"""DescribeConfigs, versions 1 to 4, and ListConfigResources, versions 0 and 1.

Topics, brokers, loggers, groups, and subscriptions to clients' metrics.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from kio.schema.errors import ErrorCode

from headwater.broker import loggers
from headwater.broker.broker import Broker
from headwater.broker.errors import Coded, code_of
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.configs import brokers as broker_configs
from headwater.configs import client_metrics
from headwater.configs import groups as group_configs
from headwater.configs import topics as topic_configs
from headwater.configs.brokers import DEFAULT, Row
from headwater.configs.described import OF_CLIENT_METRICS, OF_GROUP, rows_of, topic_rows
from headwater.configs.keys import ConfigKey, Kind
from headwater.errors import BadInput, HeadwaterError, NotFound
from headwater.log.retention import spared_words
from headwater.replica.internal_topics import is_empty, topic_by_name, topic_names
from headwater.replica.topic_rights import needs_of
from headwater.replica.topics import check_name
from headwater.state.cluster import access
from headwater.state.cluster.access import Operation
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.resources import ALL_BROKERS, ConfigResource
from headwater.types import Domain

SOURCE_LOGGER = 6
LISTED_BEFORE_1 = (ConfigResource.CLIENT_METRICS,)


def describe_topic_configs(broker: Broker, configs: Mapping[str, str]) -> list[Values]:
    """All configs of a topic, with the sources of their values."""
    return _rows(topic_rows(configs, broker.cluster.state.resources))


def _rows(rows: Iterable[Row]) -> list[Values]:
    return [_row(row.key, row.value, row.source, row.read_only, row.sources) for row in rows]


def _row(key: ConfigKey, value: str, source: int, read_only: bool, synonyms: Iterable[tuple[str, str, int]]) -> Values:
    return {
        "name": key.name,
        "value": value,
        "read_only": read_only,
        "is_sensitive": False,
        "config_source": source,
        "config_type": key.kind.value,
        "documentation": key.meaning,
        "synonyms": [{"name": name, "value": value, "source": origin} for name, value, origin in synonyms],
    }


def forbidden(broker: Broker, request: Request, operation: Operation, resource: Any) -> Values | None:
    """The error if the caller is not allowed this on a resource. Other resources than topics and groups need rights
    on the cluster."""
    kinds = {
        ConfigResource.TOPIC: (access.AclResource.TOPIC, resource.resource_name, ErrorCode.topic_authorization_failed),
        ConfigResource.GROUP: (access.AclResource.GROUP, resource.resource_name, ErrorCode.group_authorization_failed),
    }
    cluster = (access.AclResource.CLUSTER, access.THE_CLUSTER, ErrorCode.cluster_authorization_failed)
    kind, name, code = kinds.get(resource.resource_type, cluster)
    if broker.may(request, operation, kind, name):
        return None
    return {"error_code": code, "error_message": "not authorized"}


def check_rights(
    broker: Broker, request: Request, name: str, configs: Mapping[str, str], before: Mapping[str, str]
) -> None:
    """Raise unless the caller has the rights of what a topic's new configs make the server do."""
    for need in needs_of(name, configs, before):
        if not any(broker.may(request, operation, need.kind, need.name) for operation in need.operations):
            raise Coded(ErrorCode.topic_authorization_failed, f"not authorized: {need}")


def identity(resource: Any) -> Values:
    """The fields of an answer that identify its resource."""
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}


@api(32, 1, 4, RequestKind.LOOKUP)
async def describe_configs(broker: Broker, request: Request) -> Values:
    """Describe each resource on its own: one that does not exist does not stop the others."""
    results = []
    work = broker.turns.work()
    failure = await broker.read_cluster()
    # Each resource is answered once, however often it is named with the same configs.
    for resource in dict.fromkeys(request.body.resources):
        await work.did()
        refusal = forbidden(broker, request, Operation.DESCRIBE_CONFIGS, resource)
        if refusal is not None:
            results.append({**identity(resource), **refusal})
            continue
        try:
            if failure is not None:
                raise failure
            configs = _describe(broker, request, resource.resource_type, resource.resource_name)
            await work.did(len(configs))
            answer: Values = {"error_code": ErrorCode.none, "configs": _trimmed(request, resource, configs)}
        except HeadwaterError as error:
            answer = {"error_code": code_of(error), "error_message": str(error)}
        results.append({**identity(resource), **answer})
    return {"results": results}


def _describe(broker: Broker, request: Request, kind: int, name: str) -> list[Values]:
    state = broker.cluster.state
    if kind == ConfigResource.TOPIC:
        check_name(name)
        topic = topic_by_name(state, name)
        if topic is None:
            raise NotFound(f"This server does not host the topic {name!r}.")
        rows = [*describe_topic_configs(broker, topic.configs), *_damage(broker, request, name)]
        rows += _link(broker, topic.id) + _retention(broker, topic)
        return [{**row, "read_only": True} for row in rows] if is_empty(topic) else rows
    if kind == ConfigResource.BROKER:
        return _broker(broker, name)
    if kind == ConfigResource.BROKER_LOGGER:
        if name != str(broker.node):
            raise BadInput(f"Unexpected broker id, expected {broker.node} but received {name}")
        key = ConfigKey("", Kind.STRING, "", str, "")
        return [{**_row(key, loggers.level(n), SOURCE_LOGGER, False, ()), "name": n} for n in loggers.names()]
    if kind == ConfigResource.CLIENT_METRICS:
        if not name:
            raise BadInput("Client metrics subscription name must not be empty")
        configs = state.resources.of(ConfigResource.CLIENT_METRICS, name)
        return _rows(rows_of(client_metrics.KEYS, configs, OF_CLIENT_METRICS, state.resources))
    if kind == ConfigResource.GROUP:
        if not name:
            raise BadInput("Group name must not be empty")
        configs = state.resources.of(ConfigResource.GROUP, name)
        return _rows(rows_of(group_configs.KEYS, configs, OF_GROUP, state.resources))
    raise BadInput(f"Unsupported resource type: {kind}")


def _damage(broker: Broker, request: Request, topic: str) -> list[Values]:
    """The ranges of a topic that this broker cannot read, as a config that only the broker sets.

    It names the groups and clients that wait there, as far as the caller may know of them.
    """
    every = broker.may(request, Operation.DESCRIBE, access.AclResource.CLUSTER)

    def shown(group: str) -> bool:
        return every or broker.may(request, Operation.DESCRIBE, access.AclResource.GROUP, group)

    lines = [
        msgspec.structs.replace(
            line, groups=[group for group in line.groups if shown(group)], clients=line.clients if every else []
        )
        for line in broker.reader.damage.lines(topic=topic)
    ]
    value = msgspec.json.encode(lines).decode()
    return [_row(topic_configs.DAMAGE, value, DEFAULT, True, ())] if lines else []


class _Linked(msgspec.Struct):
    """The link of a topic, as its config shows it."""

    link: str
    source: str
    phase: str
    reason: str
    generation: int


def _link(broker: Broker, topic: uuid.UUID) -> list[Values]:
    """The link of a topic, as a config that only the broker sets."""
    linked = broker.cluster.state.links.topics.get(topic)
    if linked is None:
        return []
    told = _Linked(linked.link, linked.source, linked.phase.name.lower(), linked.reason, linked.generation)
    return [_row(topic_configs.LINK, msgspec.json.encode(told).decode(), DEFAULT, True, ())]


def _retention(broker: Broker, topic: Topic) -> list[Values]:
    """What retention does with records that were too old when they arrived, as a config that only the broker sets."""
    if is_empty(topic):
        return []
    state, common = broker.domains[Domain(topic.domain)].state, broker.cluster.state.resources.common
    words = spared_words(state, topic, common, broker.clock.wall_ms(), broker.settings.housekeeping)
    return [_row(topic_configs.RETENTION_NOTICE, words, DEFAULT, True, ())] if words else []


def _broker(broker: Broker, name: str) -> list[Values]:
    resources = broker.cluster.state.resources
    if name == ALL_BROKERS:
        rows = broker_configs.common_rows(resources)
    elif name == str(broker.node):
        rows = broker_configs.rows(broker.settings, resources)
    elif not name.removeprefix("-").isdecimal():
        raise BadInput(f"Broker id must be an integer, but it is: {name}")
    else:
        raise BadInput(f"Unexpected broker id, expected {broker.node} or empty string, but received {name}")
    return _rows(rows)


def _trimmed(request: Request, resource: Any, configs: list[Values]) -> list[Values]:
    """Only the requested configs. No list of keys, or an empty one, requests all."""
    if resource.configuration_keys:
        configs = [config for config in configs if config["name"] in resource.configuration_keys]
    if not request.body.include_synonyms:
        configs = [{**config, "synonyms": []} for config in configs]
    if request.version >= 3 and not request.body.include_documentation:
        configs = [{**config, "documentation": None} for config in configs]
    return configs


@api(74, 0, 1, RequestKind.LOOKUP)
async def list_config_resources(broker: Broker, request: Request) -> Values:
    """Names of resources that can be described: topics, the brokers of this cluster, and resources with configs."""
    asked = LISTED_BEFORE_1 if request.version < 1 else request.body.resource_types or tuple(ConfigResource)
    if any(kind not in list(ConfigResource) for kind in asked):
        return {"error_code": ErrorCode.unsupported_version}
    try:
        broker.check_cluster(request, Operation.DESCRIBE_CONFIGS)
        broker.check_contact()
        await broker.cluster.barrier()
    except HeadwaterError as error:
        return {"error_code": code_of(error)}
    found = [
        {"resource_type": kind, "resource_name": name} for kind in sorted(set(asked)) for name in _names(broker, kind)
    ]
    return {"error_code": ErrorCode.none, "config_resources": found}


def _names(broker: Broker, kind: int) -> list[str]:
    state = broker.cluster.state
    if kind == ConfigResource.TOPIC:
        return topic_names(state)
    if kind in (ConfigResource.BROKER, ConfigResource.BROKER_LOGGER):
        return sorted(str(member.node) for member in broker.nodes())
    return state.resources.names(ConfigResource(kind))
