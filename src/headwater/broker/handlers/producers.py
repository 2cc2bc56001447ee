"""InitProducerId, versions 0 to 6, for idempotent producers."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker
from headwater.broker.registry import Request, Values, api
from headwater.errors import HeadwaterError
from headwater.metadata.access import Operation, ResourceKind


@api(22, 0, 6)
async def init_producer_id(broker: Broker, request: Request) -> Values:
    """A fresh producer id. Transactional ids are refused: there are no transactions yet."""
    nothing = {"producer_id": -1, "producer_epoch": -1}
    transactional_id = request.body.transactional_id
    if transactional_id is not None and not broker.may(
        request, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transactional_id
    ):
        return {"error_code": ErrorCode.transactional_id_authorization_failed, **nothing}
    if transactional_id is None and not (
        broker.may(request, Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER)
        or broker.may_any(request, Operation.WRITE, ResourceKind.TOPIC)
    ):
        return {"error_code": ErrorCode.cluster_authorization_failed, **nothing}
    if transactional_id is not None:
        return {"error_code": ErrorCode.invalid_request, **nothing}
    try:
        broker.check_contact()
        return {
            "error_code": ErrorCode.none,
            "producer_id": await broker.producer_id(),
            "producer_epoch": 0,
        }
    except HeadwaterError:
        return {"error_code": ErrorCode.coordinator_not_available, **nothing}
