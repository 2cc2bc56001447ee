"""The query service with real workers: settled rows and rows of the WAL at one snapshot, limits, cancelling, deaths."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.query.asking import Engine, Phase, QueryFailed, Refused
from headwater.query.scan import SnapshotGone
from tests.support.asking import QueryWorld, query_world, rows_of, table_of

NUMBERS = [b'{"user": "u%d", "n": %d}' % (i % 3, i) for i in range(100)]
SUM = "SELECT count(*) AS n, sum(offset) AS s FROM t"
ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b, t WHERE a.range + b.range = 7"
"""Takes hours."""
WIDE = "SELECT a.offset AS x, b.offset AS y, repeat('x', 1000) AS z FROM t a, t b, t c"
"""Gives gigabytes of rows, the first of them soon."""


async def _filled(world: QueryWorld) -> None:
    """100 rows that are settled in two partitions, and 100 that are not."""
    await world.topic("t", 2)
    for partition in range(2):
        await world.write("t", NUMBERS[:50], partition)
    await world.settle()
    for partition in range(2):
        await world.write("t", NUMBERS[50:], partition)


def test_settled_rows_and_rows_of_the_wal(tmp_path: Path) -> None:
    async def main() -> None:
        async with query_world(tmp_path) as world:
            await _filled(world)
            query = await world.ask(SUM)
            assert query.schema.names == ["n", "s"] and query.versions == {"t": world.table("t").last_sequence}
            assert query.engine is Engine.DUCKDB and query.reason.endswith(".")
            assert query.progress.files == 1 and query.progress.hot_bytes and query.progress.phase is Phase.RUNNING
            assert rows_of(await table_of(query)) == [(200, 2 * sum(range(100)))]
            assert query.progress.phase is Phase.DONE and query.progress.rows == 1 and query.progress.percent == 100
            assert world.queries.find(query.id) is query and world.queries.running() == [query]
            await world.write("t", [b"one more"])
            assert await world.rows(SUM) == [(201, 2 * sum(range(100)) + 100)]
            await _statements(world)
            await _missing_files(world)

    asyncio.run(main())


async def _statements(world: QueryWorld) -> None:
    found = await world.rows("SELECT offset, value FROM t WHERE partition = ? AND offset < ? ORDER BY 1", 1, 2)
    assert found == [(0, NUMBERS[0]), (1, NUMBERS[1])]
    twice = await world.rows("SELECT a.offset FROM t a JOIN t b USING (partition, offset) WHERE a.offset = 7")
    assert twice == [(7,), (7,)]
    assert "READ_PARQUET" in str(await world.rows("EXPLAIN SELECT * FROM t"))
    assert await world.rows("SELECT 1 AS a, 2 AS a") == [(1, 2)]
    assert await world.rows("SELECT 1 WHERE false") == []
    for sql, why, message in (
        ("SELECT nonsense FROM t", QueryFailed, "nonsense"),
        ("SELECT CAST(decode(value) AS INT) FROM t", QueryFailed, "Conversion"),
        ("SELECT * FROM u", Refused, "does not exist"),
        ("DELETE FROM t", Refused, "SELECT"),
        ("SELECT ? FROM t", Refused, "1 parameters, 0 are given"),
    ):
        with pytest.raises(why, match=message):
            await world.rows(sql)
    assert world.queries.running()[0].progress.phase is Phase.FAILED
    with pytest.raises(Refused, match="does not exist"):
        await world.rows("SELECT * FROM t", hidden=["t"])
    with pytest.raises(Refused, match="no engine 'spark'"):
        await world.rows("SELECT 1", engine=Engine.SPARK)
    assert len(world.duckdb.pids) == 1, "a statement that fails costs no worker"


async def _missing_files(world: QueryWorld) -> None:
    """A file or an object that is missing fails the query. It never has fewer rows."""
    table = world.table("t")
    [segment] = [world.objects / table.root / file.name for file in table.live()]
    before = _objects(world)
    await world.write("t", [b"in an object of its own"])
    [written] = _objects(world) - before
    for path in (written, segment):
        moved = path.with_name("moved")
        path.rename(moved)
        with pytest.raises(SnapshotGone, match=r"cannot be read|was deleted"):
            await world.rows("SELECT count(*), max(value) FROM t")
        moved.rename(path)
        assert await world.rows("SELECT count(*) FROM t") == [(202,)]


def _objects(world: QueryWorld) -> set[Path]:
    return {path for path in (world.objects / "wal").rglob("*") if path.is_file()}
