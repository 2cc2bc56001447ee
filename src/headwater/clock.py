"""The only source of time and randomness. Tests and the simulation pass their own."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("headwater.clock")
JUMP_MS = 10_000
"""A wall clock that moves farther than this against the steady clock has jumped."""
BELIEVED_AFTER_MS = 600_000
"""A jump is believed when it has lasted for so long."""
LOOKS = 10
"""So many looks in that time must show it."""


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


class WaryClock:
    """A clock that believes a jump of the wall clock only after ten minutes.

    A process that runs knows how much time has passed. If its host's wall clock says something else, one of the two is
    wrong, and a wall clock that is wrong is mostly put right soon. Until then the time goes on from before the jump.
    """

    def __init__(self, source: Clock, passed_ms: Callable[[], int] | None = None) -> None:
        """`passed_ms` counts also while the host sleeps, where the system has such a count."""
        self._source = source
        self._passed_ms = passed_ms or (lambda: int(source.monotonic() * 1000))
        self._offset = source.wall_ms() - self._passed_ms()
        self._doubted: int | None = None
        self._doubted_since = 0
        self._looks = 0

    def __repr__(self) -> str:
        return f"<WaryClock, {self.jump_ms} ms beside its host's>"

    @property
    def jump_ms(self) -> int:
        """How far the host's wall clock has jumped; 0 if it has not, or if the jump is believed."""
        return 0 if self._doubted is None else self._doubted - self._offset

    def monotonic(self) -> float:
        return self._source.monotonic()

    def host_ms(self) -> int:
        """What the host's wall clock says, believed or not."""
        return self._source.wall_ms()

    def wall_ms(self) -> int:
        passed = self._passed_ms()
        offset = self._source.wall_ms() - passed
        if abs(offset - self._offset) <= JUMP_MS:
            if self._doubted is not None:
                log.warning("the wall clock of this host is right again", extra={"jump_ms": self.jump_ms})
            self._offset, self._doubted = offset, None
        elif self._doubted is None or abs(offset - self._doubted) > JUMP_MS:
            self._doubted, self._doubted_since, self._looks = offset, passed, 1
            facts = {"jump_ms": self.jump_ms, "believed_in_s": BELIEVED_AFTER_MS // 1000}
            log.warning("the wall clock of this host has jumped, and is not believed for now", extra=facts)
        else:
            self._looks += 1
            if passed - self._doubted_since >= BELIEVED_AFTER_MS and self._looks >= LOOKS:
                log.warning("the wall clock of this host has jumped for good", extra={"jump_ms": self.jump_ms})
                self._offset, self._doubted = offset, None
        return passed + self._offset


def earliest_ms(clock: Clock) -> int:
    """The lesser of what a clock and its host's wall clock say, for what deletes by age."""
    return min(clock.wall_ms(), clock.host_ms()) if isinstance(clock, WaryClock) else clock.wall_ms()


def host_clock() -> WaryClock:
    """The clock of a process that writes to a ledger."""
    return WaryClock(SystemClock(), _awake_or_asleep_ms if hasattr(time, "CLOCK_BOOTTIME") else None)


def _awake_or_asleep_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class SystemChance:
    """The machine's randomness."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def fraction(self) -> float:
        return self._random.random()

    def uuid(self) -> uuid.UUID:
        return uuid.uuid4()
