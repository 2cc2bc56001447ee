"""Whether there is room in the ledger and in the object store, as the last writes of this process showed."""

from __future__ import annotations

import logging

from headwater.clock import Clock
from headwater.errors import HeadwaterError, StoreFull

log = logging.getLogger("headwater.room")
LEDGER, OBJECTS = "ledger", "objects"
SURE_SECONDS = 5.0
"""There is room again after a write that succeeds this long after the last one that found none. On a full disk a small
write may still succeed between others that fail."""


class Room:
    """Remembers, logs and tells where there is no room."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[float, str]] = {}
        self.refused = 0
        """How many writes found no room."""

    def __repr__(self) -> str:
        return f"<Room, none in {sorted(self._failed) or 'nothing'}>"

    def failed(self, where: str, error: HeadwaterError) -> None:
        """Note that a write failed. Only a lack of room counts."""
        if not isinstance(error, StoreFull):
            return
        self.refused += 1
        if where not in self._failed:
            log.error("there is no room: nothing can be written", extra={"store": where, "reason": str(error)})
        self._failed[where] = (self._clock.monotonic(), str(error))

    def worked(self, where: str) -> None:
        """Note that a write succeeded."""
        if self._failed and where in self._failed:
            since, _ = self._failed[where]
            if self._clock.monotonic() - since >= SURE_SECONDS:
                del self._failed[where]
                log.warning("there is room again", extra={"store": where})

    def missing(self) -> dict[str, str]:
        """The last error of each store without room."""
        return {where: error for where, (_, error) in sorted(self._failed.items())}
