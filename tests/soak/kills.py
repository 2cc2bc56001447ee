"""Compactors die by `kill -9` two hundred times while two topics are written; then log and tables are exact.

With `--transactions` most of what is written is in transactions that overlap, and more than a third of them abort.

python -m tests.soak.kills --kills 200 --seed 1
"""

from __future__ import annotations

import argparse
import random
from collections import Counter

from harness.stores import LEDGERS
from tests.faults.lake_running import (
    FRESHNESS,
    READERS,
    LakeRunning,
    Writer,
    check_all,
    kill_compactors,
    many_moments,
)
from tests.faults.lake_transactions import TransactionalWriter, committed_readers
from tests.soak.common import Verdict, progress, workplace

PROMISES = ("L3",)

TOPICS = ("left", "right")
PARTITIONS = 3
ENOUGH_TO_MERGE = 20
"""So many kills leave enough small segments behind for a merge."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger", choices=LEDGERS, default="", help="with objects on S3; by default embedded")
    parser.add_argument("--transactions", action="store_true", help="write transactions beside plain records")
    options = parser.parse_args()
    verdict = Verdict(f"{options.kills} kills of a compactor{' among transactions' if options.transactions else ''}")
    chance = random.Random(options.seed)
    with workplace("kills") as directory, LakeRunning(directory, ledger=options.ledger) as server, progress() as bars:
        for topic in TOPICS:
            server.create(topic, PARTITIONS, **FRESHNESS)
        bar = bars.add_task("kills", total=options.kills, now="")

        with _writer(server.bootstrap, chance if options.transactions else None) as writer:

            def told(moment: str) -> None:
                bars.update(bar, advance=1, now=f"{moment}, {writer.count:,} records")

            moments = many_moments(options.kills, chance)
            kill_compactors(server, writer, moments, chance, told)
            writer.finish()
        bars.update(bar, now="reading everything back")
        tables = check_all(server, writer, committed_readers(PARTITIONS) if options.transactions else READERS)
        temporary = sum(path.is_file() for path in (server.data / "objects" / ".tmp").rglob("*"))
        for moment, count in sorted(Counter(moments).items()):
            verdict.fact(f"killed: {moment}", count)
        verdict.fact("records acknowledged, read back alike by all", sum(map(len, writer.acks.values())))
        if isinstance(writer, TransactionalWriter):
            verdict.floor("transactions committed", writer.ends["committed"], 1)
            verdict.floor("transactions aborted", writer.ends["aborted"], 1)
            verdict.floor("records aborted, read back by nobody", writer.aborted, 1)
        verdict.fact("versions", sum(table.version for table in tables.values()))
        verdict.rule("processes of dead compactors, in the end", len(server.strays()), 0)
        verdict.fact("temporary files that were never finished", temporary)
        merges = min(table.merges for table in tables.values())
        verdict.floor("merges in the journals", merges, 1 if options.kills >= ENOUGH_TO_MERGE else 0)
    verdict.leave()


def _writer(bootstrap: str, chance: random.Random | None) -> Writer:
    """With chance, one that writes transactions."""
    if chance is None:
        return Writer(bootstrap, TOPICS, PARTITIONS)
    return TransactionalWriter(bootstrap, TOPICS, PARTITIONS, random.Random(chance.random()))


if __name__ == "__main__":
    main()
