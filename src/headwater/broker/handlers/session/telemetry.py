"""GetTelemetrySubscriptions and PushTelemetry, version 0 each (KIP-714)."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.clients.telemetry import attributes_of
from headwater.broker.errors import Coded
from headwater.broker.registry import api
from headwater.broker.request import Request, Values
from headwater.wire.codecs import GZIP, LZ4, SNAPPY, ZSTD

ACCEPTED_CODECS = (ZSTD, LZ4, GZIP, SNAPPY)


@api(71, 0, 0)
def get_telemetry_subscriptions(broker: Broker, request: Request) -> Values:
    """The metrics that a client should push, and how often."""
    client, resources = request.body.client_instance_id, broker.cluster.state.resources
    try:
        subscription = broker.telemetry.subscribe(client, attributes_of(request), resources)
    except Coded as error:
        return {"error_code": error.code, "client_instance_id": client}
    return {
        "error_code": ErrorCode.none,
        "client_instance_id": subscription.client,
        "subscription_id": subscription.id,
        "accepted_compression_types": ACCEPTED_CODECS,
        "push_interval": subscription.interval_ms,
        "telemetry_max_bytes": broker.settings.quotas.telemetry_bytes,
        "delta_temporality": True,
        "requested_metrics": subscription.metrics,
    }


@api(72, 0, 0)
async def push_telemetry(broker: Broker, request: Request) -> Values:
    """Check and count the metrics of a client, and pass them to the hook."""
    body = request.body
    try:
        await broker.telemetry.push(
            body.client_instance_id,
            attributes_of(request),
            broker.cluster.state.resources,
            subscription=body.subscription_id,
            terminating=body.terminating,
            codec=body.compression_type,
            data=body.metrics,
        )
    except Coded as error:
        return {"error_code": error.code}
    return {"error_code": ErrorCode.none}
