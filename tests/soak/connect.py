"""Kafka Connect with an exactly-once source for minutes: the worker and brokers are killed, each line comes once.

python -m tests.soak.connect --minutes 5 --seed 1 [--ledger etcd]
"""

from __future__ import annotations

import argparse
import functools
import random
import time
from collections import Counter
from pathlib import Path

from harness.patience import eventually
from harness.process import alive
from harness.stores import LEDGERS
from tests.faults.connecting import Worker
from tests.faults.copying import KEYS, TARGET, TARGET_PARTITIONS, Seen, read_copies
from tests.soak.common import Verdict, progress, workplace
from tests.support.running import Running

PROMISES = ("K16",)

BROKERS = 3
STEP = 500
"""Lines that are added and must be seen between two kills."""
WORKERS_DIE = 0.3
SEEN_S = 180.0


class Lines:
    """The file that the connector reads."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.file.touch()
        self.count = 0
        self.written: Counter[int] = Counter()

    def add(self, count: int) -> None:
        with self.file.open("a") as out:
            for number in range(self.count, self.count + count):
                key = number % KEYS
                out.write(f"{key} {self.written[key]}.\n")
                self.written[key] += 1
        self.count += count


def play(directory: Path, options: argparse.Namespace, verdict: Verdict) -> None:
    chance = random.Random(options.seed)
    lines = Lines(directory / "lines")
    kills = deaths = 0
    with Running(directory / "server", brokers=BROKERS, ledger=options.ledger) as server, progress() as bars:
        bar = bars.add_task("connect", total=options.minutes * 60, now="")
        server.create(TARGET, TARGET_PARTITIONS)
        with Worker(server.bootstrap, directory) as worker, Seen(server.bootstrap) as seen:
            worker.configure(file=str(lines.file), topic=TARGET, partitions=str(TARGET_PARTITIONS))
            began = time.monotonic()

            def more_seen(before: int) -> bool:
                return seen.count > before

            def all_seen() -> bool:
                assert worker.state() != "FAILED", f"the task failed: {worker}"
                return seen.count >= lines.count

            while (passed := time.monotonic() - began) < options.minutes * 60:
                bars.update(bar, completed=int(passed), now=f"{kills} brokers, {deaths} workers, {seen.count:,}")
                lines.add(STEP)
                some_more = functools.partial(more_seen, seen.count)
                eventually(some_more, f"lines are seen: {worker}", SEEN_S, every=0.1)
                if chance.random() < WORKERS_DIE:
                    worker.kill()
                    worker.start()
                    deaths += 1
                else:
                    victim = server.broker(chance.randint(1, BROKERS))
                    if alive(victim):
                        victim.kill()
                        kills += 1
                eventually(all_seen, f"all {lines.count} lines are seen, {seen.count} are: {worker}", SEEN_S, every=0.5)
        read_copies(server.bootstrap).check(lines.written)
        server.doctor()
    verdict.fact("lines that came exactly once", lines.count)
    verdict.fact("brokers killed", kills)
    verdict.fact("workers killed", deaths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger", choices=LEDGERS, default="", help="with objects on S3; by default embedded")
    options = parser.parse_args()
    verdict = Verdict(f"Kafka Connect under kills, {options.minutes:g} minutes")
    with workplace("connect") as directory:
        play(directory, options, verdict)
    verdict.leave()


if __name__ == "__main__":
    main()
