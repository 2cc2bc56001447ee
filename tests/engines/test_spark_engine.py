"""Spark answers SQL over settled rows and rows of the WAL, in a process of its own. One process serves the test."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from demo.readers import S3_JARS
from harness.jvm import ALL_SHORT_LIVED
from harness.s3 import S3Server
from harness.tools import needs
from headwater import landlock
from headwater.clock import SystemChance
from headwater.errors import QueryCancelled, QueryFailed, QueryLimit, SnapshotGone, StatementRefused
from headwater.query.asking import Engine, Phase
from headwater.query.engines.contract import EngineTask
from headwater.query.engines.contract import table_of as view_of
from headwater.query.engines.frames import Setup
from headwater.query.engines.process import WorkerProcess
from headwater.query.engines.spark.runner import Spark
from headwater.query.queries import Queries
from headwater.query.snapshot import take
from headwater.query.wanted import Wanted
from tests.support.asking import ONE, QueryWorld, query_world, table_of
from tests.support.hostile import SPARK
from tests.support.s3_lake import store_options
from tests.support.soak import WHOLE
from tests.support.spark_worker import MODULE, UNGATED

PROMISES = ("Q3",)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ENDLESS = "SELECT count(*) FROM range(100000000) a CROSS JOIN range(100000000) b WHERE a.id * b.id % 7 = 3"
MORE = (
    "SELECT * FROM text.`{secret}`",
    "WITH t AS (SELECT * FROM text.`{secret}`) SELECT * FROM t",
    "SELECT (SELECT first(value) FROM text.`{secret}`)",
    "SELECT * FROM topic_0 WHERE java_method('java.lang.Runtime', 'getRuntime') IS NULL",
    "SELECT java_method('java.nio.file.Files', 'readString', java_method('java.nio.file.Path', 'of', '{secret}'))",
    "SELECT TRANSFORM (value) USING 'cat {secret}' AS (x) FROM topic_0",
    "SELECT TRANSFORM (value) USING 'tee {new}' AS (x) FROM topic_0",
    "SELECT TRANSFORM (value) USING 'tee {file}' AS (x) FROM topic_0",
    "INSERT OVERWRITE DIRECTORY '{new}' USING parquet SELECT * FROM topic_0",
    "INSERT OVERWRITE DIRECTORY '{objects}' USING parquet SELECT * FROM topic_0",
    "CREATE TABLE u USING parquet LOCATION '{new}' AS SELECT * FROM topic_0",
    "CREATE TABLE w USING text LOCATION '{secret}'",
    "SELECT * FROM w",
)
"""Beside those of `tests/support/hostile.py`: for a view that exists."""
HARMLESS = (
    "SELECT * FROM topic_0 LATERAL VIEW explode(headers) `a JOIN salaries` AS x",
    "FROM topic_0 |> DROP value |> AS t",
    "SELECT * FROM topic_0 WITH ('path' = ",
)
"""Hostile only to the first gate: they read the query's own view and nothing else."""
SECRET = "the-word-that-nobody-may-see"


@pytest.fixture(autouse=True)
def _short_lived(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ALL_SHORT_LIVED.items():
        monkeypatch.setenv(name, value)


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


async def _typed(world: QueryWorld) -> None:
    """Typed columns of files of two versions, and of rows in the WAL."""
    await world.topic("typed", headwater_value_schema="json")
    for value in (b'{"a": 1}', b'{"a": 2, "l": [{"x": "y"}], "t": true}'):
        await world.write("typed", [value])
        await world.settle()
    await world.write("typed", [b'{"a": 3, "l": []}', b"{bad"])
    fields = "SELECT value_data.a, value_data.l[0].x, decode_error IS NULL FROM typed WHERE value_data.a = 2"
    assert await world.rows(fields, engine=Engine.SPARK) == [(2, "y", True)]
    [column] = [row for row in await world.rows("DESCRIBE typed", engine=Engine.SPARK) if row[0] == "value_data"]
    assert column[1] == "STRUCT<`a`: BIGINT, `l`: ARRAY<STRUCT<`x`: STRING>>, `t`: BOOLEAN>"
    every = await world.rows("SELECT offset, value_data FROM typed ORDER BY offset", engine=Engine.SPARK)
    assert every == [
        (0, {"a": 1, "l": None, "t": None}),
        (1, {"a": 2, "l": [{"x": "y"}], "t": True}),
        (2, {"a": 3, "l": [], "t": None}),
        (3, None),
    ]


async def _cancelled(world: QueryWorld) -> None:
    """The next query is answered."""
    query = await world.ask(ENDLESS, engine=Engine.SPARK)
    reading = asyncio.ensure_future(table_of(query))
    await asyncio.sleep(0)
    await query.cancel("enough")
    with pytest.raises(QueryCancelled):
        await reading
    assert await world.rows("SELECT 1", engine=Engine.SPARK) == [(1,)]


async def _asked(spark: Spark, world: QueryWorld, name: str, sql: str) -> str:
    """What Spark answers to a text that has passed no other gate."""
    topic = world.core.cluster.state.names["orders"]
    state = world.core.domains[ONE].state
    taken = take(state, topic.id, [state.streams[number] for number in topic.streams], Wanted())
    settled = msgspec.structs.replace(view_of("topic_0", "orders", taken), hot=[])
    task = EngineTask(id=name, sql=sql, parameters=(), tables=[settled])
    answer = await spark.run(task)
    try:
        return str([batch.to_pylist() async for batch in answer.batches()])
    finally:
        await answer.close()


def _pythons(pid: int) -> list[str]:
    """The commands of Spark's processes of Python below a worker."""
    every = []
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            every.append(" ".join(child.cmdline()))
    assert any("java" in command for command in every)
    return [command for command in every if "pyspark.daemon" in command or "pyspark.worker" in command]


def _contents(root: Path) -> dict[str, str]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _statements(world: QueryWorld, outside: Path) -> list[str]:
    file = next(path for path in world.objects.rglob("*.parquet"))
    names = {"file": file, "secret": outside / "secret", "new": outside / "new", "spill": outside / "spill"}
    return [sql.format(**names, objects=world.objects).replace("orders", "topic_0") for sql in (*SPARK, *MORE)]


async def _second_gate(spark: Spark, world: QueryWorld, outside: Path) -> None:
    """Spark's own gate, without the one before it."""
    passed = []
    for number, sql in enumerate(_statements(world, outside)[:: 1 if WHOLE else 2]):
        try:
            found = await _asked(spark, world, f"hostile-{number}", sql)
        except (StatementRefused, QueryFailed):
            continue
        passed.append(sql)
        assert SECRET not in found
    assert [sql for sql in passed if not sql.startswith(HARMLESS)] == []


async def _third_gate(spark: Spark, world: QueryWorld, outside: Path) -> None:
    """The kernel's gate, without the two before it."""
    if not landlock.version():
        return
    passed = 0
    every = [sql for sql in _statements(world, outside) if "'exit'" not in sql]  # which would end Java
    every = every if WHOLE else every[-len(MORE) :]
    # What is added to a session is there for later statements, so these come last.
    for number, sql in enumerate(sorted(every, key=lambda sql: sql.startswith("ADD "))):
        try:
            found = await _asked(spark, world, f"{UNGATED}{number}", sql)
        except (StatementRefused, QueryFailed, QueryLimit, SnapshotGone) as error:
            found = str(error)
        else:
            passed += 1
        assert SECRET not in found, sql
    assert passed > 1, "the gates before were open"


def test_spark_answers(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)

    async def started(_: str, setup: Setup) -> WorkerProcess:
        return await WorkerProcess.start(MODULE, setup)

    async def main() -> None:
        async with query_world(tmp_path / "a [b] world") as world:
            spark = Spark(world.settings, SystemChance(), start=started)
            world.queries = Queries(world.core.domains, world.holding, world.settings.sql, {Engine.SPARK: spark})
            try:
                await _filled(world)
                assert not spark.pids, "it is started by the first query"
                await _answers(world)
                await _typed(world)
                [pid] = spark.pids
                assert _pythons(pid) == [], "rows pass through no Python"
                before = _contents(world.objects)
                await _second_gate(spark, world, outside)
                await _cancelled(world)
                assert spark.pids == [pid], "none of this costs a process"
                await _third_gate(spark, world, outside)
                assert _contents(world.objects) == before and before
                assert _contents(outside) == {"secret": hashlib.sha256(SECRET.encode()).hexdigest()}
            finally:
                await world.queries.close()
                await spark.close()
            assert not list((tmp_path / "a [b] world" / "spill").glob("*/*query-*"))

    asyncio.run(main())


if WHOLE:  # starts a Java process of its own: a part of the soak

    def test_objects_in_s3(tmp_path: Path) -> None:
        """Spark reads the exact objects with credentials of the store; a missing one is an error."""
        needs("Spark's connectors: scripts/setup-tools spark-s3", S3_JARS.exists())

        async def main(s3: S3Server) -> None:
            options: dict[str, Any] = {
                "lake": {"followers": ()},
                "store": (s3.url, store_options(s3)),
                "spark_jars": (str(S3_JARS),),
            }
            async with query_world(tmp_path / "world", **options) as world:
                spark = Spark(world.settings, SystemChance())
                world.queries = Queries(world.core.domains, world.holding, world.settings.sql, {Engine.SPARK: spark})
                try:
                    await _filled(world)
                    await _answers(world)
                    table = world.table("orders")
                    await world.store.delete(f"{table.root}/{next(iter(table.live())).name}")
                    with pytest.raises(SnapshotGone):
                        await world.rows("SELECT count(*), max(value) FROM orders", engine=Engine.SPARK)
                finally:
                    await world.queries.close()
                    await spark.close()

        with S3Server(tmp_path / "s3") as s3:
            asyncio.run(main(s3))
