"""Avro payloads: every type, values that come back as fastavro reads them, flaws that are named."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa

from headwater.schemas.decoding.avro import Program
from headwater.schemas.shapes import INT, JSON, LONG, NULL, STRING, Field, Shape, list_of, struct


def written(tree: Any, *values: Any) -> pa.Array:
    schema = fastavro.parse_schema(tree)
    payloads = []
    for value in values:
        target = io.BytesIO()
        fastavro.schemaless_writer(target, schema, value)
        payloads.append(target.getvalue())
    return pa.array(payloads, pa.binary())


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


FLAWED = {
    b"": "a: the payload is cut short (byte 0)",
    b"\x01": "a: a length is negative",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01": "a: a length is negative or goes beyond",
    b"\xff" * 20: "a: a number has too many bits",
    b"\x02\xff\x00\x02\x00": "a: a string is not UTF-8",
    b"\x02a\xfe\xff\xff\xff\x0f\x00\x02": "b: the lists of the payload have too many elements",
    b"\x02a\x00\xff\xff\xff\xff\xff\xff\x01": "c: a number has too many bits",
    b"\x02a\x00\x02\xfe\xff\xff\xff\x0f\x00\x02": "l: a length is negative or goes beyond",
    b"\x02a\x00\x02" + b"\xff" * 9 + b"\x01\x00\x00": "l: a length is negative or goes beyond",
    b"\x02a\x00\x02\x02\x80": "l[]: the payload is cut short",
    b"\x02a\x00\x02\x00zzz": "there are bytes after the value (byte 5)",
}


def test_flaws_are_named_and_leave_other_rows_alone() -> None:
    array, longs = {"type": "array", "items": "null"}, {"type": "array", "items": "long"}
    tree = record(("a", "string"), ("b", array), ("c", "int"), ("l", longs))
    shape = struct(Field("a", STRING), Field("b", list_of(NULL)), Field("c", INT), Field("l", list_of(LONG)))
    [good] = written(tree, {"a": "é", "b": [None], "c": -5, "l": [1, 2]}).to_pylist()
    payloads: list[bytes | None] = []
    for payload in FLAWED:
        payloads += [payload, good, None]
    decoded = Program(tree, shape).decode(pa.array(payloads, pa.binary()))
    decoded.array.validate(full=True)
    assert list(decoded.errors) == list(range(0, len(payloads), 3))
    for flaw, error in zip(FLAWED.values(), decoded.errors.values(), strict=True):
        assert flaw in error
    assert decoded.array.to_pylist() == [None, {"a": "é", "b": [None], "c": -5, "l": [1, 2]}, None] * len(FLAWED)


def test_a_recursive_type_is_text_from_a_depth_on() -> None:
    tree = record(("v", "int"), ("n", ["null", "R"]))

    def shape(depth: int) -> Shape:
        return struct(Field("v", INT), Field("n", shape(depth - 1) if depth else JSON))

    def chain(length: int) -> Any:
        return {"v": length, "n": chain(length - 1) if length else None}

    decoded = Program(tree, shape(1)).decode(written(tree, chain(1), chain(4), chain(400)))
    assert decoded.array.to_pylist() == [
        {"v": 1, "n": {"v": 0, "n": None}},
        {"v": 4, "n": {"v": 3, "n": '{"v":2,"n":{"v":1,"n":{"v":0,"n":null}}}'}},
        None,
    ]
    assert "nested too deeply" in decoded.errors[2]
