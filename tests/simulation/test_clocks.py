"""Wrong clocks delete and fence nothing, and planted defects are found."""

from __future__ import annotations

import pytest

from tests.simulation.clocks.planted import PLANTED
from tests.simulation.clocks.scene import CLOCKS
from tests.simulation.run import simulate
from tests.support.promise import promise
from tests.support.soak import WHOLE

PROMISES = ("M1", "L6")

SEEDS = 1_000 if WHOLE else 4
LOOK_FROM: dict[str, int] = {}
"""The seed with which the search for a defect begins, where the first seed does not find it."""
LOOKED_AT = 200


@promise("M1", "L6")
@pytest.mark.timeout(SEEDS * 10 + 120)
def test_seeds_run_clean() -> None:
    """A fixed number of seeds; `python -m tests.simulation --scene clocks` runs as many as one likes."""
    answered = 0
    for seed in range(SEEDS):
        outcome = simulate(seed, scene=CLOCKS)
        assert outcome.problem is None, f"seed {seed}: {outcome.problem}\n" + "\n".join(outcome.log)
        answered += outcome.acknowledged
    assert answered > 10 * SEEDS


@promise("M1", "L6")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_defects_are_found(name: str) -> None:
    with PLANTED[name]():
        for seed in range(0 if WHOLE else LOOK_FROM.get(name, 0), LOOKED_AT):
            problem = simulate(seed, scene=CLOCKS).problem
            if problem is not None:
                assert problem.startswith("Violation"), problem
                return
    pytest.fail(f"{name}: not found within {LOOKED_AT} seeds")
