"""Typed columns of rows: schemas of every kind, by prefix, header and subject, and what is missing or bad."""

from __future__ import annotations

import io
import json
import struct
import uuid
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pytest

from headwater.log.segment.rows import plain_rows, plain_schema
from headwater.schemas.columns import merged
from headwater.schemas.framing import KEY_HEADER, VALUE_HEADER
from headwater.schemas.typer import Typed, Typer
from headwater.schemas.typing import MAX_UNKNOWN, KnownSchema, Typing
from headwater.state.commands.columns import Column
from tests.support.promise import promise

PROMISES = ("T6", "T7")

POINT = {"type": "record", "name": "Point", "namespace": "geo", "fields": [{"name": "x", "type": "int"}]}
LINE = {"type": "record", "name": "Line", "fields": [{"name": "x", "type": "string"}, {"name": "y", "type": "long"}]}
PROTO = 'syntax = "proto3"; message A { int32 n = 1; message B { string s = 1; } }'
OBJECT = {"type": "object", "title": "Thing", "properties": {"t": {"type": "string"}}}
GUID = str(uuid.UUID(int=5))


def known(*names: str, kind: str = "AVRO", text: Any = POINT) -> KnownSchema:
    return KnownSchema(names, kind, text if isinstance(text, str) else json.dumps(text), ())


def avro(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), value)
    return sink.getvalue()


def framed(number: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + payload


def rows(
    values: list[bytes | None], keys: list[bytes | None] | None = None, headers: list[Any] | None = None
) -> pa.RecordBatch:
    count = len(values)
    given = {
        "key": keys or [None] * count,
        "value": values,
        "timestamp_ms": [5] * count,
        "headers": headers or [None] * count,
    }
    return plain_rows(0, 10, pa.RecordBatch.from_pydict(given, schema=plain_schema()), append_time=False)


def typed(batch: pa.RecordBatch, *schemas: KnownSchema, value: str = "auto", **more: Any) -> dict[str, list[Any]]:
    """The typed columns of rows, by name, once the columns that they want are there."""
    columns: tuple[Column, ...] = ()
    last = 99
    for version in range(9):
        made = Typing("none", value, False, False, columns, version, last, schemas)
        made = msgspec.structs.replace(made, **more)
        typer = Typer(made)
        found = typer.typed(batch)
        if found is not None:
            assert not typer.wants
            names = [field.name for field in typer.fields()]
            assert [array.type for array in found.arrays] == [field.type for field in typer.fields()]
            return {name: array.to_pylist() for name, array in zip(names, found.arrays, strict=True)}
        assert typer.wants.roots and not typer.wants.schemas
        for root in typer.wants.roots:
            columns, last = merged(columns, last, root)
    raise AssertionError("the columns never suffice")


def test_avro_of_two_types() -> None:
    batch = rows(
        [framed(1, avro(POINT, {"x": 1})), None, framed(2, avro(LINE, {"x": "a", "y": 2})), framed(1, b"\x02\x02")]
    )
    schemas = known("1"), known("2", text=LINE)
    found = typed(batch, *schemas)
    assert found["value_data"] == [
        {"x": 1, "x__string": None, "y": None},
        None,
        {"x": None, "x__string": "a", "y": 2},
        None,
    ]
    assert [bool(text) for text in found["decode_error"]] == [False, False, False, True]
    separate = typed(batch, *schemas, separate=True)["value_data"]
    assert separate[0] == {"Point": {"x": 1}, "Line": None}
    assert separate[2] == {"Point": None, "Line": {"x": "a", "y": 2}}
    flat = typed(batch, *schemas, flatten=True)
    assert (flat["x"], flat["x__string"], flat["y"]) == (
        [1, None, None, None],
        [None, None, "a", None],
        [None, None, 2, None],
    )


def test_keys_and_values_of_their_own_schemas() -> None:
    """Combinations of types of keys and of values each get their columns, and rows keep their order."""
    keys = [framed(1, avro(POINT, {"x": i})) if i % 2 else framed(2, avro(LINE, {"x": "k", "y": i})) for i in range(6)]
    values = [
        framed(2, avro(LINE, {"x": "v", "y": i})) if i % 3 else framed(1, avro(POINT, {"x": i})) for i in range(6)
    ]
    found = typed(rows([*values], [*keys]), known("1"), known("2", text=LINE), key="auto")
    for i, (key, value) in enumerate(zip(found["key_data"], found["value_data"], strict=True)):
        assert key["x" if i % 2 else "y"] == i
        assert value["y" if i % 3 else "x"] == i


def test_protobuf_by_its_indexes() -> None:
    batch = rows(
        [
            framed(1, b"\x00\x08\x05"),
            framed(1, b"\x04\x00\x00\x0a\x01s"),
            framed(1, b"\x02\x08"),
            framed(1, b"\x00\x08"),
        ]
    )
    found = typed(batch, known("1", kind="PROTOBUF", text=PROTO), separate=True)
    assert found["value_data"][:2] == [{"A": {"n": 5}, "B": None}, {"A": None, "B": {"s": "s"}}]
    assert found["value_data"][2:] == [None, None]
    assert found["decode_error"][:2] == [None, None] and all(found["decode_error"][2:])
    assert "no message" in found["decode_error"][2]


def test_json_schema_by_header() -> None:
    header = b"\x01" + uuid.UUID(GUID).bytes
    headers = [[{"key": VALUE_HEADER, "value": header}], [{"key": KEY_HEADER, "value": header}], None]
    found = typed(rows([b'{"t": "a"}', b'{"t": "b"}', None], None, headers), known(GUID, kind="JSON", text=OBJECT))
    assert found["value_data"] == [{"t": "a"}, None, None]
    assert found["decode_error"][1] == "no-schema: value: neither a prefix nor a header names a schema"


def test_a_pinned_subject() -> None:
    """Values without an id, and values that only look as if they had one."""
    wide = {**POINT, "fields": [{"name": f"f{i}", "type": "int"} for i in range(6)]}
    zeros = avro(wide, {f"f{i}": 0 for i in range(6)})
    batch = rows([avro(wide, {f"f{i}": 5 for i in range(6)}), zeros, framed(7, avro(POINT, {"x": 4}))])
    found = typed(batch, known("subject:s", text=wide), known("7"), value="subject:s", absent=("0",))
    assert [value["f5"] for value in found["value_data"]] == [5, 0, None]
    assert found["value_data"][2]["x"] == 4
    assert found["decode_error"] == [None, None, None]


def test_lists_of_json_with_other_elements_get_columns_of_their_own() -> None:
    """What went into a column goes there still: a query that works keeps working."""
    columns: tuple[Column, ...] = ()
    last = 99
    expected: list[Any] = []
    lists: list[list[Any]] = [[["x"], []], [[1], ["y"], None], [[2, "z"], [3], ["w"]]]
    for values in lists:
        batch = rows([json.dumps({"tags": value}).encode() for value in values])
        for _ in range(3):
            typer = Typer(Typing("none", "json", False, False, columns, 1, last))
            found = typer.typed(batch)
            for root in typer.wants.roots:
                columns, last = merged(columns, last, root)
        assert found is not None and not found.failures
        expected.append(found.arrays[-1].to_pylist())
    string, long, mixed = "tags", "tags__list_long", "tags__list_json"
    assert expected == [
        [{string: ["x"]}, {string: []}],
        [{string: None, long: [1]}, {string: ["y"], long: None}, {string: None, long: None}],
        [
            {string: None, long: None, mixed: ["2", '"z"']},
            {string: None, long: [3], mixed: None},
            {string: ["w"], long: None, mixed: None},
        ],
    ]


def once(batch: pa.RecordBatch, *schemas: KnownSchema, **more: Any) -> tuple[Typer, Typed | None]:
    typer = Typer(Typing("none", "auto", False, False, (), 0, 99, schemas, **more))
    return typer, typer.typed(batch)


def test_what_is_missing_is_told() -> None:
    batch = rows([framed(1, b""), framed(2, b""), framed(1, b"")])
    typer, found = once(batch)
    assert (found, typer.wants.schemas, typer.wants.roots) == (None, ("1", "2"), ())
    typer, _ = once(rows([framed(i, b"") for i in range(MAX_UNKNOWN + 5)]))
    assert len(typer.wants.schemas) == MAX_UNKNOWN


@promise("T6")
def test_rows_that_wait_for_a_registry() -> None:
    """Without an answer a row has neither a value nor a failure, and the rows are not complete."""
    batch = rows([framed(1, avro(POINT, {"x": 3})), framed(2, b"")])
    columns: tuple[Column, ...] = ()
    last = 99
    for _ in range(2):
        typer = Typer(Typing("none", "auto", False, False, columns, 1, last, (known("1"),), (), True))
        found = typer.typed(batch)
        for root in typer.wants.roots:
            columns, last = merged(columns, last, root)
    assert found is not None and not found.complete and not found.failures
    assert found.arrays[-1].to_pylist() == [{"x": 3}, None]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (known("1", text="{"), "the schema with the id 1 cannot be used"),
        (known("1", kind="XML", text="<x>"), "no kind of schema"),
    ],
)
def test_schemas_that_cannot_be_used(schema: KnownSchema, words: str) -> None:
    found = typed(rows([framed(1, b"\x02")]), schema)
    assert words in found["decode_error"][0]
