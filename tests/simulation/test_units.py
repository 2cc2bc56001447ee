"""L4, M1: units with conditions and keys under seeded misfortune keep their promises, and planted defects are found."""

from __future__ import annotations

import pytest

from tests.simulation.run import simulate
from tests.simulation.units.scene import UNITS
from tests.support.soak import WHOLE

pytestmark = pytest.mark.long
SEEDS = 1_000 if WHOLE else 4


@pytest.mark.timeout(SEEDS * 10 + 120)
def test_seeds_run_clean() -> None:
    """A fixed number of seeds; `python -m tests.simulation --scene units` runs as many as one likes."""
    answered = 0
    for seed in range(SEEDS):
        outcome = simulate(seed, scene=UNITS)
        assert outcome.problem is None, f"seed {seed}: {outcome.problem}\n" + "\n".join(outcome.log)
        answered += outcome.acknowledged
    assert answered > SEEDS


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = simulate(2, scene=UNITS), simulate(2, scene=UNITS)
    assert (first.acknowledged, first.steps, first.log) == (second.acknowledged, second.steps, second.log)
