"""Avro schemas that do and do not read what others wrote; fastavro is the second opinion."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import BadSchema
from headwater.schemas.avro import compatibility
from headwater.schemas.compatibility import differences
from headwater.schemas.parsing import Parsed, SchemaKind, Source, parse


def parsed(schema: Any) -> Parsed:
    return parse(Source(SchemaKind.AVRO, json.dumps(schema)))


def found(reader: Any, writer: Any) -> list[str]:
    return [f"{one.type} {one.place}" for one in differences(parsed(reader), parsed(writer))]


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
PROMOTIONS = {
    *(("long", "int"), ("float", "int"), ("float", "long"), ("double", "int"), ("double", "long"), ("double", "float")),
    *(("string", "bytes"), ("bytes", "string")),
}


@pytest.mark.parametrize("reader", PRIMITIVES)
def test_promotions(reader: str) -> None:
    for writer in PRIMITIVES:
        fits = reader == writer or (reader, writer) in PROMOTIONS
        assert found(reader, writer) == ([] if fits else ["TYPE_MISMATCH /"])
        assert found({"type": "array", "items": reader}, {"type": "array", "items": writer}) == (
            [] if fits else ["TYPE_MISMATCH /items"]
        )


A = field("a", "int")


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (record(A), record(A, field("b", "int")), []),
        (record(A, field("b", "int", default=1)), record(A), []),
        (record(A, field("b", "int")), record(A), ["READER_FIELD_MISSING_DEFAULT_VALUE /fields/1"]),
        (
            record(A, field("e", enum("X", default="X"))),
            record(A),
            ["READER_FIELD_MISSING_DEFAULT_VALUE /fields/1"],
        ),
        (
            record(field("b", "int", aliases=["a"])),
            record(A, field("b", "int")),
            ["READER_FIELD_AMBIGUOUS /fields/0"],
        ),
        (record(field("new", "int", aliases=["a"])), record(A), []),
        (record(field("a", "string")), record(A), ["TYPE_MISMATCH /fields/0/type"]),
        (record(name="S"), record(name="R"), ["NAME_MISMATCH /name"]),
        (record(name="S", aliases=["R"]), record(name="R"), []),
        (record(name="x.S", aliases=["R"]), record(name="x.R"), []),
        (record(name="x.S", aliases=["R"]), record(name="y.R"), ["NAME_MISMATCH /name"]),
        (record(name="x.R"), record(name="y.R"), []),
        (record(), {"type": "map", "values": "int"}, ["TYPE_MISMATCH /"]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, ["TYPE_MISMATCH /values"]),
        (enum("A", "B"), enum("A"), []),
        (enum("A"), enum("A", "C", "B"), ["MISSING_ENUM_SYMBOLS /symbols"]),
        (enum("A", default="A"), enum("A", "B"), []),
        (
            {"type": "fixed", "name": "F", "size": 4},
            {"type": "fixed", "name": "F", "size": 8},
            ["FIXED_SIZE_MISMATCH /size"],
        ),
        (["int", "string"], ["int"], []),
        (["int"], ["int", "string"], ["MISSING_UNION_BRANCH /1"]),
        (["int"], "int", []),
        (["null", "long"], "int", []),
        (["null", "int"], "long", ["MISSING_UNION_BRANCH /"]),
        ("int", ["int"], []),
        ("int", ["int", "null"], ["TYPE_MISMATCH /1"]),
        ("long", ["int", "long"], []),
        (["null", record(A)], ["null", record(A, field("b", "int"))], []),
        (["null", record(A, name="S")], ["null", record(A)], ["MISSING_UNION_BRANCH /1"]),
        (record(field("n", ["null", "R"])), record(field("n", ["null", "R"]), A), []),
        (
            record(A, field("n", ["null", "R"])),
            record(field("n", ["null", "R"])),
            ["READER_FIELD_MISSING_DEFAULT_VALUE /fields/0"],
        ),
        ({"type": "int", "logicalType": "date"}, "int", []),
    ],
)
def test_rules_of_resolution(reader: Any, writer: Any, expected: list[str]) -> None:
    assert found(reader, writer) == expected


def test_difference_is_described_with_its_place() -> None:
    (one,) = differences(parsed(record(A, field("b", "int"))), parsed(record(A)))
    assert one.described("new", "old") == (
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'the field b in the new schema has no default "
        "value and is missing in the old schema at path /fields/1', additionalInfo:'b'}"
    )
    (other,) = differences(parsed(enum("A")), parsed(enum("A", "C", "B")))
    assert other.described("old", "new").endswith("additionalInfo:'[B, C]'}")


def test_types_that_double_at_every_level_are_compared_once() -> None:
    tree: Any = record(A, name="T0")
    for at in range(1, 30):
        below = f"T{at - 1}"
        tree = record(field("x", tree), field("y", below), field("z", ["null", below]), name=f"T{at}")
    text = json.dumps(tree)
    assert found(tree, json.loads(text)) == []
    assert 0 < len(found(tree, json.loads(text.replace('"int"', '"string"')))) < 100


def chain(name: str, length: int) -> Any:
    """Types in a circle: each has a field of the next one, and the last one of the first."""
    tree: Any = f"{name}.R0"
    for at in range(length - 1, -1, -1):
        tree = record(
            field("f", tree), name=f"{name}.R{at}", aliases=[f"{other}.R{no}" for other in "ab" for no in range(60)]
        )
    return tree


def test_schemas_that_are_too_large_to_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSchema, match="too deeply to be compared"):
        found(chain("a", 60), chain("b", 59))
    monkeypatch.setattr(compatibility, "MAX_STEPS", 20)
    with pytest.raises(BadSchema, match="takes more than 20 steps"):
        found(chain("a", 6), chain("b", 5))


KINDS = st.recursive(
    st.sampled_from(PRIMITIVES),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda values: {"type": "map", "values": values}, inner),
    ),
    max_leaves=4,
)
UNIONS = st.one_of(KINDS, st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3, unique=True))
VALUES = {
    "null": None,
    "boolean": True,
    "int": 5,
    "long": 6,
    "float": 0.5,
    "double": 0.25,
    "bytes": b"x",
    "string": "y",
}


def samples(tree: Any) -> list[Any]:
    """Values of a type: one of each branch."""
    if isinstance(tree, list):
        return [(branch, VALUES[branch]) for branch in tree]
    if isinstance(tree, str):
        return [VALUES[tree]]
    if tree["type"] == "array":
        return [[value] for value in samples(tree["items"])]
    return [{"k": value} for value in samples(tree["values"])]


@given(UNIONS, UNIONS)
def test_fastavro_reads_what_is_compatible(reader: Any, writer: Any) -> None:
    one, other = parsed(record(field("a", reader))), parsed(record(field("a", writer)))
    fits = not differences(one, other)
    failures = 0
    for value in samples(writer):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, other.model.schema, {"a": value})
        try:
            fastavro.schemaless_reader(io.BytesIO(out.getvalue()), other.model.schema, one.model.schema)
        except (fastavro.read.SchemaResolutionError, TypeError, ValueError, KeyError, UnicodeDecodeError):
            failures += 1
    if fits:
        assert failures == 0
