"""Counters of the gateway, and its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headwater.ops.metrics import Metric
from headwater.state.streams.domain import StreamsDomain

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


@dataclass(slots=True)
class Stats:
    """Counters as plain integers. `/metrics` reads them."""

    connections: int = 0
    connections_total: int = 0
    under_way: int = 0
    """Requests that are being answered, streams included."""
    requests: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """By method, route and status."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time until the answers were sent, by route."""
    received_bytes: int = 0
    sent_bytes: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    """What limits kept out, by reason."""

    def refuse(self, reason: str) -> None:
        """Count what a limit kept out."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer. The route is the template of the path, so that there are few."""
        key = (method if method in METHODS else "OTHER", route, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        self.seconds[route] = self.seconds.get(route, 0.0) + seconds


def collect(
    stats: Stats, streams: int, late: float, places: Sequence[tuple[str, int, int, int, int]] = ()
) -> list[Metric]:
    """The metrics of a gateway. `places`: see `Places.metrics`."""

    def of_places(number: int) -> list[tuple[Mapping[str, str], float]]:
        return [({"what": str(one[0])}, float(one[number])) for one in places]

    requests = [
        ({"method": method, "route": route, "status": str(status)}, float(count))
        for (method, route, status), count in sorted(stats.requests.items())
    ]
    seconds = [({"route": route}, value) for route, value in sorted(stats.seconds.items())]
    refusals = [({"reason": reason}, float(count)) for reason, count in sorted(stats.refusals.items())]
    return [
        Metric("headwater_gateway_requests_total", "counter", "Requests by method, route and status.", requests),
        Metric("headwater_gateway_request_seconds_total", "counter", "Time until answers were sent.", seconds),
        Metric("headwater_gateway_refusals_total", "counter", "What limits kept out, by reason.", refusals),
        Metric("headwater_gateway_requests", "gauge", "Requests under way.", [({}, stats.under_way)]),
        Metric("headwater_gateway_streams", "gauge", "Answers that follow a log.", [({}, streams)]),
        Metric("headwater_gateway_late_seconds", "gauge", "How late the gateway is with what is due.", [({}, late)]),
        Metric("headwater_gateway_connections", "gauge", "Open connections.", [({}, stats.connections)]),
        Metric(
            "headwater_gateway_connections_total", "counter", "Connections so far.", [({}, stats.connections_total)]
        ),
        Metric("headwater_gateway_received_bytes_total", "counter", "Bytes of bodies.", [({}, stats.received_bytes)]),
        Metric("headwater_gateway_places", "gauge", "Places that are taken, by what they are for.", of_places(1)),
        Metric("headwater_gateway_places_limit", "gauge", "Such places in all.", of_places(2)),
        Metric("headwater_gateway_places_largest", "gauge", "Places of the caller who has most.", of_places(3)),
        Metric("headwater_gateway_places_share", "gauge", "Such places of one caller at most.", of_places(4)),
        Metric("headwater_gateway_sent_bytes_total", "counter", "Bytes of answers.", [({}, stats.sent_bytes)]),
    ]


def of_keys(states: Iterable[StreamsDomain]) -> list[Metric]:
    """Metrics of idempotency keys, the same at every process."""
    keys = [state.keys for state in states]
    return [
        Metric("headwater_idempotency_keys", "gauge", "Idempotency keys of the last day.", [({}, sum(map(len, keys)))]),
        Metric(
            "headwater_idempotency_bytes",
            "gauge",
            "Bytes of idempotency keys and their answers.",
            [({}, sum([one.bytes for one in keys]))],
        ),
        Metric(
            "headwater_idempotency_bytes_largest",
            "gauge",
            "Such bytes of the caller who has most.",
            [({}, max([one.largest for one in keys], default=0))],
        ),
    ]
