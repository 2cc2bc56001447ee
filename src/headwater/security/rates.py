"""Rates over a sliding window of samples, and buckets of tokens, as Kafka's quotas measure them."""

from __future__ import annotations

from collections import deque


class SampledRate:
    """An amount per second over a number of samples. The last sample is being filled.

    A new rate counts as if all other samples were empty, so a client may begin with a burst.
    """

    __slots__ = ("_samples", "_seconds", "_window")

    def __init__(self, samples: int, seconds: float) -> None:
        self._window = samples
        self._seconds = seconds
        self._samples: deque[list[float]] = deque()
        """[start of the sample, amount]"""

    def __repr__(self) -> str:
        return f"<SampledRate over {len(self._samples)} samples>"

    def record(self, amount: float, now: float) -> None:
        """Add an amount at this time."""
        self._expire(now)
        if not self._samples or now - self._samples[-1][0] >= self._seconds:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount

    def _expire(self, now: float) -> None:
        oldest = now - self._window * self._seconds
        while self._samples and self._samples[0][0] <= oldest:
            self._samples.popleft()

    def _span(self, now: float) -> float:
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        missing = self._window - 1 - int(elapsed / self._seconds)
        return elapsed + max(missing, 0) * self._seconds or self._seconds

    def rate(self, now: float) -> float:
        """The amount per second."""
        self._expire(now)
        return sum(amount for _, amount in self._samples) / self._span(now)

    def excess(self, limit: float, now: float) -> float:
        """After how many seconds without use the rate is down to a limit."""
        rate = self.rate(now)
        return (rate - limit) / limit * self._span(now) if rate > limit else 0.0


class TokenBucket:
    """Tokens that are added at a steady rate, up to a limit. More may be taken than there are; the rest is a debt."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst_seconds: float, now: float) -> None:
        self._rate = rate
        self._burst = rate * burst_seconds
        self._tokens = self._burst
        self._at = now

    def __repr__(self) -> str:
        return f"<TokenBucket of {self._burst}, {self._rate} a second>"

    def _refill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now

    def take(self, count: float, now: float) -> None:
        """Take tokens. The bucket may go below zero."""
        self._refill(now)
        self._tokens -= count

    def debt(self, now: float) -> float:
        """Seconds until the debt is paid."""
        self._refill(now)
        return -self._tokens / self._rate if self._tokens < 0 else 0.0
