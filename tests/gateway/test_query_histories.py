"""DuckDB's answers in odd states: open reservations, aborted transactions, gaps, merges, retention, cut-off offsets.

The histories and the model of the rows are those of `tests/unit/query/test_snapshot.py`. Here real workers answer.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.clock import SystemChance
from headwater.objects import open_store
from headwater.query.engines.contract import EngineTask, table_of
from headwater.query.engines.duckdb.pool import DuckDB
from headwater.query.snapshot import Snapshot
from headwater.settings.settings import Settings, Sql
from tests.support.soak import WHOLE
from tests.unit.query.test_snapshot import APPEND_TIME, BEHIND, IDS, PLAIN, PLAIN_TIME, TRIMMED, History, Row

PROMISES = ("Q1", "Q2")

SUMS = """
SELECT "partition" + 1, count(*), sum("offset"), sum(("offset" + 1) * CAST(decode(value) AS BIGINT))
FROM v GROUP BY 1 ORDER BY 1
"""
HISTORIES = 250 if WHOLE else 5
LONG = 14


def test_each_answer_is_exact(tmp_path: Path) -> None:
    """Counts and checksums of every partition, while more is written, settled and merged behind the snapshot."""

    async def main() -> None:
        settings = Settings(
            data=str(tmp_path), objects=tmp_path.joinpath("objects").as_uri(), sql=Sql(workers=1, warm=0, niceness=0)
        )
        await open_store(settings.objects_url).close()  # makes the directory, which workers may not
        engine = DuckDB(settings, SystemChance())
        await engine.open()
        asked = 0
        try:
            for number in range(HISTORIES):
                made = History()
                for step in _history(number):
                    await made.step(*step)
                    if step[0] != "write":
                        asked += await _check(engine, tmp_path / "objects", made, number)
        finally:
            await engine.close()
        assert asked >= 50

    asyncio.run(main())


def _history(number: int) -> list[Any]:
    known = [BEHIND, TRIMMED]
    if number < len(known):
        return known[number]
    chance = random.Random(number)
    found: list[Any] = []
    while len(found) < LONG:
        streams = [chance.choice((PLAIN_TIME, APPEND_TIME)) for _ in range(chance.randint(1, 4))]
        parts = [(s, chance.choice((PLAIN, PLAIN, *IDS)), chance.randint(1, 3), chance.randint(0, 50)) for s in streams]
        found.append(("write", parts))
        found.append(
            chance.choice(
                [
                    ("end", chance.choice(IDS), chance.random() < 0.5),
                    ("leap", streams[0], chance.randint(0, 4)),
                    ("reserve", [streams[0]], chance.randint(1, 3)),
                    ("fill", chance.randint(0, 2), chance.random() < 0.7),
                    ("settle", chance.choice((1, 150, 400, 1 << 20))),
                    ("settle", 1 << 20),
                    ("merge",),
                    ("retire", chance.randint(0, 3)),
                    ("trim", streams[0], chance.randint(1, 6)),
                ]
            )
        )
    return found


async def _check(engine: DuckDB, directory: Path, made: History, number: int) -> int:
    """Ask for everything, and up to some offsets; returns how many questions that were."""
    visible = made.visible()
    bounds = {0: number % 11, 1: number % 7}
    for until, expected in (
        ({}, visible),
        (bounds, [row for row in visible if row[1] < bounds[row[0] - 1]]),
    ):
        snapshot = made.take(until_offsets=until)
        _lay_out(directory / str(number), made, snapshot)
        assert await _asked(engine, snapshot, str(number)) == _sums(expected)
    return 2


def _lay_out(directory: Path, made: History, snapshot: Snapshot) -> None:
    """Write the objects that a snapshot names to files. Histories have the same names for different objects."""
    for path in [*(file.path for file in snapshot.files), *(run.path for part in snapshot.hot for run in part.runs)]:
        target = directory / path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(made.store.objects[path])


async def _asked(engine: DuckDB, snapshot: Snapshot, below: str) -> list[tuple[Any, ...]]:
    from msgspec.structs import replace

    table = table_of("v", "t", snapshot)
    files = [replace(file, path=f"{below}/{file.path}") for file in table.files]
    hot = [replace(part, runs=[replace(run, path=f"{below}/{run.path}") for run in part.runs]) for part in table.hot]
    task = EngineTask("q", SUMS, (), [replace(table, files=files, hot=hot)])
    answer = await engine.run(task)
    try:
        batches = [batch async for batch in answer.batches()]
    finally:
        await answer.close()
    found = pa.Table.from_batches(batches, schema=answer.schema)
    return [tuple(int(value) for value in row.values()) for row in found.to_pylist()]


def _sums(rows: list[Row]) -> list[tuple[int, ...]]:
    found: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for stream, at, value in rows:
        own = found[stream]
        own[0] += 1
        own[1] += at
        own[2] += (at + 1) * int(value)
    return [(stream, *sums) for stream, sums in sorted(found.items())]
