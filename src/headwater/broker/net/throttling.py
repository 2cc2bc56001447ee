"""The cost of a request for its client, and how long the client is muted for it (KIP-219)."""

from __future__ import annotations

from collections.abc import Awaitable

from headwater.broker.broker import Broker
from headwater.broker.handlers.data import fetch, produce
from headwater.broker.net.hosting import Slot
from headwater.broker.request import Answer, Pending, Request, Values
from headwater.clock import Clock
from headwater.security.quotas import CONSUMER, PRODUCER, Meter, Timed

MAX_THROTTLE_MS = 3_600_000


def metered(clock: Clock, slot: Slot, request: Request, answer: Answer) -> Answer:
    """Measure the time that the rest of a request uses. The time so far is known."""
    meter = slot.meter = Meter(request.user, request.client_id, clock.monotonic() - slot.began)
    if isinstance(answer, Awaitable) and not isinstance(answer, Pending):
        return Timed(answer, meter, clock)
    return answer


def throttle(broker: Broker, api_key: int, request_bytes: int, meter: Meter, values: Values | None) -> int:
    """Charge a client for a request with this answer; returns the milliseconds for which to mute it, 0 for none."""
    quotas = broker.quotas
    seconds: float = max(quotas.charge_time(meter), (values or {}).get("throttle_time", 0) / 1000)
    if api_key == produce.KEY:
        seconds = max(seconds, quotas.charge(PRODUCER, meter, request_bytes))
    elif api_key == fetch.KEY and values is not None:
        seconds = max(seconds, quotas.charge(CONSUMER, meter, fetch.size_of(values)))
    if seconds <= 0:
        return 0
    milliseconds = min(max(round(seconds * 1000), 1), MAX_THROTTLE_MS)
    broker.stats.throttled_requests += 1
    broker.stats.throttle_seconds += milliseconds / 1000
    return milliseconds
