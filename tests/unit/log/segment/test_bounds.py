"""Bounds of columns in a segment: no value is outside of them, however they are cut short."""

from __future__ import annotations

import io
import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.types import BinaryType, BooleanType, DateType, DecimalType, DoubleType, LongType, StringType

from headwater.log.segment.bounds import bytes_above, text_above
from headwater.log.segment.rows import plain_rows, plain_schema
from headwater.log.segment.schema import FIELD_ID
from headwater.log.segment.typed import typed_schema
from headwater.log.segment.write import SegmentWriter
from headwater.state.commands.columns import KEY_COLUMN, Bounds
from tests.support.promise import promise

PROMISES = ("T17",)


def rows(keys: list[bytes | None], start: int = 0) -> pa.RecordBatch:
    count = len(keys)
    given = {"key": keys, "value": [b"v"] * count, "timestamp_ms": [5] * count, "headers": [None] * count}
    return plain_rows(0, start, pa.RecordBatch.from_pydict(given, schema=plain_schema()), append_time=False)


def key_bounds(*groups: list[bytes | None]) -> Bounds | None:
    """The bounds of keys in a file with these row groups."""
    writer, start = SegmentWriter(io.BytesIO()), 0
    for keys in groups:
        writer.add(0, rows(keys, start))
        writer.end_part()
        start += len(keys)
    found = writer.close().bounds
    assert len(found) <= 1
    return found[0] if found else None


@promise("T17")
def test_bounds_of_keys() -> None:
    """Over all row groups, sixteen bytes at most; none of keys that are all null or too long for statistics."""
    long = b"k" * 15 + b"\xff\xff\xff"
    assert key_bounds([b"m", None, long], [b"z\x00", b"a" * 40]) == Bounds(KEY_COLUMN, 1, b"a" * 16, b"z\x00")
    assert key_bounds([b"m", long]) == Bounds(KEY_COLUMN, 0, b"k" * 15 + b"\xff", b"m")
    assert key_bounds([long]) == Bounds(KEY_COLUMN, 0, b"k" * 15 + b"\xff", b"k" * 14 + b"l")
    assert key_bounds([b"\xff" * 20]) == Bounds(KEY_COLUMN, 0, b"\xff" * 16, None)
    assert key_bounds([None, None], [b""]) == Bounds(KEY_COLUMN, 2, b"", b"")
    assert key_bounds([None, None]) == Bounds(KEY_COLUMN, 2, None, None)
    assert key_bounds([b"x" * 5_000, b"y"]) is None
    assert SegmentWriter(io.BytesIO()).close().bounds == ()


INNER: list[tuple[str, pa.DataType, list[Any], Any, tuple[Any, Any]]] = [
    ("whole", pa.int64(), [-5, None, 1 << 62], LongType(), (-5, 1 << 62)),
    ("number", pa.float64(), [0.0, 2.5, -0.0], DoubleType(), (-0.0, 2.5)),
    ("odd", pa.float64(), [1.0, math.nan, None], DoubleType(), (None, None)),
    ("yes", pa.bool_(), [True, False, None], BooleanType(), (False, True)),
    ("day", pa.date32(), [date(1900, 1, 2), None, date(2030, 5, 6)], DateType(), (-25566, 22040)),
    (
        "price",
        pa.decimal128(20, 2),
        [Decimal("-1.28"), Decimal("327.68"), Decimal("0.00")],
        DecimalType(20, 2),
        (Decimal("-1.28"), Decimal("327.68")),
    ),
    ("text", pa.string(), ["ä" * 40, "z", None], StringType(), ("z", "ä" * 31 + "å")),
    ("raw", pa.binary(), [b"\x01\x02", None, None], BinaryType(), (b"\x01\x02", b"\x01\x02")),
    ("none", pa.string(), [None, None, None], StringType(), (None, None)),
]


@promise("T17")
def test_bounds_of_typed_columns() -> None:
    """In Iceberg's binary form, also inside of structs. None where a value is no number, or inside of lists."""
    inner = [pa.field(name, kind, metadata={FIELD_ID: str(110 + i)}) for i, (name, kind, *_) in enumerate(INNER)]
    items = pa.list_(pa.field("element", pa.int64(), metadata={FIELD_ID: "102"}))
    typed = [
        pa.field("items", items, metadata={FIELD_ID: "101"}),
        pa.field("value_data", pa.struct(inner), metadata={FIELD_ID: "103"}),
    ]
    wanted = [101, 102, 103, *range(110, 110 + len(INNER))]
    writer = SegmentWriter(io.BytesIO(), typed, wanted)
    arrays = [pa.array([[1], [2], [3]], items)]
    columns = [pa.array(values, kind) for _, kind, values, _, _ in INNER]
    arrays.append(pa.StructArray.from_arrays(columns, fields=inner))
    batch = pa.RecordBatch.from_arrays([*rows([b"k"] * 3).columns, *arrays], schema=typed_schema(typed))
    writer.add(0, batch)
    found = {one.column: one for one in writer.close().bounds}
    assert list(found) == sorted(found) and found.pop(KEY_COLUMN).lower == b"k"
    for i, (name, _, values, kind, expected) in enumerate(INNER):
        one = found.pop(110 + i, None)
        if name == "odd":
            assert one is None
            continue
        assert one is not None and one.nulls == values.count(None)
        bounds = tuple(None if raw is None else from_bytes(kind, raw) for raw in (one.lower, one.upper))
        assert bounds == expected, name
        if name == "number":
            assert math.copysign(1, bounds[0]) == -1
    assert not found


@promise("T17")
def test_times_beyond_the_calendar() -> None:
    """Statistics are taken raw, so no value is too large for them."""
    stamps = [-(1 << 63), int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000]
    typed = [pa.field("at", pa.timestamp("us", "UTC"), metadata={FIELD_ID: "100"})]
    writer = SegmentWriter(io.BytesIO(), typed, [100])
    array = pa.array(stamps, pa.int64()).cast(typed[0].type)
    writer.add(0, pa.RecordBatch.from_arrays([*rows([None, None]).columns, array], schema=typed_schema(typed)))
    [_, found] = writer.close().bounds
    assert (found.lower, found.upper) == tuple(struct.pack("<q", stamp) for stamp in stamps)


@promise("T17")
@given(st.binary(max_size=12), st.binary(max_size=8), st.integers(1, 6))
def test_what_is_above_bytes(value: bytes, more: bytes, size: int) -> None:
    """An upper bound holds for all values with the same beginning."""
    above = bytes_above(value, size)
    if above is None:
        assert value[:size] == b"\xff" * size
        return
    assert len(above) <= size and value <= above
    assert len(value) <= size or value[:size] + more <= above


@promise("T17")
@given(st.text(max_size=12), st.text(max_size=8), st.integers(1, 6))
def test_what_is_above_texts(value: str, more: str, size: int) -> None:
    """The same for characters, in the order of their bytes; the bound is a text that can be encoded."""
    above = text_above(value, size)
    if above is None:
        assert value[:size] == chr(0x10FFFF) * size
        return
    assert len(above) <= size and value.encode() <= above.encode()
    assert len(value) <= size or (value[:size] + more).encode() <= above.encode()


@promise("T17")
def test_no_surrogates_and_no_overflow() -> None:
    assert text_above("a\ud7ff" + "b", 2) == "a\ue000"
    assert text_above("a\U0010ffff\U0010ffffb", 3) == "b"
    assert text_above("\U0010ffff" * 3, 2) is None
