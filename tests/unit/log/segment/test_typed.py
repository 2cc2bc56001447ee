"""Typed columns of segments: written behind the log's columns, read back, null where an earlier file lacks them."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from headwater.errors import Damaged
from headwater.log.segment import write
from headwater.log.segment.read import LOG_LEAVES, SegmentReader, footer_bytes, footer_checksum
from headwater.log.segment.rows import plain_rows, plain_schema
from headwater.log.segment.schema import FIELD_ID, segment_schema
from headwater.log.segment.typed import aligned, typed_schema
from headwater.log.segment.verify import GroupRows, verify_segment
from headwater.log.segment.write import SegmentWriter, read_pieces
from tests.support.promise import promise

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


@promise("T7")
def test_typed_columns_are_read_back() -> None:
    """A merge takes typed columns over; the log's columns are as before."""
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


ODD = field("value.x", pa.int64(), 107)
"""A column whose name looks like a part of the log's `value`."""


@promise("T2", "T6")
def test_consumers_get_the_same_from_a_file_with_typed_columns() -> None:
    """The bytes that serve records are next to each other, and nothing else is read for them."""
    count = 3_000
    plain, typed = rows(count), [field("value_data", NEW, 100), ODD]
    extra = [pa.array([{"a": i, "l": [{"x": "t" * 50, "y": i}], "m": [("k", i)]} for i in range(count)], NEW)]
    extra.append(pa.array(range(count), pa.int64()))
    found, none = [], list[pa.Field]()
    for fields in (none, typed):
        sink = io.BytesIO()
        writer = SegmentWriter(sink, fields, [107, 999])
        columns = [*plain.columns, *extra[: len(fields)]]
        writer.add(0, pa.RecordBatch.from_arrays(columns, schema=typed_schema(fields)))
        facts = writer.close()
        data = sink.getvalue()
        reader = SegmentReader(data[-footer_bytes(data) :])
        [group] = reader.groups
        served = data[group.position : group.position + group.length]
        encoded = reader.decode(0, served).encode(10, 10 + count, 1 << 24, True)
        places = reader.ranges(0, ["key", "value"])
        keys = reader.columns(0, ["key", "value"], [(at, data[at : at + size]) for at, size in places])
        found.append((bytes(encoded.records), group.length, facts.digest, keys, reader.key_filters()[0] is not None))
    (records, length, digest, keys, filtered), other = found
    assert other[:3] == (records, length, digest) and other[4] and filtered
    assert keys.equals(other[3]) and keys.column_names == ["key", "value"]
    metadata = parquet.read_metadata(io.BytesIO(data)).row_group(0)
    paths = {metadata.column(i).path_in_schema: metadata.column(i) for i in range(metadata.num_columns)}
    assert paths["value.x"].statistics.max == count - 1 and paths["key"].statistics.min == b"k"
    assert paths["value.x"].bloom_filter_offset is not None
    assert paths["value_data.a"].statistics is None and paths["value_data.a"].bloom_filter_offset is None
    assert metadata.num_columns == LOG_LEAVES + 6


@promise("T6")
def test_a_merge_of_a_file_with_an_odd_name_reads_the_log_alone() -> None:
    """A typed column is not taken for a field of the log's."""
    sink = io.BytesIO()
    writer = SegmentWriter(sink, [ODD])
    writer.add(0, pa.RecordBatch.from_arrays([*rows(3).columns, pa.array([1, 2, 3])], schema=typed_schema([ODD])))
    writer.close()
    [piece] = read_pieces(sink.getvalue(), footer_checksum(sink.getvalue()))
    [batch] = piece.batches()
    assert batch.equals(rows(3))
    assert next(piece.batches([ODD])).column("value.x").to_pylist() == [1, 2, 3]


@promise("L10")
def test_damage_of_typed_columns_is_found() -> None:
    """Consumers do not read them, but whoever checks a whole segment does."""
    sink = io.BytesIO()
    field_of = field("value_data", pa.string(), 100)
    writer = SegmentWriter(sink, [field_of])
    values = pa.array([f"typed {i}" for i in range(500)])
    writer.add(0, pa.RecordBatch.from_arrays([*rows(500).columns, values], schema=typed_schema([field_of])))
    facts = writer.close()
    data = bytearray(sink.getvalue())
    [sound] = verify_segment(bytes(data), footer_checksum(data))
    assert isinstance(sound, GroupRows) and (sound.rows, sound.digest) == (500, facts.digest)
    chunk = parquet.read_metadata(io.BytesIO(data)).row_group(0).column(LOG_LEAVES)
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    [flaw] = verify_segment(bytes(data), footer_checksum(data))
    assert isinstance(flaw, Damaged) and "typed columns" in str(flaw)
    [piece] = read_pieces(bytes(data), footer_checksum(data))
    assert list(piece.batches()) == [rows(500)]


@promise("T6")
def test_row_groups_with_typed_columns_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the bytes of all columns too, which the writer holds in memory."""
    monkeypatch.setattr(write, "TYPED_BYTES", 100_000)
    big = field("value_data", pa.string(), 100)
    writer = SegmentWriter(io.BytesIO(), [big])
    for i in range(4):
        moved = rows(3).set_column(1, "offset", pa.array(range(3 * i, 3 * i + 3)))
        values = pa.array(["x" * 20_000] * 3)
        writer.add(0, pa.RecordBatch.from_arrays([*moved.columns, values], schema=typed_schema([big])))
    assert writer.close().groups == 4


ITEMS = st.one_of(st.none(), st.fixed_dictionaries({"x": st.one_of(st.none(), st.text(max_size=2))}))
VALUES = st.one_of(
    st.none(),
    st.fixed_dictionaries({"a": st.one_of(st.none(), st.integers(0, 9)), "l": st.one_of(st.none(), st.lists(ITEMS))}),
)


@promise("T7")
@given(st.lists(VALUES, max_size=8), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_values_keep_their_fields(values: list[dict[str, object] | None], skip: int) -> None:
    """Aligned values have what they had, and nulls in new fields."""
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
