"""Typed columns, digests and rewrites under seeded misfortune; planted defects are found."""

from __future__ import annotations

import pytest

from tests.simulation.run import simulate
from tests.simulation.typed.planted import PLANTED
from tests.simulation.typed.scene import TYPED
from tests.support.soak import WHOLE

PROMISES = ("T6", "T5")

SEEDS = 1_000 if WHOLE else 3
LOOKED_AT = 50


@pytest.mark.timeout(SEEDS * 10 + 120)
def test_seeds_run_clean() -> None:
    """A fixed number of seeds; `python -m tests.simulation --scene typed` runs as many as one likes."""
    records = 0
    for seed in range(SEEDS):
        outcome = simulate(seed, scene=TYPED)
        assert outcome.problem is None, f"seed {seed}: {outcome.problem}\n" + "\n".join(outcome.log)
        records += outcome.acknowledged
    assert records > SEEDS


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_defects_are_found(name: str) -> None:
    """By `apply`, which refuses the command, or by the auditor, who reads all files."""
    with PLANTED[name]():
        for seed in range(LOOKED_AT):
            problem = simulate(seed, scene=TYPED).problem
            if problem is not None:
                assert problem.startswith("Violation"), problem
                return
    pytest.fail(f"{name}: not found within {LOOKED_AT} seeds")


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = simulate(1, scene=TYPED), simulate(1, scene=TYPED)
    assert (first.acknowledged, first.steps, first.log) == (second.acknowledged, second.steps, second.log)
