"""Faults for minutes on a cluster of real processes under load; nothing is lost, doubled, reordered or unread.

python -m tests.soak.cluster --ledger etcd --faults brokers --minutes 5 --outage 30 --seed 1
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

from harness.cluster import Cluster
from harness.stores import LEDGERS
from tests.faults.lake_running import FRESHNESS, SETTINGS
from tests.faults.storm import FAULTS, Storm
from tests.faults.table_checking import check_tables
from tests.soak.common import Verdict, progress, workplace
from tests.support.load import Load

PROMISES = ("M2", "M6")

TOPIC, PARTITIONS = "load", 6
RECOVERY_SECONDS = 5.0
"""Within which the partitions of a killed broker take records again."""
BETWEEN_SECONDS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledger", choices=LEDGERS, default="etcd")
    parser.add_argument("--faults", choices=FAULTS, default="brokers")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--outage", type=float, default=30, help="seconds that an object store stays away")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    lake = options.faults == "compactor"
    verdict = Verdict(f"{options.faults} of a cluster on {options.ledger} and S3, {options.minutes:g} minutes")
    with (
        workplace("cluster") as directory,
        Cluster(directory, options.ledger, compactor=lake, settings=SETTINGS if lake else "") as cluster,
        progress() as bars,
    ):
        cluster.create(TOPIC, PARTITIONS, **(FRESHNESS if lake else {}))
        bar = bars.add_task("seconds", total=int(options.minutes * 60), now="")
        with Load(cluster.bootstrap, TOPIC, PARTITIONS, producers=3, consumers=2) as load:
            storm = Storm(cluster, load, options.seed, options.outage)
            start = time.monotonic()
            while time.monotonic() - start < options.minutes * 60 and not load.problems:
                storm.strike(options.faults)
                now = f"{len(storm.felt)} faults, {load.count:,} records"
                bars.update(bar, completed=int(time.monotonic() - start), now=now)
                time.sleep(BETWEEN_SECONDS)  # the pace of the faults
            bars.update(bar, now="reading everything back")
            log = load.finish()
        if lake:
            check_tables(cluster, TOPIC, log)
        cluster.doctor()
    pauses = defaultdict(list)
    for felt in storm.felt:
        pauses[felt.what].append(felt.pause)
    for what, seconds in sorted(pauses.items()):
        verdict.fact(f"{what}: times", len(seconds))
        middle, longest = sorted(seconds)[len(seconds) // 2], max(seconds)
        verdict.fact(f"{what}: pause of the slowest partition, median (s)", middle)
        if what == "kill_broker":
            verdict.rule(f"{what}: longest pause (s)", longest, RECOVERY_SECONDS)
        else:
            verdict.fact(f"{what}: longest pause (s)", longest)
    verdict.floor("faults", len(storm.felt), 1)
    verdict.floor("records acknowledged, each read exactly once", log.count, 1)
    verdict.leave()


if __name__ == "__main__":
    main()
