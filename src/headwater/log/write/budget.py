"""The bytes that a broker has under way: requests that are not answered, and batches that are not decided.

A batch counts from its arrival until it has its outcome or is dropped. Neither the answer to its request nor the loss
of the connection ends that.
"""

from __future__ import annotations

from collections.abc import Callable


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
