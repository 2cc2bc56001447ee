"""Q3: Spark answers SQL over settled rows and rows of the WAL, in a process of its own. One process serves the test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.clock import SystemChance
from headwater.query.asking import Cancelled, Engine, Phase, QueryFailed
from headwater.query.engines.contract import EngineTask
from headwater.query.engines.spark.runner import Spark
from headwater.query.queries import Queries
from tests.support.asking import QueryWorld, query_world, table_of

pytestmark = pytest.mark.timeout(600)
ENDLESS = "SELECT count(*) FROM range(100000000) a CROSS JOIN range(100000000) b WHERE a.id * b.id % 7 = 3"
HOSTILE = (
    "CREATE TABLE stolen AS SELECT 1",
    "CREATE OR REPLACE TEMPORARY VIEW topic_0 AS SELECT 1",
    "INSERT OVERWRITE DIRECTORY '/tmp/stolen' USING parquet SELECT * FROM topic_0",
    "SELECT * FROM parquet.`/etc`",
    "SELECT * FROM text.`/etc/passwd`",
    "WITH t AS (SELECT * FROM csv.`/etc/passwd`) SELECT * FROM t",
    "SELECT (SELECT first(value) FROM text.`/etc/passwd`)",
    "SELECT reflect('java.lang.System', 'getenv')",
    "SELECT * FROM topic_0 WHERE java_method('java.lang.Runtime', 'getRuntime') IS NULL",
    "SELECT TRANSFORM (value) USING 'cat' FROM topic_0",
    "SET spark.sql.ansi.enabled=false",
    "ADD JAR '/tmp/x.jar'",
    "SHOW TABLES",
    "DESCRIBE topic_0",
    "CACHE TABLE c AS SELECT * FROM topic_0",
    "DROP VIEW topic_0",
    "EXPLAIN SELECT 1",
    "SELECT 1; SELECT 2",
)


async def _filled(world: QueryWorld) -> None:
    await world.topic("orders", 2)
    await world.write("orders", [b'{"user": "u%d", "n": %d}' % (i % 3, i) for i in range(900)])
    await world.settle()
    await world.write("orders", [b'{"user": "u%d", "n": %d}' % (i % 3, i) for i in range(300)], partition=1)


async def _answers(world: QueryWorld) -> None:
    async def rows(sql: str, *parameters: object) -> list[tuple[object, ...]]:
        return await world.rows(sql, *parameters, engine=Engine.SPARK)

    counted = "SELECT partition, count(*), count(DISTINCT offset), max(offset) FROM orders GROUP BY 1 ORDER BY 1"
    assert await rows(counted) == [(0, 900, 900, 899), (1, 300, 300, 299)]
    by_user = "SELECT value->>'user', count(*) FROM orders GROUP BY 1 ORDER BY 1"
    assert await rows(by_user) == [("u0", 400), ("u1", 400), ("u2", 400)]
    assert await rows("SELECT offset FROM orders WHERE offset > ? AND partition = ? ORDER BY 1", 296, 1) == [
        (297,),
        (298,),
        (299,),
    ]
    query = await world.ask("SELECT * FROM orders", engine=Engine.SPARK)
    table = await table_of(query)
    assert table.num_rows == 1_200 and query.progress.phase is Phase.DONE and query.versions == {"orders": 1}
    assert query.reason == "The caller has chosen it." and query.engine is Engine.SPARK
    await world.write("orders", [b"{}"])
    assert await rows("SELECT count(*) FROM orders") == [(1_201,)], "acknowledged a moment ago"
    with pytest.raises(QueryFailed, match=r"\[DIVIDE_BY_ZERO\]"):
        await rows("SELECT 1 / (offset - 5) FROM orders")


async def _cancelled(world: QueryWorld) -> None:
    """The next query is answered."""
    query = await world.ask(ENDLESS, engine=Engine.SPARK)
    reading = asyncio.ensure_future(table_of(query))
    await asyncio.sleep(0)
    await query.cancel("enough")
    with pytest.raises(Cancelled):
        await reading
    assert await world.rows("SELECT 1", engine=Engine.SPARK) == [(1,)]


async def _refused(spark: Spark) -> None:
    """Spark's own gate, without the one before it."""
    for number, sql in enumerate(HOSTILE):
        with pytest.raises(QueryFailed):
            await spark.run(EngineTask(id=f"hostile-{number}", sql=sql, parameters=(), tables=[]))


def test_spark_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async with query_world(tmp_path) as world:
            spark = Spark(world.settings, SystemChance())
            world.queries = Queries(world.core.domains, world.holding, world.settings.sql, {Engine.SPARK: spark})
            try:
                await _filled(world)
                assert spark.pid is None, "it is started by the first query"
                await _answers(world)
                before = sorted(str(path) for path in world.objects.rglob("*"))
                await _refused(spark)
                assert sorted(str(path) for path in world.objects.rglob("*")) == before
                await _cancelled(world)
            finally:
                await world.queries.close()
                await spark.close()
            assert not list((tmp_path / "spill").glob("*/*query-*"))

    asyncio.run(main())
