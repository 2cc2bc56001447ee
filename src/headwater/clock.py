"""The only source of time and randomness. Tests and the simulation pass their own."""

from __future__ import annotations

import random
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """The source of time. Waiting uses the event loop, whose clock is `monotonic`."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch. May jump; safety never depends on it."""

    def monotonic(self) -> float:
        """Seconds that never go back, for intervals inside one process."""


class Chance(Protocol):
    """The source of randomness."""

    def fraction(self) -> float:
        """A number in [0, 1), for jitter."""

    def uuid(self) -> uuid.UUID:
        """A new random id."""


class SystemClock:
    """The machine's time."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class SystemChance:
    """The machine's randomness."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def fraction(self) -> float:
        return self._random.random()

    def uuid(self) -> uuid.UUID:
        return uuid.uuid4()
