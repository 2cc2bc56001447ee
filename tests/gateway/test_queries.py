"""The query service with real workers: settled rows and rows of the WAL at one snapshot, limits, cancelling, deaths."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.s3 import S3Server
from headwater.errors import (
    BadInput,
    Exists,
    HeadwaterError,
    NoEngine,
    QueryCancelled,
    QueryFailed,
    QueryLimit,
    SnapshotGone,
    StatementRefused,
)
from headwater.query.asking import AsOf, Engine, Limits, Phase, Question
from headwater.state.commands.tables import Reserve
from headwater.state.results import Done
from tests.support.asking import ONE, QueryWorld, query_world, rows_of, table_of
from tests.support.s3_lake import store_options

PROMISES = ("Q1", "Q2")

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


def test_queries(tmp_path: Path) -> None:
    """One gateway's service, from the first question to its end. The path of its data looks like a pattern."""
    tmp_path = tmp_path / "a [b] *?"

    async def main() -> None:
        limits = {"memory_bytes": 64 << 20, "spill_bytes": 32 << 20}
        async with query_world(
            tmp_path, workers=2, workers_per_user=2, waiting=1, queries_per_user=2, **limits
        ) as world:
            await _filled(world)
            await _settled_rows_and_rows_of_the_wal(world)
            await _statements(world)
            await _missing_files(world)
            await _memory_and_spill(world, tmp_path / "spill")
            await _time_travel(world)
            await _killed_and_hanging(world)
            await _limits_and_cancelling(world)
            _counted(world)
            query = await world.ask(ENDLESS)
            pids = world.duckdb.pids
        with pytest.raises(HeadwaterError, match="the gateway stops"):
            await table_of(query)
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        assert list((tmp_path / "spill").iterdir()) == []
        with pytest.raises(NoEngine):
            await world.ask(SUM)

    asyncio.run(main())


async def _settled_rows_and_rows_of_the_wal(world: QueryWorld) -> None:
    query = await world.ask(SUM)
    assert query.schema.names == ["n", "s"] and query.versions == {"t": world.table("t").last_sequence}
    assert query.engine is Engine.DUCKDB and query.reason.endswith(".")
    assert query.progress.files == 1 and query.progress.hot_bytes and query.progress.phase is Phase.RUNNING
    assert rows_of(await table_of(query)) == [(200, 2 * sum(range(100)))]
    assert query.progress.phase is Phase.DONE and query.progress.rows == 1 and query.progress.percent == 100
    assert world.queries.find(query.id) is query and world.queries.running() == [query]
    await world.write("t", [b"one more"])
    assert await world.rows(SUM) == [(201, 2 * sum(range(100)) + 100)]
    users = "SELECT value->>'user' AS who, count(*) FROM t WHERE offset < 100 GROUP BY 1 ORDER BY 1"
    assert await world.rows(users) == [("u0", 68), ("u1", 66), ("u2", 66)]
    asked = Question(sql=users, asker="User:alice", readable=lambda name: True)
    assert str((await world.queries.describe(asked)).field("who").type) == "string"


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
        ("SELECT * FROM u", StatementRefused, "does not exist"),
        ("DELETE FROM t", StatementRefused, "SELECT"),
        ("SELECT ? FROM t", StatementRefused, "1 parameters, 0 are given"),
    ):
        with pytest.raises(why, match=message):
            await world.rows(sql)
    assert world.queries.running()[0].progress.phase is Phase.FAILED
    with pytest.raises(StatementRefused, match="does not exist"):
        await world.rows("SELECT * FROM t", hidden=["t"])
    with pytest.raises(StatementRefused, match="no engine 'spark'"):
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


async def _limits_and_cancelling(world: QueryWorld) -> None:
    with pytest.raises(QueryLimit, match=r"more than 10 rows: aggregate, use LIMIT, or raise sql\.rows"):
        await world.rows("SELECT * FROM t", limits=Limits(seconds=60, rows=10, result_bytes=1 << 30))
    with pytest.raises(QueryLimit, match="more than 1000 bytes"):
        await world.rows("SELECT * FROM t", limits=Limits(seconds=60, rows=1000, result_bytes=1000))
    with pytest.raises(QueryLimit, match=r"longer than 0.2 s: ask for less, or raise sql\.seconds"):
        await world.rows(ENDLESS, limits=Limits(seconds=0.2, rows=10, result_bytes=1 << 30))
    [pid] = world.duckdb.pids
    assert await world.rows("SELECT count(*) FROM t") == [(202,)]

    first, second = await world.ask(ENDLESS), await world.ask(WIDE, name="mine")
    assert world.queries.find("mine") is second
    with pytest.raises(NoEngine, match="User:alice has 2 queries already"):
        await world.ask(SUM)
    waiting = asyncio.ensure_future(world.ask(SUM, asker="User:bob"))
    await asyncio.sleep(0)
    with pytest.raises(NoEngine, match="3 queries run or wait already"):
        await world.ask(SUM, asker="User:carol")
    with pytest.raises(Exists, match="query mine already"):
        await world.ask(SUM, name="mine", asker="User:bob")
    rows = second.batches()
    assert (await anext(rows)).num_rows
    await first.cancel("enough")
    with pytest.raises(QueryCancelled, match="was cancelled: enough"):
        await table_of(first)
    assert rows_of(await table_of(await waiting)) == [(202, 2 * sum(range(100)) + 201)]
    await rows.aclose()  # type: ignore[attr-defined]
    assert [query.progress.phase for query in (first, second)] == [Phase.CANCELLED] * 2
    assert pid in world.duckdb.pids, "a cancelled query gives its worker back"
    with pytest.raises(Exists):
        await world.ask(SUM, name="mine", asker="User:bob")
    again = await world.ask(SUM, name="mine")
    assert world.queries.find("mine") is again and again.id == "mine"
    assert (await table_of(again)).num_rows == 1, "the one that was cancelled before does not count"
    with pytest.raises(BadInput, match="letters, digits and dashes"):
        await world.ask(SUM, name="a/b")


def _counted(world: QueryWorld) -> None:
    """The metrics of all that was asked before."""
    found = world.queries.metrics({Engine.DUCKDB: world.duckdb.workers})
    ended = {
        labels["outcome"]: count
        for metric in found
        if metric.name == "headwater_queries_total"
        for labels, count in metric.samples
        if labels["engine"] == "duckdb" or labels["outcome"] == "busy"
    }
    assert ended["done"] > 10 and ended["failed"] == 2 and ended["snapshot_gone"] == 2
    assert ended["no_engine"] == 1 and ended["cancelled"] == 3 and ended["busy"] == 2
    [answered] = [metric.samples for metric in found if metric.name == "headwater_query_rows_total"]
    assert sum(rows for _, rows in answered) > 10 and world.duckdb.workers.deaths == 2


async def _memory_and_spill(world: QueryWorld, spill: Path) -> None:
    with pytest.raises(QueryLimit, match=r"sql\.memory_bytes and sql\.spill_bytes"):
        await world.rows("SELECT len(list(range)) FROM range(30000000)")
    assert await world.rows("SELECT count(*) FROM t") == [(202,)]
    assert [path for path in spill.rglob("*") if path.is_file() and path.name != "lock"] == []


async def _killed_and_hanging(world: QueryWorld) -> None:
    query = await world.ask(ENDLESS)
    [pid] = world.duckdb.pids
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(NoEngine, match="the process that worked on the query died"):
        await table_of(query)
    assert query.progress.phase is Phase.FAILED
    assert await world.rows("SELECT count(*) FROM t") == [(202,)]
    [second] = world.duckdb.pids
    assert second != pid

    query = await world.ask(ENDLESS)
    os.kill(second, signal.SIGSTOP)
    await query.cancel("it hangs")
    assert query.progress.phase is Phase.CANCELLED
    assert await world.rows("SELECT count(*) FROM t") == [(202,)]
    assert second not in world.duckdb.pids
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


SUM_V = SUM.replace("FROM t", "FROM v")


async def _time_travel(world: QueryWorld) -> None:
    await world.topic("v", 2)
    seen: dict[int, tuple[int, Any]] = {}
    for i in range(6):
        for partition in range(2):
            await world.write("v", [b"%d" % i] * (i + 1), partition)
        await world.settle()
        version = world.table("v").last_sequence
        [row] = await world.rows(SUM_V, as_of=AsOf(version=version))
        seen[version] = row
    assert any(entry.replaces for entry in world.table("v").journal), "there were merges"
    await world.write("v", [b"hot"])
    assert len(seen) == 6 and [row[0] for row in seen.values()] == [2, 6, 12, 20, 30, 42]
    times = {entry.sequence: entry.ms for entry in world.table("v").journal}
    for version, row in seen.items():
        query = await world.ask(SUM_V, as_of=AsOf(version=version))
        assert rows_of(await table_of(query)) == [row] and query.versions == {"v": version}
        assert await world.rows(SUM_V, as_of=AsOf(at_ms=times[version])) == [row]
        assert await world.rows(f"SELECT count(*), sum(offset) FROM v AT (VERSION => {version})") == [row]
    hour = datetime.fromtimestamp(times[max(seen)] / 1000, UTC).strftime("%Y-%m-%dT%H")
    assert await world.rows(SUM_V, as_of=AsOf(tag=hour)) == [seen[max(seen)]]
    both = "SELECT (SELECT count(*) FROM v AT (VERSION => 1)), count(*) FROM v"
    assert await world.rows(both) == [(2, 43)]
    cut = "SELECT partition, count(*), max(offset) FROM v GROUP BY 1 ORDER BY 1"
    assert await world.rows(cut, as_of=AsOf(offsets={0: 5})) == [(0, 5, 4), (1, 21, 20)]
    assert await world.rows(cut, as_of=AsOf(version=max(seen), offsets={1: 1})) == [(0, 21, 20), (1, 1, 0)]
    for as_of, message in (
        (AsOf(version=99), "no version 99"),
        (AsOf(tag="yesterday"), "not an hour's tag"),
        (AsOf(tag="2001-01-01T01"), "no version of that hour"),
        (AsOf(version=1, at_ms=1), "name one of them"),
        (AsOf(offsets={7: 1}), "no partition 7"),
    ):
        with pytest.raises(BadInput, match=message):
            await world.rows(SUM_V, as_of=as_of)
    assert await world.rows(SUM_V, as_of=AsOf(at_ms=1)) == [(0, None)]


CHECKSUMS = "SELECT partition, count(*), sum(offset), min(offset), max(offset) FROM t GROUP BY 1 ORDER BY 1"


def test_answers_are_exact_while_all_moves(tmp_path: Path) -> None:
    """Producers, settles, merges that delete files at once, and a bulk append that stays open."""

    async def main() -> None:
        async with query_world(tmp_path, lake={"followers": (), "merge_files": 2}, workers=1) as world:
            assert await world.rows("SELECT 1") == [(1,)], "the worker runs"
            topic = await world.topic("t", 3)
            ends, over = [0, 0, 0], asyncio.Event()

            async def produce(partition: int) -> None:
                while not over.is_set():
                    await world.write("t", [b"x"] * 20, partition)
                    ends[partition] += 20
                    await asyncio.sleep(0.01)

            async def settle() -> None:
                while not over.is_set():
                    await world.settle()
                    await asyncio.sleep(0.02)

            async def check() -> None:
                known = ends[:2]
                found = {row[0]: row[1:] for row in await world.rows(CHECKSUMS)}
                for partition, least in enumerate(known):
                    count, total, first, last = found[partition]
                    assert count == last + 1 >= least and total == last * (last + 1) // 2 and not first
                assert found[2] == (20, 190, 0, 19), "the rest is behind a reservation"

            await world.write("t", [b"x"] * 20, 2)
            reserved = Reserve(topic.id, [(topic.streams[2], 5)], 600_000)
            assert isinstance((await world.core.domains[ONE].submit([reserved]))[0], Done)
            work = [asyncio.ensure_future(one) for one in (*(produce(i) for i in range(3)), settle())]
            try:
                while not min(ends):
                    await asyncio.sleep(0.01)
                for _ in range(6):
                    await asyncio.gather(check(), check())
            finally:
                over.set()
                await asyncio.gather(*work)
            assert sum(entry.replaces for entry in world.table("t").journal) > 1, "there were merges"
            assert any(entry.added for entry in world.table("t").journal)

    asyncio.run(main())


def test_objects_in_s3(tmp_path: Path) -> None:
    """DuckDB reads the exact objects with credentials of the store; a missing one is an error."""

    async def main(s3: S3Server) -> None:
        options = {"lake": {"followers": ()}, "store": (s3.url, store_options(s3)), "workers": 1}
        async with query_world(tmp_path / "world", **options) as world:
            await _filled(world)
            assert await world.rows(SUM) == [(200, 2 * sum(range(100)))]
            found = await world.rows("SELECT value FROM t WHERE partition = 1 AND offset IN (3, 77) ORDER BY 1")
            assert found == sorted([(NUMBERS[3],), (NUMBERS[77],)])
            table = world.table("t")
            [file] = table.live()
            await world.store.delete(f"{table.root}/{file.name}")
            with pytest.raises(SnapshotGone):
                await world.rows(SUM)

    with S3Server(tmp_path / "s3") as s3:
        asyncio.run(main(s3))
