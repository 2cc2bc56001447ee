"""Transactions under seeded misfortune keep their promises, and planted defects are found."""

from __future__ import annotations

import pytest

from tests.simulation.planted_transactions import PLANTED
from tests.simulation.run import Scene, simulate
from tests.simulation.transactions import NAIVE, ROLLING, SECOND, TRANSACTIONS
from tests.support.soak import WHOLE

PROMISES = ("K12", "M1")

pytestmark = pytest.mark.long
SEEDS, ROLLING_SEEDS = (1_000, 200) if WHOLE else (5, 2)
LOOK_FROM = {
    "the transaction's epoch is not compared": 3,
    "a retried end ends the next transaction": 12,
    "a retried end bumps twice": 4,
    "the aborted list is taken after an await": 1,
    "require_stable is ignored": 1,
    "a time-out without a bump": 1,
    "a batch joins after its end": 3,
    "init ends a successor's transaction before it judges": 6,
    "a time-out ends the next transaction": 2,
}
"""The seed with which the search for a defect begins, where the first seed does not find it."""
HOLE_FROM = 3
LOOKED_AT = 1_000


@pytest.mark.timeout(SEEDS * 10 + 120)
@pytest.mark.parametrize(("scene", "seeds"), [(TRANSACTIONS, SEEDS), (ROLLING, ROLLING_SEEDS)], ids=["all", "rolling"])
def test_seeds_run_clean(scene: Scene, seeds: int) -> None:
    """A fixed number of seeds; `python -m tests.simulation --scene transactions` runs as many as one likes."""
    read = 0
    for seed in range(seeds):
        outcome = simulate(seed, scene=scene)
        assert outcome.problem is None, f"seed {seed}: {outcome.problem}\n" + "\n".join(outcome.log)
        read += outcome.acknowledged
    assert read > seeds


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_defects_are_found(name: str) -> None:
    """Also in a hurry: the search begins near the seed that finds the defect."""
    with PLANTED[name]():
        first = 0 if WHOLE else LOOK_FROM.get(name, 0)
        for seed in range(first, LOOKED_AT):
            problem = simulate(seed, scene=TRANSACTIONS).problem
            if problem is not None:
                assert problem.startswith("Violation"), problem
                return
    pytest.fail(f"{name}: not found within {LOOKED_AT} seeds")


@pytest.mark.timeout(900)
def test_the_hole_of_the_first_generation_shows() -> None:
    """A late request of a naive client meets the next transaction of its epoch. New epochs close the hole."""
    for seed in range(0 if WHOLE else HOLE_FROM, LOOKED_AT):
        second = simulate(seed, scene=SECOND).problem
        assert second is None, f"seed {seed}: {second}"
        problem = simulate(seed, scene=NAIVE).problem
        if problem is not None:
            assert problem.startswith("Violation"), problem
            return
    pytest.fail(f"the hole does not show within {LOOKED_AT} seeds")


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = simulate(2, scene=TRANSACTIONS), simulate(2, scene=TRANSACTIONS)
    assert (first.acknowledged, first.steps, first.log) == (second.acknowledged, second.steps, second.log)
