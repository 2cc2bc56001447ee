"""A query starts again with the schemas that its rows name, and never without end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harness.virtual import VirtualClock, run
from headwater.app.node import Node
from headwater.errors import QueryCancelled
from headwater.lake.known import KnownSchemas
from headwater.query.asking import Engine, Query, Question
from headwater.query.engines.contract import Answer, EngineTask
from headwater.query.holding import Holding
from headwater.query.queries import Queries
from headwater.query.typed import SchemasMissing
from headwater.query.typings import TRIES, Typings
from headwater.settings.settings import Sql
from headwater.state.streams.stored.typed import Columns, ColumnsVersion, TypedTable
from headwater.threads import inline
from tests.properties.test_observing import Answered
from tests.support.batches import Rec, batch
from tests.support.lake import ONE
from tests.support.promise import promise
from tests.support.virtual_nodes import NodeWorld, sent, topic
from tests.unit.query.test_typings import COLUMNS, Registered
from tests.unit.schemas.test_typer import known

PROMISES = ("T7",)

Wants = Callable[[EngineTask], tuple[str, ...]]


class Choosy:
    """An engine that wants schemas."""

    engine = Engine.DUCKDB

    def __init__(self, wants: Wants) -> None:
        self._wants = wants
        self.tasks: list[EngineTask] = []

    async def run(self, task: EngineTask) -> Answer:
        self.tasks.append(task)
        typing = task.tables[0].typing
        assert typing is not None
        if not typing.cut_off and (names := self._wants(task)):
            raise SchemasMissing(names, task.tables[0].view)
        return Answered(1, None)

    async def close(self) -> None:
        return None


async def _typed_topic(node: Node) -> None:
    """A topic with a record in the WAL and typed columns."""
    made = await topic(node, headwater_value_schema="auto")
    await sent(node, made.streams[0], batch([Rec(b"v")]))
    table = TypedTable()
    table.columns = Columns(COLUMNS.newest, (ColumnsVersion(COLUMNS.last_id, 0),))
    node.domains[ONE].state.typed[made.id] = table


def _asked(wants: Wants) -> tuple[list[EngineTask], Query, list[str]]:
    engine, registry = Choosy(wants), Registered(known("5"), known("6"))

    async def main() -> Query:
        node = await NodeWorld().node()
        await _typed_topic(node)
        typings = Typings(KnownSchemas(registry, VirtualClock()), inline)
        queries = Queries(node.domains, Holding(node.domains), Sql(), {Engine.DUCKDB: engine}, typings=typings)
        query = await queries.ask(Question(sql="SELECT * FROM t", asker="User:a", readable=lambda _: True))
        assert [rows.num_rows async for rows in query.batches()] == [1]
        await queries.close()
        await node.stop()
        return query

    query = run(main())
    return engine.tasks, query, registry.asked


def _has(task: EngineTask, name: str) -> bool:
    typing = task.tables[0].typing
    return typing is not None and (any(name in one.names for one in typing.schemas) or name in typing.absent)


def test_schemas_that_rows_name() -> None:
    tasks, query, asked = _asked(lambda task: tuple(name for name in ("5", "9") if not _has(task, name)))
    assert [[_has(task, name) for name in ("5", "9")] for task in tasks] == [[False, False], [True, True]]
    assert asked == ["subject:t-value", "5", "9"] and query.notes == ()
    assert tasks[0].id != tasks[1].id and all(task.id.startswith(query.id) for task in tasks)


def test_rows_that_always_want_more() -> None:
    tasks, query, _ = _asked(lambda _: ("5",))
    assert len(tasks) == TRIES + 1 and tasks[-1].tables[0].typing is not None
    assert [task.tables[0].typing.cut_off for task in tasks if task.tables[0].typing] == [False] * TRIES + [True]
    assert "too many for one query" in " ".join(query.notes)


class Patient:
    """An engine whose queries last until they are cancelled."""

    engine = Engine.DUCKDB

    def __init__(self) -> None:
        self.sql: list[str] = []

    async def run(self, task: EngineTask) -> Answer:
        self.sql.append(task.sql)
        return Answered(1, None)

    async def close(self) -> None:
        return None


@promise("S4")
def test_one_asker_leaves_a_process_to_others() -> None:
    """Of two processes, one asker has one at a time. What counts is the account, if one is given."""

    async def main() -> None:
        node, engine = await NodeWorld().node(), Patient()
        await topic(node)
        queries = Queries(node.domains, Holding(node.domains), Sql(workers=2), {Engine.DUCKDB: engine})

        async def ask(account: str) -> Query:
            return await queries.ask(
                Question(sql="SELECT * FROM t", asker="User:nobody", account=account, readable=lambda _: True)
            )

        first = await ask("10.0.0.1")
        second = asyncio.ensure_future(ask("10.0.0.1"))
        other = await ask("10.0.0.2")
        assert len(engine.sql) == 2 and not second.done()
        await first.cancel("it is endless")
        assert (await second).asker == "User:nobody" and len(engine.sql) == 3
        third = asyncio.ensure_future(ask("10.0.0.2"))
        while len(queries.running()) < 4:
            await asyncio.sleep(0)
        names = {query.id for query in queries.running()} - {first.id, other.id, (await second).id}
        waiting = queries.find(*names)
        assert waiting is not None
        await waiting.cancel("it waits too long")
        assert isinstance((await asyncio.gather(third, return_exceptions=True))[0], QueryCancelled)
        assert len(engine.sql) == 3, "a query that was cancelled while it waited is never begun"
        await queries.close()
        await node.stop()

    run(main())
