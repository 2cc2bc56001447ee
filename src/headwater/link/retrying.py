"""Pauses between tries: each twice as long as the one before it, up to a longest one, and a random part more."""

from __future__ import annotations

from headwater.clock import Chance
from headwater.settings.links import Links


def pause_after(failures: int, settings: Links, fraction: float) -> float:
    """Seconds to wait after a number of failures in a row, at least one. `fraction` is in [0, 1)."""
    doubled = settings.retry_first_ms
    for _ in range(failures - 1):
        doubled *= 2
        if doubled >= settings.retry_longest_ms:
            break
    base = min(settings.retry_longest_ms, doubled)
    return base * (1 + fraction * settings.retry_jitter_percent / 100) / 1000


class Retrying:
    """The failures of one thing in a row."""

    def __init__(self, settings: Links, chance: Chance) -> None:
        self._settings = settings
        self._chance = chance
        self.failures = 0
        """Failures since the last success."""

    def __repr__(self) -> str:
        return f"<Retrying after {self.failures} failures>"

    @property
    def exhausted(self) -> bool:
        """Whether all tries failed. What goes on then goes on with the longest pause, and is unhealthy."""
        return self.failures >= self._settings.retry_tries

    def pause(self) -> float:
        """Note a failure; returns the seconds to wait before the next try."""
        self.failures += 1
        return pause_after(self.failures, self._settings, self._chance.fraction())

    def worked(self) -> None:
        """Note a success."""
        self.failures = 0
