"""What is written for DuckDB means what the caller wrote: both texts are run, and the answers compared."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from headwater.errors import StatementRefused
from headwater.query.asking import Engine
from headwater.query.engines.duckdb.comparing import check_same
from headwater.query.gate.functions import FUNCTIONS
from headwater.query.gate.parsing import parse, reparse
from headwater.query.gate.statement import Statement
from tests.support.soak import WHOLE
from tests.unit.query.gate.drawn import TABLES, expression, spark_expression, statement
from tests.unit.query.gate.samples import checked

EVERY_TIME_ANOTHER = {
    "gen_random_uuid", "get_current_timestamp", "now", "random", "transaction_timestamp", "uuid", "uuidv4", "uuidv7",
}  # fmt: skip
NOT_READ = {"factorial", "apply"}
"""Functions whose examples the parser does not know: `4!`, and the name of a clause in other SQL."""


def fill(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the tables, each under the names that the caller's text, its source and our text may have for it."""
    connection.execute("CREATE SCHEMA topics")
    for topic, rows in TABLES.items():
        connection.execute(f"CREATE TABLE base_{topic} AS {rows}")
        for name in (f'"{topic}"', f'topics."{topic}"', f'"topics.{topic}"'):
            connection.execute(f"CREATE VIEW {name} AS FROM main.base_{topic}")


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        fill(connection)
        yield connection


def answer(connection: duckdb.DuckDBPyConnection, sql: str) -> str | None:
    """The rows of a statement; None if DuckDB cannot run it."""
    try:
        return repr(connection.execute(sql).fetchall())
    except duckdb.FatalException:
        raise  # no later statement would be answered
    except (duckdb.Error, OverflowError):
        return None


def test_the_examples_of_duckdbs_functions(database: duckdb.DuckDBPyConnection) -> None:
    found = database.execute(
        "SELECT DISTINCT function_name, unnest(examples) FROM duckdb_functions() "
        "WHERE function_type IN ('scalar', 'aggregate', 'macro')"
    ).fetchall()
    compared = 0
    for name, example in found:
        known = name.lower() in FUNCTIONS[Engine.DUCKDB] and name not in NOT_READ | EVERY_TIME_ANOTHER
        expected = answer(database, f"SELECT {example}") if known else None
        if expected is not None:
            assert answer(database, accepted(database, f"SELECT {example}").sql) == expected, example
            compared += 1
    assert compared > 350


def accepted(connection: duckdb.DuckDBPyConnection, sql: str) -> Statement:
    """A statement that both the gate and DuckDB let through."""
    found = checked(sql)
    check_same(connection, found.source, found.sql, {table.view: table.topic for table in found.tables})
    return found


def compare(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Fail unless a statement is refused, or gives what DuckDB gives for it: the same rows, or an error."""
    try:
        found = accepted(connection, sql)
    except StatementRefused:
        return
    # Arrows bind tighter than in DuckDB: what is compared then has brackets around them.
    expected = answer(connection, found.source if "->" in sql else sql)
    for table in found.tables:
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {table.view} AS FROM main.base_{table.topic}")
    assert answer(connection, found.sql) == expected, f"{sql}\n{found.sql}"


EXPRESSIONS, STATEMENTS = (100_000, 20_000) if WHOLE else (300, 100)


@pytest.mark.timeout(7_200 if WHOLE else 120)
@settings(max_examples=EXPRESSIONS, deadline=None)
@given(seed=st.integers(0, 2**63))
def test_expressions_mean_what_they_mean_in_duckdb(database: duckdb.DuckDBPyConnection, seed: int) -> None:
    chance = Random(seed)
    compare(database, f"SELECT {expression(chance, chance.choice([1, 2, 2, 3]))} FROM orders")


@pytest.mark.timeout(7_200 if WHOLE else 120)
@settings(max_examples=STATEMENTS, deadline=None)
@given(seed=st.integers(0, 2**63))
def test_statements_mean_what_they_mean_in_duckdb(database: duckdb.DuckDBPyConnection, seed: int) -> None:
    compare(database, statement(Random(seed)))


@pytest.mark.parametrize(
    ("sql", "near"),
    [
        ("SELECT list(x ORDER BY y)[1] FROM orders", "list(x ORDER BY y)"),
        ("SELECT x NOT IN (1, 2) = TRUE FROM orders", "= TRUE"),
        ("SELECT x NOT SIMILAR TO 'a' <> y FROM orders", "<> y"),
        ("SELECT 1\nFROM orders\nWHERE x NOT BETWEEN 0 AND 1 = FALSE", "(line 3)"),
        ("SELECT 2 ** ~1 + 1", "** ~1"),
        ("SELECT 2 ** ~1 * 3 + 1", "** ~1"),
        ("SELECT 2 ** -~1 + 1", "** -~1"),
        ("SELECT 5 ! IS TRUE", "IS TRUE"),
        ("SELECT DATE '2024-01-31' ::VARCHAR", "::VARCHAR"),
        ("SELECT +x FROM orders", "+x"),
        ("SELECT +2 ->> '$.a'", "+2"),
        ("SELECT x IN [1, 2] FROM orders", "IN [1, 2]"),
    ],
)
def test_what_duckdb_reads_in_another_way_is_refused(database: duckdb.DuckDBPyConnection, sql: str, near: str) -> None:
    with pytest.raises(StatementRefused, match="may read the statement otherwise than Headwater") as caught:
        accepted(database, sql)
    assert near in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT (list(x ORDER BY y))[1] FROM orders",
        "SELECT (x NOT IN (1, 2)) = TRUE, (x NOT BETWEEN 1 AND 2) = TRUE, list_contains([1, 2], x) FROM orders",
        "SELECT x BETWEEN 0 AND 1 FROM orders",
        "SELECT 2 ** (~1) + 1, 2 ** (~(1 + 1))",
        "SELECT s ~ 'a', s !~ 'a', s ~ 'ab.*', s SIMILAR TO 'a.c' FROM orders",
        "SELECT INTERVAL '1.5 days', INTERVAL '1.5' DAY, INTERVAL '1 month 2 days', INTERVAL (x) HOUR FROM orders",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x DESC), percentile_disc(0.5) WITHIN GROUP (ORDER BY x) "
        "FROM orders",
        "SELECT position('b' IN s), s IS NOT NULL, s NOTNULL, NOT s LIKE 'a', s NOT ILIKE 'A' FROM orders",
        "WITH w AS MATERIALIZED (SELECT x FROM orders) SELECT * FROM w",
        "SELECT * FROM orders o, unnest(o.l) u(z)",
        "SELECT length(j -> s), list_transform(l, q -> q + x), list_transform(l, lambda q: q + x) FROM orders",
        "SELECT list_reduce(l, (a, b) -> a + b), list_transform(l, lambda q, i: q + i) FROM orders",
        "SELECT list(x ORDER BY y DESC NULLS LAST), list(x ORDER BY s ASC NULLS FIRST) FROM orders",
        "SELECT x FROM orders ORDER BY s NULLS LAST, y ASC, x DESC NULLS FIRST",
        "SELECT j::json, .5, 0.1::DECIMAL(1, 1), ARRAY[1, 2], s ^@ 'a' FROM orders",
        "SELECT extract(dow FROM d), extract(epoch FROM d), X FROM orders",
        "SELECT min_by(x, y), max_by(x, y), group_concat(s), group_concat(s, '-') FROM orders",
        "SELECT current_date = today(), current_timestamp = now() FROM orders",
        "SELECT j->>'$.a' = '1', (j->'a')::INT FROM orders",
    ],
)
def test_what_duckdb_reads_in_the_same_way_runs(database: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert accepted(database, sql).sql
    assert answer(database, sql) is not None
    compare(database, sql)


def test_what_headwater_means_otherwise_is_compared_as_it_means_it(database: duckdb.DuckDBPyConnection) -> None:
    """Names of topics, moments, parameters, arrows, and the column `offset`."""
    found = accepted(
        database,
        "SELECT offset, -- ?\n my.topic.value->'a'->>? = ?::TEXT AS n, '?' FROM my.topic AT (VERSION =>\n'0:1,1:2')"
        " JOIN headwater.topics.dotted AS offset ON my.topic.key = offset.value->>'user' OR ? AND offset.offset > 1",
    )
    assert found.parameters == 3
    blanks = " " * 15 + "\n" + " " * 11
    assert found.source == (
        "SELECT \"offset\", -- ?\n ((my.topic.value->'a')->>$p1) = $p2::TEXT AS n, '?' FROM \"my.topic\""
        + blanks
        + 'JOIN "headwater.topics.dotted" AS "offset" ON my.topic.key = ("offset".value->>\'user\') OR $p3 '
        'AND "offset"."offset" > 1'
    )


@pytest.mark.parametrize(
    ("source", "sql"),
    [
        ("SELECT 1", "SELECT 2"),
        ("SELECT 1", "SELECT '1'"),
        ("SELECT 1", "SELECT 1, 1"),
        ("SELECT x AS a FROM orders", 'SELECT "x" AS "b" FROM "topic_0" AS "orders"'),
        ("SELECT x FROM orders", 'SELECT "x" FROM "topic_1" AS "orders"'),
        ("SELECT x FROM orders", 'SELECT "x" FROM "topic_0" AS "Clicks"'),
        ("SELECT x FROM orders", 'SELECT "x" FROM "orders"'),
        ("SELECT decode(b) FROM orders", 'SELECT "b" FROM "topic_0" AS "orders"'),
        ("SELECT b FROM orders", 'SELECT hex("b") FROM "topic_0" AS "orders"'),
        ("SELECT CAST(b AS INT) FROM orders", 'SELECT decode("b") FROM "topic_0" AS "orders"'),
        ("SELECT x FROM orders LIMIT 1", 'SELECT "x" FROM "topic_0" AS "orders"'),
        ("SELECT DISTINCT x FROM orders", 'SELECT "x" FROM "topic_0" AS "orders"'),
        ("SELECT x FROM orders ORDER BY x", 'SELECT "x" FROM "topic_0" AS "orders" ORDER BY "x" NULLS FIRST'),
        ("SELECT x FROM orders ORDER BY x", 'SELECT "x" FROM "topic_0" AS "orders" ORDER BY "x" DESC'),
        ("SELECT string_agg(s) FROM orders", """SELECT string_agg("s", '-') FROM "topic_0" AS "orders\""""),
        ("SELECT extract(dow FROM d) FROM orders", 'SELECT extract(doy FROM "d") FROM "topic_0" AS "orders"'),
        ("SELECT 1::json", "SELECT 1::uuid"),
        ("SELECT .5", "SELECT 5"),
        ("SELECT .5", "SELECT 0.50"),
        ("SELECT min_by(x, y) FROM orders", 'SELECT arg_max("x", "y") FROM "topic_0" AS "orders"'),
        ("SELECT ARRAY[1, 2]", "SELECT list_value(2, 1)"),
        ("SELECT $p1, $p2", "SELECT $p2, $p1"),
        (
            "WITH a AS (SELECT 1), b AS (SELECT 2) SELECT * FROM a",
            'WITH "named_0" AS (SELECT 1), "named_1" AS (SELECT 2) SELECT * FROM "named_1" AS "a"',
        ),
    ],
)
def test_every_other_difference_is_found(database: duckdb.DuckDBPyConnection, source: str, sql: str) -> None:
    with pytest.raises(StatementRefused, match="may read the statement otherwise"):
        check_same(database, source, sql, {"topic_0": "orders", "topic_1": "Clicks"})


def test_what_duckdb_cannot_read_is_refused_with_the_place(database: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(StatementRefused, match=r"DuckDB cannot read the statement near 'TRY x' \(line 2\)"):
        check_same(database, "SELECT 'ü',\nx y TRY x", "SELECT 1", {})


def test_a_tree_that_is_too_deep_is_refused(database: duckdb.DuckDBPyConnection) -> None:
    deep = "SELECT " + "NOT " * 900 + "TRUE"
    with pytest.raises(StatementRefused):
        check_same(database, deep, "SELECT TRUE", {})


@pytest.mark.parametrize(
    ("refused", "allowed"),
    [
        ("x NOT BETWEEN 1 AND 5 >= y", "(x NOT BETWEEN 1 AND 5) >= y"),
        ("x NOT IN (1, 2) = y", "(x NOT IN (1, 2)) = y"),
        ("x NOT RLIKE 'a' = y", "(x NOT RLIKE 'a') = y"),
        ("y = (s) NOT IN (1, 2)", "y = ((s) NOT IN (1, 2))"),
        ("y <=> (s) NOT BETWEEN 1 AND 5", "y <=> ((s) NOT BETWEEN 1 AND 5)"),
    ],
)
def test_what_spark_would_get_without_its_brackets_is_refused(refused: str, allowed: str) -> None:
    with pytest.raises(StatementRefused, match="may be read in two ways: put brackets around its operators"):
        checked(f"SELECT {refused} FROM orders", Engine.SPARK)
    assert "(NOT " in checked(f"SELECT {allowed} FROM orders", Engine.SPARK).sql


@pytest.mark.parametrize("text", ["x <=> y RLIKE s", "x <=> y < 1", "x <=> 2 BETWEEN 0 AND 2", "x <=> y <=> TRUE"])
def test_equality_with_null_is_written_for_spark_as_it_was(text: str) -> None:
    """Spark groups comparisons from the left, and then tests: with other brackets it would be another question."""
    written = checked(f"SELECT {text} FROM orders", Engine.SPARK).sql
    assert written.replace("`", "").startswith(f"SELECT {text} FROM")


@pytest.mark.timeout(7_200 if WHOLE else 120)
@settings(max_examples=EXPRESSIONS // 2, deadline=None)
@given(seed=st.integers(0, 2**63))
def test_what_is_written_for_spark_is_read_as_it_was_meant(seed: int) -> None:
    """The tree of an expression, and that of what is written for it, are one, whatever its brackets are."""
    chance = Random(seed)
    sql = f"SELECT {spark_expression(chance, chance.choice([1, 2, 2, 3]))} FROM orders"
    try:
        written = checked(sql, Engine.SPARK).sql
    except StatementRefused:
        return
    assert without_names(reparse(written, Engine.SPARK)) == without_names(parse(sql, Engine.SPARK).tree), written


def without_names(tree: exp.Expr | None) -> exp.Expr:
    """A tree without brackets, aliases of ours, and what tells quoted names from others."""
    assert tree is not None
    for node in list(tree.find_all(exp.Paren, exp.Table)):
        node.replace(node.this)
    for name in tree.find_all(exp.Identifier):
        name.set("quoted", None)
        name.set("this", name.name.replace("topic_0", "orders"))
    return tree


def test_long_chains_of_operators_are_written_for_spark() -> None:
    for operator in ("AND", "OR", "+", "||"):
        assert checked("SELECT " + f" {operator} ".join(["offset"] * 250) + " FROM orders", Engine.SPARK).sql
