"""Limits of the gateway: places and rates."""

from __future__ import annotations

import contextlib

import pytest

from harness.virtual import VirtualClock
from headwater.gateway import limits
from headwater.gateway.limits import BodyBytes, Bytes, Places, Rates
from headwater.gateway.problems import OVERLOADED, TOO_MANY, Refusal
from tests.support.promise import promise


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


def test_a_place_moves_to_the_caller_who_asks() -> None:
    """It counts for an address until it is known who asks, and once at any time."""
    places = Places("requests", 4, 2)
    own = [places.enter("address"), places.enter("address")]
    for place in own:
        place.move("User:a")
    third = places.enter("address")
    with pytest.raises(Refusal) as refused:
        third.move("User:a")
    assert refused.value.kind is TOO_MANY
    assert places.metrics() == ("requests", 3, 4, 2, 2)
    for place in (*own, third):
        place.release()
    own[0].move("User:b")  # a place that was given back stays so
    assert places.metrics() == ("requests", 0, 4, 0, 2)


@promise("S4")
def test_greedy_callers_leave_places_and_bytes_to_others() -> None:
    places, held = Places("requests", 256, 128), Bytes(512, 128)
    refusals = 0
    for _ in range(128):
        for caller in "abcdefghij":
            with contextlib.suppress(Refusal):
                BodyBytes(held, caller).add(1)
            try:
                places.enter(caller)
            except Refusal as refusal:
                refusals += refusal.kind is TOO_MANY
    assert refusals == 10 * 128 - places.count
    for _ in range(3):
        places.enter("honest")
        BodyBytes(held, "honest").add(1)


def test_bytes_of_bodies_in_all_and_of_one_caller() -> None:
    held = Bytes(100, 60)
    mine, other, third = (BodyBytes(held, caller) for caller in ("a", "b", "c"))
    mine.add(60)
    with pytest.raises(Refusal) as refused:
        BodyBytes(held, "a").add(1)
    assert refused.value.kind is TOO_MANY
    other.add(40)
    with pytest.raises(Refusal) as refused:
        third.add(1)
    assert refused.value.kind is OVERLOADED and held.metrics()[1:] == (100, 100, 60, 60)
    for one in (mine, mine, third):
        one.release()
    assert held.metrics()[1:] == (40, 100, 40, 60)


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
