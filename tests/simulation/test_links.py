"""A topic has what its source has, under seeded misfortune and meddling, and planted defects are found."""

from __future__ import annotations

import pytest

from tests.simulation.links.planted import PLANTED
from tests.simulation.links.scene import LINKS
from tests.simulation.run import simulate
from tests.support.soak import WHOLE

PROMISES = ("N1", "M1")

pytestmark = pytest.mark.long
SEEDS = 1_000 if WHOLE else 3
LOOK_FROM = {"generations go back": 34}
"""The seed with which the search for a defect begins, where the first seed does not find it."""
LOOKED_AT = 200


@pytest.mark.timeout(SEEDS * 10 + 120)
def test_seeds_run_clean() -> None:
    """A fixed number of seeds; `python -m tests.simulation --scene links` runs as many as one likes."""
    copied = 0
    for seed in range(SEEDS):
        outcome = simulate(seed, scene=LINKS)
        assert outcome.problem is None, f"seed {seed}: {outcome.problem}\n" + "\n".join(outcome.log)
        copied += outcome.acknowledged
    assert copied > SEEDS


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_defects_are_found(name: str) -> None:
    """Also in a hurry: the search begins near the seed that finds the defect."""
    with PLANTED[name]():
        for seed in range(0 if WHOLE else LOOK_FROM.get(name, 0), LOOKED_AT):
            problem = simulate(seed, scene=LINKS).problem
            if problem is not None:
                assert problem.startswith("Violation"), problem
                return
    pytest.fail(f"{name}: not found within {LOOKED_AT} seeds")


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = simulate(1, scene=LINKS), simulate(1, scene=LINKS)
    assert (first.acknowledged, first.steps, first.log) == (second.acknowledged, second.steps, second.log)
