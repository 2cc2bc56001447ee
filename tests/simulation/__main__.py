"""`python -m tests.simulation --seeds 10000`: many seeds on all cores."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
from functools import partial
from multiprocessing import Pool

from rich.progress import Progress

from tests.simulation.backends import BACKENDS
from tests.simulation.clocks.scene import CLOCKS
from tests.simulation.holds.scene import HOLDS
from tests.simulation.links.scene import LINKS
from tests.simulation.moving import MOVING
from tests.simulation.run import LIFE, Outcome, simulate, simulate_all
from tests.simulation.transactions import NAIVE, ROLLING, SECOND, TRANSACTIONS
from tests.simulation.typed.scene import TYPED
from tests.simulation.units.scene import UNITS

SCENES = {
    "life": LIFE,
    "moving": MOVING,
    "transactions": TRANSACTIONS,
    "second-generation": SECOND,
    "rolling": ROLLING,
    "naive": NAIVE,
    "units": UNITS,
    "holds": HOLDS,
    "links": LINKS,
    "typed": TYPED,
    "clocks": CLOCKS,
}


def _begin() -> None:
    """Make a worker quick: it tells nobody what brokers log, and does not look at imported modules for garbage."""
    logging.disable()
    gc.freeze()
    gc.set_threshold(50_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="run one seed and show its story")
    parser.add_argument("--ledger", choices=BACKENDS, default="memory")
    parser.add_argument("--scene", choices=SCENES, default="life")
    arguments = parser.parse_args()
    scene = SCENES[arguments.scene]
    if arguments.seed is not None:
        outcome = simulate(arguments.seed, backend=arguments.ledger, scene=scene)
        print("\n".join(outcome.log))
        print(f"seed {outcome.seed}: {outcome.problem or 'clean'}, {outcome.acknowledged} records acknowledged")
        return 1 if outcome.problem else 0
    chunk = 20
    last = arguments.first + arguments.seeds
    chunks = [range(i, min(i + chunk, last)) for i in range(arguments.first, last, chunk)]
    bad: list[Outcome] = []
    acknowledged = clean = 0
    began = time.monotonic()
    with Pool(arguments.workers, _begin, maxtasksperchild=20) as pool, Progress() as progress:
        bar = progress.add_task("seeds", total=arguments.seeds)
        for outcomes in pool.imap(partial(simulate_all, backend=arguments.ledger, scene=scene), chunks):
            progress.advance(bar, len(outcomes))
            for outcome in outcomes:
                acknowledged += outcome.acknowledged
                clean += outcome.problem is None
                if outcome.problem is not None:
                    bad.append(outcome)
                    progress.console.print(f"seed {outcome.seed}: {outcome.problem}")
    seconds = time.monotonic() - began
    print(f"{clean} of {arguments.seeds} seeds clean, {acknowledged} records acknowledged, {seconds:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
