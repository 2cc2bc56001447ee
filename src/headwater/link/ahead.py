"""Back-pressure: how much may be fetched before it is appended.

Fetching pauses when all partitions of a process together are ahead by too many bytes, and resumes when half of that is
appended. A single partition has a limit of its own, without a middle: it is fetched again as soon as it is below.
Fetches that are under way share what is left: the more brokers a source has, the less each of them is asked for.
"""

from __future__ import annotations

from headwater.settings.links import Links

SHARE = 4
"""A fetch may bring this part of what is left."""


class Ahead:
    """Bytes that were fetched and are not appended yet, of all partitions of a process."""

    def __init__(self, settings: Links) -> None:
        self._limit = settings.ahead_total_bytes
        self._least, self._most = settings.fetch_bytes, settings.fetch_total_bytes
        self._under_way = 0
        """What fetches that have no answer yet may bring."""
        self.bytes = 0
        self.paused = False
        """Whether nothing should be fetched now."""

    def __repr__(self) -> str:
        return f"<Ahead by {self.bytes} bytes{', paused' if self.paused else ''}>"

    def fetched(self, size: int) -> None:
        """Bytes have arrived."""
        self.bytes += size
        if self.bytes >= self._limit:
            self.paused = True

    def appended(self, size: int) -> bool:
        """Bytes were appended or dropped. Returns whether fetching resumes by it."""
        self.bytes -= size
        if not self.paused or self.bytes > self._limit // 2:
            return False
        self.paused = False
        return True

    def begin(self) -> int:
        """A fetch begins; returns how many bytes it may bring, at least those of one partition. Then call `end`."""
        left = self._limit - self.bytes - self._under_way
        size = max(self._least, min(self._most, left // SHARE))
        self._under_way += size
        return size

    def end(self, size: int) -> None:
        """A fetch has ended that might have brought so many bytes."""
        self._under_way -= size
