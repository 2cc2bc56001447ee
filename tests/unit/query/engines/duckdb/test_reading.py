"""What DuckDB's own parser lets through, with the first gate switched off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from headwater.errors import StatementRefused
from headwater.query.asking import Engine
from headwater.query.engines.duckdb.comparing import check_same
from headwater.query.engines.duckdb.lockdown import CONFIG, lock_down
from headwater.query.engines.duckdb.reading import check_reading
from headwater.query.gate.checking import check
from headwater.query.gate.statement import Topics
from tests.support.hostile import DUCKDB

SECRET = "the-word-that-nobody-may-see"


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store with one file, and what is outside of it."""
    root = tmp_path_factory.mktemp("reading")
    (root / "store").mkdir()
    duckdb.sql("SELECT 'a'::BLOB AS key").write_parquet(str(root / "store" / "a.parquet"))
    (root / "secret").write_text(SECRET)
    return {"file": root / "store/a.parquet", "secret": root / "secret", "new": root / "new", "spill": root / "spill"}


@pytest.fixture(scope="module")
def connection(names: dict[str, Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database as a worker has it: one file, and nothing else."""
    with duckdb.connect(config=CONFIG) as found:
        found.execute(f"CREATE TEMP VIEW topic_0 AS SELECT * FROM read_parquet('{names['file']}')")
        lock_down(found, [str(names["file"])])
        yield found


HARMLESS = {
    "WITH salaries AS (SELECT * FROM salaries) SELECT * FROM salaries",
    "SELECT E'\\'; COPY (SELECT 1) TO ''{new}''--'",
}
"""What DuckDB reads as a plain SELECT: a table that is not there, and a text."""


@pytest.mark.parametrize("sql", [sql for sql in DUCKDB if sql not in HARMLESS])
def test_hostile_statements_are_refused(
    connection: duckdb.DuckDBPyConnection, names: dict[str, Path], sql: str
) -> None:
    before = names["file"].read_bytes()
    with pytest.raises(StatementRefused) as caught:
        check_reading(connection, sql.format(**names), ["topic_0"])
    assert SECRET not in str(caught.value)
    assert names["file"].read_bytes() == before
    assert sorted(path.name for path in names["secret"].parent.iterdir()) == ["secret", "store"]


@pytest.mark.parametrize("sql", DUCKDB)
def test_a_hostile_text_that_is_compared_is_not_run(
    connection: duckdb.DuckDBPyConnection, names: dict[str, Path], sql: str
) -> None:
    before = names["file"].read_bytes()
    with pytest.raises(StatementRefused) as caught:
        check_same(connection, sql.format(**names), "SELECT 1", {})
    assert SECRET not in str(caught.value)
    assert names["file"].read_bytes() == before
    assert sorted(path.name for path in names["secret"].parent.iterdir()) == ["secret", "store"]


def test_what_is_left_does_nothing(connection: duckdb.DuckDBPyConnection) -> None:
    table, text = sorted(HARMLESS, reverse=True)
    assert len(HARMLESS) == 2 and set(DUCKDB) > HARMLESS
    with pytest.raises(duckdb.Error, match="salaries"):
        connection.execute(table)
    assert connection.execute(text).fetchall() == [("'; COPY (SELECT 1) TO '{new}'--",)]


@pytest.mark.parametrize(
    "sql",
    [
        "FROM orders",
        "VALUES (1)",
        "SELECT value->>'user', count(*) FROM orders WHERE key = 'a' AND value LIKE '%x%' GROUP BY ALL",
        "WITH a AS (SELECT 1 AS x), b AS (SELECT x FROM a) SELECT * FROM b JOIN a USING (x)",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT n FROM t",
        "SELECT [x + 1 FOR x IN [1]], {'a': 1}.a, MAP {'a': 1}, list_transform([1], x -> x + 1), [1, 2][1:1]",
        "SELECT extract(hour FROM timestamp), timestamp AT TIME ZONE 'UTC', timestamp - INTERVAL 1 DAY FROM orders",
        "SELECT row_number() OVER (PARTITION BY partition ORDER BY offset) FROM orders QUALIFY 1 = 1",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY offset), count(DISTINCT key) FROM orders",
        "SELECT * FROM orders, UNNEST(headers) u(h), range(3), json_each(value) j",
        "SELECT * FROM orders PIVOT (count(offset) FOR partition IN (0, 1))",
        "SELECT * EXCLUDE (key), COLUMNS('k.*') FROM orders TABLESAMPLE 10%",
        "SELECT key SIMILAR TO 'x', key GLOB 'x', key ILIKE 'x', -offset, offset % 2, offset // 2, 2 ** 2 FROM orders",
        "SELECT CASE WHEN offset IN (1, 2) THEN 1 END, TRY_CAST(key AS INT), offset IS DISTINCT FROM 1 FROM orders",
        "SELECT ? + offset FROM orders",
    ],
)
def test_what_the_first_gate_writes_passes(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    found = check(sql, Engine.DUCKDB, Topics(has=lambda name: name == "orders", names=lambda: ["orders"]))
    check_reading(connection, found.sql, [table.view for table in found.tables])
    check_same(connection, found.source, found.sql, {table.view: table.topic for table in found.tables})


def test_a_name_of_a_with_is_no_file(connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(StatementRefused, match="there is no table"):
        check_reading(connection, "SELECT * FROM 'x.csv', (WITH \"x.csv\" AS (SELECT 1) SELECT 1)", [])


def test_an_operator_may_allow_more_functions(connection: duckdb.DuckDBPyConnection) -> None:
    check_reading(connection, "SELECT sleep_ms(1)", [], ["sleep_ms"])
