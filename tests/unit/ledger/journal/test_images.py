"""The table of images does what a dictionary would."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from headwater.ledger.contract import Carried
from headwater.ledger.journal.images import Images, Place
from headwater.types import Domain
from tests.support.promise import promise

PROMISES = ("M1",)

KEYS = st.tuples(st.integers(0, 1), st.integers(1, 2), st.integers(1_009, 1_039))  # two tables have them
PLACES = st.builds(
    Place, st.integers(1, 6), st.integers(0, (1 << 32) - 1), st.integers(4, 1 << 25), st.integers(0, (1 << 32) - 1)
)
STEPS = st.lists(st.tuples(KEYS, PLACES) | st.integers(1, 7), max_size=60)


@promise("M1")
@given(STEPS)
def test_as_a_dictionary(steps: list[tuple[tuple[int, int, int], Place] | int]) -> None:
    images, model = Images(), dict[tuple[int, int, int], Place]()
    for step in steps:
        if isinstance(step, int):
            images.forget(step)
            model = {key: place for key, place in model.items() if place.file >= step}
        else:
            key, place = step
            images.add(*key, place)
            model[key] = place
        assert sorted(images) == sorted(
            Carried(Domain(domain), epoch, sequence, place.file, place.size)
            for (domain, epoch, sequence), place in model.items()
        )
        for key in [(d, e, s) for d in (0, 1) for e in (1, 2) for s in range(1_008, 1_041)]:
            assert images.get(*key) == model.get(key)
        for file in range(1, 8):
            assert images.in_file(file) == sum(place.file == file for place in model.values())


def test_gaps_cost_little() -> None:
    """Whatever sequences the frames of a journal name, a process that follows it can keep them."""
    images, far = Images(), [3, 5_000_000, 1 << 50, (1 << 64) - 1]
    tracemalloc.start()
    try:
        for sequence in far:
            images.add(1, 1, sequence, Place(1, 0, 4, 0))
            images.add(1, 1, sequence ^ 1023, Place(2, 0, 4, 0))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20
    images.forget(2)
    assert sorted(found.sequence for found in images) == sorted(sequence ^ 1023 for sequence in far)
