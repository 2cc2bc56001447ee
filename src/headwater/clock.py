"""The only door to time and randomness. Tests and the simulation bring their own."""

from __future__ import annotations

import random
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Where time comes from. Waiting goes through the event loop, whose clock is `monotonic`."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch. May jump; nothing's safety rests on it."""

    def monotonic(self) -> float:
        """Seconds that never go back, for intervals inside one process."""


class Chance(Protocol):
    """Where randomness comes from."""

    def fraction(self) -> float:
        """A number in [0, 1), for jitter."""

    def uuid(self) -> uuid.UUID:
        """A fresh random id."""


class SystemClock:
    """The machine's own time."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class SystemChance:
    """The machine's own randomness."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def fraction(self) -> float:
        return self._random.random()

    def uuid(self) -> uuid.UUID:
        return uuid.uuid4()
