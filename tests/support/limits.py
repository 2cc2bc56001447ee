"""Starts tests only when the machine has time for them, and ends them: a test that hangs fails, wherever it hangs.

Tests use servers and clients whose own time-outs follow the wall clock. If other work takes the machine for minutes,
they all expire, which says nothing about the tested code. So no test begins at such a time.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import pytest
import pytest_timeout

from harness.patience import Patience, Reading

STARVED = 0.25
"""Tests do not begin while the machine is slower than this."""
LOOK_SECONDS = 2.0
SPIN_SECONDS = 0.2
WAIT_SECONDS = 1_200.0
"""How long the tests of a process wait in all. After that they begin nevertheless."""
HARD_SECONDS = 60.0
"""How long a test over its limit may take to fail before its process is ended."""


class Calm:
    """Waits until the machine has time."""

    def __init__(
        self, spin: Callable[[float], None], sleep: Callable[[float], None], read: Callable[[], Reading] = Reading.take
    ) -> None:
        self._spin = spin
        self._sleep = sleep
        self._read = read
        self._seen = read()
        self.waited = 0.0

    def wait(self) -> None:
        reading = self._read()
        if reading.now - self._seen.now < LOOK_SECONDS:
            return
        speed = reading.speed_since(self._seen)
        while speed < STARVED and self.waited < WAIT_SECONDS:
            self._sleep(1.0)
            before = self._read()
            self._spin(SPIN_SECONDS)  # the share of a processor shows only while there is work
            after = self._read()
            speed = after.speed_since(before)
            self.waited += after.now - reading.now
            reading = after
        self._seen = reading


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


_calm = Calm(spin, time.sleep)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Wait for the machine before the timer of the test is set."""
    _calm.wait()
    return (yield)


class Watchdog:
    """Ends the process if a test over its limit does not fail, because a library never returns and blocks signals."""

    def __init__(self) -> None:
        self._watched: tuple[Patience, pytest.Item, pytest_timeout.Settings] | None = None
        self._thread: threading.Thread | None = None

    def watch(self, item: pytest.Item, settings: pytest_timeout.Settings) -> None:
        self._watched = Patience(settings.timeout + HARD_SECONDS), item, settings
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()

    def rest(self) -> None:
        self._watched = None

    def _run(self) -> None:
        while True:
            time.sleep(1)  # the interval of the watchdog
            watched = self._watched
            if watched is not None and watched[0].ended:
                pytest_timeout.timeout_timer(*watched[1:])


_watchdog = Watchdog()


def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
    """Fail a test that takes longer than its limit, as pytest-timeout does, but count the machine's own seconds."""
    patience = Patience(settings.timeout)

    def ring(signum: int, frame: FrameType | None) -> None:
        if patience.ended:
            pytest_timeout.timeout_sigalrm(item, settings)
        else:
            signal.setitimer(signal.ITIMER_REAL, max(patience.left, 0.1))

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    _watchdog.watch(item, settings)
    return True


def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _watchdog.rest()
    return True
