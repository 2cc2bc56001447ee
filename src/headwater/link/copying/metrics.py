"""Metrics of a process that copies links: how far each partition is, and how the sources do."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.link.breaker import State
from headwater.link.copying.links import Copying
from headwater.ops.metrics import Metric

STATES = (State.CLOSED, State.HALF_OPEN, State.OPEN)


def collect(copying: Copying, now_ms: int) -> list[Metric]:
    """All metrics of the links of this process."""
    lag: list[tuple[Mapping[str, str], float]] = []
    held: list[tuple[Mapping[str, str], float]] = []
    source_ends: list[tuple[Mapping[str, str], float]] = []
    lag_seconds: list[tuple[Mapping[str, str], float]] = []
    offsets: list[tuple[Mapping[str, str], float]] = []
    sizes: list[tuple[Mapping[str, str], float]] = []
    failures: list[tuple[Mapping[str, str], float]] = []
    throttled: list[tuple[Mapping[str, str], float]] = []
    breakers: list[tuple[Mapping[str, str], float]] = []
    groups: list[tuple[Mapping[str, str], float]] = []
    for runner in copying.runners():
        link = {"link": runner.name}
        breakers.append((link, STATES.index(runner.breaker.state)))
        failures.append((link, runner.failed))
        throttled.append((link, runner.throttled_s))
        groups.append((link, runner.groups_copied))
        for copier in runner.copiers():
            labels = {**link, "topic": copier.topic, "partition": str(copier.partition)}
            lag.append((labels, copier.lag))
            if copier.source_end >= 0:
                source_ends.append((labels, copier.source_end))
                held.append((labels, copier.held))
            lag_seconds.append((labels, copier.lag_ms(now_ms) / 1000))
            offsets.append((labels, copier.records))
            sizes.append((labels, copier.bytes))
    return [
        Metric("headwater_link_lag_records", "gauge", "Offsets that the source has and the log here has not.", lag),
        Metric(
            "headwater_link_source_end", "gauge", "Where readers of committed records stop in the source.", source_ends
        ),
        Metric(
            "headwater_link_held_records",
            "gauge",
            "Offsets of the source that wait for a transaction to end there.",
            held,
        ),
        Metric(
            "headwater_link_lag_seconds",
            "gauge",
            "Age of the last copied record while there are newer ones.",
            lag_seconds,
        ),
        Metric("headwater_link_offsets_total", "counter", "Offsets that this process copied, gaps included.", offsets),
        Metric("headwater_link_bytes_total", "counter", "Bytes of batches that this process copied.", sizes),
        Metric("headwater_link_failures_total", "counter", "Requests to the source that failed.", failures),
        Metric(
            "headwater_link_throttled_seconds_total",
            "counter",
            "How long quotas of the source held up requests.",
            throttled,
        ),
        Metric("headwater_link_breaker", "gauge", "Breaker of the source: 0 closed, 1 half open, 2 open.", breakers),
        Metric("headwater_link_group_offsets_total", "counter", "Group offsets that this process copied.", groups),
    ]
