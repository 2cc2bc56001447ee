"""ApiVersions: what this broker can do, straight from the registry."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker
from headwater.broker.handlers import features
from headwater.broker.registry import APIS, Request, Values, api
from headwater.metadata.base import LEVEL
from headwater.metadata.resources import ResourceKind

KEY = 18
LOWEST_TOLD = {0: 0}
"""Produce is announced from version 0 on, though the first ones are not served: librdkafka before 2.8 compresses
nothing without that. Apache Kafka does the same."""


TELEMETRY = (71, 72)
"""Told only where somebody subscribes to clients' metrics: they would otherwise ask, and say so in their logs."""


def supported(*, telemetry: bool = True) -> list[Values]:
    """The registry as the protocol tells it."""
    return [
        {
            "api_key": a.key,
            "min_version": LOWEST_TOLD.get(a.key, a.versions[0]),
            "max_version": a.versions[-1],
        }
        for a in sorted(APIS.values(), key=lambda a: a.key)
        if telemetry or a.key not in TELEMETRY
    ]


def unsupported_version() -> Values:
    """The answer, in version 0, to an ApiVersions request of a version from the future."""
    own = [row for row in supported() if row["api_key"] == KEY]
    return {"error_code": ErrorCode.unsupported_version, "api_keys": own}


@api(KEY, 0, 4)
def api_versions(broker: Broker, request: Request) -> Values:
    """Versions 0 to 4; the software name of version 3 must be a plain name, as Kafka demands."""
    if request.version >= 3:
        names = (request.body.client_software_name, request.body.client_software_version)
        if not all(_plain(name) for name in names):
            return {"error_code": ErrorCode.invalid_request}
        request.connection.software = names
    level = broker.cluster.state.level
    telemetry = bool(broker.cluster.state.resources.names(ResourceKind.CLIENT_METRICS))
    return {
        "error_code": ErrorCode.none,
        "api_keys": supported(telemetry=telemetry),
        "supported_features": [{"name": features.NAME, "min_version": features.LOWEST, "max_version": LEVEL}],
        "finalized_features_epoch": broker.cluster.state.position,
        "finalized_features": [{"name": features.NAME, "max_version_level": level, "min_version_level": level}],
    }


def _plain(name: str) -> bool:
    return bool(name) and name[0].isalnum() and name[-1].isalnum() and all(c.isalnum() or c in ".-" for c in name)
