"""Limits of the gateway: places and rates."""

from __future__ import annotations

import pytest

from harness.virtual import VirtualClock
from headwater.gateway import limits
from headwater.gateway.limits import Places, Rates
from headwater.gateway.problems import OVERLOADED, TOO_MANY, Refusal


def test_places_in_all_and_of_one_caller() -> None:
    places = Places("streams", 3, 2)
    mine = [places.enter("a"), places.enter("a")]
    with pytest.raises(Refusal) as refused:
        places.enter("a")
    assert refused.value.kind is TOO_MANY
    places.enter("b")
    with pytest.raises(Refusal) as refused:
        places.enter("c")
    assert refused.value.kind is OVERLOADED
    for _ in range(2):
        mine[0].release()  # twice does no harm
    assert places.count == 2
    places.enter("c")


class Standing(VirtualClock):
    """A clock that a test moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_a_caller_above_its_rate() -> None:
    clock = Standing()
    rates = Rates(2, clock)
    for _ in range(4):
        rates.take("a")  # what two silent seconds allow
    with pytest.raises(Refusal) as refused:
        rates.take("a")
    assert refused.value.kind is TOO_MANY and ("Retry-After", "1") in refused.value.all_headers
    rates.take("b")
    clock.now += 0.5
    rates.take("a")
    with pytest.raises(Refusal):
        rates.take("a")


def test_callers_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was silent for longest."""
    monkeypatch.setattr(limits, "MAX_CALLERS", 2)
    clock = Standing()
    rates = Rates(1, clock)
    for name in ("a", "a", "b", "c"):
        rates.take(name)
    assert len(rates._callers) == 2
    rates.take("a")  # known no more, so it begins anew
    rates.take("a")
    with pytest.raises(Refusal):
        rates.take("a")
