"""The query service with real workers: settled rows and rows of the WAL at one snapshot, limits, cancelling, deaths."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import BadInput, HeadwaterError
from headwater.query.asking import AsOf, Cancelled, Engine, Limits, NoEngine, Phase, QueryFailed, Refused, TooMuch
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


def test_limits_and_cancelling(tmp_path: Path) -> None:
    async def main() -> None:
        async with query_world(tmp_path, workers=2, waiting=1, queries_per_user=2) as world:
            await _filled(world)
            with pytest.raises(TooMuch, match=r"more than 10 rows: aggregate, use LIMIT, or raise sql\.rows"):
                await world.rows("SELECT * FROM t", limits=Limits(seconds=60, rows=10, result_bytes=1 << 30))
            with pytest.raises(TooMuch, match="more than 1000 bytes"):
                await world.rows("SELECT * FROM t", limits=Limits(seconds=60, rows=1000, result_bytes=1000))
            with pytest.raises(TooMuch, match=r"longer than 0.2 s: ask for less, or raise sql\.seconds"):
                await world.rows(ENDLESS, limits=Limits(seconds=0.2, rows=10, result_bytes=1 << 30))
            [pid] = world.duckdb.pids
            assert await world.rows("SELECT count(*) FROM t") == [(200,)]

            first, second = await world.ask(ENDLESS), await world.ask(WIDE)
            with pytest.raises(NoEngine, match="User:alice has 2 queries already"):
                await world.ask(SUM)
            waiting = asyncio.ensure_future(world.ask(SUM, asker="User:bob"))
            await asyncio.sleep(0)
            with pytest.raises(NoEngine, match="3 queries run or wait already"):
                await world.ask(SUM, asker="User:carol")
            rows = second.batches()
            assert (await anext(rows)).num_rows
            await first.cancel("enough")
            with pytest.raises(Cancelled, match="was cancelled: enough"):
                await table_of(first)
            assert rows_of(await table_of(await waiting)) == [(200, 2 * sum(range(100)))]
            await rows.aclose()  # type: ignore[attr-defined]
            assert [query.progress.phase for query in (first, second)] == [Phase.CANCELLED] * 2
            assert pid in world.duckdb.pids, "a cancelled query gives its worker back"

    asyncio.run(main())


def test_memory_and_spill_have_limits(tmp_path: Path) -> None:
    """A query that needs more than it may have fails, its worker goes on, and nothing of it stays on the disk."""

    async def main() -> None:
        async with query_world(tmp_path, memory_bytes=64 << 20, spill_bytes=32 << 20, hot_bytes=1000) as world:
            await _filled(world)
            assert await world.rows(SUM) == [(200, 2 * sum(range(100)))], "hot rows that DuckDB holds"
            with pytest.raises(TooMuch, match=r"sql\.memory_bytes and sql\.spill_bytes"):
                await world.rows("SELECT len(list(range)) FROM range(30000000)")
            assert await world.rows("SELECT count(*) FROM t") == [(200,)]
            assert [path for path in (tmp_path / "spill").rglob("*") if path.is_file() and path.name != "lock"] == []

    asyncio.run(main())


def test_a_worker_that_is_killed_or_hangs(tmp_path: Path) -> None:
    async def main() -> None:
        async with query_world(tmp_path, warm=1) as world:
            await _filled(world)
            query = await world.ask(ENDLESS)
            [pid] = world.duckdb.pids
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(NoEngine, match="the process that worked on the query died"):
                await table_of(query)
            assert query.progress.phase is Phase.FAILED
            assert await world.rows("SELECT count(*) FROM t") == [(200,)]
            [second] = world.duckdb.pids
            assert second != pid

            query = await world.ask(ENDLESS)
            os.kill(second, signal.SIGSTOP)
            await query.cancel("it hangs")
            assert query.progress.phase is Phase.CANCELLED
            assert await world.rows("SELECT count(*) FROM t") == [(200,)]
            assert second not in world.duckdb.pids
            with pytest.raises(ProcessLookupError):
                os.kill(second, 0)

    asyncio.run(main())


def test_the_service_stops(tmp_path: Path) -> None:
    async def main() -> None:
        async with query_world(tmp_path) as world:
            await _filled(world)
            query = await world.ask(ENDLESS)
            [pid] = world.duckdb.pids
        with pytest.raises(HeadwaterError, match="the gateway stops"):
            await table_of(query)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert list((tmp_path / "spill").iterdir()) == []
        with pytest.raises(NoEngine):
            await world.ask(SUM)

    asyncio.run(main())


def test_time_travel(tmp_path: Path) -> None:
    """Every version, time and hour that is still kept gives what it gave; offsets cut rows off, of files too."""

    async def main() -> None:
        async with query_world(tmp_path, lake={"keep_versions": 50}) as world:
            await world.topic("t", 2)
            seen: dict[int, tuple[int, Any]] = {}
            for i in range(8):
                for partition in range(2):
                    await world.write("t", [b"%d" % i] * (i + 1), partition)
                await world.settle()
                version = world.table("t").last_sequence
                [row] = await world.rows(SUM, as_of=AsOf(version=version))
                seen[version] = row
            assert any(entry.replaces for entry in world.table("t").journal), "there were merges"
            await world.write("t", [b"hot"])
            assert len(seen) == 8 and [row[0] for row in seen.values()] == [2, 6, 12, 20, 30, 42, 56, 72]
            times = {entry.sequence: entry.ms for entry in world.table("t").journal}
            for version, row in seen.items():
                query = await world.ask(SUM, as_of=AsOf(version=version))
                assert rows_of(await table_of(query)) == [row] and query.versions == {"t": version}
                assert await world.rows(SUM, as_of=AsOf(at_ms=times[version])) == [row]
                assert await world.rows(f"SELECT count(*), sum(offset) FROM t AT (VERSION => {version})") == [row]
            hour = datetime.fromtimestamp(times[max(seen)] / 1000, UTC).strftime("%Y-%m-%dT%H")
            assert await world.rows(SUM, as_of=AsOf(tag=hour)) == [seen[max(seen)]]
            both = "SELECT (SELECT count(*) FROM t AT (VERSION => 1)), count(*) FROM t"
            assert await world.rows(both) == [(2, 73)]
            cut = "SELECT partition, count(*), max(offset) FROM t GROUP BY 1 ORDER BY 1"
            assert await world.rows(cut, as_of=AsOf(offsets={0: 5})) == [(0, 5, 4), (1, 36, 35)]
            assert await world.rows(cut, as_of=AsOf(version=max(seen), offsets={1: 1})) == [(0, 36, 35), (1, 1, 0)]
            for as_of, message in (
                (AsOf(version=99), "no version 99"),
                (AsOf(tag="yesterday"), "not an hour's tag"),
                (AsOf(tag="2001-01-01T01"), "no version of that hour"),
                (AsOf(version=1, at_ms=1), "name one of them"),
                (AsOf(offsets={7: 1}), "no partition 7"),
            ):
                with pytest.raises(BadInput, match=message):
                    await world.rows(SUM, as_of=as_of)
            assert await world.rows(SUM, as_of=AsOf(at_ms=1)) == [(0, None)]

    asyncio.run(main())
