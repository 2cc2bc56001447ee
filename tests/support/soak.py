"""Long tests: `make soak` runs them in full, the tiers of tests a sample. HEADWATER_TEST_SOAK selects which."""

from __future__ import annotations

import os
from collections.abc import Sequence

VARIABLE = "HEADWATER_TEST_SOAK"
WHOLE = os.environ.get(VARIABLE) == "1"


def first_middle_last(kinds: Sequence[str]) -> list[int]:
    """The positions of the first, the middle and the last item of each kind; all positions with HEADWATER_TEST_SOAK."""
    if WHOLE:
        return list(range(len(kinds)))
    chosen = set()
    for kind in set(kinds):
        places = [place for place, found in enumerate(kinds) if found == kind]
        chosen |= {places[0], places[len(places) // 2], places[-1]}
    return sorted(chosen)


def dealt(places: Sequence[int], hand: int, hands: int) -> list[int]:
    """One hand of places that are dealt out in turn to several tests; all places with HEADWATER_TEST_SOAK."""
    return list(places) if WHOLE else list(places)[hand::hands]


def examples(whole: int) -> int:
    """How many examples are drawn: a third of these, and all of them with HEADWATER_TEST_SOAK."""
    return whole if WHOLE else -(-whole // 3)
