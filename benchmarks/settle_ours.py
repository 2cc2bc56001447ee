"""Headwater's side: a ledger, a store and a compactor in this process, Spark in its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.segments import Case
from benchmarks.settle_inputs import Input
from benchmarks.settle_measure import DELTA, ICEBERG, LOG_SUMS, Meter, Sample, check
from benchmarks.systems import BenchError
from headwater.clock import SystemChance, SystemClock
from headwater.lake.compactor import Compactor
from headwater.lake.following import Following
from headwater.lake.spark.jobs import Jobs
from headwater.lake.spark.session import Sessions
from headwater.lake.tables import make_followers
from headwater.ledger import open_ledger
from headwater.log.batch import Batch
from headwater.log.wal import format as wal
from headwater.objects import open_store
from headwater.replica.domains import Domains
from headwater.replica.levels import settle_level
from headwater.replica.topics import Topics
from headwater.settings.settings import Lake, Spark
from headwater.state.cluster.domain import Topic
from headwater.state.commands.streams import AppendWal, Chunk
from headwater.state.streams.tables import TopicTable
from headwater.threads import Threads
from headwater.types import Domain, WalId

SUBJECT = "Headwater"
ONE = Domain(1)
ZONE = "bench"
JOB_SECONDS = 600
NO_CONFIGS: Mapping[str, str] = {}


class Bench:
    """A compactor that settles when it is told to. Use `open_bench`."""

    def __init__(self, directory: Path, master: str) -> None:
        self._directory = directory / "objects"
        self._master = master
        lake = Lake(spark=Spark(master=master))
        self._store = open_store(self._directory.as_uri())
        ledger, chance = open_ledger(f"sqlite://{directory}/ledger.db"), SystemChance()
        domains = self._domains = Domains(ledger, self._store, SystemClock(), chance)
        self._replica = domains[ONE]
        self._sessions = Sessions(lake.spark)
        jobs, self._thread = Jobs(self._sessions, JOB_SECONDS), Threads(1, "spark")
        slots = int(master.removeprefix("local[").removesuffix("]"))
        self._compactor = Compactor(
            domains, lambda tag, tasks: self._thread.run(jobs.run, tag, tasks), lake, slots=slots
        )
        self._followers = make_followers(self._store, lake)
        self._following = Following(domains, self._followers, self._compactor.lease, lake)
        self._topics = Topics(domains.cluster, domains, chance)
        self._sequence = 0

    async def start(self) -> None:
        await self._domains.follow()
        await self._domains.join()
        await settle_level(self._domains.cluster, self._domains)

    async def stop(self) -> None:
        await self._domains.leave()
        await asyncio.to_thread(self._sessions.close)
        await self._thread.close()
        await self._following.close()
        await self._store.close()

    async def register(self, subject: str, kind: str, text: str) -> int:
        """Register a schema; returns its id."""
        from headwater.replica.schema_sources import Draft
        from headwater.replica.schemas import Registry

        _, schema = await Registry(self._domains.cluster).register(subject, Draft(kind, text))
        return schema.id

    async def write(self, name: str, data: Input, streams: int, configs: Mapping[str, str] = NO_CONFIGS) -> Topic:
        """A topic whose records are in WAL objects, interleaved over its streams."""
        topic = await self._topics.create(name, streams, {"headwater.table.freshness.ms": "1", **configs})
        await self.append(topic, data, streams)
        return topic

    async def append(self, topic: Topic, data: Input, streams: int) -> None:
        """More records of a topic."""
        for number, batches in enumerate(data.objects):
            share = -(-len(batches) // streams)
            parts = [
                (topic.streams[(i + number) % streams], batches[i * share : (i + 1) * share]) for i in range(streams)
            ]
            await self._put(sorted((stream, part) for stream, part in parts if part))

    async def _put(self, parts: list[tuple[int, list[Batch]]]) -> None:
        self._sequence += 1
        object_id, now = WalId(self._replica.epoch, self._sequence), SystemClock().wall_ms()
        image = wal.build(object_id, ONE, now, now, parts)
        await self._store.put(wal.path_of(ZONE, ONE, now, object_id), image.pieces)
        chunks = [
            Chunk(stream, position, [(len(b.data), b.offsets, b.max_timestamp) for b in batches], [])
            for (stream, batches), position in zip(parts, image.positions, strict=True)
        ]
        await self._replica.submit([AppendWal(object_id.sequence, image.size, now, ZONE, chunks)])

    async def settle(self, topic: Topic, data: Input, streams: int, earlier: int = 0) -> Sample:
        """Everything that waits, into both tables; they are then read by somebody else.

        The tables have `earlier` rows already.
        """
        meter = Meter()
        while await self._compactor.round():
            pass
        for follower in self._followers:
            await self._following.round(follower)
        spent = meter.read()
        table = self._replica.state.tables[topic.id]
        await asyncio.to_thread(self._verify, table, data.case, data.rows + earlier)
        sizes = [file.size for file in table.live()]
        return Sample(
            subject=SUBJECT, master=self._master, case=data.case.name, streams=streams, rows=data.rows,
            value_bytes=data.case.value_bytes, files=len(sizes), file_bytes=sum(sizes), cpu=spent.cpu,
            wall=spent.wall, cpu_of=spent.cpu_of, others=spent.others,
        )  # fmt: skip

    def _verify(self, table: TopicTable, case: Case, rows: int) -> None:
        behind = [name for name, follower in table.followers.items() if follower.cursor != table.last_sequence]
        if behind or len(table.followers) != len(self._followers):
            raise BenchError(f"{table.root} is not committed everywhere: {self._following.alerts or behind}")
        wanted = (rows, rows * case.value_bytes, rows)
        check(f"{table.root} in Iceberg", self._iceberg(table), ICEBERG, LOG_SUMS, wanted)
        check(f"{table.root} in Delta", f"delta_scan('{self._directory / table.root}')", DELTA, LOG_SUMS, wanted)

    def _iceberg(self, table: TopicTable) -> str:
        return f"iceberg_scan('{self._directory / table.followers['iceberg'].location}')"

    async def check_typed(self, topic: Topic, columns: str, wanted: tuple[int, ...]) -> None:
        """Have DuckDB add up typed columns of a settled topic, and compare."""
        table = self._replica.state.tables[topic.id]
        await asyncio.to_thread(check, f"{table.root} in Iceberg", self._iceberg(table), ICEBERG, columns, wanted)

    def segments(self, topic: Topic) -> list[Path]:
        """The files that hold a settled topic."""
        table = self._replica.state.tables[topic.id]
        return [self._directory / table.root / file.name for file in table.live()]


@asynccontextmanager
async def open_bench(directory: Path, master: str) -> AsyncIterator[Bench]:
    bench = Bench(directory, master)
    await bench.start()
    try:
        yield bench
    finally:
        await bench.stop()
