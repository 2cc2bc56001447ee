"""How long a test waits for something before it counts as hanging.

Limits only separate a hang from slowness; no test asserts how fast anything is. A machine that shares its processors
with others may get a twentieth of them at times. So a second counts only for the share that this machine got of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import psutil

SLOWEST = 0.1
"""The lowest speed that is assumed, so that every wait has an end."""
SPAN_SECONDS = 0.5
"""Processor time is counted in hundredths of a second, so shorter spans are not precise."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """The times that the clock and the processors have counted so far, in seconds."""

    now: float
    busy: float
    stolen: float

    @staticmethod
    def take() -> Reading:
        return Reading.of(time.monotonic(), psutil.cpu_times())

    @staticmethod
    def of(now: float, times: Any) -> Reading:
        busy = sum(getattr(times, kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq"))
        return Reading(now, busy, getattr(times, "steal", 0.0))

    def speed_since(self, earlier: Reading) -> float:
        """The share of the time in which processes that had work got a processor for it."""
        busy, stolen = self.busy - earlier.busy, self.stolen - earlier.stolen
        return max(SLOWEST, busy / (busy + stolen)) if busy + stolen > 0 else 1.0


class Patience:
    """The limit of one wait. A machine that runs at half its speed gets twice the time."""

    def __init__(self, seconds: float, read: Callable[[], Reading] = Reading.take) -> None:
        self._left = seconds
        self._read = read
        self._seen = read()

    @property
    def left(self) -> float:
        reading = self._read()
        passed = reading.now - self._seen.now
        if passed >= SPAN_SECONDS:
            self._left -= passed * reading.speed_since(self._seen)
            self._seen = reading
        return self._left

    @property
    def ended(self) -> bool:
        return self.left <= 0


def eventually(look: Callable[[], T], what: str, seconds: float = 30.0, every: float = 0.02) -> T:
    """Call `look` until its result is true; returns the result."""
    patience = Patience(seconds)
    while True:
        found = look()
        if found:
            return found
        if patience.ended:
            raise TimeoutError(f"gave up after {seconds:g} s: {what}")
        time.sleep(every)  # polls for a state that the loop checks; nothing counts on its length
