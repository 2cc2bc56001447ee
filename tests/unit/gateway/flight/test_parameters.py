"""Types of parameters, by the words around them."""

from __future__ import annotations

import pytest

from headwater.errors import StatementRefused
from headwater.gateway.flight.parameters import parameters_of

PROMISES = ("Q7",)


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
