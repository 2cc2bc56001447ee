"""L5: link processes die by `kill -9` while they copy a million records; then the log has every committed one once.

python -m tests.soak.links --records 1000000 --kills 20 --seed 1
"""

from __future__ import annotations

import argparse

from harness import kafka
from tests.faults.linking import QUICK_LINKS, create_link, create_topic, fill, kill_while_it_copies, seen, until_copied
from tests.soak.common import Verdict, workplace
from tests.support.running import Running

PARTITIONS = 12
WAIT_SECONDS = 1_800.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    verdict = Verdict(f"{options.kills} kills of link processes among {options.records:,} records")
    with (
        workplace("links") as directory,
        kafka.Kafka(directory / "kafka", settings=kafka.QUICK_GROUPS) as source,
        Running(directory / "headwater", settings=QUICK_LINKS) as server,
    ):
        create_topic(source.bootstrap, "orders", PARTITIONS)
        fill(source.bootstrap, "orders", PARTITIONS, options.records // 2, options.seed)
        create_link(server, "killed", source.bootstrap, "--topics", "orders")
        more = options.records // 2
        kill_while_it_copies(server, source.bootstrap, "orders", PARTITIONS, more, options.kills)
        until_copied(server, source.bootstrap, "orders", PARTITIONS, WAIT_SECONDS)
        theirs = seen(source.bootstrap, "orders", PARTITIONS)
        ours = seen(server.bootstrap, "orders", PARTITIONS)
        wrong = sum(ours[partition] != theirs[partition] for partition in range(PARTITIONS))
        verdict.fact("committed records in the source", sum(map(len, theirs.values())))
        verdict.rule("partitions that differ from the source", wrong, 0)
    verdict.leave()


if __name__ == "__main__":
    main()
