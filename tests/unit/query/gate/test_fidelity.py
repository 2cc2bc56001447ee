"""What is written for DuckDB means what the caller wrote: both texts are run, and the answers compared."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import StatementRefused
from headwater.query.asking import Engine
from headwater.query.gate.functions import FUNCTIONS
from tests.unit.query.gate.samples import checked

EVERY_TIME_ANOTHER = {
    "gen_random_uuid", "get_current_timestamp", "now", "random", "transaction_timestamp", "uuid", "uuidv4", "uuidv7",
}  # fmt: skip
NOT_READ = {"factorial", "apply"}
"""Functions whose examples the parser does not know: `4!`, and the name of a clause in other SQL."""
BETWEEN = ["+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "||", "=", "<>", "<", ">=", "AND", "OR", "LIKE"]
AFTER = ["IS NULL", "IS NOT DISTINCT FROM 1", "IN (1, 2)", "BETWEEN 0 AND 2", "::INT", "::VARCHAR", "::BOOLEAN"]
VALUES = ["1", "2", "5", "0", "1.5", "NULL", "TRUE", "'a'", "'1'", "[1, 2]", "{'a': 1}"]


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def answer(connection: duckdb.DuckDBPyConnection, sql: str) -> str | None:
    """The rows of a statement; None if DuckDB cannot run it."""
    try:
        return repr(connection.execute(sql).fetchall())
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
            assert answer(database, checked(f"SELECT {example}").sql) == expected, example
            compared += 1
    assert compared > 350


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> str:
    sign = draw(st.sampled_from(["", "", "-", "~", "NOT "]))
    if depth == 0:
        return sign + draw(st.sampled_from(VALUES))
    left = draw(expressions(depth - 1))
    if draw(st.integers(0, 3)) == 0:
        return f"{sign}{left} {draw(st.sampled_from(AFTER))}"
    return f"{sign}{left} {draw(st.sampled_from(BETWEEN))} {draw(expressions(depth - 1))}"


@settings(max_examples=300, deadline=None)
@given(expression=expressions())
def test_operators_bind_as_in_duckdb(database: duckdb.DuckDBPyConnection, expression: str) -> None:
    expected = answer(database, f"SELECT {expression}")
    if expected is None:
        return
    try:
        written = checked(f"SELECT {expression}").sql
    except StatementRefused:
        return  # a part that the parser does not know
    assert answer(database, written) == expected


@pytest.mark.parametrize("exponent", ["~1", "~1 * 3", "~(1)"])
def test_an_exponent_that_begins_with_a_complement_needs_brackets(
    database: duckdb.DuckDBPyConnection, exponent: str
) -> None:
    """DuckDB and the parser disagree about where it ends."""
    with pytest.raises(StatementRefused, match=r"put brackets around the exponent that begins with ~"):
        checked(f"SELECT 2 ** {exponent} + 1")
    inside = f"SELECT 2 ** ({exponent}) + 1"
    assert answer(database, checked(inside).sql) == answer(database, inside) is not None
