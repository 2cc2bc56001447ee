"""Dictionaries of typed texts: only where texts repeat, at any depth."""

from __future__ import annotations

import io

import pyarrow as pa
from pyarrow import parquet

from headwater.log.segment.repeats import FEW, SAMPLE_ROWS, repeating
from headwater.log.segment.rows import plain_rows, plain_schema
from headwater.log.segment.schema import FIELD_ID
from headwater.log.segment.typed import typed_schema
from headwater.log.segment.write import SegmentWriter
from tests.support.promise import promise

COUNT = 3 * SAMPLE_ROWS
KIND = pa.struct([
    ("same", pa.string()), ("own", pa.string()), ("n", pa.int64()), ("some", pa.string()),
    ("tags", pa.list_(pa.field("element", pa.string()))), ("map", pa.map_(pa.string(), pa.string())),
])  # fmt: skip
FIELDS = [pa.field("value_data", KIND, metadata={FIELD_ID: "100"}), pa.field("decode_error", pa.string())]


def batch(first: int, count: int) -> pa.RecordBatch:
    """Rows of one partition, with typed columns."""
    given = {"key": [b"k"] * count, "value": [b"v"] * count, "timestamp_ms": [5] * count, "headers": [None] * count}
    log = plain_rows(0, first, pa.RecordBatch.from_pydict(given, schema=plain_schema()), append_time=False)
    values = [
        {
            "same": f"s{i % 1_000}", "own": f"o{i}", "n": i, "some": f"x{i}" if i % 100 == 0 else None,
            "tags": ["a", f"t{i % 3}"], "map": [("k", f"m{i}")],
        }
        for i in range(first, first + count)
    ]  # fmt: skip
    columns = [*log.columns, pa.array(values, KIND), pa.nulls(count, pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=typed_schema(FIELDS))


def test_texts_that_repeat_are_found_at_any_depth() -> None:
    found = repeating([batch(0, COUNT // 2), batch(COUNT // 2, COUNT // 2)], FIELDS)
    assert found == [
        "value_data.same", "value_data.some", "value_data.tags.list.element", "value_data.map.key_value.key",
        "decode_error",
    ]  # fmt: skip


def test_without_rows_or_with_few_all_texts_may_repeat() -> None:
    own = "value_data.own"
    assert own in repeating([], FIELDS) and own in repeating([batch(0, FEW)], FIELDS)
    assert own not in repeating([batch(0, FEW + 1)], FIELDS)
    assert repeating([batch(0, 10)], []) == []


@promise("T2")
def test_only_those_have_dictionaries_in_the_file() -> None:
    """The values are the same; the columns of the log are written as ever."""
    sink = io.BytesIO()
    writer = SegmentWriter(sink, FIELDS)
    rows = batch(0, COUNT)
    writer.add(0, rows)
    writer.close()
    file = parquet.ParquetFile(pa.BufferReader(sink.getvalue()))
    group = file.metadata.row_group(0)
    chunks = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    with_dictionary = {path for path, chunk in chunks.items() if chunk.has_dictionary_page}
    assert {"partition", "value_data.same", "value_data.tags.list.element"} <= with_dictionary
    assert not {"value_data.own", "value", "value_data.map.key_value.value"} & with_dictionary
    assert file.read(columns=["value_data"]).column(0).to_pylist() == rows.column("value_data").to_pylist()


def test_a_segment_without_rows_is_a_file() -> None:
    sink = io.BytesIO()
    assert SegmentWriter(sink, FIELDS).close().rows == 0
    assert parquet.ParquetFile(pa.BufferReader(sink.getvalue())).metadata.num_rows == 0
