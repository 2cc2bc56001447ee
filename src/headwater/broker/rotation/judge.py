"""Decides which brokers are out of rotation because they are much slower than the others. Pure: no I/O, no clock.

A broker is compared with the median of its peers, so a store that is slow for all takes no broker out.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from headwater.settings.settings import Brownout
from headwater.state.cluster.rotation import MAX_OUT_SHARE

UNKNOWN = -1
"""The value of a time that a broker does not know."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A broker's times in microseconds, or `UNKNOWN`."""

    publish_us: int
    fetch_us: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """A broker that goes out of rotation, or comes back into it."""

    epoch: int
    out: bool


class Judge:
    """Judges the readings of all brokers, and decides which go out of rotation and which come back."""

    def __init__(self, settings: Brownout) -> None:
        self._settings = settings
        self._slow_since: dict[int, float] = {}
        self._well_since: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"<Judge: {len(self._slow_since)} slow, {len(self._well_since)} well again>"

    def decide(self, now: float, readings: Mapping[int, Reading | None], out: Set[int]) -> list[Verdict]:
        """The changes to make, given every broker's fresh reading (or None) and the brokers that are out.

        `now` is in seconds on any clock that does not go back.
        """
        if not (out or self._slow_since or self._well_since or any(readings.values())):
            return []  # nobody was slow, and nobody reports
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
            verdicts.append(Verdict(epoch, False))  # other brokers have left, and this one is needed
        return verdicts

    def _is_out(self, epoch: int, now: float) -> bool:
        return now - self._slow_since.get(epoch, now) >= self._settings.after_ms / 1000

    def _is_back(self, epoch: int, now: float) -> bool:
        return now - self._well_since.get(epoch, now) >= self._settings.back_ms / 1000

    def _excess(self, epoch: int, readings: Mapping[int, Reading | None], out: Set[int]) -> int | None:
        """By how many microseconds a broker exceeds the bound (0 or less: not at all); None if it cannot be judged."""
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
        """The longest acceptable time in microseconds. Of two medians the larger counts, in favour of the broker."""
        median = sorted(others)[len(others) // 2]
        return max(self._settings.floor_ms * 1000, median * self._settings.factor)


def _mark(since: dict[int, float], epoch: int, now: float, holds: bool) -> None:
    if not holds:
        since.pop(epoch, None)
    else:
        since.setdefault(epoch, now)
