"""Link processes die by `kill -9` while they copy a million records. Log and tables then have each one once.

The records have every codec, are in transactions or not, and some transactions are aborted. Kafka compacts the first
half of them before it is copied. Two link processes share the partitions. After the kills come failures of what a link
needs: our ledger takes nothing, a catalog takes nothing, the source is stopped and started, and has lost a topic's
records. With a ledger in etcd, all of its members are paused for a while, and then killed.

python -m tests.soak.links --records 1000000 --kills 20 --away 60 --seed 1 [--ledger etcd]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.compute as pc
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from harness import kafka
from harness.etcd import EtcdCluster
from harness.patience import eventually
from harness.process import PROGRAM, environment
from harness.tools import ROOT
from headwater.gateway.catalog import NAMESPACE
from tests.faults.linking import (
    QUICK_LINKS,
    create_link,
    create_topic,
    ends,
    fill,
    kill_link,
    produce,
    reached,
    seen,
    until_copied,
)
from tests.soak.common import Verdict, workplace
from tests.support.running import Running

PROMISES = ("N1",)

PARTITIONS = 12
WAIT_SECONDS = 1_800.0
LAKE = """
[lake]
interval_ms = 500
niceness = 0

[lake.catalogs.shared]
type = "sql"
"""
SERVES = ("healthy", "degraded")
"""A compactor that works is degraded while the machine gives it too little."""
Digests = dict[int, str]
"""By partition, a digest of all its records in order."""


CLEANER = "log.cleaner.backoff.ms=50\n"
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
QUIET_SECONDS = 5.0


class Second:
    """A link process beside that of `headwater up`."""

    def __init__(self, server: Running, directory: Path) -> None:
        self._command = [*PROGRAM, "link", "run", "--config", str(server.config), "--http", "127.0.0.1:0"]
        self._log = directory / "second.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._env = {**environment(server.variables), "PYTHONPATH": str(ROOT / "src")}

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=ROOT, env=self._env)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def digests(rows: Iterable[tuple[int, Iterator[tuple[Any, ...]]]]) -> Digests:
    """The digests of partitions."""
    found = {}
    for partition, records in rows:
        digest = hashlib.blake2b(digest_size=16)
        count = 0
        for record in records:
            digest.update(repr(record).encode())
            count += 1
        found[partition] = f"{count} {digest.hexdigest()}"
    return found


def in_log(bootstrap: str, topic: str) -> Digests:
    """What a client sees."""
    lines = seen(bootstrap, topic, PARTITIONS)
    return digests(
        (partition, ((o, t[1], k, v, tuple(h or ())) for o, t, k, v, h in records))
        for partition, records in lines.items()
    )


def in_table(table: Any) -> Digests:
    """The rows of a table, each partition in the order of its offsets."""

    def rows(partition: int) -> Iterator[tuple[Any, ...]]:
        own = table.filter(pc.equal(table["partition"], partition)).sort_by("offset")
        for row in own.select(["offset", "timestamp_ms", "key", "value", "headers"]).to_pylist():
            headers = tuple((one["key"], one["value"]) for one in row["headers"] or ())
            yield row["offset"], row["timestamp_ms"], row["key"], row["value"], headers

    return digests((partition, rows(partition)) for partition in range(PARTITIONS))


def differing(ours: Digests, theirs: Digests) -> int:
    return sum(ours[partition] != theirs[partition] for partition in range(PARTITIONS))


def compacted(source: kafka.Kafka, topic: str, records: int, seed: int) -> None:
    """Fill a topic, let Kafka compact it, and keep it as it is from then on."""
    create_topic(source.bootstrap, topic, PARTITIONS, **COMPACTED)
    fill(source.bootstrap, topic, PARTITIONS, records, seed, keyed=True)
    eventually(lambda: is_cleaned(source, topic), f"{topic} is compacted", WAIT_SECONDS, 1.0)
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)],
    )
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)
    before = -1
    while before != (before := log_bytes(source, topic)):  # a pass of the cleaner may be under way
        time.sleep(QUIET_SECONDS)


def is_cleaned(source: kafka.Kafka, topic: str) -> bool:
    """Whether the cleaner has gone over nearly all. It leaves the newest segment alone, so that needs a new one."""
    fill(source.bootstrap, topic, PARTITIONS, 500, time.time_ns(), ("none",), keyed=True)
    with suppress(FileNotFoundError):
        lines = (source.directory / "data" / "cleaner-offset-checkpoint").read_text().splitlines()
        cleaned = {int(at): int(offset) for name, at, offset in map(str.split, lines[2:]) if name == topic}
        at_end = ends(source.bootstrap, topic, PARTITIONS)
        return all(cleaned.get(partition, 0) >= end * 0.9 for partition, end in enumerate(at_end))
    return False


def log_bytes(source: kafka.Kafka, topic: str) -> int:
    """The size of a topic's segments."""
    sizes = []
    for file in (source.directory / "data").glob(f"{topic}-*/*.log"):
        with suppress(FileNotFoundError):
            sizes.append(file.stat().st_size)
    return sum(sizes)


def kills(source: kafka.Kafka, server: Running, second: Second, records: int, times: int) -> None:
    """Kill one or the other link process, each time while records are copied."""
    for number in range(times):
        before = reached(server, "orders", PARTITIONS)
        filling = Thread(target=fill, args=(source.bootstrap, "orders", PARTITIONS, records // times, number + 2))
        filling.start()
        try:
            eventually(lambda at=before: reached(server, "orders", PARTITIONS) > at, "records arrive", 120, 0.01)  # type: ignore[misc]
            if number % 2:
                second.kill()
                second.start()
            else:
                kill_link(server)
        finally:
            filling.join()


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Nobody else writes to an SQLite file."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


def health(server: Running, process: str) -> str:
    with suppress(OSError, KeyError):
        return str(json.loads(server.page("/health")[1])["components"][process])
    return "unknown"


def lose(source: kafka.Kafka, topic: str) -> None:
    """Remove the records of a topic from the disk of a source that does not run."""
    for file in (source.directory / "data" / f"{topic}-0").glob("0*"):
        file.unlink()


def source_away(source: kafka.Kafka, server: Running, seconds: float) -> None:
    """Stop the source, start it again, and lose a topic meanwhile."""
    source.stop(keep=True)
    lose(source, "lost")
    eventually(lambda: server.metric("headwater_link_breaker") > 0, "a breaker opens", 120, 0.2)
    eventually(lambda: health(server, "link") == "degraded", "the link is degraded", 120, 0.2)
    time.sleep(seconds)
    source.start(again=True)
    eventually(lambda: server.metric("headwater_link_breaker") == 0, "the breaker closes", 120, 0.2)


@contextmanager
def etcd_away(etcd: EtcdCluster, *, killed: bool) -> Iterator[None]:
    """No member of etcd answers: all are paused, or all have died and are started again afterwards."""
    members = range(len(etcd.names))
    for member in members:
        etcd.kill(member) if killed else etcd.pause(member)
    try:
        yield
    finally:
        for member in members:
            etcd.spawn(member) if killed else etcd.resume(member)
        etcd.wait_healthy()


def ledger_away(source: kafka.Kafka, server: Running, *, killed: bool = False) -> None:
    """Our ledger takes nothing while records come. The link says so, and then goes on."""
    stores = server.stores
    away = etcd_away(stores.metadata, killed=killed) if stores is not None else locked(server.data / "ledger.db")
    eventually(lambda: health(server, "link") == "healthy", "the link is healthy", 120, 0.2)
    with away:
        fill(source.bootstrap, "orders", PARTITIONS, 5_000, 500 + killed)
        eventually(lambda: health(server, "link") != "healthy", "the link is not healthy", 120, 0.2)
    until_copied(server, source.bootstrap, "orders", PARTITIONS, WAIT_SECONDS)
    eventually(lambda: health(server, "link") == "healthy", "the link is healthy", 120, 0.2)
    eventually(lambda: health(server, "compactor") in SERVES, "the compactor serves", 120, 0.2)


def catalog_away(source: kafka.Kafka, server: Running, file: Path) -> None:
    """Somebody else's catalog takes nothing while records come. The link copies on."""
    with locked(file):
        fill(source.bootstrap, "orders", PARTITIONS, 5_000, 502)
        until_copied(server, source.bootstrap, "orders", PARTITIONS, 300)
        eventually(lambda: health(server, "compactor") != "healthy", "the compactor is not healthy", 120, 0.2)
    eventually(lambda: health(server, "compactor") == "healthy", "the compactor is healthy", 600, 0.2)


def state_of(server: Running, link: str) -> dict[str, Any]:
    told = server.cli("link", "describe", link, "--config", str(server.config), "--output", "json")
    return dict(told["linked"][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--away", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger", choices=("", "etcd"), default="")
    options = parser.parse_args()
    verdict = Verdict(f"{options.kills} kills of link processes among {options.records:,} records")
    with workplace("links") as directory:
        catalog = directory / "catalog.db"
        own = {"type": "sql", "uri": f"sqlite:///{catalog}", "warehouse": directory.as_uri()}
        settings = QUICK_LINKS + LAKE + f'uri = "{own["uri"]}"\nwarehouse = "{own["warehouse"]}"\n'
        load_catalog("shared", **own).create_namespace_if_not_exists("headwater")
        with (
            kafka.Kafka(directory / "kafka", settings=kafka.QUICK_GROUPS + CLEANER) as source,
            Running(directory / "headwater", settings=settings, lake=True, ledger=options.ledger) as server,
        ):
            _run(options, verdict, source, server, Second(server, directory), catalog)
    verdict.leave()


def _run(
    options: argparse.Namespace, verdict: Verdict, source: kafka.Kafka, server: Running, second: Second, catalog: Path
) -> None:
    create_topic(source.bootstrap, "lost", 1)
    produce(source.bootstrap, "lost", [b"copied"] * 10)
    _timed(verdict, "compaction", lambda: compacted(source, "orders", options.records // 2, options.seed))
    create_link(server, "killed", source.bootstrap, "--topics", "orders")
    create_link(server, "loses", source.bootstrap, "--topics", "lost")
    until_copied(server, source.bootstrap, "lost", 1)
    second.start()
    try:
        _timed(verdict, "kills", lambda: kills(source, server, second, options.records // 2, options.kills))
        _timed(verdict, "ledger away", lambda: ledger_away(source, server))
        if options.ledger:
            _timed(verdict, "ledger dead", lambda: ledger_away(source, server, killed=True))
        _timed(verdict, "catalog away", lambda: catalog_away(source, server, catalog))
        _timed(verdict, "source away", lambda: source_away(source, server, options.away))
        until_copied(server, source.bootstrap, "orders", PARTITIONS, WAIT_SECONDS)
        eventually(lambda: state_of(server, "loses")["state"] == "stopped", "the lost topic is stopped", 120, 0.5)
        verdict.fact("what the lost topic says", state_of(server, "loses")["reason"])
        verdict.floor("records of the lost topic that are kept", sum(ends(server.bootstrap, "lost", 1)), 10)
    finally:
        second.kill()
    theirs = in_log(source.bootstrap, "orders")
    records, offsets = (
        sum(int(line.split()[0]) for line in theirs.values()),
        sum(ends(source.bootstrap, "orders", PARTITIONS)),
    )
    verdict.fact("offsets of the source", offsets)
    verdict.fact("committed records in the source, the others are gaps", records)
    wrong = differing(in_log(server.bootstrap, "orders"), theirs)
    verdict.rule("partitions of the log that differ from the source", wrong, 0)
    server.table("settle", "orders", "--timeout", str(int(WAIT_SECONDS)))
    for name, table in tables(server, "orders").items():
        verdict.rule(f"partitions of the {name} table that differ", differing(in_table(table), theirs), 0)


def tables(server: Running, topic: str) -> dict[str, Any]:
    """All rows of a topic's tables."""
    place = server.place(topic)
    catalog = load_catalog("ours", type="rest", uri=place.catalog, **(place.access.of_iceberg if place.access else {}))
    options = place.access.of_delta_rs if place.access else None
    return {
        "Iceberg": catalog.load_table((NAMESPACE, topic)).scan().to_arrow(),
        "Delta": DeltaTable(place.root, storage_options=options).to_pyarrow_table(),
    }


def _timed(verdict: Verdict, what: str, work: Callable[[], None]) -> None:
    began = time.perf_counter()
    work()
    verdict.fact(f"{what}, s", round(time.perf_counter() - began, 1))


if __name__ == "__main__":
    main()
