"""Time travel in the syntax of both engines."""

from __future__ import annotations

import pytest

from headwater.query.asking import AsOf, Engine
from tests.unit.query.gate.samples import ENGINES, checked, refusal

NINE = 1_767_258_000_000
"""2026-01-01 09:00 UTC, in milliseconds."""


@pytest.mark.parametrize(
    ("engine", "sql", "moment"),
    [
        (Engine.DUCKDB, "orders AT (VERSION => 3)", AsOf(version=3)),
        (Engine.DUCKDB, "orders AT (VERSION => '2026-11-17T22') o", AsOf(tag="2026-11-17T22")),
        (Engine.DUCKDB, "orders AT (VERSION => '0:7,2:9')", AsOf(offsets={0: 7, 2: 9})),
        (Engine.DUCKDB, "orders AT (TIMESTAMP => '2026-01-01 09:00:00')", AsOf(at_ms=NINE)),
        (Engine.DUCKDB, "orders AT (TIMESTAMP => TIMESTAMP '2026-01-01 09:00:00.0019')", AsOf(at_ms=NINE + 1)),
        (Engine.DUCKDB, "orders AT (TIMESTAMP => TIMESTAMPTZ '2026-01-01T10:00:00+01:00')", AsOf(at_ms=NINE)),
        (Engine.SPARK, "orders VERSION AS OF 3", AsOf(version=3)),
        (Engine.SPARK, "orders FOR VERSION AS OF '3' o", AsOf(version=3)),
        (Engine.SPARK, "orders FOR SYSTEM_VERSION AS OF 3", AsOf(version=3)),
        (Engine.SPARK, "orders VERSION AS OF '2026-11-17T22'", AsOf(tag="2026-11-17T22")),
        (Engine.SPARK, "orders VERSION AS OF '1:5'", AsOf(offsets={1: 5})),
        (Engine.SPARK, "orders TIMESTAMP AS OF '2026-01-01T09:00:00Z'", AsOf(at_ms=NINE)),
        (Engine.SPARK, "orders FOR SYSTEM_TIME AS OF '2026-01-01 09:00:00' AS o", AsOf(at_ms=NINE)),
        (Engine.SPARK, "orders FOR TIMESTAMP AS OF '2026-01-01 09:00:00'", AsOf(at_ms=NINE)),
        (Engine.DUCKDB, "orders FOR SYSTEM_TIME AS OF '2026-01-01 09:00:00'", AsOf(at_ms=NINE)),
    ],
)
def test_a_table_is_pinned(engine: Engine, sql: str, moment: AsOf) -> None:
    found = checked(f"SELECT * FROM {sql}", engine)
    assert [table.as_of for table in found.tables] == [moment]
    assert "AS OF" not in found.sql and "AT (" not in found.sql


@pytest.mark.parametrize("engine", ENGINES)
def test_the_default_is_for_tables_that_are_not_pinned(engine: Engine) -> None:
    default = AsOf(version=8)
    found = checked("SELECT * FROM orders JOIN Clicks VERSION AS OF 3 USING (key)", engine, default)
    assert [table.as_of for table in found.tables] == [default, AsOf(version=3)]


@pytest.mark.parametrize(
    "sql",
    [
        "orders VERSION AS OF -1",
        "orders VERSION AS OF offset",
        "orders VERSION AS OF 'yesterday'",
        "orders VERSION AS OF '0:1,0:2'",
        "orders VERSION AS OF (SELECT 1)",
        "orders VERSION AS OF ?",
        "orders TIMESTAMP AS OF 'yesterday'",
        "orders TIMESTAMP AS OF 5",
        "orders TIMESTAMP AS OF now()",
        "orders BEFORE (VERSION => 3)",
        "orders VERSION BETWEEN 3 AND 4",
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_other_moments_are_refused(engine: Engine, sql: str) -> None:
    assert refusal(f"SELECT * FROM {sql}", engine)


def test_a_query_has_no_versions() -> None:
    assert "has no versions" in refusal("WITH a AS (SELECT 1) SELECT * FROM a VERSION AS OF 3", Engine.SPARK)
