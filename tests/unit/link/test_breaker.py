"""A circuit breaker."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.link.breaker import Breaker, State
from headwater.settings.links import Links
from tests.support.promise import promise

OPEN_S = 30.0


def opened(at: float = 0.0) -> Breaker:
    breaker = Breaker(Links())
    for _ in range(5):
        assert breaker.allows(at)
        breaker.failed(at)
    return breaker


@promise("N2")
def test_it_opens_after_failures_in_a_row() -> None:
    """Five."""
    breaker = Breaker(Links())
    for _ in range(4):
        breaker.failed(0)
    breaker.worked()
    for _ in range(4):
        breaker.failed(0)
    assert breaker.state is State.CLOSED
    breaker.failed(0)
    assert breaker.state is State.OPEN and not breaker.allows(0)


@promise("N2")
def test_it_lets_nothing_through_for_a_time() -> None:
    """Thirty seconds."""
    breaker = opened(100)
    assert breaker.wait(110) == 20.0
    assert not breaker.allows(129.9) and breaker.state is State.OPEN
    assert breaker.allows(130) and breaker.state is State.HALF_OPEN
    assert breaker.wait(130) == 0


def test_a_failure_when_the_time_is_over_keeps_it_open() -> None:
    """Leaders are looked up before a request is made. If that fails, the next look waits as long again."""
    breaker = opened(100)
    breaker.failed(120)
    assert breaker.wait(130) == 0, "one that began before changes nothing"
    breaker.failed(131)
    assert (breaker.wait(131), breaker.opened) == (30.0, 1)


@promise("N2")
def test_single_requests_close_it() -> None:
    """Two successes."""
    breaker = opened()
    assert breaker.allows(30) and not breaker.allows(30), "one at a time"
    breaker.worked()
    assert breaker.state is State.HALF_OPEN
    assert breaker.allows(30)
    breaker.worked()
    assert breaker.state is State.CLOSED
    for _ in range(4):
        breaker.failed(31)
    assert breaker.state is State.CLOSED, "it counts from nothing again"


def test_one_failure_opens_it_again() -> None:
    breaker = opened()
    assert breaker.allows(30)
    breaker.worked()
    assert breaker.allows(31)
    breaker.failed(35)
    assert breaker.state is State.OPEN and breaker.opened == 2
    assert not breaker.allows(64) and breaker.allows(65)


def test_late_results_of_requests_change_nothing() -> None:
    """Requests that began before it opened neither lengthen its time nor close it."""
    breaker = opened()
    breaker.failed(20)
    breaker.worked()
    assert breaker.state is State.OPEN and breaker.opened == 1 and breaker.allows(30)


def test_a_request_without_a_result_leaves_room_for_another() -> None:
    breaker = opened()
    assert breaker.allows(30) and not breaker.allows(30)
    breaker.gave_up()
    assert breaker.allows(30)


@given(st.lists(st.sampled_from(["ask", "work", "fail", "give up", "wait"])))
def test_it_is_always_left_again(steps: list[str]) -> None:
    """Whatever happened: after its time a request goes through, and successes alone close it."""
    breaker, now = Breaker(Links()), 0.0
    for step in steps:
        if step == "ask":
            breaker.allows(now)
        elif step == "work":
            breaker.worked()
        elif step == "fail":
            breaker.failed(now)
        elif step == "give up":
            breaker.gave_up()
        else:
            now += 7
        assert 0 <= breaker.wait(now) <= OPEN_S
        assert (breaker.state is State.OPEN) >= (breaker.wait(now) > 0)
    breaker.gave_up()
    for _ in range(2):
        now += OPEN_S
        assert breaker.allows(now)
        breaker.worked()
    assert breaker.state is State.CLOSED and breaker.allows(now)
