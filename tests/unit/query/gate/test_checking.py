"""What an engine gets to run: one query, written anew, with names of ours."""

from __future__ import annotations

import pytest

from headwater.errors import StatementRefused
from headwater.log.segment.schema import segment_schema
from headwater.query.asking import PRESENT, Engine
from headwater.query.gate.checking import check, describe
from headwater.query.gate.columns import COLUMNS
from headwater.query.gate.statement import Table, Topics
from headwater.state.commands.columns import Column
from tests.unit.query.gate.samples import ENGINES, READABLE, checked, refusal, topics


def test_a_query_reads_a_view_with_a_name_of_ours() -> None:
    found = checked("select offset, partition, timestamp from orders where offset > 5 order by offset limit 3 offset 2")
    assert found.sql == (
        'SELECT "offset", "partition", "timestamp" FROM "topic_0" AS "orders" '
        'WHERE "offset" > 5 ORDER BY "offset" LIMIT 3 OFFSET 2'
    )
    assert [(table.view, table.topic) for table in found.tables] == [("topic_0", "orders")]
    assert not found.explain and found.parameters == 0


def test_spark_gets_its_own_quotes() -> None:
    assert checked("SELECT max(offset) FROM orders o", Engine.SPARK).sql == "SELECT max(`offset`) FROM `topic_0` AS `o`"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "sql",
    [
        "FROM orders",
        "VALUES (1, 2), (3, 4)",
        "(SELECT 1)",
        "SELECT * FROM (VALUES (1, 2)) t(a, b)",
        "SELECT * FROM orders UNION ALL SELECT * FROM Clicks EXCEPT SELECT * FROM orders",
        "SELECT sum(offset) OVER (PARTITION BY partition ORDER BY offset ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) "
        "FROM orders",
        "SELECT count(*) FILTER (WHERE partition = 0), count(DISTINCT key) FROM orders GROUP BY ROLLUP (partition)",
        "SELECT * FROM orders o JOIN LATERAL (SELECT o.offset + 1) x ON TRUE",
        "SELECT * FROM orders o LEFT JOIN Clicks USING (offset) "
        "WHERE EXISTS (SELECT 1 FROM orders p WHERE p.key = o.key)",
        "SELECT CASE WHEN offset > 1 THEN 'a' ELSE 'b' END, CAST(offset AS DECIMAL(10, 2)), - -1, 'a', 1e3 FROM orders",
        "SELECT date_trunc('hour', timestamp), extract(hour FROM timestamp), timestamp - INTERVAL 1 DAY FROM orders",
        "SELECT * FROM orders PIVOT (count(offset) FOR partition IN (0, 1))",
        "SELECT * FROM orders TABLESAMPLE (10 PERCENT)",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT n FROM t",
        "SELECT * FROM range(10)",
        "SELECT 1;",
        "-- a remark\nSELECT /* another */ 1",
    ],
)
def test_queries_of_many_shapes_pass_and_pass_again(sql: str, engine: Engine) -> None:
    """What was written can be read again, and is the same."""
    found = checked(sql, engine)
    views = [table.view for table in found.tables]
    again = check(found.sql, engine, topics([*views, *(f"named_{i}" for i in range(9))]))
    assert len(again.tables) == len(views)
    assert "remark" not in found.sql and "another" not in found.sql


def test_hints_are_dropped() -> None:
    assert "BROADCAST" not in checked("SELECT /*+ BROADCAST(o) */ 1 FROM orders o", Engine.SPARK).sql


@pytest.mark.parametrize(("engine", "first", "second"), [(Engine.DUCKDB, "$p1", "$p2"), (Engine.SPARK, ":p1", ":p2")])
def test_parameters_stay_parameters_in_their_order(engine: Engine, first: str, second: str) -> None:
    found = checked("SELECT ? FROM orders WHERE partition = ?", engine)
    assert found.parameters == 2
    assert found.sql.index(first) < found.sql.index(second)
    assert refusal("SELECT :name", engine)
    assert "parameters are written as ?" in refusal("SELECT $1", engine)


@pytest.mark.parametrize(("engine", "mark"), [(Engine.DUCKDB, "$"), (Engine.SPARK, ":")])
def test_a_parameter_can_be_cast_with_colons(engine: Engine, mark: str) -> None:
    """The library reads `?::` as an operator of another engine."""
    found = checked(
        "SELECT ?::BIGINT::TEXT, '?::' FROM orders WHERE partition = ?:: INT AND offset > -?::BIGINT", engine
    )
    assert found.parameters == 3
    for cast in (f"CAST({mark}p1 AS BIGINT)", f"CAST({mark}p2 AS INT)", f"-CAST({mark}p3 AS BIGINT)", "'?::'"):
        assert cast in found.sql


@pytest.mark.parametrize("engine", ENGINES)
def test_explain_asks_for_the_plan_and_runs_nothing(engine: Engine) -> None:
    found = checked("EXPLAIN SELECT * FROM orders", engine)
    assert found.explain and found.sql.startswith("SELECT") and len(found.tables) == 1
    assert "ANALYZE" in refusal("EXPLAIN ANALYZE SELECT * FROM orders", engine)
    assert "only queries" in refusal("EXPLAIN EXTENDED SELECT 1", engine)
    assert "only queries" in refusal("EXPLAIN EXPLAIN SELECT 1", engine)
    assert "only queries" in refusal("EXPLAIN DROP TABLE orders", engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_show_tables_lists_what_the_caller_may_read(engine: Engine) -> None:
    found = checked("show tables;", engine)
    assert "'my.topic-1'" in found.sql and "'orders'" in found.sql and "salaries" not in found.sql
    assert check("SHOW TABLES", engine, topics([])).tables == ()


@pytest.mark.parametrize("engine", ENGINES)
def test_describe_names_the_columns(engine: Engine) -> None:
    found = checked("DESCRIBE orders", engine)
    assert "'offset', 'BIGINT'" in found.sql and found.tables == ()
    assert refusal("DESC salaries", engine).startswith('table "salaries" does not exist')
    assert "DESCRIBE takes" in refusal("DESCRIBE SELECT 1", engine)
    assert "DESCRIBE takes" in refusal("DESCRIBE orders WHERE 1 = 1", engine)


def test_described_columns_are_those_of_the_tables() -> None:
    import pyarrow as pa

    kinds = {pa.int32(): "int", pa.int64(): "long", pa.binary(): "bytes", pa.timestamp("us", tz="UTC"): "time"}
    assert {field.name: kinds.get(field.type, "headers") for field in segment_schema()} == COLUMNS


def test_an_operator_may_allow_more_functions() -> None:
    with pytest.raises(StatementRefused, match="the function sleep_ms is not allowed"):
        check("SELECT sleep_ms(1)", Engine.DUCKDB, topics())
    assert check("SELECT sleep_ms(1)", Engine.DUCKDB, topics(), more_functions=["sleep_ms"]).sql == "SELECT sleep_ms(1)"


def test_a_statement_is_for_one_engine() -> None:
    with pytest.raises(StatementRefused, match="one engine"):
        check("SELECT 1", Engine.AUTO, topics())


@pytest.mark.parametrize("engine", ENGINES)
def test_describe_names_typed_columns(engine: Engine) -> None:
    number = Column(102, "n", "n", "long", "", ())
    value = Column(101, "value_data", "value_data", "struct", "", (number, Column(103, "it's", "it's", "json", "", ())))
    columns = (
        Column(100, "decode_error", "decode_error", "string", "", ()),
        value,
        Column(104, "many", "many", "list", "", (Column(105, "element", "element", "timestamp", "", ()),)),
        Column(106, "by", "by", "map", "", (Column(107, "key", "key", "string", "", ()), number)),
    )
    plain = checked("DESCRIBE orders", engine)
    assert plain.described == Table("topic_0", "orders", PRESENT)
    found = describe(plain, columns).sql
    assert found.startswith(plain.sql[:100]) and "'decode_error', '" in found
    if engine is Engine.DUCKDB:
        assert "'STRUCT(\"n\" BIGINT, \"it''s\" VARCHAR)'" in found
        assert "'TIMESTAMP[]'" in found and "'MAP(VARCHAR, BIGINT)'" in found
    else:
        assert "STRUCT<`n`: BIGINT, `it" in found
        assert "'ARRAY<TIMESTAMP_NTZ>'" in found and "'MAP<STRING, BIGINT>'" in found


def test_fields_of_typed_columns() -> None:
    """Fields, elements of lists and of maps are let through by name, and none of them counts as plain bytes."""
    typed = Topics(has=READABLE.__contains__, names=lambda: READABLE, typed=lambda topic: ["value_data", "Flat"])

    def written(sql: str, engine: Engine = Engine.DUCKDB) -> str:
        return check(sql, engine, typed).sql

    nested = "SELECT value_data.value = 'a', o.value_data.user.key, value_data['x'] FROM orders AS o"
    expected = (
        'SELECT "value_data"."value" = \'a\', "o"."value_data"."user"."key", "value_data"[\'x\'] FROM "topic_0" AS "o"'
    )
    assert written(nested).replace(" AS \"value_data.value = 'a'\"", "") == expected
    assert '"my.topic"."value_data"."user"' in written("SELECT my.topic.value_data.user FROM my.topic")
    assert '"my.topic"."value_data"."a"."b"' in written("SELECT my.topic.value_data.a.b FROM my.topic")
    assert "`value_data`.`tags`[0]" in written("SELECT value_data.tags[0] FROM orders", Engine.SPARK)
    assert "encode" not in written("SELECT * FROM orders WHERE flat = 'a' AND value_data.key LIKE 'b%'")
    # A star gives the typed columns too, so names behind it are still those of bytes.
    renamed = "SELECT last FROM (SELECT *, value FROM orders) AS t(a, b, c, d, e, f, g, h, i, j, k, l, m, n, last)"
    assert "encode('x')" in written(f"{renamed} WHERE last = 'x'")
