"""Avro schemas: what is accepted, what is refused and where, and the texts for comparing."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import BadSchema
from headwater.schemas.avro import defaults
from headwater.schemas.parsing import AvroModel, Parsed, SchemaKind, Source, parse
from tests.support.promise import promise


def parsed(schema: Any, *references: tuple[str, Any], strict: bool = True) -> Parsed:
    texts = tuple((name, json.dumps(one)) for name, one in references)
    return parse(Source(SchemaKind.AVRO, json.dumps(schema), texts), strict)


def model(schema: Any, *references: tuple[str, Any]) -> AvroModel:
    return parsed(schema, *references).model


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


@pytest.mark.parametrize(
    ("schema", "flaw"),
    [
        (7, "at the top: a type is a name, an object or a list"),
        ("strin", "at the top: the type 'strin' is not defined"),
        ({}, "at /type: the object needs a `type`"),
        ({"type": ["null", "int"]}, "at /type: the object needs a `type` that is a name"),
        ({"type": "array"}, "the array has no `items`"),
        ({"type": "map", "values": "x"}, "at /values: the type 'x'"),
        ({"type": "record", "fields": []}, "the record has no `name`"),
        ({"type": "record", "name": "R"}, "at /fields: the record has no list of fields"),
        (record(name="1R"), "at /name: '1R' is no name"),
        (record(name="a.b-c.R"), "at /namespace: 'a.b-c' is no namespace"),
        (record(name="R", namespace="a..b"), "'a..b' is no namespace"),
        (record(name="string"), "the name of a primitive"),
        (record(5), "at /fields/0: a field is an object"),
        (record({"name": "a"}), "at /fields/0: the field 'a' has no `type`"),
        (record({"type": "int"}), "at /fields/0/name: None is no name"),
        (record(field("a-b", "int")), "at /fields/0/name: 'a-b' is no name"),
        (record(field("a", "int"), field("a", "long")), "at /fields/1: the record has two fields with the name 'a'"),
        (record(field("a", "int", order="up")), "at /fields/0/order"),
        (record(field("a", "int", aliases="b")), "at /fields/0/aliases: aliases are a list"),
        (record(aliases=[1]), "at /aliases: aliases are a list"),
        (record(field("a", ["int", ["null"]])), "at /fields/0/type/1: a union is not directly"),
        (record(field("a", ["int", {"type": "int", "logicalType": "date"}])), "the union has 'int' twice"),
        (record(field("a", "R"), field("b", record())), "at /fields/1/type/name: the type 'R' is defined twice"),
        (record(field("a", "Later"), field("b", record(name="Later"))), "the type 'Later' is not defined before"),
        ({"type": "enum", "name": "E"}, "at /symbols: the enum has no list"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "at /symbols/1: the symbol 'A' is there twice"),
        ({"type": "enum", "name": "E", "symbols": ["a b"]}, "at /symbols/0: 'a b' is no name"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "at /default: the default of the enum"),
        ({"type": "fixed", "name": "F"}, "at /size"),
        ({"type": "fixed", "name": "F", "size": -1}, "at /size"),
        ({"type": "fixed", "name": "F", "size": True}, "at /size"),
        ({"type": "fixed", "name": "F", "size": 1 << 31}, "at /size"),
    ],
)
def test_flaws_are_named_with_their_place(schema: Any, flaw: str) -> None:
    with pytest.raises(BadSchema) as caught:
        parsed(schema)
    assert flaw in str(caught.value)


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("null", None, 0),
        ("boolean", True, 1),
        ("int", -(1 << 31), 1 << 31),
        ("int", 5, 5.0),
        ("int", 5, True),
        ("long", (1 << 63) - 1, 1 << 63),
        ("float", 1, "1"),
        ({"type": "double"}, 0, None),
        ("string", "ü", 1),
        ("bytes", "\u00ff", 1),
        (ENUM, "B", 1),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", None),
        ({"type": "array", "items": "int"}, [1, 2], [1, "2"]),
        ({"type": "map", "values": "int"}, {"a": 1}, {"a": None}),
        (["null", "int"], 5, "x"),
        (record(field("x", "int"), field("y", "int", default=3), name="N"), {"x": 1}, {"y": 1}),
    ],
)
def test_defaults_fit_their_types(kind: Any, good: Any, bad: Any) -> None:
    assert model(record(field("a", kind, default=good))).schema["fields"][0]["default"] == good
    with pytest.raises(BadSchema, match="/fields/0/default: the default value does not fit"):
        parsed(record(field("a", kind, default=bad)))
    assert parsed(record(field("a", kind, default=bad)), strict=False).kind is SchemaKind.AVRO


def test_old_namespaces_are_read_but_not_registered() -> None:
    old = record(name="my-app.R")
    with pytest.raises(BadSchema):
        parsed(old)
    assert parsed(old, strict=False).model.tree["name"] == "my-app.R"


def test_references_are_put_in_where_they_come_first() -> None:
    place = record(field("x", "int"), name="geo.Place")
    pair = record(field("a", "geo.Place"), field("b", "geo.Place"), name="geo.Pair")
    trip = record(field("from", "Place"), field("to", "Pair"), name="Trip", namespace="geo")
    whole = model(trip, ("place", place), ("pair", pair))
    assert whole.tree["fields"][0]["type"]["name"] == "geo.Place"
    assert whole.tree["fields"][1]["type"]["fields"][0]["type"] == "geo.Place"
    value = {"from": {"x": 1}, "to": {"a": {"x": 2}, "b": {"x": 3}}}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, whole.schema, value)
    assert fastavro.schemaless_reader(io.BytesIO(out.getvalue()), whole.schema, None) == value


def test_types_of_references_are_names_in_the_texts() -> None:
    trip = record(field("a", "geo.Place"), name="geo.Trip")
    whole = parsed(trip, ("place", record(name="geo.Place")))
    expected = '{"type":"record","name":"Trip","namespace":"geo","fields":[{"name":"a","type":"Place"}]}'
    assert whole.canonical == whole.normalized == expected


def test_reference_that_is_defined_twice_or_missing() -> None:
    with pytest.raises(BadSchema, match="Reference 'b', at /name: the type 'P' is defined twice"):
        parsed("P", ("a", record(name="P")), ("b", record(name="P")))
    with pytest.raises(BadSchema, match="Reference 'a', at /fields/0/type: the type 'Q' is not defined"):
        parsed("string", ("a", record(field("x", "Q"), name="P")))


def test_recursive_type() -> None:
    tree = model(record(field("next", ["null", "R"])))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, tree.schema, {"next": {"next": None}})
    assert fastavro.schemaless_reader(io.BytesIO(out.getvalue()), tree.schema, None) == {"next": {"next": None}}


def test_references_that_nest_deeply_are_refused() -> None:
    references = [("r0", record(name="T0"))]
    for at in range(1, 200):
        references.append((f"r{at}", record(field("x", f"T{at - 1}"), name=f"T{at}")))
    with pytest.raises(BadSchema, match="nested deeper than 150 levels"):
        parsed("T199", *references)
    assert parsed("T40", *references[:41]).canonical == '"T40"'


def test_types_that_double_at_every_level_stay_small() -> None:
    """Each type is written out once, so that forty doublings are forty types."""
    references = [("r0", record(field("a", "int", default=1), name="T0"))]
    for at in range(1, 41):
        below = f"T{at - 1}"
        fields = [field("a", ["null", below]), field("b", [below, "null"])]
        references.append((f"r{at}", record(*fields, name=f"T{at}")))
    assert len(json.dumps(model("T40", *references).tree)) < 10_000


def test_default_that_fits_no_branch_at_any_depth_is_refused_quickly() -> None:
    references = [("r0", record(field("x", "int"), name="A0")), ("s0", record(field("x", "long"), name="B0"))]
    for at in range(1, 40):
        both = field("f", [f"A{at - 1}", f"B{at - 1}"])
        references += [(f"r{at}", record(both, name=f"A{at}")), (f"s{at}", record(both, name=f"B{at}"))]
    value: Any = {"x": "no number"}
    for _ in range(39):
        value = {"f": value}
    with pytest.raises(BadSchema, match="does not fit"):
        parsed(record(field("a", ["A39", "B39"], default=value)), *references)


def test_canonical_text_has_no_spaces_and_keeps_what_it_does_not_know() -> None:
    text = """ { "fields" : [ {"type" : {"type": "int"}, "x": {"b": 1, "a": 2}, "name": "a", "order": "ascending",
        "doc": "the a", "default": 1}, {"name": "b", "type": "a.b.R", "order": "IGNORE"} ],
        "namespace": "a.b", "name": "R", "type" : "record", "doc": "", "aliases": ["Z", "a.b.A", "c.C"] } """
    one = parse(Source(SchemaKind.AVRO, text))
    assert one.canonical == (
        '{"type":"record","name":"R","namespace":"a.b","doc":"","fields":['
        '{"name":"a","type":"int","doc":"the a","default":1,"x":{"b":1,"a":2}},'
        '{"name":"b","type":"R","order":"ignore"}],"aliases":["Z","A","c.C"]}'
    )
    assert one.normalized == (
        '{"type":"record","name":"R","namespace":"a.b","fields":['
        '{"name":"a","type":"int","doc":"the a","default":1,"x":{"a":2,"b":1}},'
        '{"name":"b","type":"R","order":"ignore"}],"aliases":["A","Z","c.C"]}'
    )


def test_normalized_text_ignores_the_order_of_attributes() -> None:
    one = {"type": "bytes", "z": 1, "scale": 2, "logicalType": "decimal", "precision": 9}
    other = {"precision": 9, "logicalType": "decimal", "type": "bytes", "scale": 2, "z": 1}
    assert parsed(one).canonical != parsed(other).canonical
    assert parsed(one).normalized == parsed(other).normalized
    assert parsed(one).normalized == '{"type":"bytes","logicalType":"decimal","precision":9,"scale":2,"z":1}'


@pytest.mark.parametrize(
    ("kind", "valid"),
    [
        ({"type": "int", "logicalType": "date"}, True),
        ({"type": "string", "logicalType": "date"}, False),
        ({"type": "string", "logicalType": "uuid"}, True),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, True),
        ({"type": "fixed", "name": "F", "size": 15, "logicalType": "uuid"}, False),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, True),
        ({"type": "bytes", "logicalType": "decimal"}, False),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5}, False),
        ({"type": "bytes", "logicalType": "decimal", "precision": "4"}, False),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, True),
        ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5}, False),
        ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4}, True),
        ({"type": "fixed", "name": "F", "size": 0, "logicalType": "decimal", "precision": 1}, False),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, True),
        ({"type": "long", "logicalType": "of-mine"}, False),
        ({"type": "long", "logicalType": 5}, False),
    ],
)
def test_logical_types_that_are_not_valid_are_ignored_by_readers(kind: dict[str, Any], valid: bool) -> None:
    one = parsed(kind)
    assert ("logicalType" in one.model.tree) is valid
    assert "logicalType" in one.canonical


NAMES = st.sampled_from(["a", "b", "c.D", "E", "1", "", "a-b", "string"])
TREES = st.recursive(
    st.one_of(NAMES, st.none(), st.integers(), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["record", "enum", "fixed", "array", "map", "int", "a"])},
            optional={
                "name": NAMES,
                "namespace": NAMES,
                "items": inner,
                "values": inner,
                "size": inner,
                "default": inner,
                "symbols": st.lists(NAMES, max_size=3),
                "fields": st.lists(
                    st.fixed_dictionaries({"name": NAMES, "type": inner}, optional={"default": inner}), max_size=3
                ),
            },
        ),
    ),
    max_leaves=12,
)


@given(TREES)
def test_anything_is_parsed_or_refused_and_texts_are_stable(schema: Any) -> None:
    try:
        one = parsed(schema)
    except BadSchema as flaw:
        assert str(flaw).startswith("The Avro schema, at ")
        return
    for text in (one.canonical, one.normalized):
        again = parse(Source(SchemaKind.AVRO, text))
        assert again.model.tree == parse(Source(SchemaKind.AVRO, one.canonical)).model.tree
        assert parse(Source(SchemaKind.AVRO, again.canonical)).canonical == again.canonical
    assert parse(Source(SchemaKind.AVRO, one.canonical)).canonical == one.canonical
    assert parse(Source(SchemaKind.AVRO, one.normalized)).normalized == one.normalized


@promise("S4")
def test_defaults_are_compared_within_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of a default is compared with each branch of a union."""
    monkeypatch.setattr(defaults, "MAX_STEPS", 10_000)
    branches = [{"type": "enum", "name": f"E{at}", "symbols": ["A"]} for at in range(100)]
    kind = {"type": "array", "items": [*branches, "int"]}

    def schema(count: int) -> str:
        fields = [{"name": "a", "type": kind, "default": [1] * count}]
        return json.dumps({"type": "record", "name": "R", "fields": fields})

    assert parse(Source(SchemaKind.AVRO, schema(10)))
    with pytest.raises(BadSchema, match="more than 10000 steps"):
        parse(Source(SchemaKind.AVRO, schema(200)))
