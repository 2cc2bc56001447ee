"""Kafka Streams with exactly_once_v2, two instances, for minutes: brokers and instances are killed and paused.

A pause is longer than the time-out of a transaction. In the end every record of the source was counted once, and no
thread of Kafka Streams died.

python -m tests.soak.streams --minutes 5 --seed 1 [--ledger etcd]
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from pathlib import Path

from harness.process import alive
from harness.stores import LEDGERS
from tests.faults.copying import SOURCE, SOURCE_PARTITIONS, TARGET, TARGET_PARTITIONS
from tests.faults.summing import Summing
from tests.soak.common import Verdict, progress, workplace
from tests.support.running import Running

PROMISES = ("K16",)

BROKERS = 3
STEP = 300
TIMEOUT_MS = 10_000
PAUSE_S = 15.0
EVENTS = ("broker",) * 6 + ("instance",) * 2 + ("pause",)


class Disturbing:
    """What happens to brokers and instances."""

    def __init__(self, server: Running, summing: Summing, chance: random.Random) -> None:
        self._server = server
        self._summing = summing
        self._chance = chance
        self.done = dict.fromkeys(EVENTS, 0)

    def __call__(self, event: str) -> None:
        name = self._chance.choice(sorted(self._summing.instances))
        if event == "broker":
            victim = self._server.broker(self._chance.randint(1, BROKERS))
            if not alive(victim):
                return
            victim.kill()
        elif event == "instance":
            self._summing.kill(name)
            self._summing.start(name)
        else:
            process = self._summing.instances[name].process
            process.send_signal(signal.SIGSTOP)
            time.sleep(PAUSE_S)
            process.send_signal(signal.SIGCONT)
        self.done[event] += 1


def play(directory: Path, options: argparse.Namespace, verdict: Verdict) -> None:
    chance = random.Random(options.seed)
    with Running(directory / "server", brokers=BROKERS, ledger=options.ledger) as server, progress() as bars:
        bar = bars.add_task("streams", total=options.minutes * 60, now="")
        server.create(SOURCE, SOURCE_PARTITIONS)
        server.create(TARGET, TARGET_PARTITIONS)
        with Summing(server.bootstrap, directory, instances=2, timeout_ms=TIMEOUT_MS) as summing:
            disturb = Disturbing(server, summing, chance)
            began = time.monotonic()
            disturb("pause")  # whatever chance has for later
            while (passed := time.monotonic() - began) < options.minutes * 60:
                bars.update(bar, completed=int(passed), now=f"{disturb.done}, {summing.seen.count:,}")
                summing.progress(STEP)
                time.sleep(chance.uniform(0, 4))
                disturb(chance.choice(EVENTS))
            count = summing.finish()
        server.doctor()
    verdict.fact("records summed exactly once", count)
    for event, times in disturb.done.items():
        verdict.fact(f"disturbed: {event}", times)
    verdict.rule("threads that died", summing.dead, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger", choices=LEDGERS, default="", help="with objects on S3; by default embedded")
    options = parser.parse_args()
    verdict = Verdict(f"Kafka Streams under kills, {options.minutes:g} minutes")
    with workplace("streams") as directory:
        play(directory, options, verdict)
    verdict.leave()


if __name__ == "__main__":
    main()
