"""Bytes of answers that clients have not read yet, over all connections of a broker.

Above the limit, a connection's next request is read only when it has read its last answer, and answers to Fetch are
small. So clients that read are served, and those that do not read wait. Above twice the limit all wait. A connection
that reads too slowly meanwhile is closed. Answers that are ready are always sent, so that they count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

SMALL_ANSWER_BYTES = 256 << 10
"""Bytes of records in an answer to Fetch while there is little room."""
LITTLE_BYTES = 64 << 10
"""A client with fewer unread bytes does not wait: the event loop may not have passed them on yet."""
SLOWEST_BYTES_PER_SECOND = 64 << 10


@dataclass(slots=True)
class _Queue:
    """The unread bytes of a connection."""

    size: int
    begun: float
    """When the client was last seen to read fast enough, or to have nothing to read."""
    due: int
    """The unread bytes at that time, and those that came since."""


class Responses:
    """Counts the bytes of one broker."""

    def __init__(self, limit: int, stalled_seconds: float) -> None:
        self.limit = limit
        self._stalled_seconds = stalled_seconds
        self._queues: dict[Hashable, _Queue] = {}
        self.bytes = 0
        self.level = 0
        """0: there is room. 1: above the limit. 2: above twice the limit."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the level has changed."""

    def __repr__(self) -> str:
        return f"<Responses, {self.bytes} of {self.limit} bytes>"

    def holds(self, owner: Hashable) -> bool:
        """Whether a connection has to wait with its next request."""
        if self.level != 1:
            return self.level > 1
        queue = self._queues.get(owner)
        return queue is not None and queue.size > LITTLE_BYTES

    def fetch_limit(self, wanted: int) -> int:
        """How many bytes of records an answer to Fetch may have now."""
        return min(wanted, SMALL_ANSWER_BYTES) if self.level else wanted

    def begin_reading(self, size: int) -> None:
        """Count bytes of an answer that are being read from the log."""
        self._add(size)

    def end_reading(self, size: int) -> None:
        """They are read. From now on they count with their connection."""
        self._add(-size)

    def queued(self, owner: Hashable, size: int, now: float) -> bool:
        """Note how many bytes a connection's client has not read yet. Returns whether that has changed."""
        queue = self._queues.get(owner)
        if queue is None:
            if not size:
                return False
            queue = self._queues[owner] = _Queue(0, now, 0)
        more = size - queue.size
        if not size:
            del self._queues[owner]
        queue.due += max(more, 0)
        queue.size = size
        self._add(more)
        return more != 0

    def gone(self, owner: Hashable) -> None:
        """A connection is closed."""
        queue = self._queues.pop(owner, None)
        if queue is not None:
            self._add(-queue.size)

    def owners(self) -> list[Hashable]:
        """Connections with unread bytes."""
        return list(self._queues)

    def stalled(self, now: float) -> list[Hashable]:
        """Connections to close. Call it after each of them was measured."""
        found = []
        for owner, queue in self._queues.items():
            seconds = now - queue.begun
            if seconds < self._stalled_seconds:
                continue
            if queue.due - queue.size < SLOWEST_BYTES_PER_SECOND * seconds:
                found.append(owner)
            else:
                queue.begun, queue.due = now, queue.size
        return found if self.level else []

    def _add(self, size: int) -> None:
        self.bytes += size
        # A level is left at half of what it is entered at, so that it does not flicker.
        if self.bytes > 2 * self.limit:
            level = 2
        elif self.bytes > self.limit:
            level = max(self.level, 1)
        else:
            level = min(self.level, 1) if self.bytes > self.limit // 2 else 0
        if level != self.level:
            self.level = level
            self.on_change()
