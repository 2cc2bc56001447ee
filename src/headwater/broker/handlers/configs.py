"""DescribeConfigs, versions 1 to 4, AlterConfigs, versions 0 to 2, IncrementalAlterConfigs, versions 0 and 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker
from headwater.broker.faults import code_of
from headwater.broker.registry import Request, Values, api
from headwater.errors import ConfigError, HeadwaterError
from headwater.metadata.access import THE_CLUSTER, Operation, ResourceKind
from headwater.metadata.cluster import Topic
from headwater.metadata.topic_configs import KEYS, Kind, checked
from headwater.metadata.topics import TopicUnknown

TOPIC, BROKER = 2, 4
SOURCE_TOPIC, SOURCE_STATIC, SOURCE_DEFAULT = 1, 4, 5
SET, DELETE, APPEND, SUBTRACT = range(4)
GROUP = 32


def describe_topic_configs(configs: Mapping[str, str], wanted: set[str] | None = None) -> list[Values]:
    """All configs of a topic, or the wanted ones, with where their values come from."""
    found: list[Values] = []
    for key in KEYS.values():
        if wanted is not None and key.name not in wanted:
            continue
        source = SOURCE_TOPIC if key.name in configs else SOURCE_DEFAULT
        found.append(
            {
                "name": key.name,
                "value": configs.get(key.name, key.default),
                "read_only": False,
                "is_sensitive": False,
                "config_source": source,
                "config_type": key.kind.value,
                "documentation": key.doc,
                "synonyms": [{"name": key.name, "value": configs.get(key.name, key.default), "source": source}],
            }
        )
    return found


def describe_broker_configs(broker: Broker, wanted: set[str] | None = None) -> list[Values]:
    """What of a broker's settings has a name in Kafka. They come from its file and flags, so they are read-only."""
    settings = broker.settings
    rows = {
        "auto.create.topics.enable": (str(settings.auto_create_topics).lower(), Kind.BOOLEAN),
        "broker.id": (str(settings.node), Kind.INT),
        "broker.rack": (settings.zone, Kind.STRING),
        "default.replication.factor": ("1", Kind.INT),
        "fetch.max.bytes": (str(settings.limits.fetch_response_bytes), Kind.INT),
        "listeners": (settings.kafka, Kind.STRING),
        "max.connections": (str(settings.limits.connections), Kind.INT),
        "num.partitions": (str(settings.default_partitions), Kind.INT),
        "producer.id.expiration.ms": (str(settings.housekeeping.producer_expiry_ms), Kind.INT),
        "socket.request.max.bytes": (str(settings.limits.frame_bytes), Kind.INT),
    }
    return [
        {
            "name": name,
            "value": value,
            "read_only": True,
            "config_source": SOURCE_STATIC,
            "config_type": kind.value,
        }
        for name, (value, kind) in rows.items()
        if wanted is None or name in wanted
    ]


async def _topic(broker: Broker, name: str) -> Topic:
    await broker.cluster.barrier()
    topic = broker.cluster.state.names.get(name)
    if topic is None:
        raise TopicUnknown(f"This server does not host the topic {name!r}.")
    return topic


def _forbidden(broker: Broker, request: Request, operation: Operation, resource: Any) -> Values | None:
    """What is said to those who may not do this to a resource; what is about no topic or group is about the cluster."""
    kinds = {
        TOPIC: (ResourceKind.TOPIC, resource.resource_name, ErrorCode.topic_authorization_failed),
        GROUP: (ResourceKind.GROUP, resource.resource_name, ErrorCode.group_authorization_failed),
    }
    cluster = (ResourceKind.CLUSTER, THE_CLUSTER, ErrorCode.cluster_authorization_failed)
    kind, name, code = kinds.get(resource.resource_type, cluster)
    if broker.may(request, operation, kind, name):
        return None
    return {"error_code": code, "error_message": "not authorized"}


def _fault(error: HeadwaterError) -> Values:
    code = ErrorCode.unknown_topic_or_partition if isinstance(error, TopicUnknown) else code_of(error)
    return {"error_code": code, "error_message": str(error)}


def _identity(resource: Any) -> Values:
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}


@api(32, 1, 4)
async def describe_configs(broker: Broker, request: Request) -> Values:
    """Topics and this broker."""
    results = []
    for resource in request.body.resources:
        wanted = set(resource.configuration_keys) if resource.configuration_keys is not None else None
        answer = _forbidden(broker, request, Operation.DESCRIBE_CONFIGS, resource)
        if answer is not None:
            results.append({**_identity(resource), **answer})
            continue
        try:
            if resource.resource_type == TOPIC:
                topic = await _topic(broker, resource.resource_name)
                configs = describe_topic_configs(topic.configs, wanted)
            elif resource.resource_type == BROKER and resource.resource_name in ("", str(broker.node)):
                configs = describe_broker_configs(broker, wanted)
            else:
                raise ConfigError(f"no configs of resource type {resource.resource_type} here")
            if request.version >= 1 and not request.body.include_synonyms:
                configs = [{**c, "synonyms": []} for c in configs]
            answer = {"error_code": ErrorCode.none, "configs": configs}
        except HeadwaterError as error:
            answer = _fault(error)
            if not isinstance(error, TopicUnknown) and isinstance(error, ConfigError):
                answer = {**answer, "error_code": ErrorCode.invalid_request}
        results.append({**_identity(resource), **answer})
    return {"results": results}


@api(44, 0, 1)
async def incremental_alter_configs(broker: Broker, request: Request) -> Values:
    """Set, remove, and change lists of topic configs."""
    return await _alter(broker, request, _changes)


@api(33, 0, 2)
async def alter_configs(broker: Broker, request: Request) -> Values:
    """Replace all of a topic's configs."""
    return await _alter(broker, request, _replacement)


async def _alter(broker: Broker, request: Request, changes: Any) -> Values:
    responses = []
    for resource in request.body.resources:
        answer = _forbidden(broker, request, Operation.ALTER_CONFIGS, resource)
        if answer is not None:
            responses.append({**_identity(resource), **answer})
            continue
        answer = {"error_code": ErrorCode.none}
        try:
            broker.check_contact()
            if resource.resource_type != TOPIC:
                raise ConfigError("only topic configs can be changed while a broker runs")
            topic = await _topic(broker, resource.resource_name)
            put, remove = changes(topic, resource.configs)
            if not request.body.validate_only:
                await broker.topics.alter(topic, put, remove)
        except HeadwaterError as error:
            answer = _fault(error)
        responses.append({**_identity(resource), **answer})
    return {"responses": responses}


def _replacement(topic: Topic, configs: Any) -> tuple[dict[str, str], list[str]]:
    put = {c.name: checked(c.name, c.value) for c in configs}
    return put, [name for name in topic.configs if name not in put]


def _changes(topic: Topic, configs: Any) -> tuple[dict[str, str], list[str]]:
    put: dict[str, str] = {}
    remove: list[str] = []
    for c in configs:
        key = KEYS.get(c.name)
        if c.config_operation == SET:
            put[c.name] = checked(c.name, c.value)
        elif key is None:
            raise ConfigError(f"Unknown topic config name: {c.name}")
        elif c.config_operation == DELETE:
            remove.append(c.name)
        elif c.config_operation in (APPEND, SUBTRACT) and key.kind is Kind.LIST:
            now = [v for v in topic.configs.get(c.name, key.default).split(",") if v]
            asked = [v.strip() for v in (c.value or "").split(",") if v.strip()]
            if c.config_operation == APPEND:
                now += [v for v in asked if v not in now]
            else:
                now = [v for v in now if v not in asked]
            put[c.name] = checked(c.name, ",".join(now))
        else:
            raise ConfigError(f"Config value append is not allowed for config key: {c.name}")
    return put, remove
