"""The query service with real workers: settled rows and rows of the WAL at one snapshot, limits, cancelling, deaths."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headwater.query.asking import (
    Engine,
    Phase,
)
from tests.support.asking import QueryWorld, query_world, rows_of, table_of

NUMBERS = [b'{"user": "u%d", "n": %d}' % (i % 3, i) for i in range(100)]
SUM = 'SELECT count(*) AS n, sum("offset") AS s FROM t'


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

    asyncio.run(main())
