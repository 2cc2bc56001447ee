"""DescribeUserScramCredentials and AlterUserScramCredentials, version 0: users and their keys.

A client sends the salted password. Only keys derived from it are stored, and no answer contains them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.errors import code_of
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.errors import HeadwaterError
from headwater.state.cluster.access import MAX_ITERATIONS, MIN_ITERATIONS, AclResource, Operation
from headwater.state.commands.access import DropUser, PutUser
from headwater.state.results import Done, Reason, Refused
from headwater.wire.scram import NAMES, derive_keys

MAX_CHANGES = 1_000
"""Users that one request may change."""
_FORBIDDEN: Values = {
    "error_code": ErrorCode.cluster_authorization_failed,
    "error_message": "Cluster authorization failed.",
}


@api(50, 0, 0, RequestKind.LOOKUP)
async def describe_user_scram_credentials(broker: Broker, request: Request) -> Values:
    """Mechanisms and iterations of the named users; of all users if none is named."""
    if not broker.may(request, Operation.DESCRIBE, AclResource.CLUSTER):
        return _FORBIDDEN
    try:
        await broker.cluster.barrier()
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    users = broker.cluster.state.access.users
    asked = Counter(user.name for user in request.body.users or ())
    results: list[Values] = []
    for name, times in (asked or dict.fromkeys(sorted(users), 1)).items():
        if times > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            results.append({"user": name, "error_code": ErrorCode.duplicate_resource, "error_message": message})
        elif name not in users:
            message = f"Attempt to describe a user credential that does not exist: {name}"
            results.append({"user": name, "error_code": ErrorCode.resource_not_found, "error_message": message})
        else:
            found = [{"mechanism": m, "iterations": keys.iterations} for m, keys in sorted(users[name].items())]
            results.append({"user": name, "error_code": ErrorCode.none, "credential_infos": found})
    return {"error_code": ErrorCode.none, "results": results}


@api(51, 0, 0)
async def alter_user_scram_credentials(broker: Broker, request: Request) -> Values:
    """Set and remove keys. A request may name each user once."""
    body = request.body
    changes = [*body.deletions, *body.upsertions]
    times = Counter(change.name for change in changes)
    if not broker.may(request, Operation.ALTER, AclResource.CLUSTER):
        return {"results": [{"user": name, **_FORBIDDEN} for name in times]}
    if len(changes) > MAX_CHANGES:
        refused = {"error_code": ErrorCode.invalid_request, "error_message": f"more than {MAX_CHANGES} changes"}
        return {"results": [{"user": name, **refused} for name in times]}
    by_name = {change.name: change for change in changes}
    results: list[Values] = []
    for name, count in times.items():
        if count > 1:
            message = "A user credential cannot be altered twice in the same request"
            results.append({"user": name, "error_code": ErrorCode.duplicate_resource, "error_message": message})
            continue
        answer = _objection(by_name[name]) or await _alter(broker, by_name[name])
        results.append({"user": name, **answer})
    return {"results": results}


def _objection(change: Any) -> Values | None:
    refused = ErrorCode.unacceptable_credential
    if not change.name:
        return {"error_code": refused, "error_message": "Username must not be empty"}
    if change.mechanism not in NAMES:
        return {"error_code": ErrorCode.unsupported_sasl_mechanism, "error_message": "Unknown SCRAM mechanism"}
    iterations = getattr(change, "iterations", MIN_ITERATIONS)
    if iterations < MIN_ITERATIONS:
        return {"error_code": refused, "error_message": "Too few iterations"}
    if iterations > MAX_ITERATIONS:
        return {"error_code": refused, "error_message": "Too many iterations"}
    return None


async def _alter(broker: Broker, change: Any) -> Values:
    command: PutUser | DropUser
    if hasattr(change, "salted_password"):
        stored_key, server_key = derive_keys(change.mechanism, change.salted_password)
        command = PutUser(change.name, change.mechanism, change.iterations, bytes(change.salt), stored_key, server_key)
    else:
        command = DropUser(change.name, change.mechanism)
    try:
        broker.check_contact()
        [result] = await broker.cluster.submit([command])
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    if isinstance(result, Done):
        return {"error_code": ErrorCode.none}
    if isinstance(result, Refused) and result.reason is Reason.UNKNOWN:
        message = "Attempt to delete a user credential that does not exist"
        return {"error_code": ErrorCode.resource_not_found, "error_message": message}
    detail = result.detail if isinstance(result, Refused) else ""
    return {"error_code": ErrorCode.unacceptable_credential, "error_message": detail}
