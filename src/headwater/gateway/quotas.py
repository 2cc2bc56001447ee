"""Kafka's quotas for callers of a gateway: bytes appended and read a second, a share of time, partitions created.

They are measured as brokers measure them, by each gateway for itself. A broker does not read from a client that is over
its quota for a while. Over HTTP such a caller is refused for that time, with `Retry-After`; streams are slowed down.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headwater.clock import Clock
from headwater.errors import QuotaExceeded
from headwater.security.quotas import CONSUMER, PRODUCER, REQUEST, ClientQuotas, Meter, Timed, user_of
from headwater.settings.limits import Quotas
from headwater.state.cluster.resources import Resources

_T = TypeVar("_T")
CLIENT = ""
"""The client id of all callers: HTTP has none."""
MAX_SECONDS = 3_600.0
"""No caller is refused for longer."""
PAUSE_SECONDS = 10.0
"""The longest pause between two parts of a stream. Its client should see that the gateway is there."""
_WHAT = {PRODUCER: "bytes appended", CONSUMER: "bytes read", REQUEST: "time of the gateway"}


class Usage:
    """What one request uses of its caller's quotas."""

    def __init__(self, quotas: CallerQuotas, user: str) -> None:
        self._quotas = quotas
        self._meter = Meter(user, CLIENT)
        self._kind = ""

    def __repr__(self) -> str:
        return f"<Usage of {self._meter.user!r}>"

    def appends(self) -> None:
        """From now on the bytes of the body count. Raises `QuotaExceeded` if the caller must be silent."""
        self._begin(PRODUCER)

    def reads(self) -> None:
        """From now on the bytes of the answer count. Raises `QuotaExceeded` if the caller must be silent."""
        self._begin(CONSUMER)

    def _begin(self, kind: str) -> None:
        self._quotas.check(kind, self._meter)
        self._kind = kind

    def received(self, size: int) -> None:
        """Count bytes of the body."""
        if self._kind == PRODUCER:
            self._quotas.charge(PRODUCER, self._meter, size)

    def sent(self, size: int) -> None:
        """Count bytes of the answer."""
        if self._kind == CONSUMER:
            self._quotas.charge(CONSUMER, self._meter, size)

    @property
    def pause_before_sending(self) -> float:
        """For how many seconds an answer with records must wait before its next part."""
        return self._pause(CONSUMER)

    @property
    def pause_before_receiving(self) -> float:
        """For how many seconds a stream of records must wait before its next part is received."""
        return self._pause(PRODUCER)

    def _pause(self, kind: str) -> float:
        return min(self._quotas.owed(kind, self._meter), PAUSE_SECONDS) if kind == self._kind else 0.0

    def check_time(self) -> None:
        """Raise `QuotaExceeded` if the caller has used more than its share of time."""
        self._quotas.check(REQUEST, self._meter)

    async def timed(self, work: Awaitable[_T]) -> _T:
        """Do the work of the request, and count its time: that of its steps, not of its waiting."""
        if not self._quotas.counts(REQUEST, self._meter):
            return await work
        try:
            return await Timed(work, self._meter, self._quotas.clock)
        finally:
            self._quotas.charge(REQUEST, self._meter, self._meter.seconds * 100)


class CallerQuotas:
    """The quotas of a gateway's callers, and which of them must be silent."""

    def __init__(self, settings: Quotas, clock: Clock, resources: Callable[[], Resources]) -> None:
        self.clock = clock
        self._settings = settings
        self._resources = resources
        self._own = ClientQuotas(settings, clock)
        self._version = -1
        self._silent: OrderedDict[tuple[str, tuple[str, str]], float] = OrderedDict()
        """Until when a quota's callers must be silent."""

    def __repr__(self) -> str:
        return f"<CallerQuotas, {len(self._silent)} callers were silenced>"

    def of(self, principal: str) -> Usage:
        """What a new request of a caller uses."""
        return Usage(self, user_of(principal))

    def mutate(self, principal: str, partitions: int) -> None:
        """Count created or deleted partitions. Raises `QuotaExceeded` if the caller has used up its quota."""
        self._refreshed().mutations(user_of(principal), CLIENT, strict=True).spend(partitions)

    def counts(self, key: str, meter: Meter) -> bool:
        """Whether a caller has a quota."""
        own = self._refreshed()
        return own.active and own.limit(key, meter.user, meter.client) is not None

    def charge(self, key: str, meter: Meter, amount: float) -> None:
        """Count a use. A caller who is over its quota must be silent for a while."""
        own = self._refreshed()
        limit = own.limit(key, meter.user, meter.client) if own.active else None
        if limit is None:
            return
        most = self._settings.sample_ms / 1000 if key == REQUEST else MAX_SECONDS
        seconds = min(own.charge(key, meter, amount), most)
        if seconds <= 0:
            return
        name = (key, limit.sharers)
        self._silent[name] = max(self._silent.get(name, 0.0), self.clock.monotonic() + seconds)
        self._silent.move_to_end(name)
        if len(self._silent) > self._settings.entities:
            self._silent.popitem(last=False)

    def owed(self, key: str, meter: Meter) -> float:
        """For how many more seconds a caller must be silent."""
        own = self._refreshed()
        limit = own.limit(key, meter.user, meter.client) if own.active else None
        if limit is None:
            return 0.0
        return max(0.0, self._silent.get((key, limit.sharers), 0.0) - self.clock.monotonic())

    def check(self, key: str, meter: Meter) -> None:
        """Raise `QuotaExceeded` if a caller must be silent."""
        seconds = self.owed(key, meter)
        if seconds > 0:
            raise QuotaExceeded(f"the quota {key} is used up: too much {_WHAT[key]}", seconds)

    def _refreshed(self) -> ClientQuotas:
        resources = self._resources()
        if resources.quota_version != self._version:
            self._version = resources.quota_version
            self._own.refresh(resources.quotas, resources.quota_version)
            self._silent.clear()  # another limit: what was used counts against it at the next request
        return self._own
