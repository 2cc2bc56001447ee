"""JSON by a JSON Schema: formats become types of tables, and a value that does not fit its column is a flaw."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headwater.schemas.decoding.by_schema import Decoder, decoder_of
from headwater.schemas.decoding.decoded import Decoded
from headwater.schemas.decoding.json_texts import Texts
from headwater.schemas.parsing import SchemaKind, Source, parse
from headwater.schemas.shapes import (
    BINARY,
    DATE,
    FLOAT,
    INT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Field,
    decimal,
    struct,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "uuid": {"type": "string", "format": "uuid"},
        "either": {"type": ["string", "integer", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "more": {"type": "object", "additionalProperties": {"type": "number"}},
        "free": {},
    },
}


def decoder(schema: Any) -> Decoder:
    return decoder_of(parse(Source(SchemaKind.JSON, json.dumps(schema))))


def decoded(schema: Any, *texts: str) -> Decoded:
    return decoder(schema).decode(pa.array([text.encode() for text in texts], pa.binary()))


def column(found: Decoded, at: int) -> list[Any]:
    return list(found.array.field(at).to_pylist())


def test_values_of_a_schema() -> None:
    found = decoded(
        SCHEMA,
        """{"id": 1, "price": 10, "day": "2024-02-29", "at": "2024-02-29T23:30:00.5+01:00",
            "uuid": "8C1D0D9E-1E0A-4B3C-9A53-7AB2D0F9E4AA", "either": "x", "tags": ["a", null],
            "more": {"k": 1.5}, "free": [1, {"x": null}], "unknown": [1, 2]}""",
        '{"id": 3.0, "either": 5, "at": "1969-12-31T23:59:59Z"}',
        '{"either": null}',
    )
    found.array.validate(full=True)
    assert not found.errors
    names = [field.name for field in found.array.type]
    assert names == ["id", "price", "day", "at", "uuid", "either", "either", "tags", "more", "free"]
    assert column(found, 0) == [1, 3, None]
    assert column(found, 1)[0] == 10.0
    assert column(found, 2)[0] == datetime.date(2024, 2, 29)
    assert column(found, 3)[:2] == [
        datetime.datetime(2024, 2, 29, 22, 30, 0, 500_000, tzinfo=datetime.UTC),
        datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=datetime.UTC),
    ]
    assert column(found, 4)[0] == "8c1d0d9e-1e0a-4b3c-9a53-7ab2d0f9e4aa"
    kinds = [found.array.type.field(at).type for at in (5, 6)]
    either = dict(zip(map(str, kinds), (column(found, 5), column(found, 6)), strict=True))
    assert either == {"string": ["x", None, None], "int64": [None, 5, None]}
    assert column(found, 7)[0] == ["a", None]
    assert column(found, 8)[0] == [("k", 1.5)]
    assert column(found, 9)[0] == '[1, {"x": null}]'


def test_values_that_do_not_fit() -> None:
    texts = [
        '{"id": 1.5}',
        '{"id": "1"}',
        '{"id": 9223372036854775808}',
        '{"day": "2023-02-29"}',
        '{"day": "20230228"}',
        '{"at": "2023-02-28"}',
        '{"at": "2023-02-28T25:00:00Z"}',
        '{"at": "2023-02-28T05:00:00"}',
        '{"uuid": "8c1d0d9e"}',
        '{"either": 1.5}',
        '{"more": {"k": "v"}}',
        "[]",
        '{"tags": ["a", 1]}',
    ]
    found = decoded(SCHEMA, *texts, '{"id": 7}')
    assert list(found.errors) == [*range(11), 12]
    assert column(found, 0) == [None] * 13 + [7]
    for row, error in found.errors.items():
        name = json.loads(texts[row])
        assert error.startswith(next(iter(name))), (texts[row], error)


def test_conversions_of_text() -> None:
    shape = struct(
        Field("date", DATE),
        Field("time", TIME),
        Field("timestamp", TIMESTAMP),
        Field("timestamptz", TIMESTAMPTZ),
        Field("uuid", UUID),
        Field("binary", BINARY),
        Field("float", FLOAT),
        Field("int", INT),
        Field("money", decimal(6, 2)),
        Field("whole", decimal(38, 0)),
    )
    good = {
        "date": ("0001-01-01", datetime.date(1, 1, 1)),
        "time": ("23:59:59.123456789", datetime.time(23, 59, 59, 123456)),
        "timestamp": ("1969-12-31 00:00:00.25", datetime.datetime(1969, 12, 31, 0, 0, 0, 250_000)),
        "timestamptz": ("2000-01-01t00:00:00-0130", datetime.datetime(2000, 1, 1, 1, 30, tzinfo=datetime.UTC)),
        "uuid": ("8C1D0D9E1E0A4B3C9A537AB2D0F9E4AA", "8c1d0d9e-1e0a-4b3c-9a53-7ab2d0f9e4aa"),
        "binary": ("AP8=", b"\x00\xff"),
        "float": (0.5, 0.5),
        "int": (-(2**31), -(2**31)),
        "money": (-1234.5, Decimal("-1234.50")),
        "whole": (10**37, Decimal(10**37)),
    }
    bad: list[tuple[str, Any]] = [
        ("date", "0000-00-00"),
        ("time", "24:00:00"),
        ("timestamp", "2000-01-01T00:00:00Z"),
        ("timestamptz", "2000-01-01T00:00:00"),
        ("uuid", "8c1d0d9e-1e0a-4b3c-9a53-7ab2d0f9e4ag"),
        ("binary", "AP8"),
        ("float", 1e300),
        ("int", 2**31),
        ("money", 12345.5),
        ("money", 0.001),
        ("whole", 10**38),
    ]
    rows = [{name: text for name, (text, _) in good.items()}, *({name: text} for name, text in bad), {}]
    payloads = pa.array([json.dumps(row).encode() for row in rows], pa.binary())
    found = Texts(shape).decode(payloads)
    found.array.validate(full=True)
    assert found.array[0].as_py() == {name: value for name, (_, value) in good.items()}
    assert list(found.errors) == list(range(1, len(bad) + 1))
    for error, (name, _) in zip(found.errors.values(), bad, strict=True):
        assert error.startswith(f"{name}: ")


def test_a_schema_that_allows_anything_gives_text() -> None:
    found = decoded(True, '{"a": 1}', "5", '"x"', "null", "nul")
    assert found.array.to_pylist() == ['{"a": 1}', "5", '"x"', None, None]
    assert list(found.errors) == [4]
