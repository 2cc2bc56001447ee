"""JSON values as Avro data: fastavro reads what is written here, and writes what is read here."""

from __future__ import annotations

import datetime
import io
import json
import math
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import BadValue
from headwater.schemas.avro import encoding
from headwater.schemas.encoding import Codec, codec
from headwater.schemas.parsing import Parsed, SchemaKind, Source, parse
from tests.support.promise import promise


def parsed(schema: Any) -> Parsed:
    return parse(Source(SchemaKind.AVRO, json.dumps(schema)))


def of(schema: Any) -> Codec:
    return codec(parsed(schema))


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def read(schema: Any, data: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), parsed(schema).model.schema, None)


DATE, UUID = {"type": "int", "logicalType": "date"}, {"type": "string", "logicalType": "uuid"}
MICROS, LOCAL = "timestamp-micros", {"type": "long", "logicalType": "local-timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
FIXED = {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2}
PLACE = record(field("x", "int"), name="Place")


@pytest.mark.parametrize(
    ("schema", "value", "natural"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -5, -5),
        ("long", -(1 << 63), -(1 << 63)),
        ("double", "-Infinity", -math.inf),
        ("float", 0.5, 0.5),
        ("bytes", "a\u00ff", b"a\xff"),
        ("string", "ü", "ü"),
        ({"type": "fixed", "name": "F", "size": 2}, "a\u0000", b"a\x00"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}),
        (record(field("a", ["null", "string"], default=None), field("b", "int", default=7)), {}, {"a": None, "b": 7}),
        (["null", "string"], "x", "x"),
        (["null", "string"], {"string": "x"}, "x"),
        (["null", PLACE], {"x": 1}, {"x": 1}),
        (["null", PLACE], {"Place": {"x": 1}}, {"x": 1}),
        (["int", "double"], 0.5, 0.5),
        (record(field("n", ["null", "R"])), {"n": {"n": None}}, {"n": {"n": None}}),
        (DATE, "2024-02-29", datetime.date(2024, 2, 29)),
        (DATE, 1, datetime.date(1970, 1, 2)),
        (UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
        ({"type": "int", "logicalType": "time-millis"}, "01:02:03.004", datetime.time(1, 2, 3, 4000)),
        (
            {"type": "long", "logicalType": MICROS},
            "2024-01-01T02:00:00.000001+02:00",
            datetime.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=datetime.UTC),
        ),
        (LOCAL, "1969-12-31T23:59:59.999", datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)),
        (DECIMAL, "-1234.56", Decimal("-1234.56")),
        (DECIMAL, 12.5, Decimal("12.50")),
        (DECIMAL, -1, Decimal("-1.00")),
        (FIXED, "9999.99", Decimal("9999.99")),
        (record(field("d", DECIMAL, default="\u0001\u0000")), {}, {"d": Decimal("2.56")}),
    ],
)
def test_fastavro_reads_what_is_encoded(schema: Any, value: Any, natural: Any) -> None:
    data = of(schema).encode(value)
    assert read(schema, data) == natural
    assert of(schema).encode(of(schema).decode(data)) == data


@pytest.mark.parametrize(
    ("schema", "value", "flaw"),
    [
        ("null", 0, "at the top is not null"),
        ("boolean", 1, "is no boolean"),
        ("int", 1 << 31, "is out of the range of int"),
        ("int", True, "is no integer"),
        ("int", 1.0, "is no integer"),
        ("float", 1e300, "is out of the range of float"),
        ("double", 10**400, "is out of the range of double"),
        ("double", "x", "is no number"),
        ("bytes", "\u0100", "stands for no byte"),
        ("string", "\ud800", "half of a surrogate pair"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", "has 3 bytes, not 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "none of the symbols of the enum E"),
        ({"type": "array", "items": "int"}, [1, "2"], "at /1 is no integer"),
        ({"type": "map", "values": "int"}, {"a/b": "2"}, "at /a~1b is no integer"),
        (PLACE, [], "is no object, as the record Place is"),
        (PLACE, {}, "at /x is missing, and has no default"),
        (PLACE, {"x": 1, "y": 2}, "at /y is no field of the record Place"),
        (["null", PLACE], {"x": "1"}, "no branch of the union [null, Place]: The value at /x is no integer"),
        (["null", "int"], {"int": "x"}, "no branch of the union [null, int]: The value at /int is no integer"),
        (["null", "int", "boolean"], "x", "no branch of the union [null, int, boolean]"),
        (DATE, "2024-02-30", "is no date"),
        (UUID, "x", "is no uuid"),
        ({"type": "int", "logicalType": "time-millis"}, "01:00:00+01:00", "it has a time zone"),
        (LOCAL, "2024-01-01T00:00:00Z", "it has a time zone"),
        ({"type": "long", "logicalType": MICROS}, "2024-01-01T00:00:00", "it has no time zone"),
        (DECIMAL, "1.234", "has more than 2 digits after the point"),
        (DECIMAL, "12345.6", "has more than 6 digits"),
        (DECIMAL, "1e999999999", "is no decimal with 6 digits"),
        (DECIMAL, "NaN", "is no decimal"),
        (DECIMAL, "x", "is no decimal"),
        (DECIMAL, None, "is no decimal"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_their_place(schema: Any, value: Any, flaw: str) -> None:
    with pytest.raises(BadValue) as caught:
        of(schema).encode(value)
    assert flaw in str(caught.value)


def test_value_that_fits_no_branch_at_any_depth_is_refused_quickly() -> None:
    tree: Any = [record(field("x", "int"), name="A0"), record(field("x", "long"), name="B0")]
    for at in range(1, 40):
        tree = [
            record(field("f", tree), name=f"A{at}"),
            record(field("f", [f"A{at - 1}", f"B{at - 1}"]), name=f"B{at}"),
        ]
    value: Any = {"x": "no number"}
    for _ in range(39):
        value = {"f": value}
    with pytest.raises(BadValue, match="no branch of the union"):
        of(tree).encode(value)


def test_value_that_is_nested_too_deeply() -> None:
    value: Any = {"n": None}
    for _ in range(20_000):
        value = {"n": value}
    with pytest.raises(BadValue, match="nested too deeply"):
        of(record(field("n", ["null", "R"]))).encode(value)
    with pytest.raises(BadValue, match="nested too deeply"):
        of(record(field("n", ["null", "R"]))).decode(b"\2" * 20_000 + b"\0")


@pytest.mark.parametrize(
    ("schema", "data", "flaw"),
    [
        ("int", b"", "ends early"),
        ("int", b"\x02\x02", "1 bytes are left"),
        ("int", b"\x80\x80\x80\x80\x80\x01", "is no int"),
        ("long", b"\xff" * 11, "more than ten bytes"),
        ("boolean", b"\x02", "the byte 2"),
        ("string", b"\x02\xff", "not UTF-8"),
        ("string", b"\x01", "ends early"),
        ("bytes", b"\xfe\xff\xff\xff\x0f", "ends early"),
        (["null", "int"], b"\x04", "no branch 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "no symbol 1"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "more than 1000000 parts"),
    ],
)
def test_bytes_that_are_not_of_the_schema(schema: Any, data: bytes, flaw: str) -> None:
    with pytest.raises(BadValue) as caught:
        of(schema).decode(data)
    assert flaw in str(caught.value)


def test_numbers_that_no_calendar_has_stay_numbers() -> None:
    codec_ = of(DATE)
    assert codec_.decode(codec_.encode((1 << 31) - 1)) == (1 << 31) - 1
    times = of({"type": "int", "logicalType": "time-millis"})
    assert times.decode(times.encode(-5)) == -5
    nan = of("double")
    assert nan.decode(nan.encode("NaN")) == "NaN"


SCHEMA = record(
    field("i", "int"),
    field("s", ["null", "string"]),
    field("a", {"type": "array", "items": ["long", {"type": "map", "values": "double"}]}),
    field("b", "bytes"),
)
VALUES = st.fixed_dictionaries(
    {
        "i": st.integers(-(1 << 31), (1 << 31) - 1),
        "s": st.one_of(st.none(), st.text()),
        "a": st.lists(
            st.one_of(
                st.integers(-(1 << 63), (1 << 63) - 1),
                st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
            )
        ),
        "b": st.binary().map(lambda data: data.decode("latin-1")),
    }
)


WHOLE = parsed(SCHEMA)


@given(VALUES)
def test_values_return(value: dict[str, Any]) -> None:
    data = codec(WHOLE).encode(value)
    assert codec(WHOLE).decode(data) == value
    assert fastavro.schemaless_reader(io.BytesIO(data), WHOLE.model.schema, None) == {
        **value,
        "b": value["b"].encode("latin-1"),
    }


@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        codec(WHOLE).decode(data)
    except BadValue as flaw:
        assert str(flaw)


def doubling(depth: int) -> Any:
    """A record whose default is twice the default of the one before it, and so on."""
    kind: Any = record(field("x", "string", default="12345678"), name="R0")
    for level in range(1, depth):
        kind = record(field("a", kind, default={}), field("b", f"R{level - 1}", default={}), name=f"R{level}")
    return kind


@promise("S4")
def test_defaults_that_double_are_encoded_once_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    plain = encoding._Encoder.encode

    def counted(self: Any, value: Any, tree: Any, place: str) -> bytes:
        calls.append(1)
        return plain(self, value, tree, place)

    monkeypatch.setattr(encoding._Encoder, "encode", counted)
    assert len(of(doubling(11)).encode({})) == 9 << 10
    assert len(calls) < 100
    for schema in (doubling(30), ["null", doubling(30), {"type": "map", "values": "string"}]):
        codec = of(schema)
        for _ in range(2):
            calls.clear()
            with pytest.raises(BadValue, match="Defaults add more than"):
                codec.encode({})
            assert len(calls) < 100


@promise("S4")
def test_encoding_has_a_budget_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_STEPS", 20_000)
    lists = of({"type": "array", "items": "int"})
    with pytest.raises(BadValue, match="more than 20000 steps"):
        lists.encode([1] * 20_001)
    assert lists.encode([1] * 19_000)


@promise("S4")
def test_long_names_on_the_way_take_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has its place with it, so a long name costs at each of the parts below it."""
    monkeypatch.setattr(encoding, "MAX_STEPS", 20_000)
    maps = of({"type": "map", "values": {"type": "array", "items": "int"}})
    assert maps.encode({"k": [1] * 1_000})
    with pytest.raises(BadValue, match="more than 20000 steps"):
        maps.encode({"k" * 10_000: [1] * 1_000})


@promise("S4")
def test_a_decimal_of_many_bytes_is_refused() -> None:
    codec = of({"type": "bytes", "logicalType": "decimal", "precision": 10_000, "scale": 0})
    assert codec.decode(codec.encode("9" * 10_000)) == "9" * 10_000
    with pytest.raises(BadValue, match="A decimal has 1,000,000 bytes"):
        codec.decode(encoding.varint(1_000_000) + b"\x11" * 1_000_000)
