"""Pauses between tries."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.link.retrying import Retrying, pause_after
from headwater.settings.links import Links
from tests.support.promise import promise


class Fixed:
    """Randomness that is none."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    def fraction(self) -> float:
        return self._fraction

    def uuid(self) -> uuid.UUID:
        raise AssertionError("no ids here")


@promise("N2")
def test_the_pauses_of_the_requirements() -> None:
    """min(30 s, 100 ms times two for every failure), up to ten tries."""
    retrying = Retrying(Links(), Fixed(0.0))
    pauses = [retrying.pause() for _ in range(10)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert retrying.exhausted
    assert retrying.pause() == 30.0, "it goes on with the longest pause"
    retrying.worked()
    assert not retrying.exhausted and retrying.pause() == 0.1


def test_chance_makes_a_pause_longer_by_a_tenth_at_most() -> None:
    assert Retrying(Links(), Fixed(0.5)).pause() == pytest.approx(0.105)
    assert Retrying(Links(retry_jitter_percent=0), Fixed(0.9)).pause() == 0.1


@given(
    st.integers(1, 10**6),
    st.integers(1, 10_000),
    st.integers(0, 10**6),
    st.integers(0, 100),
    st.floats(0, 1, exclude_max=True),
)
def test_a_pause_is_between_its_bounds(failures: int, first: int, more: int, jitter: int, fraction: float) -> None:
    own = Links(retry_first_ms=first, retry_longest_ms=first + more, retry_jitter_percent=jitter)
    exact = min(first + more, first * 2 ** min(failures - 1, 40)) / 1000
    found = pause_after(failures, own, fraction)
    assert exact * (1 - 1e-9) <= found <= exact * (1 + jitter / 100) * (1 + 1e-9)
