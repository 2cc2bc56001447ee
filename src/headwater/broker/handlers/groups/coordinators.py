"""FindCoordinator, versions 0 to 6."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.errors import HeadwaterError
from headwater.state.cluster.access import AclResource, Operation

GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_SINCE = 6
NO_ERROR = "NONE"
"""The error message of versions with one key if there is no error."""


@api(10, 0, 6, RequestKind.LOOKUP)
async def find_coordinator(broker: Broker, request: Request) -> Values:
    """The broker that coordinates a group, or watches a transactional id."""
    body = request.body
    key_type = body.key_type if request.version >= 1 else GROUP
    failure = await broker.read_cluster() if key_type in (GROUP, TRANSACTION) else None
    if request.version >= 4:
        keys = broker.turns.work().over(body.coordinator_keys)
        found = [{"key": key, **_place(broker, request, key_type, key, failure)} async for key in keys]
        return {"coordinators": found}
    place = _place(broker, request, key_type, body.key, failure)
    return {**place, "error_message": place["error_message"] or NO_ERROR}


def _place(broker: Broker, request: Request, key_type: int, key: str, failure: HeadwaterError | None) -> Values:
    if key_type not in (GROUP, TRANSACTION, SHARE):
        return _nobody(ErrorCode.invalid_request, f"there is no coordinator type {key_type}")
    if key_type == TRANSACTION and not broker.may(request, Operation.DESCRIBE, AclResource.TRANSACTIONAL_ID, key):
        return _nobody(ErrorCode.transactional_id_authorization_failed, "")
    if key_type == SHARE and (request.version < SHARE_SINCE or key.count(":") != 2):
        return _nobody(ErrorCode.invalid_request, "not the key of a partition of a share group")
    if key_type == SHARE:
        return _nobody(ErrorCode.coordinator_not_available, "there are no share groups yet")
    if key_type == GROUP and not broker.may(request, Operation.DESCRIBE, AclResource.GROUP, key):
        return _nobody(ErrorCode.group_authorization_failed, "")
    try:
        broker.check_contact()
        if failure is not None:
            raise failure
    except HeadwaterError as error:
        return _nobody(ErrorCode.coordinator_not_available, str(error))
    member = broker.coordinator.place(key) if key_type == GROUP else broker.transactions.place(key)
    address = None if member is None else broker.address(member, request.connection.listener)
    if member is None or address is None:
        return _nobody(ErrorCode.coordinator_not_available, "no broker is available")
    where = {"node_id": member.node, "host": address[0], "port": address[1]}
    return {"error_code": ErrorCode.none, "error_message": "", **where}


def _nobody(code: ErrorCode, message: str) -> Values:
    return {"error_code": code, "error_message": message, "node_id": -1, "host": "", "port": -1}
