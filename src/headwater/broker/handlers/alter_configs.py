"""AlterConfigs, versions 0 to 2, and IncrementalAlterConfigs, versions 0 and 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker import broker_configs, loggers
from headwater.broker.core import Broker
from headwater.broker.faults import InvalidRequest, code_of
from headwater.broker.handlers.configs import forbidden, identity
from headwater.broker.registry import Request, Values, api
from headwater.errors import ConfigError, HeadwaterError, NotReady
from headwater.metadata import client_metrics, group_configs, topic_configs
from headwater.metadata.access import Operation
from headwater.metadata.commands import AlterResource
from headwater.metadata.config_keys import ConfigKey, Kind, elements
from headwater.metadata.resources import ResourceKind
from headwater.metadata.results import Done, Reason, Refused
from headwater.metadata.topics import InvalidTopicName, TopicUnknown, check_name

SET, DELETE, APPEND, SUBTRACT = range(4)
_WORDS = {APPEND: "APPEND to", SUBTRACT: "SUBTRACT from"}


def _nothing(configs: Mapping[str, str]) -> None:
    """Configs that demand nothing of each other."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """What the configs of a kind of resource may be."""

    keys: Mapping[str, ConfigKey]
    check: Callable[[str, str], str]
    check_together: Callable[[Mapping[str, str]], None] = _nothing


_RULES = {
    ResourceKind.BROKER: _Rules(broker_configs.DYNAMIC, broker_configs.checked),
    ResourceKind.CLIENT_METRICS: _Rules(client_metrics.KEYS, client_metrics.checked),
    ResourceKind.GROUP: _Rules(group_configs.KEYS, group_configs.checked, group_configs.check_together),
}


@dataclass(frozen=True, slots=True)
class _Change:
    put: dict[str, str] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)


@api(44, 0, 1)
async def incremental_alter_configs(broker: Broker, request: Request) -> Values:
    """Set, remove, and change lists of configs."""
    return await _alter(broker, request, incremental=True)


@api(33, 0, 2)
async def alter_configs(broker: Broker, request: Request) -> Values:
    """Replace all configs of a resource."""
    return await _alter(broker, request, incremental=False)


async def _alter(broker: Broker, request: Request, incremental: bool) -> Values:
    named = Counter((r.resource_type, r.resource_name) for r in request.body.resources)
    responses = []
    for resource in request.body.resources:
        answer = forbidden(broker, request, Operation.ALTER_CONFIGS, resource)
        if answer is not None:
            responses.append({**identity(resource), **answer})
            continue
        answer = {"error_code": ErrorCode.none}
        try:
            broker.check_contact()
            if named[(resource.resource_type, resource.resource_name)] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            _check_shape(resource.configs, incremental)
            await broker.cluster.barrier()
            await _alter_one(broker, resource, incremental, request.body.validate_only)
        except InvalidTopicName as error:
            answer = {"error_code": ErrorCode.invalid_topic_exception, "error_message": str(error)}
        except TopicUnknown as error:
            answer = {"error_code": ErrorCode.unknown_topic_or_partition, "error_message": str(error)}
        except HeadwaterError as error:
            answer = {"error_code": code_of(error), "error_message": str(error)}
        responses.append({**identity(resource), **answer})
    return {"responses": responses}


def _check_shape(configs: Any, incremental: bool) -> None:
    if len({c.name for c in configs}) != len(configs):
        raise InvalidRequest("Error due to duplicate config keys")
    if incremental and any(c.config_operation not in (SET, DELETE, APPEND, SUBTRACT) for c in configs):
        raise InvalidRequest("Unknown config operation")
    nulls = [c.name for c in configs if c.value is None and not (incremental and c.config_operation == DELETE)]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {','.join(nulls)}")


async def _alter_one(broker: Broker, resource: Any, incremental: bool, validate_only: bool) -> None:
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceKind.TOPIC:
        await _alter_topic(broker, name, resource.configs, incremental, validate_only)
    elif kind == ResourceKind.BROKER_LOGGER and incremental:
        _alter_loggers(broker, name, resource.configs, validate_only)
    elif kind in _RULES:
        _check_resource(broker, ResourceKind(kind), name)
        now = broker.cluster.state.resources.of(ResourceKind(kind), name)
        change = _change(_RULES[ResourceKind(kind)], now, resource.configs, incremental)
        if not validate_only and (change.put or change.remove):
            await _submit(broker, AlterResource(kind, name, change.put, tuple(change.remove)))
    else:
        raise InvalidRequest(f"Unknown resource type {kind}")


async def _alter_topic(broker: Broker, name: str, configs: Any, incremental: bool, validate_only: bool) -> None:
    if not name:
        raise InvalidRequest("Default topic resources are not allowed.")
    check_name(name)
    topic = broker.cluster.state.names.get(name)
    true = topic_configs.facts(broker.settings)
    rules = _Rules(
        topic_configs.KEYS,
        lambda name, value: topic_configs.changed(name, value, true),
        topic_configs.check_together,
    )
    change = _change(rules, topic.configs if topic is not None else {}, configs, incremental)
    if topic is None:
        raise TopicUnknown(f"The topic '{name}' does not exist.")
    if not validate_only:
        await broker.topics.alter(topic, topic_configs.settable(change.put), change.remove)


def _check_resource(broker: Broker, kind: ResourceKind, name: str) -> None:
    if kind is ResourceKind.BROKER and name not in (broker_configs.ALL_BROKERS, str(broker.node)):
        if not name.removeprefix("-").isdecimal():
            raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
        raise InvalidRequest(f"Unexpected broker id, expected {broker.node}, but received {name}")
    if kind is ResourceKind.GROUP and not name:
        raise InvalidRequest("Default group resources are not allowed.")
    if kind is ResourceKind.CLIENT_METRICS and not name:
        raise InvalidRequest("Subscription name can't be empty")


def _alter_loggers(broker: Broker, name: str, configs: Any, validate_only: bool) -> None:
    if not name.isdecimal():
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if name != str(broker.node):
        raise InvalidRequest(f"Unexpected node id. Expected {broker.node}, but received {name}")
    for c in configs:
        if c.config_operation in _WORDS:
            word = _WORDS[c.config_operation].split()[0]
            raise InvalidRequest(f"{word} operation is not allowed for the BROKER_LOGGER resource")
        loggers.check(c.name, c.value if c.config_operation == SET else None)
    if not validate_only:
        for c in configs:
            loggers.set_level(c.name, c.value if c.config_operation == SET else None)


def _change(rules: _Rules, now: Mapping[str, str], configs: Any, incremental: bool) -> _Change:
    """What the request makes of the present configs, checked one by one and all together."""
    change = _Change()
    for c in configs:
        operation = c.config_operation if incremental else SET
        if operation == DELETE:
            change.remove.append(c.name)
        else:
            wanted = c.value if operation == SET else _listed(rules, now, c)
            change.put[c.name] = rules.check(c.name, wanted)
    if not incremental:
        change.remove.extend(name for name in now if name not in change.put)
    after = {name: value for name, value in now.items() if name not in change.remove}
    rules.check_together({**after, **change.put})
    return change


def _listed(rules: _Rules, now: Mapping[str, str], config: Any) -> str:
    """A list with elements added or taken out."""
    key = rules.keys.get(config.name)
    if key is None or key.kind is not Kind.LIST:
        raise ConfigError(f"Can't {_WORDS[config.config_operation]} key {config.name} because its type is not LIST.")
    before, asked = elements(now.get(config.name, key.default)), elements(config.value)
    if config.config_operation == APPEND:
        return ",".join([*before, *(value for value in asked if value not in before)])
    return ",".join(value for value in before if value not in asked)


async def _submit(broker: Broker, command: AlterResource) -> None:
    [result] = await broker.cluster.submit([command])
    if isinstance(result, Refused) and result.reason is not Reason.FENCED:
        raise ConfigError(result.detail)
    if not isinstance(result, Done):
        raise NotReady(f"not carried out: {result}")
