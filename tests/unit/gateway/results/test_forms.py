"""Forms of results: each can be read back, also in many pieces, and a broken one does not look whole."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from headwater.gateway.results.forms import MEDIA, About, Form, columns_of, writer_of

BATCHES = [
    pa.record_batch({"n": [1, 2], "text": ['a,"b"\n', None], "raw": [b"x", b"\xff"]}),
    pa.record_batch(
        {"n": [], "text": [], "raw": []},
        schema=pa.schema([("n", pa.int64()), ("text", pa.string()), ("raw", pa.binary())]),
    ),
    pa.record_batch(
        {"n": [3], "text": [""], "raw": [None]},
        schema=pa.schema([("n", pa.int64()), ("text", pa.string()), ("raw", pa.binary())]),
    ),
]
SCHEMA = BATCHES[0].schema
ABOUT = About(query="q1", engine="duckdb", reason="It is small.", versions={"orders": 3}, columns=columns_of(SCHEMA))


def _written(form: Form, batches: list[pa.RecordBatch], schema: pa.Schema = SCHEMA) -> bytes:
    writer = writer_of(form, schema, ABOUT)
    pieces = [writer.begin()]
    pieces += [writer.rows(part) for batch in batches for part in writer.parts(batch)]
    return b"".join([*pieces, writer.end()])


def test_json() -> None:
    assert json.loads(_written(Form.JSON, BATCHES)) == {
        "query": "q1",
        "engine": "duckdb",
        "reason": "It is small.",
        "versions": {"orders": 3},
        "columns": [
            {"name": "n", "type": "int64"},
            {"name": "text", "type": "string"},
            {"name": "raw", "type": "binary"},
        ],
        "rows": [[1, 'a,"b"\n', "x"], [2, None, {"base64": "/w=="}], [3, "", None]],
        "row_count": 3,
    }
    assert json.loads(_written(Form.JSON, []))["rows"] == []


def test_ndjson() -> None:
    lines = [json.loads(line) for line in _written(Form.NDJSON, BATCHES).splitlines()]
    assert lines == [
        {"n": 1, "text": 'a,"b"\n', "raw": "x"},
        {"n": 2, "text": None, "raw_base64": "/w=="},
        {"n": 3, "text": "", "raw": None},
    ]


def test_csv() -> None:
    text = _written(Form.CSV, BATCHES).decode()
    assert text == 'n,text,raw\n1,"a,""b""\n",x\n2,,base64:/w==\n3,"",\n'
    assert list(csv.reader(io.StringIO(text)))[1] == ["1", 'a,"b"\n', "x"]


def test_arrow() -> None:
    assert pa.ipc.open_stream(_written(Form.ARROW, BATCHES)).read_all() == pa.Table.from_batches(BATCHES)
    assert pa.ipc.open_stream(_written(Form.ARROW, [])).read_all().schema == SCHEMA


def test_parquet() -> None:
    data = _written(Form.PARQUET, BATCHES)
    assert parquet.read_table(io.BytesIO(data)).to_pylist() == pa.Table.from_batches(BATCHES).to_pylist()
    assert parquet.read_table(io.BytesIO(_written(Form.PARQUET, []))).num_rows == 0


def test_parquet_has_row_groups_of_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for each batch of the engine."""
    monkeypatch.setattr("headwater.gateway.results.forms.GROUP_ROWS", 1_000)
    batch = pa.record_batch({"n": list(range(100))})
    data = _written(Form.PARQUET, [batch] * 25, batch.schema)
    assert [parquet.ParquetFile(io.BytesIO(data)).metadata.row_group(i).num_rows for i in range(3)] == [1000, 1000, 500]


def test_columns_of_the_same_name() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert json.loads(_written(Form.JSON, [batch], batch.schema))["rows"] == [[1, 2]]
    assert json.loads(_written(Form.NDJSON, [batch], batch.schema)) == {"a": 1, "a_2": 2}
    assert parquet.read_table(io.BytesIO(_written(Form.PARQUET, [batch], batch.schema))).column_names == ["a", "a_2"]


def test_large_batches_are_written_in_parts() -> None:
    batch = pa.record_batch({"n": list(range(20_000))})
    writer = writer_of(Form.JSON, batch.schema, ABOUT)
    assert [part.num_rows for part in writer.parts(batch)] == [8192, 8192, 3616]
    found = json.loads(_written(Form.JSON, [batch], batch.schema))
    assert found["rows"] == [[n] for n in range(20_000)] and found["row_count"] == 20_000


def test_a_result_that_is_not_whole_says_so() -> None:
    problem = b'{"type":"/problems/query-limit"}'
    for form in Form:
        writer = writer_of(form, SCHEMA, ABOUT)
        data = writer.begin() + writer.rows(BATCHES[0]) + writer.failed(problem)
        if form is Form.JSON:
            found = json.loads(data)
            assert found["error"] == json.loads(problem) and "row_count" not in found and len(found["rows"]) == 2
        elif form is Form.NDJSON:
            assert json.loads(data.splitlines()[-1]) == {"error": json.loads(problem)}
        else:
            assert writer.failed(problem) == b""
    with pytest.raises(pa.ArrowInvalid):
        broken = writer_of(Form.PARQUET, SCHEMA, ABOUT)
        parquet.read_table(io.BytesIO(broken.begin() + broken.rows(BATCHES[0])))


def test_every_form_has_a_media_type() -> None:
    assert set(MEDIA) == set(Form) and len(set(MEDIA.values())) == len(Form)
