"""Places of a stream: what the checkpoint keeps, and how a limit is shared between partitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import BadInput
from headwater.spark.places import Places, limited

offsets = st.dictionaries(st.integers(0, 5), st.integers(0, 1000), max_size=6)


@given(offsets)
def test_a_checkpoint_gives_back_what_it_got(found: dict[int, int]) -> None:
    place = Places("id", found)
    assert Places.of(place.document()) == place


@pytest.mark.parametrize("document", [{}, {"0": 5}, {"topic": "t", "offsets": {"x": 1}}, {"topic": "t", "offsets": 5}])
def test_a_checkpoint_of_another_source_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="not one of a Headwater stream"):
        Places.of(document)


@given(offsets, offsets, st.one_of(st.none(), st.integers(1, 50)))
def test_a_batch_takes_no_more_than_its_limit_and_goes_on(
    start: dict[int, int], ends: dict[int, int], most: int | None
) -> None:
    found = limited(start, ends, most)
    assert found.keys() == ends.keys()
    counts = {number: end - start.get(number, 0) for number, end in found.items()}
    waiting = {number: max(0, end - start.get(number, 0)) for number, end in ends.items()}
    assert all(0 <= counts[number] <= waiting[number] for number in counts)
    total = sum(waiting.values())
    assert sum(counts.values()) == (total if most is None else min(total, most))
