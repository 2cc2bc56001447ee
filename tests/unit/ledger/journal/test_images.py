"""The table of images does what a dictionary would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.ledger.contract import Carried
from headwater.ledger.journal.images import MAX_GAP, Images, Place
from headwater.types import Domain
from tests.support.promise import promise

PROMISES = ("M1",)

KEYS = st.tuples(st.integers(0, 1), st.integers(1, 2), st.integers(0, 30))
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
            assert images.fits(*key)
            images.add(*key, place)
            model[key] = place
        assert sorted(images) == sorted(
            Carried(Domain(domain), epoch, sequence, place.file, place.size)
            for (domain, epoch, sequence), place in model.items()
        )
        for key in [(d, e, s) for d in (0, 1) for e in (1, 2) for s in range(-1, 32)]:
            assert images.get(*key) == model.get(key)
        for file in range(1, 8):
            assert images.in_file(file) == sum(place.file == file for place in model.values())


def test_a_sequence_that_is_far_from_all_others() -> None:
    images = Images()
    images.add(1, 1, 5_000_000, Place(1, 0, 4, 0))
    assert images.fits(1, 1, 5_000_001 + MAX_GAP) and images.fits(1, 1, 4_000_001) and images.fits(1, 2, 0)
    assert not images.fits(1, 1, 5_000_002 + MAX_GAP) and not images.fits(1, 1, 3_999_998)
