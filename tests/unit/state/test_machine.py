"""A set of epochs kept as ranges."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headwater.state.machine import EpochSet
from tests.support.promise import promise

PROMISES = ("M2",)


@promise("M2")
@given(st.lists(st.integers(1, 40), max_size=60))
def test_an_epoch_set_is_a_set(epochs: list[int]) -> None:
    """And stays small, because neighbouring ranges grow together."""
    found, wanted = EpochSet(), set()
    assert not found
    for epoch in epochs:
        found.add(epoch)
        wanted.add(epoch)
        ranges = list(found.ranges())
        assert [e for start, end in ranges for e in range(start, end)] == sorted(wanted)
        assert all(end < start for (_, end), (start, _) in pairwise(ranges))
        assert len(found) == len(wanted)
        assert bool(found)
    assert [epoch in found for epoch in range(45)] == [epoch in wanted for epoch in range(45)]
    again = EpochSet(list(found.ranges()))
    assert list(again.ranges()) == list(found.ranges())


@promise("M2")
@given(st.lists(st.integers(1, 40), max_size=60), st.integers(0, 45))
def test_all_epochs_before_one_are_added(epochs: list[int], end: int) -> None:
    found = EpochSet()
    for epoch in epochs:
        found.add(epoch)
    found.extend(end)
    wanted = {*epochs, *range(1, end)}
    ranges = list(found.ranges())
    assert [e for start, stop in ranges for e in range(start, stop)] == sorted(wanted)
    assert all(stop < start for (_, stop), (start, _) in pairwise(ranges))
