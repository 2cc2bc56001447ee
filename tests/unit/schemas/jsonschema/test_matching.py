"""The size of a maximum matching, compared with a search over all choices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.schemas.jsonschema.matching import matched


def searched(fits: list[list[int]], taken: frozenset[int] = frozenset()) -> int:
    if not fits:
        return 0
    first, *rest = fits
    choices = [1 + searched(rest, taken | {other}) for other in first if other not in taken]
    return max([searched(rest, taken), *choices])


@given(st.lists(st.lists(st.integers(0, 4), unique=True, max_size=4), max_size=5))
def test_matched(fits: list[list[int]]) -> None:
    assert matched(fits, 5) == searched(fits)
