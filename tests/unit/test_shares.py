"""Shares: callers who take what they can leave a part to others, however many they are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.shares import fits
from tests.support.promise import promise


def taken_by(callers: int, share: int, most: int) -> list[int]:
    """What callers have in the end if each takes what it can, one after another."""
    held = [0] * callers
    for caller in range(callers):
        while fits(held[caller] + 1, sum(held) + 1, share, most):
            held[caller] += 1
    return held


def test_one_caller_gets_its_share() -> None:
    assert taken_by(1, 128, 256) == [128]
    assert taken_by(3, 128, 256) == [128, 64, 32]
    assert taken_by(2, 256, 256) == [256, 0], "a share that is all"


@promise("S4")
@settings(max_examples=15)
@given(st.integers(1, 12), st.integers(40, 80), st.integers(2, 4))
def test_something_is_left(callers: int, share: int, times: int) -> None:
    """Also if those who came first take again whatever they give back."""
    most = share * times
    held = taken_by(callers, share, most)
    assert max(held) == held[0] == share
    for _ in range(most):
        for caller in range(callers):
            held[caller] -= held[caller] > 0
            if fits(held[caller] + 1, sum(held) + 1, share, most):
                held[caller] += 1
    assert most - sum(held) >= most // (callers * (times - 1) + 1) // 2
    assert fits(1, sum(held) + 1, share, most)
