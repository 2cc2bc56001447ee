"""Types of parameters, by the words around them."""

from __future__ import annotations

import pytest

from headwater.errors import StatementRefused
from headwater.gateway.flight.parameters import parameters_of
from headwater.query.gate.parsing import MAX_PARAMETERS, MAX_TEXT
from tests.support.promise import promise

PROMISES = ("Q7", "S4")


@pytest.mark.parametrize(
    ("sql", "types"),
    [
        ("SELECT 1", []),
        ('SELECT * FROM t WHERE "offset" >= ? AND partition = ?', ["int64", "int32"]),
        ("SELECT * FROM t WHERE offset BETWEEN ? AND ?", ["int64", "int64"]),
        ("SELECT * FROM t WHERE partition IN (?, ?, ?)", ["int32"] * 3),
        ("SELECT * FROM t WHERE ? < t.offset", ["string"]),
        ("SELECT * FROM t WHERE ? < offset", ["int64"]),
        ("SELECT * FROM t WHERE t.offset = ?", ["int64"]),
        ("SELECT * FROM t WHERE value->>'user' = ?", ["string"]),
        ("SELECT CAST(? AS BIGINT), ? ::DOUBLE, ?", ["int64", "double", "string"]),
        ("SELECT * FROM t LIMIT ? OFFSET ?", ["int64", "int64"]),
        ("SELECT '?' AS q, \"?\" -- ?\nFROM t /* ? */ WHERE key = ?", ["binary"]),
        ("SELECT * FROM t WHERE partition IN (?, ?) AND f(?, ?) = 1", ["int32", "int32", "string", "string"]),
        ("SELECT ?, ?, key FROM t WHERE t.key IN (?)", ["string", "string", "binary"]),
        ("?", ["string"]),
        ("", []),
    ],
)
def test_types(sql: str, types: list[str]) -> None:
    assert [str(kind) for kind in parameters_of(sql)] == types


@pytest.mark.parametrize("sql", ["SELECT 'x", "x" * 70_000, "SELECT " + "?, " * 1_001 + "1"])
def test_refused(sql: str) -> None:
    with pytest.raises(StatementRefused):
        parameters_of(sql)


@promise("S4")
@pytest.mark.timeout(60)
def test_a_list_of_many_parameters_behind_a_long_text() -> None:
    """Each word is looked at a few times: once this took many minutes, and its gateway did nothing else meanwhile."""
    listed = ",".join("?" * MAX_PARAMETERS)
    before = "SELECT " + "1," * ((MAX_TEXT - len(listed) - 50) // 2) + "1 WHERE partition IN ("
    assert [str(kind) for kind in parameters_of(f"{before}{listed})")] == ["int32"] * MAX_PARAMETERS
