"""A Flight SQL server in this process. Its queries are answered by a DuckDB in this process, without gates."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from headwater.errors import QueryCancelled, QueryFailed
from headwater.gateway.flight.server import FlightServer
from headwater.query.asking import Engine, Phase, Progress, Question
from headwater.settings.settings import Gateway, Settings
from tests.support.gateways import InGateway, gateway

ENDLESS = "SELECT 'endless' AS word"
"""A statement whose rows never end."""
SILENT = "SELECT 'silent' AS word"
"""A statement that has columns, but no row for a long time."""
ROWS = 1_000
"""Rows of each batch of an endless answer."""


class FakeQuery:
    """A query whose rows are there already."""

    reason = "the test has no other"

    def __init__(self, name: str, question: Question, schema: pa.Schema, batches: Any) -> None:
        self.id = name
        self.asker = question.asker
        self.sql = question.sql
        self.engine = question.engine
        self.schema = schema
        self.versions: Mapping[str, int] = {}
        self.notes: tuple[str, ...] = ()
        self.progress = Progress(phase=Phase.RUNNING)
        self.cancelled = asyncio.Event()
        self.why = ""
        self.given = 0
        self._batches = batches

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        if self.sql == SILENT:
            await self.cancelled.wait()
        for batch in self._batches:
            if self.cancelled.is_set():
                break
            self.given += 1
            yield batch
            await asyncio.sleep(0)
        if self.cancelled.is_set():
            raise QueryCancelled(self.why)
        self.progress.phase = Phase.DONE

    async def cancel(self, reason: str) -> None:
        if self.progress.phase is Phase.RUNNING:
            self.progress.phase = Phase.CANCELLED
            self.why = reason
            self.cancelled.set()


class FakeAsking:
    """Answers from tables that a test gives."""

    def __init__(self, **tables: pa.Table) -> None:
        self.tables = tables
        self.asked: list[FakeQuery] = []
        self._names = itertools.count()

    def _rows(self, question: Question, limit: int | None = None) -> pa.Table:
        with duckdb.connect(":memory:") as connection:
            for name, table in self.tables.items():
                if question.readable(name):
                    connection.register(name, table)
            try:
                return connection.execute(
                    question.sql.replace("headwater.topics.", ""), list(question.parameters)
                ).to_arrow_table()
            except duckdb.Error as error:
                raise QueryFailed(str(error)) from error

    async def ask(self, question: Question) -> FakeQuery:
        rows = self._rows(question)
        batches: Any = rows.to_batches(max_chunksize=ROWS)
        if question.sql == ENDLESS:
            batches = itertools.repeat(pa.record_batch([["x" * 1_000] * ROWS], names=["word"]))
        query = FakeQuery(f"query-{next(self._names)}", question, rows.schema, batches)
        self.asked.append(query)
        return query

    async def describe(self, question: Question) -> pa.Schema:
        return self._rows(question).schema

    def running(self) -> list[Any]:
        return [query for query in self.asked if query.progress.phase is Phase.RUNNING]

    def find(self, name: str) -> Any:
        return next((query for query in self.asked if query.id == name), None)


class Flying:
    """A server and what it asks."""

    def __init__(self, gateway: InGateway, server: FlightServer, asking: FakeAsking) -> None:
        self.gateway = gateway
        self.server = server
        self.asking = asking

    @property
    def uri(self) -> str:
        return f"grpc://127.0.0.1:{self.server.port}"


def orders(rows: int = 3) -> pa.Table:
    """Rows like those of a topic."""
    return pa.table(
        {
            "partition": pa.array([i % 2 for i in range(rows)], pa.int32()),
            "offset": pa.array([i // 2 for i in range(rows)], pa.int64()),
            "key": pa.array([f"k{i}".encode() for i in range(rows)], pa.binary()),
            "value": pa.array([f'{{"n": {i}}}' for i in range(rows)], pa.string()),
        }
    )


@contextlib.asynccontextmanager
async def flying(
    settings: Settings | None = None, asking: FakeAsking | None = None, *, users: bool = False
) -> AsyncIterator[Flying]:
    """A Flight SQL server with the topics `orders` and `secret`."""
    settings = settings or Settings(gateway=Gateway(flight="127.0.0.1:0"))
    asking = asking or FakeAsking(orders=orders(), secret=orders(1))
    async with gateway(settings, users=users) as found:
        for name in asking.tables:
            await found.topic(name)
        found.services.asking = asking
        server = FlightServer(found.services)
        await server.open()
        try:
            yield Flying(found, server, asking)
        finally:
            found.services.stopping.set()
            await server.close(0)


AUTO = Engine.AUTO
