"""A circuit breaker: what fails again and again is left alone for a while, and then tried with single requests.

It is pure: the caller passes the time, in seconds that never go back.
"""

from __future__ import annotations

from enum import StrEnum

from headwater.settings.links import Links


class State(StrEnum):
    """The states of a breaker."""

    CLOSED = "closed"
    """Requests go through."""
    OPEN = "open"
    """No request goes through, until a time has passed."""
    HALF_OPEN = "half_open"
    """One request at a time goes through, to try."""


class Breaker:
    """Counts successes and failures, and says whether a request may be made.

    A caller asks `allows`, and makes its request at once if the answer is yes. It then calls `worked`, `failed` or, for
    a request without a result, `gave_up`.
    """

    def __init__(self, settings: Links) -> None:
        self._settings = settings
        self.state = State.CLOSED
        self.failures = 0
        """Failures in a row while it is closed."""
        self._successes = 0
        self._trying = False
        self._opened_at = 0.0
        self.opened = 0
        """How often it has opened."""

    def __repr__(self) -> str:
        return f"<Breaker {self.state}, {self.failures} failures, opened {self.opened} times>"

    def allows(self, now: float) -> bool:
        """Whether a request may be made now. The caller makes it."""
        if self.state is State.OPEN and self.wait(now) <= 0:
            self.state, self._successes, self._trying = State.HALF_OPEN, 0, False
        if self.state is State.HALF_OPEN:
            if self._trying:
                return False
            self._trying = True
        return self.state is not State.OPEN

    def wait(self, now: float) -> float:
        """Seconds until an open breaker lets a request through; 0 for others."""
        if self.state is not State.OPEN:
            return 0.0
        return max(0.0, self._opened_at + self._settings.breaker_open_ms / 1000 - now)

    def worked(self) -> None:
        """A request has succeeded."""
        if self.state is State.CLOSED:
            self.failures = 0
        elif self.state is State.HALF_OPEN:
            self._trying = False
            self._successes += 1
            if self._successes >= self._settings.breaker_successes:
                self.state, self.failures = State.CLOSED, 0

    def failed(self, now: float) -> None:
        """A request has failed. One that began before the breaker opened changes nothing.

        A look at the source's metadata needs no leave. If it fails when the time is over, the breaker stays open anew.
        """
        if self.state is State.OPEN:
            if self.wait(now) <= 0:
                self._opened_at = now
            return
        self.failures += 1
        if self.state is State.HALF_OPEN or self.failures >= self._settings.breaker_failures:
            self.state, self._opened_at, self._trying = State.OPEN, now, False
            self.opened += 1

    def rest(self) -> None:
        """Nobody makes requests any more. What was known of the source is forgotten."""
        self.state, self.failures, self._trying = State.CLOSED, 0, False

    def gave_up(self) -> None:
        """A request has ended without a result: it was cancelled. Another one may try."""
        self._trying = False
