"""FindCoordinator, versions 0 to 6. There are no groups and transactions yet, so there is no coordinator.

It is advertised all the same: librdkafka takes its presence as a sign of a broker that knows LZ4, and sends such
batches uncompressed without it.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker
from headwater.broker.registry import Request, Values, api

_MESSAGE = "this version has no consumer groups and no transactions yet"


@api(10, 0, 6)
def find_coordinator(broker: Broker, request: Request) -> Values:
    """The same answer for every key: not available, which clients try again."""
    nobody = {
        "error_code": ErrorCode.coordinator_not_available,
        "error_message": _MESSAGE,
        "node_id": -1,
        "host": "",
        "port": -1,
    }
    if request.version >= 4:
        return {"coordinators": [{"key": key, **nobody} for key in request.body.coordinator_keys]}
    return nobody
