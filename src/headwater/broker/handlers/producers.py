"""InitProducerId, versions 0 to 6, for idempotent producers."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker
from headwater.broker.registry import Request, Values, api
from headwater.errors import HeadwaterError


@api(22, 0, 6)
async def init_producer_id(broker: Broker, request: Request) -> Values:
    """A fresh producer id. Transactional ids are refused: there are no transactions yet."""
    nothing = {"producer_id": -1, "producer_epoch": -1}
    if request.body.transactional_id is not None:
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
