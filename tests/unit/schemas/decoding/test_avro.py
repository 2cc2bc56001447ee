"""Avro payloads: every type, values that come back as fastavro reads them, flaws that are named."""

from __future__ import annotations

import contextlib
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from headwater.schemas.decoding.avro import Program
from headwater.schemas.decoding.by_schema import Decoder, decoder_of
from headwater.schemas.parsing import SchemaKind, Source, parse
from headwater.schemas.shapes import INT, JSON, LONG, NULL, STRING, Field, Shape, list_of, struct
from tests.support.avro_samples import Samples, varint


def written(tree: Any, *values: Any) -> pa.Array:
    schema = fastavro.parse_schema(tree)
    payloads = []
    for value in values:
        target = io.BytesIO()
        fastavro.schemaless_writer(target, schema, value)
        payloads.append(target.getvalue())
    return pa.array(payloads, pa.binary())


def decoder(tree: Any) -> Decoder:
    return decoder_of(parse(Source(SchemaKind.AVRO, json.dumps(tree))))


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


def test_texts_of_every_length_are_looked_at_whole() -> None:
    tree, program = record(("a", "string")), Program(record(("a", "string")), struct(Field("a", STRING)))
    texts = [("x" * at + "é" + "x" * (length - at)) for length in range(20) for at in range(length + 1)]
    payloads = written(tree, *({"a": text} for text in texts)).to_pylist()
    decoded = program.decode(pa.array(payloads, pa.binary()))
    assert not decoded.errors and [row["a"] for row in decoded.array.to_pylist()] == texts
    broken = [payload.replace("é".encode(), b"\xff\xff") for payload in payloads]
    decoded = program.decode(pa.array(broken, pa.binary()))
    assert list(decoded.errors) == list(range(len(texts)))
    assert {error.partition(" (")[0] for error in decoded.errors.values()} == {"a: a string is not UTF-8"}


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


@pytest.mark.parametrize("seed", range(25))
def test_random_values_of_random_schemas_come_back(seed: int) -> None:
    samples = Samples(seed)
    tree = samples.record()
    made = [samples.value(tree) for _ in range(40)]
    decoded = decoder(tree).decode(pa.array([data for data, _ in made], pa.binary()))
    decoded.array.validate(full=True)
    assert not decoded.errors
    for found, (_, value) in zip(decoded.array.to_pylist(), made, strict=True):
        assert found == value


@pytest.mark.parametrize("seed", range(12))
def test_changed_bytes_are_refused_if_fastavro_refuses_them(seed: int) -> None:
    samples = Samples(seed)
    tree = samples.record()
    payloads = []
    for _ in range(80):
        data = bytearray(samples.value(tree)[0])
        at = samples.source.randrange(len(data) + 1)
        data[at : at + samples.source.randint(0, 2)] = samples.source.randbytes(samples.source.randint(0, 2))
        payloads.append(bytes(data))
    decoded = decoder(tree).decode(pa.array(payloads, pa.binary()))
    decoded.array.validate(full=True)
    schema = fastavro.parse_schema(tree)
    for row, payload in enumerate(payloads):
        if row in decoded.errors:
            continue
        source = io.BytesIO(payload)
        with contextlib.suppress(OverflowError, ValueError):  # dates that Python does not have
            fastavro.schemaless_reader(source, schema, None)
            assert source.read() == b"", payload


def test_types_that_are_no_records() -> None:
    def rows(tree: Any, *payloads: bytes) -> list[Any]:
        found = decoder(tree).decode(pa.array(payloads, pa.binary()))
        assert not found.errors
        return found.array.to_pylist()

    assert rows("long", b"\x02", b"\x01") == [1, -1]
    assert rows(["null", "string"], b"\x00", b"\x02\x02a") == [None, "a"]
    assert rows({"type": "array", "items": "int"}, b"\x04\x02\x04\x00", b"\x00") == [[1, 2], []]
    assert rows("null", b"") == [None]
    duration = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
    months = b"\x01\0\0\0\xff\xff\xff\xff\x03\0\0\0"
    assert rows(duration, months) == [{"months": 1, "days": 2**32 - 1, "millis": 3}]
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 1}
    assert rows(wide, b"\x02\x7b") == ["12.3"]


def test_values_that_do_not_fit_their_logical_types() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}
    time = {"type": "int", "logicalType": "time-millis"}
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    uuid = {"type": "string", "logicalType": "uuid"}
    tree = record(("d", decimal), ("t", time), ("m", {"type": "array", "items": moment}), ("u", uuid))
    text = b"\x48" + b"8c1d0d9e-1e0a-4b3c-9a53-7ab2d0f9e4aa"
    payloads = [
        b"\x02\x01" + varint(0) + b"\x02\x02\x00" + text,
        b"\x04\x03\xe8" + varint(0) + b"\x00" + text,
        b"\x22" + b"\x01" + b"\0" * 16 + varint(0) + b"\x00" + text,
        b"\x02\x01" + varint(86_400_000) + b"\x00" + text,
        b"\x02\x01" + varint(0) + b"\x04\x02" + varint(2**62) + b"\x00" + text,
        b"\x02\x01" + varint(0) + b"\x00" + b"\x02x",
        b"\x02\x01" + varint(0) + b"\x02\x02\x00" + text,
    ]
    decoded = decoder(tree).decode(pa.array(payloads, pa.binary()))
    assert list(decoded.errors) == [1, 2, 3, 4, 5]
    words = ["d: the number does not fit", "d: the number", "t: the time", "m[]: the time", "u: the text is no UUID"]
    for word, error in zip(words, decoded.errors.values(), strict=True):
        assert word in error
    assert [row and row["d"] for row in decoded.array.to_pylist()] == [Decimal("0.1"), *[None] * 5, Decimal("0.1")]


def test_references_and_names_in_several_places() -> None:
    inner = '{"type":"record","name":"x.Inner","fields":[{"name":"n","type":"int"}]}'
    text = (
        '{"type":"record","name":"R","fields":[{"name":"a","type":"x.Inner"},{"name":"b","type":["null","x.Inner"]}]}'
    )
    found = decoder_of(parse(Source(SchemaKind.AVRO, text, (("x.Inner", inner),))))
    assert found.decode(pa.array([b"\x02\x02\x04", b"\x02\x00"], pa.binary())).array.to_pylist() == [
        {"a": {"n": 1}, "b": {"n": 2}},
        {"a": {"n": 1}, "b": None},
    ]
