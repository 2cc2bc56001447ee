"""The counts of an object store as metrics."""

from __future__ import annotations

from itertools import accumulate
from typing import Protocol, runtime_checkable

from headwater.objects.stats import BUCKETS, StoreStats
from headwater.objects.store import ObjectStore
from headwater.ops.metrics import Metric


@runtime_checkable
class _Counted(Protocol):
    stats: StoreStats


def collect(store: ObjectStore) -> list[Metric]:
    """The metrics of an object store; none for a store without counts."""
    if not isinstance(store, _Counted):
        return []
    stats = store.stats
    kinds = [({"operation": name}, counted) for name, counted in stats.operations().items()]
    bounds = [*map(str, BUCKETS), "+Inf"]
    buckets = [
        ({**kind, "le": bound}, float(count))
        for kind, counted in kinds
        for bound, count in zip(bounds, accumulate(counted.buckets), strict=True)
    ]

    def one(value: float) -> list[tuple[dict[str, str], float]]:
        return [({}, value)]

    return [
        Metric("headwater_objects_calls_total", "counter", "Calls of the object store, by operation.",
               [(kind, counted.calls) for kind, counted in kinds]),
        Metric("headwater_objects_errors_total", "counter", "Calls that failed in the end.",
               [(kind, counted.errors) for kind, counted in kinds]),
        Metric("headwater_objects_bytes_total", "counter", "Bytes stored or read.",
               [(kind, counted.bytes) for kind, counted in kinds]),
        Metric("headwater_objects_requests_total", "counter", "Requests sent over the network.",
               [(kind, counted.requests) for kind, counted in kinds]),
        Metric("headwater_objects_retries_total", "counter", "Requests that were sent again.",
               [(kind, counted.retries) for kind, counted in kinds]),
        Metric("headwater_objects_retries_denied_total", "counter", "Retries that the budget did not allow.",
               one(stats.retries_denied)),
        Metric("headwater_objects_hedges_total", "counter", "Late reads that were asked a second time.",
               one(stats.hedges)),
        Metric("headwater_objects_hedges_won_total", "counter", "Reads whose second request was the quicker one.",
               one(stats.hedges_won)),
        Metric("headwater_objects_requests", "gauge", "Requests under way.", one(stats.under_way)),
        Metric("headwater_objects_seconds_sum", "counter", "Time that calls took, retries and waiting included.",
               [(kind, counted.seconds) for kind, counted in kinds]),
        Metric("headwater_objects_seconds_count", "counter", "Calls whose time was taken.",
               [(kind, float(sum(counted.buckets))) for kind, counted in kinds]),
        Metric("headwater_objects_seconds_bucket", "counter", "Calls that took at most so many seconds.", buckets),
    ]  # fmt: skip
