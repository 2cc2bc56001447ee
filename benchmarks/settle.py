"""Settling end to end, WAL in the object store to both tables committed: ``make bench-settle``.

CPU is that of all processes: this one, Spark's JVM and its Python workers. Everything is warm: a first settle has
started the session and compiled the kernels. Beside it, a plain PySpark append of the same rows from Parquet into an
Iceberg table, by Iceberg's own connector, in a session of the same kind.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.segments import CASES, Case, make_runs
from headwater.clock import SystemChance, SystemClock
from headwater.config import Lake, Spark
from headwater.lake.compactor import Compactor
from headwater.lake.following import Following
from headwater.lake.spark.jobs import Jobs
from headwater.lake.spark.session import Sessions
from headwater.lake.tables import make_followers
from headwater.log import wal
from headwater.metadata import open_ledger
from headwater.metadata.cluster import ClusterState
from headwater.metadata.commands import AppendWal, Chunk
from headwater.metadata.membership import Membership
from headwater.metadata.replica import Replica
from headwater.metadata.streams import StreamsState
from headwater.metadata.topics import Topics
from headwater.objects import open_store
from headwater.threads import Threads
from headwater.types import Domain, WalId

ONE = Domain(1)
ZONE = "bench"
JARS = Path(__file__).resolve().parent.parent / ".tools" / "spark" / "jars"


def cpu_seconds() -> float:
    """CPU time of this process and all it started, as far as they still live."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


@dataclass(frozen=True, slots=True)
class Spent:
    """What one settle, or one append, took."""

    rows: int
    value_bytes: int
    cpu: float
    wall: float

    def __str__(self) -> str:
        mb = self.rows * self.value_bytes / 1e6
        return (
            f"{self.rows / self.cpu:>12,.0f} rows/CPU-s {mb / self.cpu:>8.1f} MB/CPU-s "
            f"{self.rows / self.wall:>12,.0f} rows/s {mb / self.wall:>8.1f} MB/s   ({self.rows:,} rows)"
        )


class Bench:
    """A ledger, a store and a compactor in this process; Spark in its own."""

    def __init__(self, directory: Path, master: str) -> None:
        self.lake = Lake(freshness_ms=1 << 40, merge_files=1_000, spark=Spark(master=master))
        self.ledger = open_ledger(f"sqlite://{directory}/ledger.db")
        self.store = open_store((directory / "objects").as_uri())
        clock, chance = SystemClock(), SystemChance()
        self.cluster = Replica(self.ledger, self.store, ClusterState(), clock, chance)
        self.replica = Replica(self.ledger, self.store, StreamsState(ONE), clock, chance)
        domains = {ONE: self.replica}
        self.membership = Membership(self.ledger, self.cluster, domains, clock, chance)
        self.sessions = Sessions(self.lake.spark)
        jobs, self.thread = Jobs(self.sessions, 600), Threads(1, "spark")
        slots = int(master.removeprefix("local[").removesuffix("]"))
        self.compactor = Compactor(
            self.cluster, domains, self.store, lambda tag, tasks: self.thread.run(jobs.run, tag, tasks), self.lake,
            clock, chance, slots=slots,
        )  # fmt: skip
        self.followers = make_followers(self.store, self.lake)
        self.following = Following(
            self.cluster, domains, self.followers, self.compactor.lease, self.lake, clock, chance
        )
        self.topics = Topics(self.cluster, domains, chance)
        self._sequence = 0

    async def start(self) -> None:
        await self.cluster.start()
        await self.replica.start()
        await self.membership.join()
        self.membership.start()

    async def stop(self) -> None:
        await self.membership.leave()
        await self.replica.close()
        await self.cluster.close()
        await asyncio.to_thread(self.sessions.close)
        await self.thread.close()

    async def write(self, name: str, case: Case, rows: int, streams: int) -> None:
        """A topic whose records lie in WAL objects, interleaved over its streams."""
        topic = await self.topics.create(name, streams, {"headwater.table.freshness.ms": "1"})
        runs = make_runs(case, rows)
        for number, (data, _, _) in enumerate(runs):
            batches = [bytes(b) for b in wal.batches_between(data, 0, len(data))]
            share = -(-len(batches) // streams)
            parts = [
                (topic.streams[(i + number) % streams], batches[i * share : (i + 1) * share]) for i in range(streams)
            ]
            await self._object(sorted((s, b) for s, b in parts if b))

    async def _object(self, parts: list[tuple[int, list[bytes]]]) -> None:
        from headwater.log.batch import Batch, max_timestamp_of, offsets_of

        self._sequence += 1
        object_id, now = WalId(self.replica.epoch, self._sequence), SystemClock().wall_ms()
        chunks = [
            (stream, [Batch(b, offsets_of(b), max_timestamp_of(b), max_timestamp_of(b), -1, -1, -1) for b in batches])
            for stream, batches in parts
        ]
        image = wal.build(object_id, ONE, now, chunks)
        await self.store.put(wal.path_of(ZONE, ONE, now, object_id), image.pieces)
        entered = [
            Chunk(stream, position, [(len(b.data), b.offsets, b.max_timestamp) for b in batches], [])
            for (stream, batches), position in zip(chunks, image.positions, strict=True)
        ]
        await self.replica.submit([AppendWal(object_id.sequence, image.size, now, ZONE, entered)])

    async def settle(self, case: Case) -> Spent:
        """Everything that waits, into both tables."""
        before, cpu, wall = self.compactor.settled_rows, cpu_seconds(), time.perf_counter()
        while await self.compactor.round():
            pass
        for follower in self.followers:
            await self.following.round(follower)
        spent = Spent(
            self.compactor.settled_rows - before, case.value_bytes, cpu_seconds() - cpu, time.perf_counter() - wall
        )
        table = next(reversed(self.replica.state.tables.values()))
        assert all(f.cursor == table.last_sequence for f in table.followers.values())
        return spent


@contextmanager
def scratch() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="headwater-settle-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def settle_cases(master: str, megabytes: int, chosen: list[Case]) -> None:
    with scratch() as directory:
        bench = Bench(directory, master)
        await bench.start()
        await bench.write("warm", CASES[0], 20_000, 4)
        await bench.settle(CASES[0])
        await bench.write("warm2", CASES[1], 200_000, 4)
        await bench.settle(CASES[1])
        for i, case in enumerate(chosen):
            for streams in (1, 64):
                rows = megabytes * 1_000_000 // case.value_bytes // (4 if case.batch_rows == 1 else 1)
                await bench.write(f"t{i}-{streams}", case, rows, streams)
                print(f"{master:9} {case.name:30} {streams:>3} streams {await bench.settle(case)}", flush=True)
        await bench.stop()


def plain_append(master: str, megabytes: int, case: Case) -> Spent:
    """PySpark with Iceberg's connector: rows of a segment-shaped Parquet file into an Iceberg table, warm."""
    from headwater.lake.spark.java import java_home
    from headwater.log.segment import SegmentWriter, decode_runs

    rows = megabytes * 1_000_000 // case.value_bytes
    with scratch() as directory:
        source = directory / "rows.parquet"
        with source.open("wb") as sink:
            writer = SegmentWriter(sink)
            for batch in decode_runs(0, make_runs(case, rows), 0, 64 << 20):
                writer.add(0, batch)
            writer.close()
        session = _iceberg_session(master, directory, java_home())
        try:
            table = "local.db.rows"
            frame = session.read.parquet(str(source))
            frame.limit(1_000).writeTo(table).using("iceberg").create()
            frame.writeTo(table).append()
            cpu, wall = cpu_seconds(), time.perf_counter()
            frame.writeTo(table).append()
            return Spent(rows, case.value_bytes, cpu_seconds() - cpu, time.perf_counter() - wall)
        finally:
            session.stop()


def _iceberg_session(master: str, directory: Path, java: str) -> Any:
    import os

    os.environ["JAVA_HOME"] = java
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    conf = {
        "spark.jars": ",".join(str(jar) for jar in sorted(JARS.glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.local.type": "hadoop",
        "spark.sql.catalog.local.warehouse": str(directory / "warehouse"),
    }
    builder = SparkSession.builder.master(master).appName("plain append")
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200, help="values per case")
    parser.add_argument("--masters", default="local[1],local[2]")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    chosen = [case for case in CASES if options.only in case.name]
    for master in options.masters.split(","):
        asyncio.run(settle_cases(master, options.megabytes, chosen))
        for case in (CASES[0], CASES[2]):
            if case in chosen:
                spent = plain_append(master, options.megabytes, case)
                print(f"{master:9} {case.name:30} plain PySpark append  {spent}", flush=True)


if __name__ == "__main__":
    main()
