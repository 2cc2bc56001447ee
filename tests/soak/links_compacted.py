"""A compacted topic of Apache Kafka, nine tenths of it gaps, becomes a log and tables here with the same records.

Two link processes copy it while Kafka's cleaner is at work, and another one after that. The size of the state is told:
entries of the index while the copy runs and when all is settled, and the bytes of a checkpoint; and the CPU time of the
link processes.

python -m tests.soak.links_compacted --records 200000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import threading
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from harness import kafka
from harness.patience import eventually
from tests.faults.linking import QUICK_LINKS, Copied, create_link, create_topic, ends, seen, until_copied
from tests.soak.common import Verdict, workplace
from tests.soak.links import Second, tables
from tests.support.running import Running

PROMISES = ("N1",)

PARTITIONS = 4
GAPS = 0.9
HOT_KEYS = 40
"""Keys that are written again and again: only their last records stay."""
BATCH = 10
CLEANER = "log.cleaner.backoff.ms=50\nlog.cleaner.threads=1\n"
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
SETTINGS = """
[lake]
interval_ms = 500
niceness = 0
freshness_ms = 5000

[housekeeping]
interval_ms = 500
checkpoint_bytes = 200000
"""
WAIT_SECONDS = 900.0


def fill(bootstrap: str, topic: str, records: int, seed: int) -> None:
    """Small batches. In half of the partitions whole batches are superseded later, in the others single records."""
    chance = random.Random(seed)
    options = {"bootstrap.servers": bootstrap, "linger.ms": 1, "batch.num.messages": BATCH, "compression.type": "lz4"}
    producer = Producer(options)
    for number in range(records // BATCH):
        partition = number % PARTITIONS
        whole = chance.random() < GAPS
        for place in range(BATCH):
            superseded = whole if partition % 2 else chance.random() < GAPS
            key = f"hot-{chance.randrange(HOT_KEYS)}" if superseded else f"{seed}-{number}-{place}"
            producer.produce(topic, chance.randbytes(60), key.encode(), partition=partition)
        producer.poll(0)
        if number % 100 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def kept(found: Copied) -> int:
    return sum(map(len, found.values()))


def is_cleaned(bootstrap: str, topic: str) -> bool:
    """Whether the cleaner has gone over nearly all. It leaves the newest segment alone, so that needs a new one."""
    fill(bootstrap, topic, PARTITIONS * BATCH, random.randrange(1 << 30))
    offsets = sum(ends(bootstrap, topic, PARTITIONS))
    return kept(seen(bootstrap, topic, PARTITIONS)) <= offsets * (1 - GAPS) * 1.1


class Sizes:
    """Looks at the size of the state until it is closed."""

    def __init__(self, server: Running) -> None:
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.most = 0.0
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            self.most = max(self.most, self.now())

    def now(self) -> float:
        """Entries of the offset index."""
        return self._server.metric("headwater_index_entries")

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


def cpu_seconds(server: Running, second: Second) -> float:
    """The CPU time of both link processes so far."""
    times = [process.cpu_times() for process in (server.link_process(), psutil.Process(second.pid))]
    found: float = sum(one.user + one.system for one in times)
    return found


def checkpoint_bytes(server: Running) -> int:
    """The size of the newest checkpoint of the streams."""
    folder = server.data / "objects" / "meta" / "v1" / "domain=1" / "checkpoint"
    return max(folder.glob("*.ckpt"), key=lambda path: path.name).stat().st_size


def copied(verdict: Verdict, source: kafka.Kafka, server: Running, topic: str, when: str) -> None:
    """Wait until a topic is copied, and compare log and tables with what the source has had or has."""
    theirs = seen(source.bootstrap, topic, PARTITIONS)
    ours = seen(server.bootstrap, topic, PARTITIONS)
    last = [{key: (o, value) for o, _, key, value, _ in lines} for lines in theirs.values()]
    mine = [{key: (o, value) for o, _, key, value, _ in lines} for lines in ours.values()]
    verdict.rule(f"partitions whose newest record of a key differs, {when}", sum(map(_differ, mine, last)), 0)
    missing = sum(len(set(theirs[p]) - set(ours[p])) for p in range(PARTITIONS)) if _hashable(theirs) else 0
    verdict.rule(f"records of the source that are missing, {when}", missing, 0)
    server.table("settle", topic, "--timeout", str(int(WAIT_SECONDS)))
    wanted = {(p, line[0], line[3]) for p, lines in ours.items() for line in lines}
    for name, table in tables(server, topic).items():
        columns = (table[name].to_pylist() for name in ("partition", "offset", "value"))
        rows = list(zip(*columns, strict=True))
        verdict.rule(f"rows of the {name} table that are not in the log, or doubled, {when}", _odd(rows, wanted), 0)
    verdict.fact(f"offsets of {topic}", sum(ends(server.bootstrap, topic, PARTITIONS)))
    verdict.fact(f"records of {topic} here, {when}", kept(ours))
    verdict.fact(f"records of {topic} in the source now", kept(theirs))


def _hashable(lines: Copied) -> bool:
    return all(line[4] is None for found in lines.values() for line in found)


def _differ(mine: dict[Any, Any], theirs: dict[Any, Any]) -> bool:
    return mine != theirs


def _odd(rows: list[tuple[Any, ...]], wanted: set[tuple[Any, ...]]) -> int:
    return len(rows) - len(set(rows)) + len(set(rows) ^ wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    verdict = Verdict(f"A compacted source of {options.records:,} records")
    with (
        workplace("links-compacted") as directory,
        kafka.Kafka(directory / "kafka", settings=kafka.QUICK_GROUPS + CLEANER) as source,
        Running(directory / "headwater", settings=QUICK_LINKS + SETTINGS, lake=True) as server,
    ):
        _run(options, verdict, source, server, directory)
    verdict.leave()


def _run(options: argparse.Namespace, verdict: Verdict, source: kafka.Kafka, server: Running, directory: Path) -> None:
    second = Second(server, directory)
    sizes = Sizes(server)
    try:
        create_topic(source.bootstrap, "followed", PARTITIONS, **COMPACTED)
        create_link(server, "followed", source.bootstrap, "--topics", "followed")
        second.start()
        fill(source.bootstrap, "followed", options.records, options.seed)
        eventually(lambda: is_cleaned(source.bootstrap, "followed"), "it is compacted", WAIT_SECONDS, 0.5)
        until_copied(server, source.bootstrap, "followed", PARTITIONS, WAIT_SECONDS)
        copied(verdict, source, server, "followed", "followed while it was compacted")
        server.cli("link", "promote", "followed", "--wait", "--config", str(server.config))
        before = sizes.now()
        create_topic(source.bootstrap, "late", PARTITIONS, **COMPACTED)
        fill(source.bootstrap, "late", options.records, options.seed + 1)
        eventually(lambda: is_cleaned(source.bootstrap, "late"), "it is compacted", WAIT_SECONDS, 0.5)
        sizes.most, spent = 0.0, cpu_seconds(server, second)
        create_link(server, "late", source.bootstrap, "--topics", "late")
        until_copied(server, source.bootstrap, "late", PARTITIONS, WAIT_SECONDS)
        spent = cpu_seconds(server, second) - spent
        theirs, ours = (seen(at, "late", PARTITIONS) for at in (source.bootstrap, server.bootstrap))
        verdict.rule("partitions of the log that differ from the source", sum(theirs[p] != ours[p] for p in theirs), 0)
        copied(verdict, source, server, "late", "copied after it was compacted")
        offsets = sum(ends(source.bootstrap, "late", PARTITIONS))
        verdict.floor("share of gaps", 1 - kept(theirs) / offsets, GAPS * 0.98)
        verdict.fact("records per CPU second of the link processes", kept(ours) / spent)
        verdict.fact("offsets per CPU second of the link processes", offsets / spent)
        verdict.fact("entries of the index, at most", sizes.most - before)
        verdict.fact("entries of the index, at most, per 1,000 records", (sizes.most - before) / kept(ours) * 1000)
        left = eventually(lambda: _settled(sizes, before, kept(ours)), "the index is small again", WAIT_SECONDS, 0.5)
        assert left is not None
        verdict.fact("entries of the index, settled, per 1,000 records", left / kept(ours) * 1000)
        verdict.fact("entries of the index now", sizes.now())
        verdict.fact("bytes of a checkpoint", checkpoint_bytes(server))
        verdict.fact("bytes of a checkpoint per record", checkpoint_bytes(server) / (kept(ours) * 2))
        server.cli("link", "promote", "late", "--wait", "--config", str(server.config))
    finally:
        sizes.close()
        second.kill()


def _settled(sizes: Sizes, before: float, records: int) -> float | None:
    """The entries that are left, once they are few."""
    left = sizes.now() - before
    return max(left, 0.01) if left < records / 100 else None


if __name__ == "__main__":
    main()
