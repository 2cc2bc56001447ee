"""Counters of the Flight SQL server, and its metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.ops.metrics import Metric


@dataclass(slots=True)
class FlightStats:
    """Counters as plain integers. `/metrics` reads them."""

    under_way: int = 0
    calls: dict[tuple[str, str], int] = field(default_factory=dict)
    """By call and the code of its outcome."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time until calls were answered."""
    rows: int = 0
    sent_bytes: int = 0

    def answered(self, call: str, code: str, seconds: float) -> None:
        """Count a call that is over."""
        self.calls[call, code] = self.calls.get((call, code), 0) + 1
        self.seconds[call] = self.seconds.get(call, 0.0) + seconds


def collect(stats: FlightStats) -> list[Metric]:
    """The metrics of a Flight SQL server."""
    calls = [({"call": call, "code": code}, float(count)) for (call, code), count in sorted(stats.calls.items())]
    seconds = [({"call": call}, value) for call, value in sorted(stats.seconds.items())]
    return [
        Metric("headwater_flight_calls_total", "counter", "Calls of Flight SQL by outcome.", calls),
        Metric("headwater_flight_call_seconds_total", "counter", "Time until calls were answered.", seconds),
        Metric("headwater_flight_calls", "gauge", "Calls of Flight SQL under way.", [({}, stats.under_way)]),
        Metric("headwater_flight_rows_total", "counter", "Rows that were sent over Flight SQL.", [({}, stats.rows)]),
        Metric(
            "headwater_flight_sent_bytes_total", "counter", "Bytes of rows that were sent.", [({}, stats.sent_bytes)]
        ),
    ]
