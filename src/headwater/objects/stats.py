"""Counts of a store's work: plain numbers, read when metrics are requested."""

from __future__ import annotations

from bisect import bisect_left

OPERATIONS = ("put", "create", "get", "size", "delete", "scan")
BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
"""Upper bounds in seconds. Longer times are in a last bucket."""


class OperationStats:
    """One kind of call."""

    __slots__ = ("buckets", "bytes", "calls", "errors", "requests", "retries", "seconds")

    def __init__(self) -> None:
        self.calls = 0
        """Calls that have ended, successful or not."""
        self.errors = 0
        """Calls that failed in the end. A missing object is an answer, not a failure."""
        self.bytes = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.requests = 0
        """Requests sent to the store; 0 for a local store."""
        self.retries = 0

    def __repr__(self) -> str:
        return f"<OperationStats {self.calls} calls, {self.errors} errors, {self.bytes} bytes>"

    def done(self, seconds: float, size: int = 0, *, failed: bool = False) -> None:
        """Count a call that has ended."""
        self.calls += 1
        self.seconds += seconds
        self.bytes += size
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        if failed:
            self.errors += 1


class StoreStats:
    """All kinds of calls of one store."""

    __slots__ = (
        "create",
        "delete",
        "get",
        "hedges",
        "hedges_won",
        "put",
        "retries_denied",
        "scan",
        "size",
        "under_way",
    )

    def __init__(self) -> None:
        self.put = OperationStats()
        self.create = OperationStats()
        self.get = OperationStats()
        self.size = OperationStats()
        self.delete = OperationStats()
        self.scan = OperationStats()
        self.hedges = 0
        self.hedges_won = 0
        self.retries_denied = 0
        self.under_way = 0

    def __repr__(self) -> str:
        return f"<StoreStats {self.put.calls} put, {self.get.calls} got>"

    def operations(self) -> dict[str, OperationStats]:
        """The counts by the name of the operation."""
        return {name: getattr(self, name) for name in OPERATIONS}
