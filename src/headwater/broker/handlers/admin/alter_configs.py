"""AlterConfigs, versions 0 to 2, and IncrementalAlterConfigs, versions 0 and 1."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker import loggers
from headwater.broker.broker import Broker
from headwater.broker.errors import code_of
from headwater.broker.handlers.admin.configs import check_rights, forbidden, identity
from headwater.broker.registry import api
from headwater.broker.request import Request, Values
from headwater.configs import brokers as broker_configs
from headwater.configs import client_metrics
from headwater.configs import groups as group_configs
from headwater.configs.changes import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    WORDS,
    Change,
    Edit,
    Rules,
    change_of,
    rules_of_topics,
)
from headwater.errors import BadInput, ConfigError, HeadwaterError, NotFound, NotReady
from headwater.replica.internal_topics import changeable, topic_by_name
from headwater.replica.topic_rights import with_setter
from headwater.replica.topic_rules import check_choices
from headwater.replica.topics import check_name
from headwater.state.cluster.access import Operation
from headwater.state.cluster.resources import ALL_BROKERS, ConfigResource
from headwater.state.commands.cluster import AlterResource
from headwater.state.results import Done, Reason, Refused

_RULES = {
    ConfigResource.CLIENT_METRICS: Rules(client_metrics.KEYS, client_metrics.checked),
    ConfigResource.GROUP: Rules(group_configs.KEYS, group_configs.checked, group_configs.check_together),
}


@api(44, 0, 1)
async def incremental_alter_configs(broker: Broker, request: Request) -> Values:
    """Set and remove configs, and change configs that are lists."""
    return await _alter(broker, request, incremental=True)


@api(33, 0, 2)
async def alter_configs(broker: Broker, request: Request) -> Values:
    """Replace all configs of a resource."""
    return await _alter(broker, request, incremental=False)


async def _alter(broker: Broker, request: Request, incremental: bool) -> Values:
    named = Counter((r.resource_type, r.resource_name) for r in request.body.resources)
    responses = []
    failure = await broker.read_cluster()
    async for resource in broker.turns.work().over(request.body.resources):
        answer = forbidden(broker, request, Operation.ALTER_CONFIGS, resource)
        if answer is not None:
            responses.append({**identity(resource), **answer})
            continue
        answer = {"error_code": ErrorCode.none}
        try:
            broker.check_contact()
            if named[(resource.resource_type, resource.resource_name)] > 1:
                raise BadInput("Each resource must appear at most once.")
            _check_shape(resource.configs, incremental)
            if failure is not None:
                raise failure
            await _alter_one(broker, request, resource, incremental)
        except HeadwaterError as error:
            answer = {"error_code": code_of(error), "error_message": str(error)}
        responses.append({**identity(resource), **answer})
    return {"responses": responses}


def _check_shape(configs: Any, incremental: bool) -> None:
    if len({c.name for c in configs}) != len(configs):
        raise BadInput("Error due to duplicate config keys")
    if incremental and any(c.config_operation not in (SET, DELETE, APPEND, SUBTRACT) for c in configs):
        raise BadInput("Unknown config operation")
    nulls = [c.name for c in configs if c.value is None and not (incremental and c.config_operation == DELETE)]
    if nulls:
        raise BadInput(f"Null value not supported for : {','.join(nulls)}")


async def _alter_one(broker: Broker, request: Request, resource: Any, incremental: bool) -> None:
    kind, name, validate_only = resource.resource_type, resource.resource_name, request.body.validate_only
    if kind == ConfigResource.TOPIC:
        await _alter_topic(broker, request, name, resource.configs, incremental)
    elif kind == ConfigResource.BROKER_LOGGER and incremental:
        _alter_loggers(broker, name, resource.configs, validate_only)
    elif kind == ConfigResource.BROKER or kind in _RULES:
        _check_resource(broker, ConfigResource(kind), name)
        now = broker.cluster.state.resources.of(ConfigResource(kind), name)
        of_broker = Rules(broker_configs.DYNAMIC, functools.partial(broker_configs.checked, name))
        change = _change(_RULES.get(ConfigResource(kind), of_broker), now, resource.configs, incremental)
        if not validate_only and (change.put or change.remove):
            await _submit(broker, AlterResource(kind, name, change.put, tuple(change.remove)))
            if kind == ConfigResource.BROKER:
                await broker.topics.configure_all()
    else:
        raise BadInput(f"Unknown resource type {kind}")


async def _alter_topic(broker: Broker, request: Request, name: str, configs: Any, incremental: bool) -> None:
    if not name:
        raise BadInput("Default topic resources are not allowed.")
    check_name(name)
    topic = topic_by_name(broker.cluster.state, name)
    rules = rules_of_topics(broker.cluster.state.resources.common)
    change = _change(rules, topic.configs if topic is not None else {}, configs, incremental)
    if topic is None:
        raise NotFound(f"The topic '{name}' does not exist.")
    changeable(topic)
    after = change.after(topic.configs)
    check_rights(broker, request, name, after, topic.configs)
    check_choices(broker.cluster.state, name, after, topic.configs)
    if not request.body.validate_only:
        stored = with_setter(change, topic.configs, request.connection.principal, request.connection.host)
        await broker.topics.alter(topic, stored.put, stored.remove)


def _check_resource(broker: Broker, kind: ConfigResource, name: str) -> None:
    if kind is ConfigResource.BROKER and name not in (ALL_BROKERS, str(broker.node)):
        if not name.removeprefix("-").isdecimal():
            raise BadInput(f"Node id must be an integer, but it is: {name}")
        raise BadInput(f"Unexpected broker id, expected {broker.node}, but received {name}")
    if kind is ConfigResource.GROUP and not name:
        raise BadInput("Default group resources are not allowed.")
    if kind is ConfigResource.CLIENT_METRICS and not name:
        raise BadInput("Subscription name can't be empty")


def _alter_loggers(broker: Broker, name: str, configs: Any, validate_only: bool) -> None:
    if not name.isdecimal():
        raise BadInput(f"Node id must be an integer, but it is: {name}")
    if name != str(broker.node):
        raise BadInput(f"Unexpected node id. Expected {broker.node}, but received {name}")
    for c in configs:
        if c.config_operation in WORDS:
            word = WORDS[c.config_operation].split()[0]
            raise BadInput(f"{word} operation is not allowed for the BROKER_LOGGER resource")
        loggers.check(c.name, c.value if c.config_operation == SET else None)
    if not validate_only:
        for c in configs:
            loggers.set_level(c.name, c.value if c.config_operation == SET else None)


def _change(rules: Rules, now: Mapping[str, str], configs: Any, incremental: bool) -> Change:
    """The change that the request makes to the current configs."""
    edits = [Edit(c.name, c.config_operation if incremental else SET, c.value) for c in configs]
    return change_of(rules, now, edits, replace=not incremental)


async def _submit(broker: Broker, command: AlterResource) -> None:
    [result] = await broker.cluster.submit([command])
    if isinstance(result, Refused) and result.reason is not Reason.FENCED:
        raise ConfigError(result.detail)
    if not isinstance(result, Done):
        raise NotReady(f"not carried out: {result}")
