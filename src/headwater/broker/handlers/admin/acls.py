"""DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3: access rules."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.errors import code_of
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.errors import HeadwaterError
from headwater.state.cluster.access import AclResource, Filter, Operation, objection
from headwater.state.commands.access import Acl, DropAcls, PutAcls
from headwater.state.results import Done, Refused

MAX_CHANGES = 10_000
"""Rules that one request may create, or delete."""
MAX_FILTERS = 1_000
_CHUNK = 64
"""Rules per command. With the longest names they still fit into one record."""


def _obstacle(broker: Broker, request: Request, operation: Operation) -> Values | None:
    """The error that stops the whole request; None if there is none."""
    if not broker.may(request, operation, AclResource.CLUSTER):
        return {"error_code": ErrorCode.cluster_authorization_failed, "error_message": "Cluster authorization failed."}
    if not broker.guard.enforced:
        return {"error_code": ErrorCode.security_disabled, "error_message": "No Authorizer is configured."}
    return None


def _filter(wanted: Any) -> Filter:
    return Filter(
        kind=wanted.resource_type_filter,
        name=wanted.resource_name_filter,
        pattern=wanted.pattern_type_filter,
        principal=wanted.principal_filter,
        host=wanted.host_filter,
        operation=wanted.operation,
        permission=wanted.permission_type,
    )


@api(29, 1, 3, RequestKind.LOOKUP)
async def describe_acls(broker: Broker, request: Request) -> Values:
    """The rules that match a filter, grouped by resource."""
    obstacle = _obstacle(broker, request, Operation.DESCRIBE)
    if obstacle is not None:
        if obstacle["error_code"] is ErrorCode.security_disabled:
            return {**obstacle, "error_message": "No Authorizer is configured on the broker"}
        return obstacle
    wanted = _filter(request.body)
    if not wanted.known:
        return {"error_code": ErrorCode.invalid_request, "error_message": "The filter has an unknown element."}
    try:
        await broker.cluster.barrier()
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    found = broker.cluster.state.access.matching(wanted)
    resources, work = [], broker.turns.work()
    for (kind, name, pattern), rules in groupby(found, key=lambda acl: (acl.kind, acl.name, acl.pattern)):
        said = [
            {"principal": a.principal, "host": a.host, "operation": a.operation, "permission_type": a.permission}
            async for a in work.over(rules)
        ]
        resources.append({"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": said})
    return {"error_code": ErrorCode.none, "resources": resources}


@api(30, 1, 3)
async def create_acls(broker: Broker, request: Request) -> Values:
    """Create each rule on its own: an invalid rule does not stop the others."""
    creations = request.body.creations
    obstacle = _obstacle(broker, request, Operation.ALTER)
    if obstacle is None and len(creations) > MAX_CHANGES:
        obstacle = {"error_code": ErrorCode.invalid_request, "error_message": f"more than {MAX_CHANGES} rules"}
    if obstacle is not None:
        return {"results": [obstacle] * len(creations)}
    acls = [
        Acl(
            c.resource_type,
            c.resource_name,
            c.resource_pattern_type,
            c.principal,
            c.host,
            c.operation,
            c.permission_type,
        )
        for c in creations
    ]
    results: list[Values] = [
        {"error_code": ErrorCode.invalid_request, "error_message": objection(acl)}
        if objection(acl)
        else {"error_code": ErrorCode.none}
        for acl in acls
    ]
    good = [i for i, acl in enumerate(acls) if not objection(acl)]
    for first in range(0, len(good), _CHUNK):
        part = good[first : first + _CHUNK]
        failure = await _put(broker, [acls[i] for i in part])
        if failure is not None:
            for i in part:
                results[i] = failure
    return {"results": results}


async def _put(broker: Broker, acls: list[Acl]) -> Values | None:
    """Add rules; returns an error, or `None` if all were added."""
    try:
        broker.check_contact()
        [result] = await broker.cluster.submit([PutAcls(tuple(acls))])
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    if isinstance(result, Done):
        return None
    detail = result.detail if isinstance(result, Refused) else ""
    return {"error_code": ErrorCode.invalid_request, "error_message": detail}


@api(31, 1, 3)
async def delete_acls(broker: Broker, request: Request) -> Values:
    """Remove the rules that match the filters; the answer lists them."""
    obstacle = _obstacle(broker, request, Operation.ALTER)
    if obstacle is None and len(request.body.filters) > MAX_FILTERS:
        obstacle = {"error_code": ErrorCode.invalid_request, "error_message": f"more than {MAX_FILTERS} filters"}
    if obstacle is not None:
        return {"filter_results": [obstacle] * len(request.body.filters)}
    return {"filter_results": [await _delete(broker, _filter(wanted)) for wanted in request.body.filters]}


async def _delete(broker: Broker, wanted: Filter) -> Values:
    if not wanted.known:
        return {"error_code": ErrorCode.invalid_request, "error_message": "The filter has an unknown element."}
    try:
        broker.check_contact()
        await broker.cluster.barrier()
        found = broker.cluster.state.access.matching(wanted)
        if len(found) > MAX_CHANGES:
            message = f"Cannot remove more than {MAX_CHANGES} acls in a single delete operation."
            return {"error_code": ErrorCode.invalid_request, "error_message": message}
        for first in range(0, len(found), _CHUNK):
            await broker.cluster.submit([DropAcls(tuple(found[first : first + _CHUNK]))])
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    said = [
        {
            "error_code": ErrorCode.none,
            "resource_type": a.kind,
            "resource_name": a.name,
            "pattern_type": a.pattern,
            "principal": a.principal,
            "host": a.host,
            "operation": a.operation,
            "permission_type": a.permission,
        }
        for a in found
    ]
    return {"error_code": ErrorCode.none, "matching_acls": said}
