"""ApiVersions: the APIs of this broker, from the registry."""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.handlers.session import features
from headwater.broker.registry import APIS, RequestKind, api
from headwater.broker.request import Request, Values
from headwater.replica.levels import lowest_level
from headwater.state.cluster.resources import ConfigResource
from headwater.state.machine import LEVEL, LOWEST

KEY = 18
LOWEST_TOLD = {0: 0}
"""Produce is announced from version 0 on, although the first versions are not served. Otherwise librdkafka before 2.8
does not compress. Apache Kafka does the same."""


TELEMETRY = (71, 72)
"""Announced only if there is a subscription to clients' metrics. Otherwise clients would ask in vain and log that."""


def supported(*, telemetry: bool = True) -> list[Values]:
    """The registry as fields of the answer."""
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
    """The answer, in version 0, to an ApiVersions request of an unknown version."""
    own = [row for row in supported() if row["api_key"] == KEY]
    return {"error_code": ErrorCode.unsupported_version, "api_keys": own}


@api(KEY, 0, 4, RequestKind.LOOKUP)
def api_versions(broker: Broker, request: Request) -> Values:
    """Versions 0 to 4. As in Kafka, the software name since version 3 must be a plain name.

    Between a SaslHandshake and the end of its log-in there is nothing to ask, and the connection ends.
    """
    login = request.connection.login
    if login is not None and login.shaking:
        request.connection.end()
        return {"error_code": ErrorCode.illegal_sasl_state}
    if request.version >= 3:
        names = (request.body.client_software_name, request.body.client_software_version)
        if not all(_plain(name) for name in names):
            return {"error_code": ErrorCode.invalid_request}
        request.connection.software = names
    level, fixed = lowest_level(broker.cluster.state, broker.domains), features.fixed(broker)
    telemetry = bool(broker.cluster.state.resources.names(ConfigResource.CLIENT_METRICS))
    return {
        "error_code": ErrorCode.none,
        "api_keys": supported(telemetry=telemetry),
        "supported_features": _supported_features(fixed),
        "finalized_features_epoch": broker.cluster.state.position,
        "finalized_features": _finalized_features(level, fixed),
    }


def _plain(name: str) -> bool:
    return bool(name) and name[0].isalnum() and name[-1].isalnum() and all(c.isalnum() or c in ".-" for c in name)


def _supported_features(fixed: Mapping[str, int]) -> list[Values]:
    """The features that this build knows, with their versions."""
    ranges = {
        features.NAME: (LOWEST, LEVEL),
        **{name: (version, version) for name, version in fixed.items()},
    }
    return [{"name": name, "min_version": low, "max_version": high} for name, (low, high) in ranges.items()]


def _finalized_features(level: int, fixed: Mapping[str, int]) -> list[Values]:
    """The features of a cluster at a level."""
    versions = {features.NAME: level, **fixed}
    return [{"name": name, "max_version_level": at, "min_version_level": at} for name, at in versions.items()]
