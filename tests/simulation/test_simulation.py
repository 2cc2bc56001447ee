"""A cluster under seeded misfortune keeps its promises, and planted defects are found."""

from __future__ import annotations

import pytest

from tests.simulation.backends import BACKENDS
from tests.simulation.planted import PLANTED
from tests.simulation.run import simulate
from tests.support.promise import promise
from tests.support.soak import WHOLE

PROMISES = ("L1", "L3", "K11", "M1")

pytestmark = pytest.mark.long
SEEDS, ON_MODELS = (2_000, 200) if WHOLE else (16, 4)
SHARDS = 2
LOOK_FROM = {"a fence ignored": 88, "offsets left out of a checkpoint": 37}
"""The seed with which the search for a defect begins, where the first seeds do not find it."""


def run_clean(seed: int, backend: str = "memory") -> int:
    """How many records a seed's clients had acknowledged."""
    outcome = simulate(seed, backend=backend)
    assert outcome.problem is None, f"seed {seed}: {outcome.problem}\n" + "\n".join(outcome.log)
    return outcome.acknowledged


@pytest.mark.timeout(SEEDS * 4 + 120)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_seeds_run_clean(shard: int) -> None:
    """A fixed number of seeds; the soak runs more, and `make sim` as many as one likes."""
    seeds = range(shard, SEEDS, SHARDS)
    assert sum(map(run_clean, seeds)) > len(seeds)


@promise("M1")
@pytest.mark.timeout(ON_MODELS * 10 + 120)
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "memory"])
def test_seeds_run_clean_on_models_of_stores(backend: str) -> None:
    """The same misfortunes, on the ledger that a real store would keep."""
    for seed in range(ON_MODELS):
        assert run_clean(seed, backend), f"seed {seed}: nothing was acknowledged"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_defects_are_found(name: str) -> None:
    for seed in range(0 if WHOLE else LOOK_FROM.get(name, 0), 1000):
        problem = simulate(seed, PLANTED[name]).problem
        if problem is not None:
            assert problem.startswith("Violation"), "the defect itself does not work"
            return
    pytest.fail(f"{name}: not found within 1,000 seeds")


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = simulate(7), simulate(7)
    assert (first.acknowledged, first.steps, first.log) == (second.acknowledged, second.steps, second.log)
