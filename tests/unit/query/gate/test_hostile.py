"""Statements that do more than read are refused before an engine has them; and none slips through in a random mix."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from headwater.errors import StatementRefused
from headwater.query.asking import Engine
from headwater.query.gate.functions import FUNCTIONS
from headwater.query.gate.parsing import reparse
from tests.support.hostile import DUCKDB, SPARK
from tests.unit.query.gate.samples import checked

NAMES = {"file": "/store/_data/a.parquet", "secret": "/etc/passwd", "new": "/tmp/new", "spill": "/spill/x"}


def test_there_are_many_of_them() -> None:
    assert len(set(DUCKDB)) >= 60 and len(set(SPARK)) >= 60


@pytest.mark.parametrize("sql", DUCKDB)
def test_duckdb_never_gets_it(sql: str) -> None:
    with pytest.raises(StatementRefused):
        checked(sql.format(**NAMES))


@pytest.mark.parametrize("sql", SPARK)
def test_spark_never_gets_it(sql: str) -> None:
    with pytest.raises(StatementRefused):
        checked(sql.format(**NAMES), Engine.SPARK)


def test_functions_that_are_not_for_callers() -> None:
    denied = {
        Engine.DUCKDB: "read_csv read_text read_blob read_parquet parquet_scan glob query query_table sniff_csv getenv "
        "getvariable current_setting nextval currval setseed write_log sleep_ms pg_sleep duckdb_secrets which_secret "
        "json_execute_serialized_sql json_serialize_sql sql_auto_complete pragma_version arrow_scan pandas_scan",
        Engine.SPARK: "reflect java_method try_reflect input_file_name current_user user session_user version xpath "
        "from_xml call_function udf identifier current_catalog",
    }
    for engine, names in denied.items():
        assert not FUNCTIONS[engine] & set(names.split())


GOOD = [
    "1",
    "key",
    "lower(key)",
    "value->>'a'",
    "count(*)",
    "CASE WHEN offset > 1 THEN 'a' END",
    "'it is ; -- /* '",
    "CAST(key AS VARCHAR)",
    "(SELECT max(offset) FROM orders)",
]
BAD_OF_DUCKDB = [
    "read_text('/x')",
    "getenv('A')",
    '"getenv"(1)',
    "current_setting('a')",
    "nextval('s')",
    "$1",
    "(SELECT 1 FROM salaries)",
    "(SELECT 1 FROM read_csv('x'))",
    "(SELECT 1 FROM 'x.parquet')",
]
BAD_OF_SPARK = [
    "reflect('a', 'b')",
    "`reflect`('a')",
    "java_method('a')",
    "current_user()",
    "input_file_name()",
    "IDENTIFIER('x')",
    "${a}",
    "(SELECT 1 FROM salaries)",
    "(SELECT 1 FROM parquet.`/x`)",
]
BAD = {Engine.DUCKDB: BAD_OF_DUCKDB, Engine.SPARK: BAD_OF_SPARK}
AROUND = [
    "({0})",
    "coalesce({0}, {1})",
    "coalesce({1}, {0})",
    "({0}) = ({1})",
    "({1}) = ({0})",
    "NOT ({0})",
    "CASE WHEN ({0}) THEN ({1}) END",
    "CASE WHEN ({1}) THEN 1 ELSE ({0}) END",
    "(SELECT ({0}) FROM orders WHERE ({1}))",
    "(SELECT ({1}) FROM orders WHERE ({0}))",
    "(WITH w AS (SELECT ({0}) AS x) SELECT x FROM w)",
    "EXISTS (SELECT 1 FROM orders ORDER BY ({0}))",
    "({0}) IN (({1}), 2)",
    "({1}) IN (2, ({0}))",
    "max({1}) OVER (PARTITION BY ({0}))",
    "lower({0}) || ({1})",
    "(SELECT 1 FROM orders o JOIN orders p ON ({0}))",
    "(SELECT 1 UNION ALL SELECT ({0}) LIMIT 1)",
    "({1}) BETWEEN 3 AND ({0})",
]
"""What may be around a part, which is the first one."""


@st.composite
def expressions(draw: st.DrawFn, leaves: list[str], depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(leaves))
    inner = [draw(expressions(leaves, depth - 1)) for _ in range(2)]
    return draw(st.sampled_from(AROUND)).format(*inner)


@settings(max_examples=120, deadline=None)
@given(data=st.data(), engine=st.sampled_from([Engine.DUCKDB, Engine.SPARK]))
def test_a_denied_part_is_found_wherever_it_is(data: st.DataObject, engine: Engine) -> None:
    """A tree of allowed parts passes. With one denied part at any place it does not."""
    good = data.draw(expressions(GOOD))
    assert len(checked(f"SELECT {good} FROM orders", engine).tables) == 1
    bad = data.draw(st.sampled_from(BAD[engine]))
    for _ in range(data.draw(st.integers(0, 3))):
        bad = data.draw(st.sampled_from(AROUND)).format(bad, data.draw(expressions(GOOD, 1)))
    with pytest.raises(StatementRefused):
        checked(f"SELECT {good}, {bad} FROM orders", engine)


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(alphabet="abEXr'\"`\\;-/*$ ()\u00a0\u2019é\n", max_size=12),
    engine=st.sampled_from([Engine.DUCKDB, Engine.SPARK]),
)
def test_strings_and_names_cannot_break_out(text: str, engine: Engine) -> None:
    """Whatever is put between quotes: the function behind it is seen, or it is in a comment and never written."""
    for before, after in (
        ("SELECT '", "' AS x, danger()"),
        ('SELECT key AS "', '", danger()'),
        ("SELECT `", "`, danger()"),
    ):
        try:
            written = checked(before + text + after, engine).sql
        except StatementRefused:
            continue
        assert "--" in text or "/*" in text
        calls = reparse(written, engine).find_all(exp.Anonymous)
        assert "danger" not in [call.name.lower() for call in calls]
