"""What the Delta log says of typed columns, in JSON."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

import pytest

from headwater.lake.tables.delta.statistics import places_of, statistics
from headwater.state.commands.columns import Bounds, Column
from tests.support.promise import promise
from tests.unit.lake.tables.delta.making import segment

PROMISES = ("T17",)


def column(number: int, name: str, kind: str, *children: Column) -> Column:
    return Column(number, name, name, kind, "", children)


def stats(kind: str, lower: bytes | None, upper: bytes | None) -> tuple[Any, Any]:
    """The bounds of a field inside of a struct."""
    columns = [column(100, "value_data", "struct", column(101, "a", kind))]
    text = statistics(segment(1, 10), [Bounds(5, 0, b"k", b"l"), Bounds(101, 3, lower, upper)], places_of(columns))
    facts = json.loads(text, parse_float=Decimal)
    assert facts["nullCount"]["value_data"] == {"a": 3}
    assert not any("key" in facts[name] for name in ("minValues", "maxValues", "nullCount"))
    low, high = (facts[name].get("value_data", {}).get("a") for name in ("minValues", "maxValues"))
    return low, high


@promise("T17")
@pytest.mark.parametrize(
    ("kind", "lower", "upper", "expected"),
    [
        ("long", struct.pack("<q", -5), struct.pack("<q", 1 << 62), (-5, 1 << 62)),
        ("double", struct.pack("<d", -2.5), struct.pack("<d", 1e300), (Decimal("-2.5"), Decimal("1e300"))),
        ("double", struct.pack("<d", -2.5), struct.pack("<d", float("inf")), (Decimal("-2.5"), None)),
        ("string", b"a", "ä\0".encode(), ("a", "ä\0")),
        ("json", b"{", None, ("{", None)),
        ("decimal(20,2)", b"\x80", b"\x7f\xff", (Decimal("-1.28"), Decimal("327.67"))),
        ("decimal(38,0)", b"\x81" + bytes(15), b"\x7f" + b"\xff" * 15, (-(127 << 120), (1 << 127) - 1)),
        ("date", struct.pack("<i", -1), struct.pack("<i", 2_932_896), ("1969-12-31", "9999-12-31")),
        ("date", struct.pack("<i", -800_000), struct.pack("<i", 2_932_897), (None, None)),
        (
            "timestamptz",
            struct.pack("<q", 1_700_000_000_000_999),
            struct.pack("<q", 1_700_000_000_000_001),
            ("2023-11-14T22:13:20.000000Z", "2023-11-14T22:13:20.001000Z"),
        ),
        ("timestamptz", struct.pack("<q", -1), struct.pack("<q", 1 << 62), (None, None)),
        ("timestamp", struct.pack("<q", 1), struct.pack("<q", 2), (None, None)),
        ("boolean", b"\x00", b"\x01", (None, None)),
        ("binary", b"a", b"b", (None, None)),
        ("long", None, None, (None, None)),
    ],
)
def test_bounds(kind: str, lower: bytes | None, upper: bytes | None, expected: tuple[Any, Any]) -> None:
    """In Delta's form, and no narrower than they are; none where engines do not agree on it."""
    assert stats(kind, lower, upper) == expected


@promise("T17")
def test_places() -> None:
    """Fields of structs have places, those inside of lists and maps have none."""
    columns = [
        column(100, "decode_error", "string"),
        column(101, "s", "struct", column(102, "t", "struct", column(103, "x", "long")), column(104, "y", "date")),
        column(105, "l", "list", column(106, "element", "long")),
    ]
    found = {number: place.way for number, place in places_of(columns).items()}
    assert found == {100: ("decode_error",), 103: ("s", "t", "x"), 104: ("s", "y")}
    text = statistics(segment(1), [Bounds(n, 0, None, None) for n in (103, 104, 106)], places_of(columns))
    assert json.loads(text)["nullCount"]["s"] == {"t": {"x": 0}, "y": 0}
