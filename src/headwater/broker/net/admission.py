"""Limits on connections: in all, per address, and per second."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.configs import brokers as broker_configs
from headwater.security.quotas import ClientQuotas
from headwater.security.rates import SampledRate
from headwater.settings import settings as config
from headwater.state.cluster.resources import Resources


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a connection is accepted. `wait` seconds later its requests are read, or a refused one is closed."""

    taken: bool
    wait: float = 0.0
    reason: str = ""
    """Which limit refused it."""


class Admissions:
    """Counts the connections of one broker."""

    def __init__(self, settings: config.Settings, quotas: ClientQuotas, clock: Clock) -> None:
        self._settings = settings
        self._quotas = quotas
        self._clock = clock
        self._open: dict[str, int] = {}
        self._all = self._new_rate()
        self._rates: OrderedDict[str, SampledRate] = OrderedDict()
        self.count = 0

    def __repr__(self) -> str:
        return f"<Admissions: {self.count} connections from {len(self._open)} addresses>"

    def _new_rate(self) -> SampledRate:
        return SampledRate(self._settings.quotas.samples, self._settings.quotas.sample_ms / 1000)

    def knock(self, address: str, resources: Resources) -> Admission:
        """Decide whether to accept a new connection. An accepted one must be released later."""

        def limit(name: str) -> int:
            return broker_configs.limit(self._settings, resources, name)

        if self.count >= limit(broker_configs.MAX_CONNECTIONS):
            return Admission(False, reason="connections")
        if self._open.get(address, 0) >= limit(broker_configs.MAX_PER_ADDRESS):
            return Admission(False, reason="connections_per_address")
        delay = self._too_quick(address)
        if delay:
            return Admission(False, min(delay, self._settings.quotas.sample_ms / 1000), "connection_rate")
        now = self._clock.monotonic()
        self._all.record(1, now)
        self.count += 1
        self._open[address] = self._open.get(address, 0) + 1
        wait = self._all.excess(limit(broker_configs.MAX_RATE), now)
        return Admission(True, min(wait, self._settings.quotas.sample_ms / 1000))

    def _too_quick(self, address: str) -> float:
        """How long an address has to wait for its next connection. A connection that has to wait is not counted."""
        limit = self._quotas.address_limit(address)
        if limit is None:
            return 0.0
        rate = self._rates.get(address)
        if rate is None:
            rate = self._rates[address] = self._new_rate()
            if len(self._rates) > self._settings.quotas.entities:
                self._rates.popitem(last=False)
        self._rates.move_to_end(address)
        now = self._clock.monotonic()
        rate.record(1, now)
        delay = rate.excess(limit, now)
        if delay:
            rate.record(-1, now)
        return delay

    def release(self, address: str) -> None:
        """Note that an accepted connection is closed."""
        self.count -= 1
        left = self._open[address] - 1
        if left:
            self._open[address] = left
        else:
            del self._open[address]
