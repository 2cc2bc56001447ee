"""Which topics a statement reads: those that the caller may read, under names that cannot be mistaken."""

from __future__ import annotations

import pytest

from headwater.query.asking import Engine
from headwater.query.gate.tables import MAX_TABLES, MAX_USES
from tests.unit.query.gate.samples import ENGINES, checked, refusal


def read(sql: str, engine: Engine = Engine.DUCKDB) -> list[str]:
    return [table.topic for table in checked(sql, engine).tables]


def test_names_with_dots_and_dashes() -> None:
    assert read('SELECT * FROM "my.topic-1"') == ["my.topic-1"]
    assert read("SELECT * FROM `my.topic-1`", Engine.SPARK) == ["my.topic-1"]
    found = checked("SELECT my.topic.value, x FROM my.topic")
    assert [table.topic for table in found.tables] == ["my.topic"]
    assert found.sql == 'SELECT "my.topic"."value", "x" FROM "topic_0" AS "my.topic"'


def test_the_namespace_of_tables_may_be_named() -> None:
    assert read("SELECT * FROM topics.orders, headwater.topics.orders") == ["orders"]
    assert read("SELECT * FROM headwater.topics.dotted") == ["headwater.topics.dotted"]
    assert 'may be the topics "topics.twice" and "twice"' in refusal("SELECT * FROM topics.twice")
    assert read('SELECT * FROM "topics.twice"') == ["topics.twice"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_topic_without_the_right_does_not_exist(engine: Engine) -> None:
    forbidden = refusal("SELECT * FROM salaries", engine)
    assert forbidden.replace("salaries", "nowhere1") == refusal("SELECT * FROM nowhere1", engine)


def test_the_case_of_names_matters_and_hints_are_of_own_topics() -> None:
    assert 'did you mean "Clicks"?' in refusal("SELECT * FROM clicks")
    assert 'did you mean "orders"?' in refusal("SELECT * FROM order")
    assert "did you mean" not in refusal("SELECT * FROM salarie")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "sql",
    [
        "WITH salaries AS (SELECT * FROM salaries) SELECT * FROM salaries",
        "WITH a AS (WITH salaries AS (SELECT 1) SELECT * FROM salaries) SELECT * FROM salaries",
        "SELECT * FROM (WITH salaries AS (SELECT 1) SELECT 1) x, salaries",
        "WITH b AS (SELECT * FROM c), c AS (SELECT 1) SELECT * FROM b",
        "SELECT (SELECT max(offset) FROM salaries) FROM orders",
        "SELECT * FROM orders WHERE offset IN (SELECT offset FROM salaries)",
        "SELECT * FROM orders o, LATERAL (SELECT * FROM salaries) s",
        "SELECT * FROM orders ORDER BY (SELECT max(offset) FROM salaries)",
        "SELECT * FROM orders UNION SELECT * FROM salaries",
        "SELECT sum((SELECT 1 FROM salaries)) OVER (ORDER BY offset) FROM orders",
        "SELECT * FROM topics.salaries",
        "SELECT * FROM topic_0",
        "SELECT * FROM named_0",
        "WITH x AS (SELECT 1) SELECT * FROM named_0",
    ],
)
def test_no_way_leads_to_another_topic(sql: str, engine: Engine) -> None:
    assert "does not exist" in refusal(sql, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_names_of_queries_hide_topics_as_they_do_in_the_engine(engine: Engine) -> None:
    assert read("WITH salaries AS (SELECT 1 AS x) SELECT x FROM Salaries", engine) == []
    assert read("WITH orders AS (SELECT * FROM orders) SELECT * FROM ORDERS", engine) == ["orders"]
    assert read("WITH a AS (SELECT 1 AS x), b AS (SELECT x FROM a) SELECT * FROM a JOIN b USING (x)", engine) == []
    assert "defined twice" in refusal("WITH a AS (SELECT 1), A AS (SELECT 2) SELECT 1", engine)


def test_aliases_with_any_name_stay_aliases() -> None:
    found = checked('SELECT "topic_1".key FROM orders AS "topic_1", Clicks AS "named_0"')
    assert found.sql == 'SELECT "topic_1"."key" FROM "topic_0" AS "topic_1", "topic_1" AS "named_0"'


def test_a_topic_at_one_moment_is_one_table() -> None:
    found = checked("SELECT 1 FROM orders a, orders b, orders AT (VERSION => 3) c, orders AT (VERSION => 3) d")
    assert [(table.view, table.as_of.version) for table in found.tables] == [("topic_0", None), ("topic_1", 3)]


def test_the_number_of_tables_is_limited() -> None:
    enough = ", ".join(f"orders AT (VERSION => {i}) t{i}" for i in range(MAX_TABLES))
    assert len(read(f"SELECT 1 FROM {enough}")) == MAX_TABLES
    assert "at most" in refusal(f"SELECT 1 FROM {enough}, orders")
    assert "at most" in refusal("SELECT 1 FROM " + ", ".join(["orders"] * (MAX_USES + 1)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["read_csv('x')", "query('SELECT 1')", "query_table('orders')"])
def test_functions_are_no_tables(name: str, engine: Engine) -> None:
    assert "is not allowed as a table" in refusal(f"SELECT * FROM {name}", engine)
