"""What queries read outlives them under seeded misfortune, goes afterwards, and planted defects are found."""

from __future__ import annotations

import pytest

from tests.simulation.holds.planted import PLANTED
from tests.simulation.holds.scene import HOLDS
from tests.simulation.run import simulate
from tests.support.soak import WHOLE

PROMISES = ("Q2", "M1")

pytestmark = pytest.mark.long
SEEDS = 1_000 if WHOLE else 3
LOOK_FROM = {
    "topic deletion ignores holds": 1,
    "a query begins before its hold is applied": 18,
    "a version is held whose files may be going": 31,
    "versions are not held": 1,
}
"""The seed with which the search for a defect begins, where the first seed does not find it."""
LOOKED_AT = 200


@pytest.mark.timeout(SEEDS * 10 + 120)
def test_seeds_run_clean() -> None:
    """A fixed number of seeds; `python -m tests.simulation --scene holds` runs as many as one likes."""
    queries = 0
    for seed in range(SEEDS):
        outcome = simulate(seed, scene=HOLDS)
        assert outcome.problem is None, f"seed {seed}: {outcome.problem}\n" + "\n".join(outcome.log)
        queries += outcome.acknowledged
    assert queries > SEEDS


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_defects_are_found(name: str) -> None:
    """Also in a hurry: the search begins near the seed that finds the defect."""
    with PLANTED[name]():
        for seed in range(0 if WHOLE else LOOK_FROM.get(name, 0), LOOKED_AT):
            problem = simulate(seed, scene=HOLDS).problem
            if problem is not None:
                assert problem.startswith("Violation"), problem
                return
    pytest.fail(f"{name}: not found within {LOOKED_AT} seeds")


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = simulate(1, scene=HOLDS), simulate(1, scene=HOLDS)
    assert (first.acknowledged, first.steps, first.log) == (second.acknowledged, second.steps, second.log)
