"""The bytes that a broker has under way: requests that are not answered, and batches that are not decided.

A batch counts from its arrival until it has its outcome or is dropped. Neither the answer to its request nor the loss
of the connection ends that.

A batch of two kilobytes that opens to sixty megabytes costs its sender nothing, and the broker as much as a thousand
batches of others. So a batch may open to `FREE_RATIO` times its size, or to `FREE_BYTES`; what is beyond that is a debt
of its caller. All debts together shrink by `BYTES_PER_SECOND`, in equal parts. While a caller owes more than
`BURST_BYTES`, its batches are not opened beyond what is free, and those that need it are refused for now.
"""

from __future__ import annotations

from collections.abc import Callable

FREE_BYTES = 1 << 20
FREE_RATIO = 64
"""Data of usual programs is not compressed that well, apart from batches that are small when opened."""
BURST_BYTES = 64 << 20
BYTES_PER_SECOND = 16 << 20


class Budget:
    """Counts bytes. Above the limit the broker reads no more requests, until it is below half of the limit."""

    __slots__ = ("exceeded", "limit", "on_change", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.exceeded = False
        self.on_change: Callable[[], None] | None = None
        """Called when `exceeded` changes."""

    def __repr__(self) -> str:
        return f"<Budget, {self.used} of {self.limit} bytes>"

    def take(self, size: int) -> None:
        """Count bytes that arrived."""
        self.used += size
        if self.used > self.limit and not self.exceeded:
            self._change(True)

    def give(self, size: int) -> None:
        """Count bytes as no longer needed."""
        self.used -= size
        if self.exceeded and self.used < self.limit // 2:
            self._change(False)

    def _change(self, exceeded: bool) -> None:
        self.exceeded = exceeded
        if self.on_change is not None:
            self.on_change()


def free_bytes(size: int) -> int:
    """What a batch of this size may open to without a debt."""
    return max(FREE_BYTES, size * FREE_RATIO)


class Expansion:
    """The debts of callers, in bytes."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` gives seconds that never go back."""
        self._now = now
        self._debts: dict[str, float] = {}
        self._at = 0.0
        self.refused = 0
        """Batches that were refused because of debts."""

    def __repr__(self) -> str:
        return f"<Expansion, {len(self._debts)} callers owe {self.owed} bytes>"

    @property
    def owed(self) -> int:
        """All debts together, when they were last looked at."""
        return int(sum(self._debts.values()))

    def charge(self, caller: str, size: int, opened: int) -> None:
        """Note what a batch of a caller has opened to, or would have if that had gone on."""
        beyond = opened - free_bytes(size)
        if beyond > 0:
            self._shrink()
            self._debts[caller] = self._debts.get(caller, 0.0) + beyond

    def exceeded(self, caller: str) -> bool:
        """Whether a caller owes too much."""
        if caller not in self._debts:
            return False
        self._shrink()
        return self._debts.get(caller, 0.0) > BURST_BYTES

    def _shrink(self) -> None:
        now = self._now()
        passed, self._at = now - self._at, now
        if self._debts:
            part = passed * BYTES_PER_SECOND / len(self._debts)
            self._debts = {caller: debt - part for caller, debt in self._debts.items() if debt > part}
