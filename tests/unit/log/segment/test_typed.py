"""Typed columns of segments: written behind the log's columns, read back, null where an earlier file lacks them."""

from __future__ import annotations

import io

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.segment.read import footer_checksum
from headwater.log.segment.rows import plain_rows, plain_schema
from headwater.log.segment.schema import FIELD_ID, segment_schema
from headwater.log.segment.typed import aligned, typed_schema
from headwater.log.segment.write import SegmentWriter, read_pieces

OLD = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.struct([("x", pa.string())])))])
NEW = pa.struct(
    [
        ("a", pa.int64()),
        ("l", pa.list_(pa.struct([("x", pa.string()), ("y", pa.int64())]))),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)


def rows(count: int) -> pa.RecordBatch:
    given = {"key": [b"k"] * count, "value": [b"v"] * count, "timestamp_ms": [5] * count, "headers": [None] * count}
    return plain_rows(0, 10, pa.RecordBatch.from_pydict(given, schema=plain_schema()), append_time=False)


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: str(number)})


def test_typed_columns_are_read_back() -> None:
    """T7: a merge takes typed columns over; the log's columns are as before."""
    typed = [field("value_data", OLD, 100)]
    values = pa.array([{"a": 1, "l": [{"x": "p"}, None]}, None, {"a": None, "l": []}], OLD)
    plain = rows(3)
    sink = io.BytesIO()
    writer = SegmentWriter(sink, typed)
    writer.add(0, pa.RecordBatch.from_arrays([*plain.columns, values], schema=typed_schema(typed)))
    writer.close()
    data = sink.getvalue()
    [piece] = read_pieces(data, footer_checksum(data))
    assert pa.Table.from_batches(piece.batches()).equals(pa.Table.from_batches([plain]))
    [batch] = piece.batches([field("value_data", NEW, 100), field("later", pa.string(), 101)])
    assert batch.schema.names == [*segment_schema().names, "value_data", "later"]
    assert batch.column("later").null_count == 3
    assert batch.column("value_data").to_pylist() == [
        {"a": 1, "l": [{"x": "p", "y": None}, None], "m": None},
        None,
        {"a": None, "l": [], "m": None},
    ]


ITEMS = st.one_of(st.none(), st.fixed_dictionaries({"x": st.one_of(st.none(), st.text(max_size=2))}))
VALUES = st.one_of(
    st.none(),
    st.fixed_dictionaries({"a": st.one_of(st.none(), st.integers(0, 9)), "l": st.one_of(st.none(), st.lists(ITEMS))}),
)


@given(st.lists(VALUES, max_size=8), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_values_keep_their_fields(values: list[dict[str, object] | None], skip: int) -> None:
    """T7: aligned values have what they had, and nulls in new fields."""
    found = aligned(pa.array(values, OLD).slice(skip), NEW).to_pylist()
    assert [one and {"a": one["a"], "l": _without_y(one["l"])} for one in found] == values[skip:]
    assert all(one is None or one["m"] is None for one in found)


def _without_y(items: list[dict[str, object] | None] | None) -> object:
    return items and [item and {"x": item["x"]} for item in items]


def test_maps_and_other_numbers() -> None:
    held = pa.array([[("k", {"x": "v"})], None, []], pa.map_(pa.string(), pa.struct([("x", pa.string())])))
    wider = pa.map_(pa.string(), pa.struct([("x", pa.string()), ("y", pa.bool_())]))
    assert aligned(held, wider).to_pylist() == [[("k", {"x": "v", "y": None})], None, []]
    assert aligned(pa.array([1, None], pa.int32()), pa.int64()).to_pylist() == [1, None]
