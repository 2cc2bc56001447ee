"""Hostile statements that reach a real worker, with the first gate switched off. They change nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection
from pathlib import Path

import psutil
import pytest

from headwater import landlock
from headwater.errors import StatementRefused
from headwater.query.asking import PRESENT, AsOf, Engine
from headwater.query.engines.duckdb.pool import MODULE
from headwater.query.gate.statement import Statement, Table, Topics
from headwater.query.queries import service
from tests.support.asking import QueryWorld, query_world

PROMISES = ("S5",)

SOME = [
    "COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)",
    "SELECT * FROM read_text('{secret}')",
    "SELECT 1; DROP VIEW topic_0",
    "SET lock_configuration = false",
]
"""A few of those that `tests/unit/query/engines/duckdb/test_reading.py` has all of."""
SECRET = "the-word-that-nobody-may-see"


def unchecked(
    sql: str, engine: Engine, topics: Topics, as_of: AsOf = PRESENT, more_functions: Collection[str] = ()
) -> Statement:
    """The first gate, switched off: the worker gets the caller's text, and a topic."""
    tables = (Table("topic_0", "orders", as_of),)
    return Statement(engine=engine, sql=sql, tables=tables, parameters=0)


def contents(root: Path) -> dict[str, str]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_worker_without_the_first_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)

    async def main() -> None:
        async with query_world(tmp_path / "world") as world:
            await world.topic("orders")
            await world.write("orders", [b"a", b"b"])
            await world.settle()
            monkeypatch.setattr(service, "check", unchecked)
            assert await world.rows("SELECT count(*) FROM topic_0") == [(2,)]
            _confined()
            before = contents(world.objects)
            await _all(world, secret)
            assert contents(world.objects) == before and before
            assert not (tmp_path / "new").exists() and secret.read_text() == SECRET

    asyncio.run(main())


def _confined() -> None:
    """All threads of the worker were started after it gave up its rights."""
    if not landlock.version():
        return
    workers = [child for child in psutil.Process().children() if MODULE in child.cmdline()]
    tasks = [task for worker in workers for task in Path(f"/proc/{worker.pid}/task").iterdir()]
    assert len(tasks) > 3 and all("NoNewPrivs:\t1" in (task / "status").read_text() for task in tasks)


async def _all(world: QueryWorld, secret: Path) -> None:
    file = next(path for path in world.objects.rglob("*.parquet"))
    names = {"file": file, "secret": secret, "new": secret.parent / "new", "spill": secret.parent / "spill"}
    for sql in SOME:
        with pytest.raises(StatementRefused):
            await world.rows(sql.format(**names))
