"""Limits of the gateway: how many requests and streams are under way, and how often a caller may ask."""

from __future__ import annotations

from collections import OrderedDict

from headwater.clock import Clock
from headwater.gateway.problems import OVERLOADED, TOO_MANY, Refusal

MAX_CALLERS = 10_000
"""Callers whose rates are kept. A new one replaces the one that was silent for longest."""
BURST_SECONDS = 2
"""A caller that was silent may send the requests of so many seconds at once."""


class Place:
    """A place that is taken until it is released. To release it twice does no harm."""

    def __init__(self, places: Places, caller: str) -> None:
        self._places: Places | None = places
        self._caller = caller

    def release(self) -> None:
        """Give the place back."""
        if self._places is not None:
            self._places.leave(self._caller)
            self._places = None


class Places:
    """A number of places, and how many of them one caller may take."""

    def __init__(self, what: str, most: int, most_per_caller: int | None = None) -> None:
        self._what = what
        self._most = most
        self._most_per_caller = most_per_caller
        self._taken: dict[str, int] = {}
        self.count = 0

    def __repr__(self) -> str:
        return f"<Places for {self.count} of {self._most} {self._what}>"

    def enter(self, caller: str = "") -> Place:
        """Take a place, or raise a refusal."""
        mine = self._taken.get(caller, 0)
        if self._most_per_caller is not None and mine >= self._most_per_caller:
            raise Refusal(TOO_MANY, f"the caller has {mine} {self._what} already")
        if self.count >= self._most:
            raise Refusal(OVERLOADED, f"the gateway has {self.count} {self._what} already")
        self.count += 1
        self._taken[caller] = mine + 1
        return Place(self, caller)

    def leave(self, caller: str) -> None:
        """See `Place.release`."""
        self.count -= 1
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]


class Rates:
    """How often callers ask: each has tokens, which come back with time."""

    def __init__(self, per_second: int, clock: Clock) -> None:
        self._per_second = float(per_second)
        self._most = self._per_second * BURST_SECONDS
        self._clock = clock
        self._callers: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Rates of {len(self._callers)} callers>"

    def take(self, caller: str) -> None:
        """Count a request of a caller. Raises a refusal if the caller is above its rate."""
        now = self._clock.monotonic()
        left, since = self._callers.get(caller, (self._most, now))
        left = min(self._most, left + (now - since) * self._per_second)
        allowed = left >= 1
        self._callers[caller] = (left - 1 if allowed else left, now)
        self._callers.move_to_end(caller)
        while len(self._callers) > MAX_CALLERS:
            self._callers.popitem(last=False)
        if not allowed:
            raise Refusal(TOO_MANY, f"more than {self._per_second:.0f} requests a second (gateway.requests_per_second)")
