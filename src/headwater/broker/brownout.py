"""Which brokers clients should be kept away from, because they are much slower than the others. Pure: no I/O, no clock.

A broker is compared with the median of its peers, so a store that is slow for all takes nobody out.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from headwater.config import Brownout
from headwater.metadata.rotation import MAX_OUT_SHARE

UNKNOWN = -1
"""Where a broker could not tell how long something takes."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How long a broker takes, in microseconds, or `UNKNOWN`."""

    publish_us: int
    fetch_us: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """A broker that goes out of rotation, or comes back."""

    epoch: int
    out: bool


class Judge:
    """Takes what is known of all brokers from time to time, and says what should change."""

    def __init__(self, settings: Brownout) -> None:
        self._settings = settings
        self._slow_since: dict[int, float] = {}
        self._well_since: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"<Judge: {len(self._slow_since)} slow, {len(self._well_since)} well again>"

    def decide(self, now: float, readings: Mapping[int, Reading | None], out: Set[int]) -> list[Verdict]:
        """What should change, given every broker's fresh reading (or none) and who is out.

        `now` is in seconds on any clock that does not go back.
        """
        for known in (self._slow_since, self._well_since):
            for epoch in known.keys() - readings.keys():
                del known[epoch]
        excess = {epoch: self._excess(epoch, readings, out) for epoch in readings}
        for epoch, by in excess.items():
            _mark(self._slow_since, epoch, now, by is not None and by > 0)
            _mark(self._well_since, epoch, now, by is not None and by <= 0)
        verdicts = [Verdict(epoch, False) for epoch in sorted(out & readings.keys()) if self._is_back(epoch, now)]
        still = len(out & readings.keys()) - len(verdicts)
        room = len(readings) // MAX_OUT_SHARE - still
        slow = [e for e in readings.keys() - out if self._is_out(e, now)]
        for epoch in sorted(slow, key=lambda e: (-(excess[e] or 0), e))[: max(room, 0)]:
            verdicts.append(Verdict(epoch, True))
        for epoch in sorted((out & readings.keys()) - {v.epoch for v in verdicts})[: max(-room, 0)]:
            verdicts.append(Verdict(epoch, False))  # the others have gone meanwhile, and it is needed
        return verdicts

    def _is_out(self, epoch: int, now: float) -> bool:
        return now - self._slow_since.get(epoch, now) >= self._settings.after_ms / 1000

    def _is_back(self, epoch: int, now: float) -> bool:
        return now - self._well_since.get(epoch, now) >= self._settings.back_ms / 1000

    def _excess(self, epoch: int, readings: Mapping[int, Reading | None], out: Set[int]) -> int | None:
        """By how much a broker is slower than it may be, 0 or less if it is not; nothing if that cannot be told."""
        own = readings[epoch]
        if own is None:
            return None
        peers = [reading for e, reading in readings.items() if e != epoch and e not in out]
        known = [reading for reading in peers if reading is not None]
        found = []
        for mine, others in (
            (own.publish_us, [r.publish_us for r in known]),
            (own.fetch_us, [r.fetch_us for r in known]),
        ):
            others = [value for value in others if value != UNKNOWN]
            if mine != UNKNOWN and 2 * len(others) > len(peers):
                found.append(mine - self._bound(others))
        return max(found, default=None)

    def _bound(self, others: list[int]) -> int:
        """What is still as it should be, in microseconds. Of two medians the larger counts, in doubt for it."""
        median = sorted(others)[len(others) // 2]
        return max(self._settings.floor_ms * 1000, median * self._settings.factor)


def _mark(since: dict[int, float], epoch: int, now: float, holds: bool) -> None:
    if not holds:
        since.pop(epoch, None)
    else:
        since.setdefault(epoch, now)
