"""Keys and values are bytes, and statements treat them as text and JSON; what DuckDB answers, and what Spark gets."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pytest

from headwater.errors import StatementRefused
from headwater.query.asking import Engine, Value
from headwater.query.engines.duckdb.comparing import check_same
from tests.unit.query.gate.samples import checked, refusal

ROWS = """
    (0, 0, encode('a'), encode('{"user": "ann", "n": 5, "x": {"y": [1, 2]}, "a.b": "dot"}')),
    (0, 1, encode('b'), encode('no json')),
    (1, 0, encode('ü'), encode('{"user": null}')),
    (1, 1, '\\xff'::BLOB, '\\xff'::BLOB),
    (1, 2, NULL, NULL)
"""


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """A topic as DuckDB sees it, with bytes that are neither JSON nor UTF-8."""
    connection = duckdb.connect()
    connection.execute(
        f"""CREATE TABLE topic_0 AS SELECT "partition", "offset", 0 AS timestamp_ms, now() AS timestamp, key, value,
        [{{'key': 'h', 'value': 'x'::BLOB}}] AS headers, NULL::BLOB AS headers_raw
        FROM (VALUES {ROWS}) s("partition", "offset", key, value)"""
    )
    return connection


def answer(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Value] = ()) -> list[tuple[object, ...]]:
    found = checked(sql)
    check_same(connection, found.source, found.sql, {table.view: table.topic for table in found.tables})
    assert len(found.tables) == 1
    return connection.execute(found.sql, found.bound(values)).fetchall()


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT value->>'user' FROM orders", ["ann", None, None, None, None]),
        ("SELECT value->'x'->'y'->>1 FROM orders WHERE offset = 0", ["2", None]),
        ("SELECT value->>'$.x.y[0]' FROM orders WHERE offset = 0", ["1", None]),
        ("SELECT value->>'user' AS who FROM orders WHERE partition = 0 GROUP BY 1 ORDER BY who", ["ann", None]),
        ("SELECT key::TEXT AS k FROM orders WHERE partition = 0", ["a", "b"]),
        ("SELECT value->>'a.b' FROM orders WHERE offset = 0", ["dot", None]),
        ("SELECT json_extract_string(value, '$.user') FROM orders WHERE partition = 0", ["ann", None]),
        ("SELECT json_type(value->'x') FROM orders WHERE offset = 0", ["OBJECT", None]),
        ("SELECT length(json_keys(value)) FROM orders", [4, None, 1, None, None]),
        ("SELECT (value->>'n')::INT + 1 FROM orders WHERE partition = 0", [6, None]),
        ("SELECT json_valid(value) FROM orders WHERE partition = 0", [True, False]),
        (
            "SELECT j.value->>'$' FROM orders, json_each(value) j WHERE offset = 0 AND partition = 0 AND j.key = 'n'",
            ["5"],
        ),
        ("SELECT offset FROM orders WHERE value->>'user' = 'ann' AND partition = 0", [0]),
        ("SELECT offset FROM orders WHERE key = 'a'", [0]),
        ("SELECT offset FROM orders WHERE 'ü' = key", [0]),
        ("SELECT offset FROM orders WHERE key IN ('b', 'ü') ORDER BY 1 DESC", [1, 0]),
        ("SELECT count(*) FROM orders WHERE key BETWEEN 'a' AND 'b' AND key <> 'x' AND key >= 'a'", [2]),
        ("SELECT offset FROM orders WHERE key = lower('B')", [1]),
        (r"SELECT offset FROM orders WHERE CASE key WHEN '\x61' THEN TRUE WHEN 'b' THEN TRUE END", [1]),
        (r"SELECT CASE WHEN offset = 0 THEN key ELSE '\x61' END FROM orders WHERE partition = 0", [b"a", rb"\x61"]),
        (r"SELECT if(offset = 0, key, 'ü') FROM orders WHERE partition = 0", [b"a", "ü".encode()]),
        (r"SELECT coalesce(key, '\x61') FROM orders WHERE key IS NULL", [rb"\x61"]),
        (r"SELECT nullif(key, '\x61'), 1 FROM orders WHERE key = 'a'", [b"a"]),
        (r"SELECT lag(key, 1, '\x61') OVER (ORDER BY offset) FROM orders WHERE key = 'a'", [rb"\x61"]),
        (r"SELECT offset FROM orders WHERE (key, offset) = ('\x61', 0)", []),
        (r"SELECT offset FROM orders WHERE (offset, key) IN ((0, '\x61'), (1, 'b'))", [1]),
        (r"SELECT offset FROM orders WHERE key = ANY (['\x61', 'b'])", [1]),
        ("SELECT count(*) FROM orders WHERE value LIKE '%user%'", [2]),
        ("SELECT count(*) FROM orders WHERE value NOT ILIKE '%USER%'", [1]),
        ("SELECT count(*) FROM orders WHERE regexp_matches(value, 'us.r') OR key SIMILAR TO '[b]'", [3]),
        ("SELECT upper(key) FROM orders", ["A", "B", "Ü", None, None]),
        ("SELECT key || '!' FROM orders WHERE partition = 0", ["a!", "b!"]),
        ("SELECT length(key) FROM orders", [1, 1, 2, 1, None]),
        ("SELECT CAST(key AS VARCHAR) FROM orders WHERE partition = 0", ["a", "b"]),
        ("SELECT TRY_CAST(key AS VARCHAR) FROM orders", ["a", "b", "ü", None, None]),
        ("SELECT TRY_CAST(key AS INT) FROM orders WHERE partition = 0", [None, None]),
        ("SELECT value::JSON->>'user' FROM orders WHERE partition = 0 AND offset = 0", ["ann"]),
        ("SELECT key::BLOB FROM orders WHERE offset = 0 AND partition = 0", [b"a"]),
        ("SELECT hex(key) FROM orders WHERE partition = 0", ["61", "62"]),
        ("SELECT headers[1].value = 'x' FROM orders WHERE key = 'a'", [True]),
        ("SELECT string_agg(key, ',' ORDER BY offset) FROM orders WHERE partition = 0", ["a,b"]),
        ("SELECT max(key) = 'b' FROM orders WHERE partition = 0", [True]),
        ("SELECT arg_min(value, offset)->>'user' FROM orders WHERE partition = 0", ["ann"]),
        ("SELECT value FROM orders WHERE key = 'b'", [b"no json"]),
        ("WITH w AS (SELECT key AS k, value v FROM orders) SELECT v->>'user' FROM w WHERE k = 'a'", ["ann"]),
        ("WITH w(k, v) AS (SELECT key, value FROM orders) SELECT w.v->>'user' FROM w WHERE w.k = 'a'", ["ann"]),
        ("SELECT o.value->>'user' FROM (SELECT * FROM orders) o WHERE o.key = 'a'", ["ann"]),
        ("SELECT v->>'user' FROM (SELECT value v FROM orders UNION ALL SELECT value FROM orders) LIMIT 1", ["ann"]),
        ("SELECT v FROM (SELECT * RENAME (key AS v) FROM orders) WHERE v = 'a'", [b"a"]),
        ("SELECT a.offset FROM orders a JOIN orders b ON a.key = b.value->>'user'", []),
        ("SELECT (SELECT o.value->>'user') FROM orders o WHERE key = 'a'", ["ann"]),
        ("SELECT offset FROM orders o WHERE EXISTS (SELECT 1 FROM orders p WHERE p.key = 'a' AND o.key = p.key)", [0]),
        (
            "SELECT decode(value) AS value FROM orders WHERE partition = 0 ORDER BY value = 'no json' DESC LIMIT 1",
            ["no json"],
        ),
        (
            "WITH RECURSIVE t(v, n) AS (SELECT value, 1 FROM orders WHERE key = 'a' UNION ALL "
            "SELECT v, n + 1 FROM t WHERE n < 2) SELECT v->>'user' FROM t",
            ["ann", "ann"],
        ),
    ],
)
def test_bytes_as_text_and_json(database: duckdb.DuckDBPyConnection, sql: str, rows: list[object]) -> None:
    assert [row[0] for row in answer(database, sql)] == rows


def test_several_looks_at_bytes_that_are_no_text(database: duckdb.DuckDBPyConnection) -> None:
    """DuckDB takes parts that it finds twice out of a TRY."""
    rows = answer(
        database, "SELECT value->>'user', value->>'n', lower(value), upper(value), json_keys(value) FROM orders"
    )
    assert rows[3] == (None, None, None, None, None)


def test_a_parameter_that_is_compared_with_bytes_may_be_text(database: duckdb.DuckDBPyConnection) -> None:
    assert answer(database, "SELECT offset FROM orders WHERE key = ?", ["ü"]) == [(0,)]
    assert answer(database, "SELECT offset FROM orders WHERE key IN (?, ?)", ["a", b"nothing"]) == [(0,)]
    assert answer(database, "SELECT offset FROM orders WHERE value->>'user' = ?", ["ann"]) == [(0,)]


def test_as_many_values_as_parameters() -> None:
    with pytest.raises(StatementRefused, match="has 1 parameters, and 2 values"):
        checked("SELECT ?").bound([1, 2])


def test_columns_keep_their_names(database: duckdb.DuckDBPyConnection) -> None:
    sql = checked("SELECT value->>'user', lower(key), key, lower(key) AS k FROM orders").sql
    assert [column[0] for column in database.execute(sql).description] == ["value ->> 'user'", "lower(key)", "key", "k"]


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("value->>'user'", "GET_JSON_OBJECT(CAST(`value` AS STRING), '$[\\'user\\']') AS `value ->> 'user'`"),
        ("value->0 AS x", "GET_JSON_OBJECT(CAST(`value` AS STRING), '$[0]') AS `x`"),
        ("value->>'$.a.b' AS x", "GET_JSON_OBJECT(CAST(`value` AS STRING), '$.a.b') AS `x`"),
        ("get_json_object(value, '$.a') AS x", "get_json_object(CAST(`value` AS STRING), '$.a') AS `x`"),
        ("key = 'a' AS x", "`key` = CAST('a' AS BINARY) AS `x`"),
        ("key LIKE 'a%' AS x", "CAST(`key` AS STRING) LIKE 'a%' AS `x`"),
        ("lower(key) AS x", "lower(CAST(`key` AS STRING)) AS `x`"),
        ("CAST(key AS INT) AS x", "CAST(CAST(`key` AS STRING) AS INT) AS `x`"),
        ("CAST(key AS STRING) AS x", "CAST(`key` AS STRING) AS `x`"),
        ("length(key) AS x", "length(`key`) AS `x`"),
        ("timestampdiff(HOUR, timestamp, now()) AS x", "timestampdiff(HOUR, `timestamp`, now()) AS `x`"),
        ("parse_json(value) AS x", "parse_json(CAST(`value` AS STRING)) AS `x`"),
    ],
)
def test_what_spark_gets(sql: str, written: str) -> None:
    assert checked(f"SELECT {sql} FROM orders", Engine.SPARK).sql == f"SELECT {written} FROM `topic_0` AS `orders`"


def test_keys_that_cannot_be_written_for_spark() -> None:
    assert "needs a path" in refusal('SELECT value->>"it\'s" FROM orders', Engine.SPARK)
