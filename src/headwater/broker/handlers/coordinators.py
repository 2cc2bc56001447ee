"""FindCoordinator, versions 0 to 6."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker
from headwater.broker.registry import Request, Values, api
from headwater.errors import HeadwaterError
from headwater.metadata.access import Operation, ResourceKind

GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_SINCE = 6
NO_ERROR = "NONE"
"""What versions with one key say where nothing is wrong."""


@api(10, 0, 6)
async def find_coordinator(broker: Broker, request: Request) -> Values:
    """Where a group's requests go. Transactions have no coordinator yet, which clients try again for a while."""
    body = request.body
    key_type = body.key_type if request.version >= 1 else GROUP
    if request.version >= 4:
        found = [{"key": key, **await _place(broker, request, key_type, key)} for key in body.coordinator_keys]
        return {"coordinators": found}
    place = await _place(broker, request, key_type, body.key)
    return {**place, "error_message": place["error_message"] or NO_ERROR}


async def _place(broker: Broker, request: Request, key_type: int, key: str) -> Values:
    if key_type not in (GROUP, TRANSACTION, SHARE):
        return _nobody(ErrorCode.invalid_request, f"there is no coordinator type {key_type}")
    if key_type == TRANSACTION and not broker.may(request, Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, key):
        return _nobody(ErrorCode.transactional_id_authorization_failed, "")
    if key_type == SHARE and (request.version < SHARE_SINCE or key.count(":") != 2):
        return _nobody(ErrorCode.invalid_request, "not the key of a partition of a share group")
    if key_type != GROUP:
        return _nobody(ErrorCode.coordinator_not_available, "there are no transactions and no share groups yet")
    if not broker.may(request, Operation.DESCRIBE, ResourceKind.GROUP, key):
        return _nobody(ErrorCode.group_authorization_failed, "")
    try:
        broker.check_contact()
        await broker.cluster.barrier()
    except HeadwaterError as error:
        return _nobody(ErrorCode.coordinator_not_available, str(error))
    member = broker.coordinator.place(key)
    address = None if member is None else broker.address(member, request.connection.listener)
    if member is None or address is None:
        return _nobody(ErrorCode.coordinator_not_available, "no broker is there")
    where = {"node_id": member.node, "host": address[0], "port": address[1]}
    return {"error_code": ErrorCode.none, "error_message": "", **where}


def _nobody(code: ErrorCode, message: str) -> Values:
    return {"error_code": code, "error_message": message, "node_id": -1, "host": "", "port": -1}
