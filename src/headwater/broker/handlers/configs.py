"""DescribeConfigs, versions 1 to 4, and ListConfigResources, versions 0 and 1.

Topics, brokers, loggers, groups, and subscriptions to clients' metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker import broker_configs, loggers
from headwater.broker.core import Broker
from headwater.broker.faults import InvalidRequest, code_of
from headwater.broker.registry import Request, Values, api
from headwater.errors import HeadwaterError
from headwater.metadata import access, client_metrics, group_configs, topic_configs
from headwater.metadata.access import Operation
from headwater.metadata.config_keys import ConfigKey, Kind
from headwater.metadata.resources import ResourceKind
from headwater.metadata.topics import InvalidTopicName, TopicUnknown, check_name

SOURCE_TOPIC, SOURCE_DEFAULT, SOURCE_LOGGER, SOURCE_CLIENT_METRICS, SOURCE_GROUP = 1, 5, 6, 7, 8
UNSET = ("log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms")
"""Broker configs that Kafka leaves unset, so that no topic config has its default from them."""
LISTED_BEFORE_1 = (ResourceKind.CLIENT_METRICS,)


def describe_set(
    keys: Mapping[str, ConfigKey], configs: Mapping[str, str], source: int, facts: Mapping[str, str] | None = None
) -> list[Values]:
    """All configs of a resource: those that are set, and the defaults of the others, unless the facts say otherwise."""
    found = []
    for key in keys.values():
        default = (facts or {}).get(key.name, key.default)
        chosen = key.name in configs and not key.fixed
        synonyms = [(key.name, configs[key.name], source)] if chosen else []
        if key.synonym and key.synonym not in UNSET:
            synonyms.append((key.synonym, default, SOURCE_DEFAULT))
        value, where = (configs[key.name], source) if chosen else (default, SOURCE_DEFAULT)
        found.append(_row(key, value, where, key.fixed, synonyms))
    return found


def describe_topic_configs(broker: Broker, configs: Mapping[str, str]) -> list[Values]:
    """All configs of a topic, with where their values come from."""
    return describe_set(topic_configs.KEYS, configs, SOURCE_TOPIC, topic_configs.facts(broker.settings))


def _row(key: ConfigKey, value: str, source: int, read_only: bool, synonyms: Iterable[tuple[str, str, int]]) -> Values:
    return {
        "name": key.name,
        "value": value,
        "read_only": read_only,
        "is_sensitive": False,
        "config_source": source,
        "config_type": key.kind.value,
        "documentation": key.doc,
        "synonyms": [{"name": name, "value": value, "source": origin} for name, value, origin in synonyms],
    }


def forbidden(broker: Broker, request: Request, operation: Operation, resource: Any) -> Values | None:
    """What is said to those who may not do this to a resource; what is about no topic or group is about the cluster."""
    kinds = {
        ResourceKind.TOPIC: (access.ResourceKind.TOPIC, resource.resource_name, ErrorCode.topic_authorization_failed),
        ResourceKind.GROUP: (access.ResourceKind.GROUP, resource.resource_name, ErrorCode.group_authorization_failed),
    }
    cluster = (access.ResourceKind.CLUSTER, access.THE_CLUSTER, ErrorCode.cluster_authorization_failed)
    kind, name, code = kinds.get(resource.resource_type, cluster)
    if broker.may(request, operation, kind, name):
        return None
    return {"error_code": code, "error_message": "not authorized"}


def identity(resource: Any) -> Values:
    """Which resource an answer is about."""
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}


@api(32, 1, 4)
async def describe_configs(broker: Broker, request: Request) -> Values:
    """Each resource on its own: one that does not exist does not stop the others."""
    results = []
    for resource in request.body.resources:
        refusal = forbidden(broker, request, Operation.DESCRIBE_CONFIGS, resource)
        if refusal is not None:
            results.append({**identity(resource), **refusal})
            continue
        try:
            await broker.cluster.barrier()
            configs = _describe(broker, resource.resource_type, resource.resource_name)
            answer: Values = {"error_code": ErrorCode.none, "configs": _trimmed(request, resource, configs)}
        except InvalidTopicName as error:
            answer = {"error_code": ErrorCode.invalid_topic_exception, "error_message": str(error)}
        except TopicUnknown as error:
            answer = {"error_code": ErrorCode.unknown_topic_or_partition, "error_message": str(error)}
        except HeadwaterError as error:
            answer = {"error_code": code_of(error), "error_message": str(error)}
        results.append({**identity(resource), **answer})
    return {"results": results}


def _describe(broker: Broker, kind: int, name: str) -> list[Values]:
    state = broker.cluster.state
    if kind == ResourceKind.TOPIC:
        check_name(name)
        topic = state.names.get(name)
        if topic is None:
            raise TopicUnknown(f"This server does not host the topic {name!r}.")
        return describe_topic_configs(broker, topic.configs)
    if kind == ResourceKind.BROKER:
        return _broker(broker, name)
    if kind == ResourceKind.BROKER_LOGGER:
        if name != str(broker.node):
            raise InvalidRequest(f"Unexpected broker id, expected {broker.node} but received {name}")
        key = ConfigKey("", Kind.STRING, "", str, "")
        return [{**_row(key, loggers.level(n), SOURCE_LOGGER, False, ()), "name": n} for n in loggers.names()]
    if kind == ResourceKind.CLIENT_METRICS:
        if not name:
            raise InvalidRequest("Client metrics subscription name must not be empty")
        configs = state.resources.of(ResourceKind.CLIENT_METRICS, name)
        return describe_set(client_metrics.KEYS, configs, SOURCE_CLIENT_METRICS)
    if kind == ResourceKind.GROUP:
        if not name:
            raise InvalidRequest("Group name must not be empty")
        return describe_set(group_configs.KEYS, state.resources.of(ResourceKind.GROUP, name), SOURCE_GROUP)
    raise InvalidRequest(f"Unsupported resource type: {kind}")


def _broker(broker: Broker, name: str) -> list[Values]:
    resources = broker.cluster.state.resources
    if name == broker_configs.ALL_BROKERS:
        rows = broker_configs.common_rows(resources)
    elif name == str(broker.node):
        rows = broker_configs.rows(broker.settings, resources)
    elif not name.removeprefix("-").isdecimal():
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    else:
        raise InvalidRequest(f"Unexpected broker id, expected {broker.node} or empty string, but received {name}")
    return [_row(row.key, row.value, row.sources[0][2], row.read_only, row.sources) for row in rows]


def _trimmed(request: Request, resource: Any, configs: list[Values]) -> list[Values]:
    """Only what was asked for; no list of keys, or an empty one, asks for all."""
    if resource.configuration_keys:
        configs = [config for config in configs if config["name"] in resource.configuration_keys]
    if not request.body.include_synonyms:
        configs = [{**config, "synonyms": []} for config in configs]
    if request.version >= 3 and not request.body.include_documentation:
        configs = [{**config, "documentation": None} for config in configs]
    return configs


@api(74, 0, 1)
async def list_config_resources(broker: Broker, request: Request) -> Values:
    """Names of what can be described: topics, this cluster's brokers, and what has configs of its own."""
    asked = LISTED_BEFORE_1 if request.version < 1 else request.body.resource_types or tuple(ResourceKind)
    if any(kind not in list(ResourceKind) for kind in asked):
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
    if kind == ResourceKind.TOPIC:
        return sorted(state.names)
    if kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER):
        return sorted(str(member.node) for member in broker.nodes())
    return state.resources.names(ResourceKind(kind))
