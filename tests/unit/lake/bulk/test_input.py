"""Files of Parquet and Arrow as records: formats by content, columns by name and type, and what is refused."""

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from headwater.errors import BadInput
from headwater.lake.bulk import input as bulk_input
from headwater.lake.bulk.input import InputFile, Shape
from headwater.log.segment.rows import plain_schema
from tests.support.promise import promise

PROMISES = ("L8",)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def write(path: Path, table: pa.Table, kind: str, rows: int | None = None) -> Path:
    if kind == "parquet":
        parquet.write_table(table, path, row_group_size=rows)
        return path
    make = ipc.new_file if kind == "file" else ipc.new_stream
    with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def read(path: Path, **shape: Any) -> list[dict[str, Any]]:
    found = []
    for records in InputFile(path, Shape(**shape)).records():
        assert records.batch.schema.equals(plain_schema())
        assert records.first_row == len(found)
        found += records.batch.to_pylist()
    return found


@promise("L8")
@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_the_content_tells_the_format(tmp_path: Path, kind: str) -> None:
    """Whatever the file is called; rows come in order over groups, batches and pieces."""
    table = pa.table({"key": [f"k{i}" for i in range(100)], "value": [b"%d" % i for i in range(100)]})
    path = write(tmp_path / "rows.txt", table, kind, rows=30)
    source = InputFile(path, Shape())
    assert source.rows == (100 if kind == "parquet" else None)
    assert [(row["key"], row["value"]) for row in read(path)] == [(b"k%d" % i, b"%d" % i) for i in range(100)]
    assert len(list(source.records())) == len(list(source.records())) == 4


@promise("L8")
@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_pieces_are_bounded(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rows and by bytes, whatever the groups of the file are."""
    monkeypatch.setattr(bulk_input, "PIECE_ROWS", 40)
    monkeypatch.setattr(bulk_input, "PIECE_BYTES", 1_000)
    path = write(tmp_path / "x", pa.table({"value": [b"x"] * 95}), kind)
    assert [records.batch.num_rows for records in InputFile(path, Shape()).records()] == [40, 40, 15]
    large = write(tmp_path / "y", pa.table({"value": [bytes([65 + i]) * 600 for i in range(5)]}), kind)
    assert [records.batch.num_rows for records in InputFile(large, Shape()).records()] == [1] * 5


@promise("L8")
@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(3),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_bytes_in_all_their_types(tmp_path: Path, kind: pa.DataType) -> None:
    texts = pa.array(["abc", None, "def"], pa.string())
    column = texts.dictionary_encode() if pa.types.is_dictionary(kind) else texts.cast(pa.binary()).cast(kind)
    path = write(tmp_path / "x", pa.table({"key": column, "value": column}), "file")
    assert [(row["key"], row["value"]) for row in read(path)] == [(b"abc", b"abc"), (None, None), (b"def", b"def")]


@promise("L8")
def test_times_and_headers(tmp_path: Path) -> None:
    """Timestamps of every unit, int64 as milliseconds, and headers as they are; what is not there stays open."""
    when = datetime.datetime(2024, 5, 6, 7, 8, 9, 123_456, tzinfo=datetime.UTC)
    ms = int(when.timestamp() * 1000)
    pairs = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []]
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ms", "Europe/Berlin")):
        times = pa.array([when.replace(tzinfo=None) if kind.tz is None else when, None, when]).cast(kind, safe=False)
        table = pa.table({"value": ["x", "y", "z"], "timestamp": times, "headers": pa.array(pairs, HEADERS)})
        found = read(write(tmp_path / "x", table, "parquet"))
        assert [row["timestamp_ms"] for row in found] == [ms, None, ms]
        assert [row["headers"] for row in found] == [pairs[0], [], []]
    table = pa.table({"value": ["x", "y"], "at": pa.array([-5, 7], pa.int64())})
    found = read(write(tmp_path / "y", table, "stream"), timestamp="at")
    assert [(row["timestamp_ms"], row["headers"], row["key"]) for row in found] == [(-5, [], None), (7, [], None)]


@promise("L8")
def test_headers_of_a_slice_and_of_other_types(tmp_path: Path) -> None:
    """Pieces that do not begin at the first row, large lists, strings as contents, fields in another order."""
    kind = pa.large_list(pa.struct([("value", pa.string()), ("key", pa.large_string())]))
    pairs = [[{"key": f"k{i}", "value": f"v{i}"}] * (i % 3) for i in range(100)]
    table = pa.table({"value": [b"x" * 400_000] * 100, "headers": pa.array(pairs, kind)})
    found = read(write(tmp_path / "x", table, "file"))
    assert [row["headers"] for row in found] == [[{"key": f"k{i}", "value": b"v%d" % i}] * (i % 3) for i in range(100)]


@promise("L8")
def test_named_columns(tmp_path: Path) -> None:
    """An empty name turns a column off."""
    table = pa.table({"id": ["a"], "body": ["b"], "key": [1], "timestamp": ["soon"], "a.b": ["c"]})
    path = write(tmp_path / "x", table, "parquet")
    [row] = read(path, key="id", value="body", timestamp="")
    assert (row["key"], row["value"], row["timestamp_ms"]) == (b"a", b"b", None)
    [row] = read(path, key="", value="a.b", timestamp="")
    assert (row["key"], row["value"]) == (None, b"c")


@promise("L8")
def test_json_values(tmp_path: Path) -> None:
    """All columns that are nothing else, whatever they are made of."""
    table = pa.table(
        {
            "key": ["k", None],
            "n": [1, None],
            "x": [1.5, float("nan")],
            "day": [datetime.date(2024, 1, 2), None],
            "at": pa.array([1_700_000_000_000_000_000, None], pa.timestamp("ns", "UTC")),
            "cost": [decimal.Decimal("1.20"), None],
            "raw": [b"\xff", None],
            "list": [[1, 2], []],
            "nested": [{"a": "b"}, None],
            "value": [True, False],
            "headers": ["not headers", None],
        }
    )
    found = read(write(tmp_path / "x", table, "parquet"), json_values=True)
    assert [row["key"] for row in found] == [b"k", None]
    assert json.loads(found[0]["value"]) == {
        "n": 1,
        "x": 1.5,
        "day": "2024-01-02",
        "at": "2023-11-14T22:13:20+00:00",
        "cost": "1.20",
        "raw": "/w==",
        "list": [1, 2],
        "nested": {"a": "b"},
        "value": True,
        "headers": "not headers",
    }
    assert json.loads(found[1]["value"]) == dict.fromkeys(
        ["n", "x", "day", "at", "cost", "raw", "nested", "headers"]
    ) | {
        "list": [],
        "value": False,
    }


@promise("L8")
@pytest.mark.parametrize(
    ("columns", "shape", "message"),
    [
        ({"other": ["x"]}, {}, "no column 'value'"),
        ({"value": ["x"]}, {"key": "id"}, "no column 'id'; it has value"),
        ({"value": ["x"]}, {"value": "body"}, "no column 'body'"),
        ({"value": ["x"]}, {"timestamp": "at"}, "no column 'at'"),
        ({"value": [1]}, {}, "column 'value' is int64; a value is binary or string"),
        ({"value": ["x"], "key": [1.5]}, {}, "column 'key' is double; a key is"),
        ({"value": ["x"], "timestamp": ["now"]}, {}, "column 'timestamp' is string; a timestamp is"),
        ({"value": ["x"], "timestamp": pa.array([1], pa.int32())}, {}, "column 'timestamp' is int32"),
        ({"value": ["x"], "headers": ["h"]}, {}, "column 'headers' is string, not a list of structs"),
        ({"value": ["x"], "headers": [[{"key": "a"}]]}, {}, "column 'headers' is"),
        ({"value": ["x"], "headers": [[{"key": b"a", "value": b"b"}]]}, {}, "column 'headers' is"),
        ({"key": ["x"]}, {"json_values": True}, "no columns that JSON"),
        ({"value": ["x"], "headers": pa.array([[{"value": b"b"}]], HEADERS)}, {}, "a header without a key"),
        ({"value": ["x"], "headers": pa.array([[None]], HEADERS)}, {}, "a header without a key"),
    ],
)
def test_columns_that_do_not_fit(tmp_path: Path, columns: dict[str, Any], shape: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "x", pa.table(columns), "file")
    with pytest.raises(BadInput, match=message) as error:
        read(path, **shape)
    assert str(path) in str(error.value)


@promise("L8")
def test_a_column_twice(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["value", "value"])
    with pytest.raises(BadInput, match="several columns 'value'"):
        read(write(tmp_path / "x", table, "file"))


@promise("L8")
def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing, empty, of something else, cut short anywhere, or with bytes turned over."""
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("key,value\na,b\n" * 100)
    for name in ("missing", "empty", "text", "."):
        with pytest.raises(BadInput):
            read(tmp_path / name)
    table = pa.table({"value": [b"%d" % i for i in range(1_000)]})
    for kind in ("parquet", "file"):
        data = write(tmp_path / "sound", table, kind).read_bytes()
        for length in (4, 8, 11, 100, len(data) // 2, len(data) - 1):
            (tmp_path / "cut").write_bytes(data[:length])
            with pytest.raises(BadInput):
                read(tmp_path / "cut")


@promise("L8")
def test_no_rows(tmp_path: Path) -> None:
    for kind in ("parquet", "file", "stream"):
        assert read(write(tmp_path / kind, pa.table({"value": pa.array([], pa.string())}), kind)) == []
