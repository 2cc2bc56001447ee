"""Limits of the gateway: how many requests and streams are under way, and how often a caller may ask."""

from __future__ import annotations

from collections import OrderedDict

from headwater.clock import Clock
from headwater.gateway.problems import OVERLOADED, TOO_MANY, Refusal
from headwater.shares import fits

MAX_CALLERS = 10_000
"""Callers whose rates are kept. A new one replaces the one that was silent for longest."""
BURST_SECONDS = 2
"""A caller that was silent may send the requests of so many seconds at once."""


class Place:
    """A place that is taken until it is released. To release it twice does no harm."""

    def __init__(self, places: Places, caller: str) -> None:
        self._places: Places | None = places
        self._caller = caller

    def move(self, caller: str) -> None:
        """Count the place for the caller who has turned out to ask. Raises a refusal if it has too many."""
        if self._places is not None and caller != self._caller:
            self._places.move(self._caller, caller)
            self._caller = caller

    def release(self) -> None:
        """Give the place back."""
        if self._places is not None:
            self._places.leave(self._caller)
            self._places = None


class Places:
    """A number of places, and how many of them one caller may take."""

    def __init__(self, what: str, most: int, share: int) -> None:
        """`share` is how many of them one caller may take."""
        self._what = what
        self._most = most
        self._share = share
        self._taken: dict[str, int] = {}
        self.count = 0

    def __repr__(self) -> str:
        return f"<Places for {self.count} of {self._most} {self._what}>"

    @property
    def largest(self) -> int:
        """How many places the caller has who has most."""
        return max(self._taken.values(), default=0)

    def metrics(self) -> tuple[str, int, int, int, int]:
        """What the places are for, how many are taken, how many there are, and the same for one caller."""
        return self._what, self.count, self._most, self.largest, self._share

    def _check(self, caller: str, count: int) -> int:
        """The places of a caller, who gets one more when `count` are taken. Who has none gets any that is left."""
        mine = self._taken.get(caller, 0)
        if mine and not fits(mine + 1, count, self._share, self._most):
            raise Refusal(TOO_MANY, f"the caller has {mine} {self._what} already")
        return mine

    def move(self, before: str, after: str) -> None:
        """See `Place.move`."""
        self._taken[after] = self._check(after, self.count) + 1
        self._forget(before)

    def enter(self, caller: str) -> Place:
        """Take a place, or raise a refusal."""
        mine = self._check(caller, min(self.count + 1, self._most))
        if self.count >= self._most:
            raise Refusal(OVERLOADED, f"the gateway has {self.count} {self._what} already")
        self.count += 1
        self._taken[caller] = mine + 1
        return Place(self, caller)

    def leave(self, caller: str) -> None:
        """See `Place.release`."""
        self.count -= 1
        self._forget(caller)

    def _forget(self, caller: str) -> None:
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]


class Bytes:
    """Bytes of bodies that are under way, and how many of them one caller may have."""

    def __init__(self, most: int, share: int) -> None:
        self._most = most
        self._share = share
        self._held: dict[str, int] = {}
        self.count = 0

    def __repr__(self) -> str:
        return f"<Bytes: {self.count} of {self._most}>"

    def metrics(self) -> tuple[str, int, int, int, int]:
        """As those of places."""
        return "bytes of bodies", self.count, self._most, max(self._held.values(), default=0), self._share

    def take(self, caller: str, size: int) -> None:
        """Count some bytes, or raise a refusal."""
        before = self._held.get(caller, 0)
        mine, count = before + size, min(self.count + size, self._most)
        if mine > self._share or (before and not fits(mine, count, self._share, self._most)):
            raise Refusal(TOO_MANY, f"bodies of the caller have {mine} bytes (gateway.caller_bodies_bytes)")
        if self.count + size > self._most:
            raise Refusal(OVERLOADED, f"bodies under way have {self.count + size} bytes (gateway.bodies_bytes)")
        self.count += size
        self._held[caller] = mine

    def give(self, caller: str, size: int) -> None:
        """Count some bytes no more."""
        if size:
            self.count -= size
            self._held[caller] -= size
            if not self._held[caller]:
                del self._held[caller]


class BodyBytes:
    """The bytes of one body, until they are released. To release them twice does no harm."""

    def __init__(self, bytes_: Bytes, caller: str) -> None:
        self._bytes = bytes_
        self._caller = caller
        self._size = 0

    def add(self, size: int) -> None:
        """Count so many further bytes, or raise a refusal."""
        self._bytes.take(self._caller, size)
        self._size += size

    def release(self) -> None:
        """Count the bytes no more."""
        size, self._size = self._size, 0
        self._bytes.give(self._caller, size)


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
