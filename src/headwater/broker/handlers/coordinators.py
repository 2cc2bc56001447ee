"""FindCoordinator, versions 0 to 6. There are no groups and transactions yet, so there is no coordinator.

It is advertised all the same: librdkafka takes its presence as a sign of a broker that knows LZ4, and sends such
batches uncompressed without it.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker
from headwater.broker.registry import Request, Values, api
from headwater.metadata.access import Operation, ResourceKind

TRANSACTION = 1
_FORBIDDEN = {
    ResourceKind.GROUP: ErrorCode.group_authorization_failed,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}
_MESSAGE = "this version has no consumer groups and no transactions yet"


@api(10, 0, 6)
def find_coordinator(broker: Broker, request: Request) -> Values:
    """The same answer for every key: not available, which clients try again."""
    body = request.body
    if request.version >= 4:
        return {"coordinators": [{"key": key, **_answer(broker, request, key)} for key in body.coordinator_keys]}
    return _answer(broker, request, body.key)


def _answer(broker: Broker, request: Request, key: str) -> Values:
    kind = ResourceKind.GROUP
    if request.version >= 1 and request.body.key_type == TRANSACTION:
        kind = ResourceKind.TRANSACTIONAL_ID
    allowed = broker.may(request, Operation.DESCRIBE, kind, key)
    return {
        "error_code": ErrorCode.coordinator_not_available if allowed else _FORBIDDEN[kind],
        "error_message": _MESSAGE if allowed else "not authorized",
        "node_id": -1,
        "host": "",
        "port": -1,
    }
