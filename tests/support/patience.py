"""How long tests wait for something before they say that it hangs.

Limits only tell a hang from slowness; no test asserts how fast anything is. Machines that share a processor slow
down tenfold at times, so limits count the seconds that this machine ran, not those that others were given.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")


def clock() -> float:
    """Seconds for which the machine ran: those that a hypervisor gave to others do not count."""
    return time.monotonic() - getattr(psutil.cpu_times(), "steal", 0.0) / psutil.cpu_count()


class Patience:
    """A limit for one wait."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        return self._end - clock()

    @property
    def ended(self) -> bool:
        return self.left <= 0


def eventually(look: Callable[[], T], what: str, seconds: float = 30.0, every: float = 0.02) -> T:
    """What `look` gives, as soon as that is something."""
    patience = Patience(seconds)
    while True:
        found = look()
        if found:
            return found
        if patience.ended:
            raise TimeoutError(f"gave up after {seconds:g} s: {what}")
        time.sleep(every)  # polls for a state that the loop checks; nothing counts on its length
