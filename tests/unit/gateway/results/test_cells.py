"""Cells of results: every type has a JSON value and a text, and no value is lost or mistaken for another."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.gateway.results.cells import JSON, objects_of, rows_of, texts_of, unique, values_of

DAY = dt.datetime(2026, 1, 31, 12, 0, 0, 250_000)
CELLS: list[tuple[pa.Array, list[Any], list[str | None]]] = [
    (pa.array([1, None, -(1 << 63)], pa.int64()), [1, None, -(1 << 63)], ["1", None, str(-(1 << 63))]),
    (pa.array([0.5, float("nan"), float("inf")]), [0.5, None, None], ["0.5", "nan", "inf"]),
    (pa.array([True, False]), [True, False], ["true", "false"]),
    (pa.array(["a", ""]), ["a", ""], ["a", ""]),
    (pa.array([Decimal("12345678901234567890.5")]), [Decimal("12345678901234567890.5")], ["12345678901234567890.5"]),
    (pa.array([b"text", None]), ["text", None], ["text", None]),
    (pa.array([b"text", b"\xff", None]), ["text", {"base64": "/w=="}, None], ["text", "base64:/w==", None]),
    (pa.array([b"\xff"], pa.large_binary()), [{"base64": "/w=="}], ["base64:/w=="]),
    (pa.array([DAY], pa.timestamp("us", "UTC")), ["2026-01-31T12:00:00.250000Z"], ["2026-01-31T12:00:00.250000Z"]),
    (pa.array([DAY], pa.timestamp("ns")), ["2026-01-31T12:00:00.250000"], ["2026-01-31T12:00:00.250000"]),
    (pa.array([DAY.date()]), ["2026-01-31"], ["2026-01-31"]),
    (pa.array([DAY.time()]), ["12:00:00.250000"], ["12:00:00.250000"]),
    (pa.array([[1, 2], []]), [[1, 2], []], ["[1,2]", "[]"]),
    (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"], ["a", "b", "a"]),
    (
        pa.array([[{"key": "h", "value": b"\xff"}, {"key": "i", "value": b"v"}]]),
        [[{"key": "h", "value_base64": "/w=="}, {"key": "i", "value": "v"}]],
        ['[{"key":"h","value_base64":"/w=="},{"key":"i","value":"v"}]'],
    ),
    (pa.array([[b"a", b"\xff"]]), [["a", {"base64": "/w=="}]], ['["a",{"base64":"/w=="}]']),
    (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), [{"a": 1}], ['{"a":1}']),
    (
        pa.array([[(7, b"\xff")]], pa.map_(pa.int64(), pa.binary())),
        [[[7, {"base64": "/w=="}]]],
        ['[[7,{"base64":"/w=="}]]'],
    ),
    (pa.array([None, None]), [None, None], [None, None]),
    (pa.array([(1, 2, 3_500_000_000)], pa.month_day_nano_interval()), ["P1M2DT3.5S"], ["P1M2DT3.5S"]),
]


@pytest.mark.parametrize(("column", "values", "texts"), CELLS, ids=lambda one: str(getattr(one, "type", "")))
def test_cells(column: pa.Array, values: list[Any], texts: list[str | None]) -> None:
    shown = json.loads(JSON.encode(values_of(column)), parse_float=Decimal)
    assert shown == [
        float(one) if isinstance(one, float) else one for one in json.loads(JSON.encode(values), parse_float=Decimal)
    ]
    assert texts_of(column) == texts


def test_a_part_of_a_column_is_shown_as_that_part() -> None:
    column = pa.array([b"a", b"\xff", b"c"])
    assert texts_of(column.slice(2)) == ["c"] and texts_of(column.slice(0, 1)) == ["a"]


def test_times_that_python_does_not_have() -> None:
    column = pa.array([1 << 55, 0], pa.timestamp("s"))
    [far, near] = texts_of(column)
    assert far and near and near.startswith("1970-01-01")


def test_names_are_made_unique() -> None:
    assert unique(["a", "a", "a_2", "a", "b"]) == ["a", "a_3", "a_2", "a_4", "b"]


def test_objects_name_bytes_that_are_not_text() -> None:
    """As records do. Where that name is taken, the mark is inside."""
    batch = pa.record_batch({"value": [b"\xff", b"v"], "n": [1, 2]})
    assert objects_of(batch, batch.schema.names) == [{"value_base64": "/w==", "n": 1}, {"value": "v", "n": 2}]
    taken = pa.record_batch({"value": [b"\xff"], "value_base64": ["x"]})
    [row] = json.loads(JSON.encode(objects_of(taken, taken.schema.names)))
    assert row == {"value": {"base64": "/w=="}, "value_base64": "x"}
    assert rows_of(pa.record_batch({"a": pa.array([], pa.int64())})) == []
