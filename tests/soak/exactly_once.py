"""Real clients copy records in transactions for minutes while brokers and copiers are killed: each record comes once.

python -m tests.soak.exactly_once --client java --minutes 5 --seed 1 [--generation 1] [--ledger etcd]
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

from harness.process import alive
from harness.stores import LEDGERS
from harness.tools import Missing
from tests.faults.copying import ALONE, CLIENTS, SOURCE, SOURCE_PARTITIONS, TARGET, TARGET_PARTITIONS
from tests.faults.exactly import Copy
from tests.soak.common import Verdict, progress, workplace
from tests.support.running import Running

PROMISES = ("K12",)

BROKERS = 3
STEP = 300
"""Records that must be copied between two kills."""
COPIERS_DIE = 0.25
"""The share of kills that hit a copier."""
RUNS = (*((client, 2) for client in CLIENTS), ("java", 1))
"""Clients, and the generation of transactions that the brokers offer."""
FIRST_GENERATION = """\
[transactions]
version = 1
"""


def play(client: str, generation: int, directory: Path, options: argparse.Namespace, verdict: Verdict) -> None:
    """One client, minutes long."""
    name = f"{client}, generation {generation}"
    chance = random.Random(options.seed)
    settings = FIRST_GENERATION if generation == 1 else ""
    kills = deaths = 0
    with (
        Running(directory / "server", brokers=BROKERS, settings=settings, ledger=options.ledger) as server,
        progress() as bars,
    ):
        bar = bars.add_task(name, total=options.minutes * 60, now="")
        server.create(SOURCE, SOURCE_PARTITIONS)
        server.create(TARGET, TARGET_PARTITIONS)
        with Copy(server.bootstrap, client, directory, copiers=1 if client in ALONE else 2) as copy:
            began = time.monotonic()
            while (passed := time.monotonic() - began) < options.minutes * 60:
                bars.update(bar, completed=int(passed), now=f"{kills} brokers, {deaths} copiers, {copy.seen.count:,}")
                copy.progress(STEP)
                time.sleep(chance.uniform(0, 4))
                if chance.random() < COPIERS_DIE:
                    id_ = chance.choice(sorted(copy.copiers))
                    copy.kill(id_)
                    copy.start(id_)
                    deaths += 1
                else:
                    victim = server.broker(chance.randint(1, BROKERS))
                    if alive(victim):
                        victim.kill()
                        kills += 1
            count = copy.finish()
        server.doctor()
    verdict.fact(f"{name}: records copied exactly once", count)
    verdict.fact(f"{name}: brokers killed", kills)
    verdict.fact(f"{name}: copiers killed", deaths)
    for event, times in sorted(copy.heard.items()):
        verdict.fact(f"{name}: {event}", times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", choices=CLIENTS, help="this client only")
    parser.add_argument("--generation", type=int, choices=(1, 2), help="this generation only")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger", choices=LEDGERS, default="", help="with objects on S3; by default embedded")
    options = parser.parse_args()
    verdict = Verdict(f"transactions under kills, {options.minutes:g} minutes each")
    wanted = [
        (client, generation)
        for client, generation in RUNS
        if options.client in (None, client) and options.generation in (None, generation)
    ]
    for client, generation in wanted:
        try:
            with workplace(f"exactly-{client}") as directory:
                play(client, generation, directory, options, verdict)
        except Missing as missing:
            verdict.fact(client, f"left out: {missing}")
    verdict.leave()


if __name__ == "__main__":
    main()
