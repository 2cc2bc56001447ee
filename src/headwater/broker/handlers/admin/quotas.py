"""DescribeClientQuotas and AlterClientQuotas, versions 0 and 1."""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.errors import Coded, code_of
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.errors import BadInput, HeadwaterError, NotReady
from headwater.security.quotas import ADDRESS, CLIENT, CONNECTION, CONSUMER, MUTATION, PRODUCER, REQUEST, USER
from headwater.state.cluster.access import Operation
from headwater.state.cluster.resources import Entity
from headwater.state.commands.cluster import AlterQuota
from headwater.state.results import Done

KINDS = (USER, CLIENT, ADDRESS)
EXACT, DEFAULT, ANY = range(3)
LONG_MAX = (1 << 63) - 1
MAX_NAME = 1_000
_KEYS = {
    **dict.fromkeys((PRODUCER, CONSUMER, REQUEST, MUTATION), (USER, CLIENT)),
    CONNECTION: (ADDRESS,),
}
_WHOLE = (PRODUCER, CONSUMER, CONNECTION)


@api(48, 0, 1, RequestKind.LOOKUP)
async def describe_client_quotas(broker: Broker, request: Request) -> Values:
    """The quotas of entities that match a filter. A strict filter matches only entities of exactly its kinds."""
    body = request.body
    try:
        broker.check_cluster(request, Operation.DESCRIBE_CONFIGS)
        _check_filter(body.components)
        broker.check_contact()
        await broker.cluster.barrier()
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": str(error), "entries": None}
    entries = []
    for entity, limits in sorted(broker.cluster.state.resources.quotas.items(), key=repr):
        if _matches(dict(entity), body.components, body.strict):
            named = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
            entries.append({"entity": named, "values": [{"key": k, "value": float(v)} for k, v in limits.items()]})
    return {"error_code": ErrorCode.none, "error_message": None, "entries": entries}


def _check_filter(components: Any) -> None:
    kinds = Counter(c.entity_type for c in components)
    for component in components:
        kind = component.entity_type
        if not kind:
            raise BadInput("Invalid empty entity type.")
        if kinds[kind] > 1:
            raise BadInput(f"Entity type {kind} cannot appear more than once in the filter.")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise BadInput(f"Unknown match type {component.match_type}")
        if component.match_type == EXACT and component.match is None:
            raise BadInput("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if component.match_type != EXACT and component.match is not None:
            word = "DEFAULT" if component.match_type == DEFAULT else "SPECIFIED"
            raise BadInput(f"Request specified MATCH_TYPE_{word}, but also specified a match string.")
        if kind not in KINDS:
            raise Coded(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
    if ADDRESS in kinds and len(kinds) > 1:
        raise BadInput(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )


def _matches(entity: dict[str, str | None], components: Any, strict: bool) -> bool:
    if strict and len(entity) != len(components):
        return False
    for component in components:
        if component.entity_type not in entity:
            return False
        name = entity[component.entity_type]
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return True


@api(49, 0, 1)
async def alter_client_quotas(broker: Broker, request: Request) -> Values:
    """Change each entity on its own: one that is refused does not stop the others."""
    asked: dict[Entity, list[Any]] = {}
    for entry in request.body.entries:
        entity = tuple(sorted({e.entity_type: e.entity_name for e in entry.entity}.items()))
        asked.setdefault(entity, []).append(entry)
    answers = []
    for entity, entries in asked.items():
        answer: Values = {"error_code": ErrorCode.none, "error_message": None}
        try:
            broker.check_cluster(request, Operation.ALTER_CONFIGS)
            broker.check_contact()
            keys = Counter(op.key for op in entries[0].ops)
            if len(entries) > 1 or any(count > 1 for count in keys.values()):
                raise BadInput(f"Duplicate quotas for {_words(entity)}")
            command = _checked(entity, entries[0].ops)
            if not request.body.validate_only and (command.put or command.remove):
                await _submit(broker, command)
        except HeadwaterError as error:
            answer = {"error_code": code_of(error), "error_message": str(error)}
        named = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
        answers.append({**answer, "entity": named})
    return {"entries": answers}


def _words(entity: Entity) -> str:
    return ", ".join(f"{kind} {name if name is not None else '<default>'}" for kind, name in entity)


def _checked(entity: Entity, operations: Any) -> AlterQuota:
    _check_entity(entity)
    put: dict[str, str] = {}
    remove: list[str] = []
    for operation in operations:
        if operation.remove:
            remove.append(operation.key)
            continue
        if entity[0][0] not in _KEYS.get(operation.key, ()):
            raise BadInput(f"Invalid configuration key {operation.key}")
        put[operation.key] = _checked_value(operation.key, operation.value)
    return AlterQuota(entity, put, tuple(remove))


def _check_entity(entity: Entity) -> None:
    if not entity:
        raise BadInput("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in KINDS:
            raise BadInput(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise BadInput(f"Empty {kind} not supported")
        if name is not None and len(name) > MAX_NAME:
            raise BadInput(f"A {kind} of more than {MAX_NAME} characters")
        if kind == ADDRESS and len(entity) > 1:
            raise BadInput("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
        if kind == ADDRESS and name is not None:
            _check_address(name)


def _check_address(name: str) -> None:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise BadInput(f"{name} is not a valid IP or resolvable host.") from None


def _checked_value(key: str, value: float) -> str:
    if math.isnan(value) or value <= 0:
        raise BadInput(f"Quota {key} must be greater than 0")
    if math.isinf(value) or (key in _WHOLE and value > LONG_MAX):
        raise BadInput(f"Proposed value for {key} is too large for a LONG.")
    if key in _WHOLE and value != int(value):
        raise BadInput(f"{key} cannot be a fractional value.")
    return repr(value)


async def _submit(broker: Broker, command: AlterQuota) -> None:
    [result] = await broker.cluster.submit([command])
    if not isinstance(result, Done):
        raise NotReady(f"not carried out: {result}")
