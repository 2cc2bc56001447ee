"""Client quotas: limits on clients, and how long a client over its limit is muted (KIP-13, KIP-124, KIP-219, KIP-599).

Limits are in the ledger. Each broker and each gateway measures use on its own, as brokers do in Kafka. If no quota is
set, `active` is false and nothing is measured.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headwater.clock import Clock
from headwater.errors import QuotaExceeded
from headwater.security.rates import SampledRate, TokenBucket
from headwater.settings import settings as config
from headwater.state.cluster.resources import Entity

_T = TypeVar("_T")

PRODUCER, CONSUMER, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATION, CONNECTION = "controller_mutation_rate", "connection_creation_rate"
USER, CLIENT, ADDRESS = "user", "client-id", "ip"
_PREFIX = "User:"


def user_of(principal: str) -> str:
    """The name by which quotas know a principal."""
    return principal.removeprefix(_PREFIX)


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota that applies to a client, and the clients that share it."""

    value: float
    sharers: tuple[str, str]
    """User and client id; empty where the quota does not distinguish them."""


@dataclass(slots=True)
class Meter:
    """What one request uses."""

    user: str
    client: str
    seconds: float = 0.0


def candidates(user: str, client: str) -> list[Entity]:
    """The entities whose quotas may apply to a client, the most specific first."""
    users, clients = ((USER, user), (USER, None)), ((CLIENT, client), (CLIENT, None))
    found: list[Entity] = []
    for of_user in users:
        found += [(of_client, of_user) for of_client in clients]
        found.append((of_user,))
    return [*found, *((of_client,) for of_client in clients)]


class ClientQuotas:
    """The quotas of one process's clients."""

    def __init__(self, settings: config.Quotas, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._limits: dict[str, dict[Entity, float]] = {}
        self._found: dict[tuple[str, str, str], Limit | None] = {}
        self._rates: OrderedDict[tuple[str, tuple[str, str]], SampledRate] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, str], tuple[float, TokenBucket]] = OrderedDict()
        self._version = -1
        self.active = False
        """Whether users or clients have any quota."""

    def __repr__(self) -> str:
        return f"<ClientQuotas, {len(self._rates)} rates>"

    def refresh(self, quotas: Mapping[Entity, Mapping[str, str]], version: int) -> None:
        """Load the quotas from the state, if its version is new."""
        if version == self._version:
            return
        self._version = version
        self._limits = {}
        self._found.clear()
        for entity, limits in quotas.items():
            for key, value in limits.items():
                self._limits.setdefault(key, {})[entity] = float(value)
        self.active = any(key != CONNECTION for key in self._limits)

    def limit(self, key: str, user: str, client: str) -> Limit | None:
        """The quota that applies to a client."""
        asked = (key, user, client)
        if asked not in self._found:
            if len(self._found) >= self._settings.entities:
                self._found.clear()
            self._found[asked] = self._look_up(key, user, client)
        return self._found[asked]

    def _look_up(self, key: str, user: str, client: str) -> Limit | None:
        limits = self._limits.get(key, {})
        for entity in candidates(user, client):
            if entity in limits:
                kinds = {kind for kind, _ in entity}
                return Limit(limits[entity], (user if USER in kinds else "", client if CLIENT in kinds else ""))
        return None

    def address_limit(self, address: str) -> float | None:
        """How many connections a second an address may make."""
        limits = self._limits.get(CONNECTION, {})
        return limits.get(((ADDRESS, address),), limits.get(((ADDRESS, None),)))

    # --- rates ---------------------------------------------------------------------------------------

    def _rate(self, key: str, limit: Limit) -> SampledRate:
        name = (key, limit.sharers)
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = SampledRate(self._settings.samples, self._settings.sample_ms / 1000)
            if len(self._rates) > self._settings.entities:
                self._rates.popitem(last=False)
        else:
            self._rates.move_to_end(name)
        return rate

    def charge(self, key: str, meter: Meter, amount: float) -> float:
        """Count a use; returns for how many seconds to mute the client."""
        limit = self.limit(key, meter.user, meter.client)
        if limit is None:
            return 0.0
        now = self._clock.monotonic()
        rate = self._rate(key, limit)
        rate.record(amount, now)
        return rate.excess(limit.value, now)

    def charge_time(self, meter: Meter) -> float:
        """Count the time of a request, in percent of a thread. The client is muted for at most one sample."""
        if REQUEST not in self._limits:
            return 0.0
        return min(self.charge(REQUEST, meter, meter.seconds * 100), self._settings.sample_ms / 1000)

    def owed(self, key: str, user: str, client: str) -> float:
        """For how many more seconds a client must be muted, for its use through any connection."""
        limit = self.limit(key, user, client) if self.active else None
        if limit is None:
            return 0.0
        return self._rate(key, limit).excess(limit.value, self._clock.monotonic())

    def mutations(self, user: str, client: str, *, strict: bool) -> MutationBudget:
        """A client's budget for creating and deleting partitions."""
        limit = self.limit(MUTATION, user, client) if self.active else None
        if limit is None:
            return MutationBudget(None, self._clock, strict)
        value, bucket = self._buckets.get(limit.sharers, (0.0, None))
        if bucket is None or value != limit.value:
            seconds = self._settings.samples * self._settings.sample_ms / 1000
            bucket = TokenBucket(limit.value, seconds, self._clock.monotonic())
        self._buckets[limit.sharers] = (limit.value, bucket)
        self._buckets.move_to_end(limit.sharers)
        if len(self._buckets) > self._settings.entities:
            self._buckets.popitem(last=False)
        return MutationBudget(bucket, self._clock, strict)


class MutationBudget:
    """The changes of one request. A strict budget refuses those beyond the client's quota."""

    def __init__(self, bucket: TokenBucket | None, clock: Clock, strict: bool) -> None:
        self._bucket = bucket
        self._clock = clock
        self._strict = strict

    def spend(self, count: int) -> None:
        """Charge for created or deleted partitions."""
        if self._bucket is None:
            return
        now = self._clock.monotonic()
        if self._strict and self._bucket.debt(now) > 0:
            raise QuotaExceeded("The throttling quota has been exceeded.", self._bucket.debt(now))
        self._bucket.take(count, now)

    @property
    def throttle_ms(self) -> int:
        """For how long to mute the client."""
        return 0 if self._bucket is None else round(self._bucket.debt(self._clock.monotonic()) * 1000)


class Timed(Awaitable[_T]):
    """An awaitable whose computing time is measured, without the time that it waits."""

    def __init__(self, awaitable: Awaitable[_T], meter: Meter, clock: Clock) -> None:
        self._awaitable = awaitable
        self._meter = meter
        self._clock = clock

    def __await__(self) -> Generator[Any, Any, _T]:
        steps = self._awaitable.__await__()
        step, argument = steps.__next__, None
        while True:
            began = self._clock.monotonic()
            try:
                wanted = step() if argument is None else steps.throw(argument)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            finally:
                self._meter.seconds += self._clock.monotonic() - began
            argument = None
            try:
                yield wanted
            except BaseException as error:  # noqa: BLE001 - it is the inner awaitable's to see
                argument = error
