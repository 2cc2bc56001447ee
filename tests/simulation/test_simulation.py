"""L1, L3, K11, M1: a cluster under seeded misfortune keeps its promises, and planted defects are found."""

from __future__ import annotations

import os
import time

import pytest

from tests.simulation.backends import BACKENDS
from tests.simulation.planted import PLANTED
from tests.simulation.run import simulate

SECONDS = float(os.environ.get("HEADWATER_TEST_SIM_SECONDS", "50"))
SHARDS = 2
AT_LEAST = 20


@pytest.mark.timeout(SECONDS * 4 + 120)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_seeds_run_clean(shard: int) -> None:
    """As many seeds as fit into the time; `make sim` runs more."""
    deadline = time.monotonic() + SECONDS
    done = acknowledged = 0
    seed = shard
    while done < AT_LEAST or time.monotonic() < deadline:
        outcome = simulate(seed)
        assert outcome.problem is None, f"seed {seed}: {outcome.problem}\n" + "\n".join(outcome.log)
        acknowledged += outcome.acknowledged
        done += 1
        seed += SHARDS
    print(f"{done} seeds, {acknowledged} records acknowledged")
    assert acknowledged > done


@pytest.mark.timeout(240)
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "memory"])
def test_seeds_run_clean_on_models_of_stores(backend: str) -> None:
    """M1: the same misfortunes, on the ledger that a real store would keep."""
    deadline = time.monotonic() + SECONDS / 5
    seed = 0
    while seed < 3 or time.monotonic() < deadline:
        outcome = simulate(seed, backend=backend)
        assert outcome.problem is None, f"seed {seed}: {outcome.problem}\n" + "\n".join(outcome.log)
        assert outcome.acknowledged, f"seed {seed}: nothing was acknowledged"
        seed += 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_defects_are_found(name: str) -> None:
    for seed in range(1000):
        problem = simulate(seed, PLANTED[name]).problem
        if problem is not None:
            assert problem.startswith("Violation"), "the defect itself does not work"
            return
    pytest.fail(f"{name}: not found within 1,000 seeds")


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = simulate(7), simulate(7)
    assert (first.acknowledged, first.steps, first.log) == (second.acknowledged, second.steps, second.log)
