"""How long this broker took to answer recently: a bounded number of samples, and requests under way."""

from __future__ import annotations

import itertools
from collections import deque

MAX_SAMPLES = 256
MAX_OPEN = 4_096
SHARE = 9
"""The gauge reports the time in which this many of ten requests were done."""


class Gauge:
    """The times of one kind of request."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=MAX_SAMPLES)
        self._open: dict[int, float] = {}
        self._numbers = itertools.count()
        self.last_us = -1
        """The last result of `take`; -1 if there was none."""

    def __repr__(self) -> str:
        return f"<Gauge: {len(self._samples)} samples, {len(self._open)} under way>"

    def begin(self, now: float) -> int:
        """Note the start of a request; returns a number for `end`."""
        number = next(self._numbers)
        if len(self._open) < MAX_OPEN:
            self._open[number] = now
        return number

    def end(self, number: int, now: float) -> None:
        """Note the end of a request."""
        began = self._open.pop(number, None)
        if began is not None:
            self._samples.append(now - began)

    def note(self, seconds: float) -> None:
        """Add the duration of a request."""
        self._samples.append(seconds)

    def take(self, now: float) -> int | None:
        """Microseconds for nine of ten requests since the last call; None if idle. Open ones count with their age."""
        if not self._samples and not self._open:
            self.last_us = -1
            return None
        done = sorted(self._samples)
        self._samples.clear()
        usual = done[len(done) * SHARE // 10] if done else 0.0
        late = [now - began for began in itertools.islice(self._open.values(), MAX_SAMPLES) if now - began > usual]
        if not done and not late:
            self.last_us = -1
            return None
        together = sorted([*done, *late])
        self.last_us = int(together[len(together) * SHARE // 10] * 1_000_000)
        return self.last_us


class Pace:
    """The gauges of publishing and fetching."""

    def __init__(self) -> None:
        self.publish = Gauge()
        self.fetch = Gauge()
