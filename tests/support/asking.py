"""A gateway's query service on a ledger in memory and a local directory, with real workers, and a compactor."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.app.core import Core
from headwater.clock import SystemChance, SystemClock
from headwater.lake.compactor import Compactor
from headwater.lake.external_registry import ExternalRegistry
from headwater.lake.following import Following
from headwater.lake.spark.executor import perform
from headwater.lake.tables import make_followers
from headwater.lake.tasks import Task, TaskFacts
from headwater.ledger.memory import MemoryLedger
from headwater.log.batch import check_batch
from headwater.log.write.part import Outcome, Part
from headwater.objects import open_store
from headwater.query.asking import PRESENT, AsOf, Engine, Limits, Query, Question
from headwater.query.engines.duckdb.pool import DuckDB
from headwater.query.holding import Holding
from headwater.query.queries import Queries
from headwater.query.typings import Typings
from headwater.replica.domains import Domains
from headwater.replica.topics import Topics
from headwater.settings.objects import StoreOptions
from headwater.settings.schema_registry import SchemaRegistry
from headwater.settings.settings import Gateway, Lake, Settings, Sql
from headwater.state.cluster.domain import Topic
from headwater.state.results import Verdict
from headwater.state.streams.tables import TopicTable
from headwater.threads import inline
from headwater.types import Domain
from tests.support.batches import Rec, batch
from tests.support.virtual_nodes import LAX, One

ALICE = "User:alice"
ONE = Domain(1)
MIB = 1 << 20


class QueryWorld:
    """What a test of queries works with."""

    def __init__(
        self,
        directory: Path,
        lake: Mapping[str, Any],
        sql: Mapping[str, Any],
        store: tuple[str, StoreOptions] | None,
        registry: SchemaRegistry,
    ) -> None:
        own = Sql(**({"memory_bytes": 256 * MIB, "warm": 0, "niceness": 0} | dict(sql)))
        self.objects = directory / "objects"
        url, options = store or (self.objects.as_uri(), StoreOptions())
        gateway = Gateway(http="127.0.0.1:0")
        self.settings = Settings(
            data=str(directory), objects=url, object_store=options, sql=own, schema_registry=registry, gateway=gateway
        )
        ledger, clock, chance = MemoryLedger(), SystemClock(), SystemChance()
        self.store = open_store(url, options)
        self.core = Core(self.settings, ledger, self.store, clock, chance)
        self.duckdb = DuckDB(self.settings, chance)
        self.holding = Holding(self.core.domains)
        self.queries = Queries(self.core.domains, self.holding, own, {Engine.DUCKDB: self.duckdb})
        self.topics = Topics(self.core.cluster, self.core.domains, chance)
        self._other = Domains(ledger, self.store, clock, chance)
        chosen = Lake(**({"freshness_ms": 1, "merge_files": 4} | dict(lake)))
        external = ExternalRegistry(registry, inline, clock) if registry.url else None
        self._compactor = Compactor(self._other, self._run_job, chosen, slots=2, registry=external)
        self._followers = make_followers(self.store, chosen)
        self._following = Following(self._other, self._followers, self._compactor.lease, chosen)

    def ask_through(self, typings: Typings) -> Queries:
        """Let queries decode as a gateway does."""
        self.queries = Queries(
            self.core.domains, self.holding, self.settings.sql, {Engine.DUCKDB: self.duckdb}, typings=typings
        )
        return self.queries

    async def _run_job(self, tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        return [await perform(self.store, task) for task in tasks]

    async def start(self) -> None:
        await self.core.start()
        await self._other.follow()
        await self._other.join()
        await self.duckdb.open()

    async def stop(self) -> None:
        await self.queries.close()
        await self.duckdb.close()
        await self._other.leave()
        await self.core.stop()

    async def topic(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        """A new topic. In names of configs `_` stands for a dot."""
        return await self.topics.create(name, partitions, {key.replace("_", "."): one for key, one in configs.items()})

    async def write(self, name: str, values: Sequence[bytes], partition: int = 0, timestamp: int = 10**12) -> None:
        """Append records and wait for the acknowledgement."""
        topic, caller = self.core.cluster.state.names[name], One()
        data = check_batch(batch([Rec(value, timestamp=timestamp) for value in values]), LAX, timestamp)
        self.core.writers.of(topic.domain, "latency").append(Part(topic.streams[partition], data, caller, 0))
        outcome = await caller.done
        assert isinstance(outcome, Outcome) and outcome.verdict is Verdict.ACCEPTED, outcome

    async def settle(self) -> None:
        """One round of the compactor, and of the followers of tables."""
        await self._other.cluster.barrier()
        await self._other[ONE].barrier()
        await self._compactor.round()
        for follower in self._followers:
            await self._following.round(follower)

    def table(self, name: str) -> TopicTable:
        """The table of a topic, as the gateway knows it."""
        return self.core.domains[ONE].state.tables[self.core.cluster.state.names[name].id]

    async def ask(
        self,
        sql: str,
        *parameters: Any,
        as_of: AsOf = PRESENT,
        limits: Limits | None = None,
        asker: str = ALICE,
        hidden: Sequence[str] = (),
        engine: Engine = Engine.AUTO,
        name: str = "",
    ) -> Query:
        question = Question(
            sql=sql,
            asker=asker,
            readable=lambda name: name not in hidden,
            parameters=parameters,
            as_of=as_of,
            limits=limits,
            engine=engine,
            id=name,
        )
        return await self.queries.ask(question)

    async def rows(self, sql: str, *parameters: Any, **options: Any) -> list[tuple[Any, ...]]:
        """All rows of an answer."""
        return rows_of(await table_of(await self.ask(sql, *parameters, **options)))


async def table_of(query: Query) -> pa.Table:
    """The whole answer."""
    batches = [batch async for batch in query.batches()]
    return pa.Table.from_batches(batches, schema=query.schema)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*[column.to_pylist() for column in table.columns], strict=True)) if table.num_columns else []


@contextlib.asynccontextmanager
async def query_world(
    directory: Path,
    lake: Mapping[str, Any] | None = None,
    store: tuple[str, StoreOptions] | None = None,
    registry: SchemaRegistry | None = None,
    **sql: Any,
) -> AsyncIterator[QueryWorld]:
    world = QueryWorld(directory, lake or {}, sql, store, registry or SchemaRegistry())
    await world.start()
    try:
        yield world
    finally:
        await world.stop()
