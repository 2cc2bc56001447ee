"""What transactions leave behind: ``python -m benchmarks.transactions``, or ``make bench-transactions``.

Ten transactions a second, each with a record for every partition, on a Headwater that settles. The rate is paced, so
the speed of the machine does not matter. Ledger records, their bytes and index entries are read from the metrics. The
index must not grow once settling has begun.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Producer

from benchmarks.systems import HeadwaterSystem
from benchmarks.topics import Topics
from harness.pages import metric_of

TOPIC = "transactions"
A_SECOND = 10
LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 60.0
FLAT = 1.25
"""How much larger than in the first half of a run the index may become in the second."""


@dataclass(frozen=True, slots=True)
class Look:
    """Metrics at one moment."""

    transactions: float
    commits: float
    size: float
    entries: float
    settled: float
    """Segments so far."""

    @staticmethod
    def at(server: HeadwaterSystem) -> Look:
        page = server.server.page("/metrics")[1]
        return Look(
            transactions=metric_of(page, "headwater_transactions_ended_total"),
            commits=metric_of(page, "headwater_ledger_commits_total"),
            size=metric_of(page, "headwater_ledger_bytes_total"),
            entries=metric_of(page, "headwater_index_entries"),
            settled=metric_of(page, "headwater_settled_files_total"),
        )


def halves(looks: list[Look]) -> tuple[float, float] | None:
    """The most index entries in the first and in the second half of the time; None if nothing settled in the first."""
    entries, half = [look.entries for look in looks], len(looks) // 2
    if not half or looks[half - 1].settled <= looks[0].settled:
        return None
    return max(entries[:half]), max(entries[half:])


def per_transaction(first: Look, last: Look) -> tuple[float, float]:
    """Ledger records and bytes of a transaction, everything else that was written included."""
    count = max(last.transactions - first.transactions, 1.0)
    return (last.commits - first.commits) / count, (last.size - first.size) / count


def _run(server: HeadwaterSystem, partitions: int, seconds: float) -> list[Look]:
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": TOPIC, "linger.ms": 0})
    producer.init_transactions(PATIENCE_SECONDS)
    looks, began, number = [Look.at(server)], time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        if passed >= LOOK_SECONDS * len(looks):
            looks.append(Look.at(server))
            _say(passed, looks[-1])
        if passed < number / A_SECOND:
            time.sleep(number / A_SECOND - passed)
        producer.begin_transaction()
        for partition in range(partitions):
            producer.produce(TOPIC, bytes(100), partition=partition)
        producer.commit_transaction(PATIENCE_SECONDS)
        number += 1
    return [*looks, Look.at(server)]


def _say(passed: float, look: Look) -> None:
    print(
        f"{passed:5.0f} s: {look.transactions:.0f} transactions, {look.entries:.0f} index entries, "
        f"{look.settled:.0f} segments",
        flush=True,
    )


def main(
    seconds: Annotated[float, typer.Option(min=10.0, help="For how long transactions are written.")] = 180.0,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each transaction.")] = 12,
) -> None:
    """Counts ledger records and bytes of transactions, and watches the index while they settle."""
    with tempfile.TemporaryDirectory() as directory, HeadwaterSystem(Path(directory) / "data") as server:
        topics = Topics(server)
        topics.create(TOPIC, partitions)
        looks = _run(server, partitions, seconds)
        records, size = per_transaction(looks[0], looks[-1])
        count = looks[-1].transactions - looks[0].transactions
        print(f"{count:.0f} transactions, {count / seconds:.1f} a second, a record in each of {partitions} partitions")
        print(f"a transaction: {records:.2f} records of the ledger with {size:.0f} bytes, all else included")
        most = halves(looks)
        if most is None:
            print("nothing was settled in the first half: run it for longer, or on a machine with less load")
            raise typer.Exit(2)
        print(f"index entries, most: {most[0]:.0f} in the first half, {most[1]:.0f} after it")
        if most[1] > FLAT * most[0]:
            raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
