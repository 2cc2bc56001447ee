"""The shapes of schemas of every kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from headwater.schemas.parsing import SchemaKind, Source, parse
from headwater.schemas.shapes import Field, Shape, depth_of, flaw_of
from headwater.schemas.shaping import record_of, shape_of
from headwater.schemas.unfolding import MAX_LEVELS, MAX_PARTS


def of(kind: SchemaKind, text: str, *references: tuple[str, str], message: str = "") -> Shape:
    """The shape of a schema's text, which is well formed."""
    shape = shape_of(parse(Source(kind, text, references)), message)
    assert flaw_of(shape) == "" and depth_of(shape) <= MAX_LEVELS
    return shape


def avro(schema: Any, *references: tuple[str, str]) -> Shape:
    return of(SchemaKind.AVRO, json.dumps(schema), *references)


def proto(body: str, *references: tuple[str, str], message: str = "") -> Shape:
    return of(SchemaKind.PROTOBUF, f'syntax = "proto3"; {body}', *references, message=message)


def json_schema(schema: Any) -> Shape:
    return of(SchemaKind.JSON, json.dumps(schema))


def drawn(fields: Iterable[Field], indent: str = "") -> Iterator[str]:
    """Fields as lines of names, kinds and comments."""
    for field in fields:
        yield f"{indent}{field.name} {field.shape.kind}" + (f" -- {field.doc}" if field.doc else "")
        yield from drawn(field.shape.fields, indent + " ")


def lines(shape: Shape) -> list[str]:
    return [shape.kind, *drawn(shape.fields)]


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """A record of Avro. Fields without names are called a, b and so on."""
    named = [
        one
        if isinstance(one, dict) and "name" in one and not {"fields", "size", "symbols"} & set(one)
        else {"type": one}
        for one in fields
    ]
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": chr(ord("a") + at), **one} for at, one in enumerate(named)],
        **more,
    }


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


def parts_of(shape: Shape) -> int:
    return 1 + sum(parts_of(field.shape) for field in shape.fields)


# --- Avro -------------------------------------------------------------------------------------------


def test_types_of_avro() -> None:
    plain = ["boolean", "int", "long", "float", "double", "bytes", "string", "null"]
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    fixed = {"type": "fixed", "name": "F", "size": 3}
    nested = [{"type": "array", "items": "int"}, {"type": "map", "values": "E"}, record("F", name="S")]
    assert lines(avro(record(*plain, enum, fixed, *nested))) == [
        *("struct", "a boolean", "b int", "c long", "d float", "e double", "f binary", "g string", "h null"),
        *("i string", "j binary", "k list", " element int", "l map", " key string", " value string"),
        *("m struct", " a binary"),
    ]


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (logical("bytes", "decimal", precision=9, scale=2), "decimal(9,2)"),
        (logical("bytes", "decimal", precision=38), "decimal(38,0)"),
        (logical("bytes", "decimal", precision=39, scale=1), "string"),
        (logical("fixed", "decimal", precision=9, scale=2, name="D", size=8), "decimal(9,2)"),
        (logical("int", "date"), "date"),
        (logical("int", "time-millis"), "time"),
        (logical("long", "time-micros"), "time"),
        (logical("long", "timestamp-millis"), "timestamptz"),
        (logical("long", "timestamp-micros"), "timestamptz"),
        (logical("long", "timestamp-nanos"), "timestamptz"),
        (logical("long", "local-timestamp-millis"), "timestamp"),
        (logical("long", "local-timestamp-nanos"), "timestamp"),
        (logical("string", "uuid"), "uuid"),
        (logical("fixed", "uuid", name="U", size=16), "uuid"),
        (logical("string", "date"), "string"),
        (logical("long", "unheard-of"), "long"),
    ],
)
def test_logical_types_of_avro(schema: Any, kind: str) -> None:
    assert avro(record(schema)).fields[0].shape == Shape(kind)


def test_a_duration_of_avro_is_a_struct() -> None:
    schema = logical("fixed", "duration", name="D", size=12)
    assert lines(avro(record(schema))) == ["struct", "a struct", " months long", " days long", " millis long"]


def test_a_union_of_avro_has_a_field_for_each_type() -> None:
    inner = [record(name="x.S"), {**record("int", name="y.S")}, record("int", name="x.T")]
    union = ["null", "int", "string", {"type": "array", "items": "int"}, *inner]
    assert lines(avro(record(["null", "long"], ["string"], ["null"], union))) == [
        *("struct", "a long", "b string", "c null", "d struct", " int int", " string string", " array list"),
        *("  element int", " x.S json", " y.S struct", "  a int", " T struct", "  a int"),
    ]


def test_comments_of_avro_are_those_of_fields_or_of_their_types() -> None:
    own = {"name": "x", "type": ["null", record("int", name="S", doc="A type.")], "doc": "A field."}
    later = {"name": "y", "type": ["null", "S"]}
    assert lines(avro(record(own, later))) == [
        "struct",
        "x struct -- A field.",
        " a int",
        "y struct -- A type.",
        " a int",
    ]


def test_avro_without_a_record() -> None:
    assert avro("string").kind == "string" and avro(["null", "string"]).kind == "string"
    assert lines(avro([record("int", name="A"), record("string", name="B")])) == [
        *("struct", "A struct", " a int", "B struct", " a string"),
    ]
    assert avro(record()).kind == "json"


def test_references_of_avro() -> None:
    other = json.dumps(record("int", name="com.Other"))
    assert lines(avro(record("com.Other"), ("other", other))) == ["struct", "a struct", " a int"]


def test_a_type_of_avro_in_itself_ends_in_json() -> None:
    node = record("int", ["null", "Node"], name="Node")
    assert lines(avro(node)) == [
        *("struct", "a int", "b struct", " a int", " b struct", "  a int", "  b json"),
    ]


def test_types_with_too_many_parts_repeat_less_often_and_keep_the_top() -> None:
    tree = record(*[["null", "Tree"]] * 20, "int", name="Tree")
    shape = avro(tree)
    assert parts_of(shape) <= MAX_PARTS and [field.shape.kind for field in shape.fields] == ["struct"] * 20 + ["int"]
    assert {field.shape.kind for field in shape.fields[0].shape.fields} == {"json", "int"}


def test_a_schema_that_unfolds_to_billions_of_parts_is_cut() -> None:
    inner: Any = record("int", name="L0")
    for level in range(1, 30):
        inner = record(inner, *[f"L{level - 1}"] * 9, name=f"L{level}")
    shape = avro(inner)
    assert len(shape.fields) == 10 and parts_of(shape) <= MAX_PARTS


def test_a_schema_with_many_fields_keeps_them_all() -> None:
    shape = avro(record(*({"name": f"f{at}", "type": "int"} for at in range(5_000))))
    assert len(shape.fields) == 5_000


def test_deep_avro_is_cut_at_the_limit() -> None:
    levels = [record(f"L{level}" if level else "int", name=f"L{level + 1}") for level in range(60)]
    references = [(one["name"], json.dumps(one)) for one in levels[:-1]]
    assert depth_of(avro(levels[-1], *references)) == MAX_LEVELS


# --- Protobuf ---------------------------------------------------------------------------------------


def test_types_of_protobuf() -> None:
    kinds = ["double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64"]
    kinds += ["sfixed32", "sfixed64", "bool", "string", "bytes", "E", "repeated int32", "map<int32, S>", "S", "N"]
    fields = " ".join(f"{kind} f{at} = {at + 1};" for at, kind in enumerate(kinds))
    text = f"message M {{ {fields} }} enum E {{ A = 0; }} message S {{ string s = 1; }} message N {{}}"
    assert lines(proto(text)) == [
        *("struct", "f0 double", "f1 float", "f2 int", "f3 long", "f4 long", "f5 decimal(20,0)", "f6 int", "f7 long"),
        *("f8 long", "f9 decimal(20,0)", "f10 int", "f11 long", "f12 boolean", "f13 string", "f14 binary"),
        *("f15 string", "f16 list", " element int", "f17 map", " key string", " value struct", "  s string"),
        *("f18 struct", " s string", "f19 json"),
    ]


def test_types_that_google_publishes() -> None:
    names = ["timestamp", "duration", "wrappers", "struct", "any"]
    imports = " ".join(f'import "google/protobuf/{name}.proto";' for name in names)
    kinds = ["Timestamp", "Duration", "Int64Value", "UInt64Value", "StringValue", "Struct", "Value", "ListValue", "Any"]
    fields = " ".join(f"google.protobuf.{kind} f{at} = {at + 1};" for at, kind in enumerate(kinds))
    found = lines(proto(f"{imports} message M {{ {fields} repeated google.protobuf.BoolValue r = 99; }}"))
    assert [line.partition(" -- ")[0] for line in found if "\n" not in line.partition(" -- ")[0]] == [
        *("struct", "f0 timestamptz", "f1 struct", " seconds long", " nanos int", "f2 long", "f3 decimal(20,0)"),
        *("f4 string", "f5 json", "f6 json", "f7 json", "f8 json", "r list", " element boolean"),
    ]


def test_oneofs_groups_and_comments_of_protobuf() -> None:
    text = """syntax = "proto2"; package a.b;
    message M {
      // Which one.
      oneof choice {
        string s = 1;
        // A number.
        int64 n = 2;
      }
      optional group G = 3 { required int32 x = 4; // Behind.
      }
      extensions 100 to 200;
      message Inner {
        // Inside.
        optional bool y = 1;
      }
      optional Inner inner = 5;
    }
    extend M { optional int32 more = 100; }"""
    assert lines(of(SchemaKind.PROTOBUF, text)) == [
        *("struct", "s string", "n long -- A number.", "g struct", " x int -- Behind."),
        *("inner struct", " y boolean -- Inside."),
    ]
    assert lines(of(SchemaKind.PROTOBUF, text, message="a.b.M.Inner")) == ["struct", "y boolean -- Inside."]


def test_a_message_in_itself_ends_in_json() -> None:
    text = "message Node { int32 v = 1; repeated Node next = 2; map<string, Node> named = 3; }"
    shape = proto(text)
    assert lines(shape)[:5] == ["struct", "v int", "next list", " element struct", "  v int"]
    ends = {field.shape.kind for field in shape.fields[1].shape.fields[0].shape.fields[1].shape.fields[0].shape.fields}
    assert ends == {"int", "list", "map"} and parts_of(shape) <= MAX_PARTS


def test_references_of_protobuf() -> None:
    other = 'syntax = "proto3"; package o; message Other { int32 x = 1; }'
    assert lines(proto('import "o.proto"; message M { o.Other o = 1; }', ("o.proto", other))) == [
        *("struct", "o struct", " x int"),
    ]


# --- JSON Schema ------------------------------------------------------------------------------------


def test_types_of_json_schema() -> None:
    properties = {
        "b": {"type": "boolean", "description": "Yes or no."},
        "i": {"type": "integer", "title": "Titled."},
        "big": {"type": "integer", "maximum": 1 << 64},
        "n": {"type": "number"},
        "s": {"type": ["string", "null"]},
        "d": {"type": "string", "format": "date"},
        "t": {"type": "string", "format": "date-time"},
        "u": {"type": "string", "format": "uuid"},
        "m": {"type": "string", "format": "email"},
        "x": {"type": "null"},
        "l": {"type": "array", "items": {"type": "integer"}},
        "tuple": {"type": "array", "items": [{"type": "integer"}]},
        "o": {"properties": {"y": {"type": "integer"}}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "pattern": {"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False},
        "any": {},
        "open": {"type": "object"},
        "never": False,
    }
    assert lines(json_schema({"type": "object", "properties": properties})) == [
        *("struct", "b boolean -- Yes or no.", "i long -- Titled.", "big decimal(38,0)", "n double", "s string"),
        *("d date", "t timestamptz", "u uuid", "m string", "x null", "l list", " element long", "tuple json"),
        *("o struct", " y long", "map map", " key string", " value long", "pattern map", " key string"),
        *(" value string", "any json", "open json"),
    ]


def test_a_property_of_several_types_has_several_fields() -> None:
    properties = {
        "types": {"type": ["integer", "string", "number", "null"]},
        "one": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}, {"type": "string"}]},
        "any": {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "integer"}}]},
        "enum": {"enum": ["a", 1, None, True]},
        "const": {"const": "a"},
        "mixed": {"type": "array", "items": {"type": ["integer", "string"]}},
        "lists": {"anyOf": [{"type": "array", "items": {"type": kind}} for kind in ("integer", "string")]},
        "loose": {"anyOf": [{"type": "string"}, {}]},
    }
    assert lines(json_schema({"properties": properties})) == [
        *("struct", "types double", "types string", "one string", "any boolean", "any list", " element long"),
        *("enum string", "enum long", "enum boolean", "const string", "mixed list", " element json"),
        *("lists list", " element json", "loose json"),
    ]
    assert json_schema({"type": ["string", "integer"]}).kind == "json"


def test_objects_of_choices_are_one_struct() -> None:
    cat = {"properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}}
    dog = {"properties": {"kind": {"const": "dog"}, "lives": {"type": "string"}, "tail": {"type": "boolean"}}}
    base = {"type": "object", "properties": {"name": {"type": "string", "description": "Its name."}}}
    expected = ["struct", "name string -- Its name.", "kind string", "lives long", "lives string", "tail boolean"]
    assert lines(json_schema({**base, "oneOf": [cat, dog]})) == expected
    assert lines(json_schema({"allOf": [base, {"anyOf": [cat, dog]}]})) == expected
    assert lines(json_schema({**base, "if": cat, "then": cat, "else": dog})) == expected
    required = {**base, "anyOf": [{"required": ["name"]}, {"required": ["other"]}]}
    assert lines(json_schema(required)) == expected[:2]


def test_references_of_json_schema() -> None:
    definitions = {"P": {"type": "object", "description": "A point.", "properties": {"x": {"type": "integer"}}}}
    old = {"definitions": definitions, "properties": {"p": {"$ref": "#/definitions/P"}}}
    assert lines(json_schema(old)) == ["struct", "p struct -- A point.", " x long"]
    beside = {"$ref": "#/definitions/P", "description": "Own.", "properties": {"y": {"type": "string"}}}
    draft = "https://json-schema.org/draft/2020-12/schema"
    new = {"$schema": draft, "definitions": definitions, "properties": {"p": beside}}
    assert lines(json_schema(new)) == ["struct", "p struct -- Own.", " x long", " y string"]


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"$ref": "#"}, {"type": "integer"}]},
        {"properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}, "all": {"items": {"$ref": "#"}}}},
        {"definitions": {f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 9} for n in range(30)}
         | {"d30": {"type": "integer"}}, "$ref": "#/definitions/d0"},
    ],
)  # fmt: skip
def test_a_json_schema_in_itself_ends(schema: Any) -> None:
    assert parts_of(json_schema(schema)) <= MAX_PARTS


def test_any_value_is_json() -> None:
    assert json_schema(True).kind == json_schema({}).kind == "json" and json_schema({"type": "null"}).kind == "null"


def test_names_of_record_types() -> None:
    def name(kind: SchemaKind, text: str, message: str = "") -> str:
        return record_of(parse(Source(kind, text)), message)

    assert name(SchemaKind.AVRO, json.dumps(record(name="com.shop.Order"))) == "Order"
    assert name(SchemaKind.AVRO, '"string"') == ""
    text = 'syntax = "proto3"; package p; message A { message C {} } message B {}'
    assert name(SchemaKind.PROTOBUF, text) == "A" and name(SchemaKind.PROTOBUF, text, "p.A.C") == "C"
    assert name(SchemaKind.JSON, '{"title": "Order"}') == "Order" and name(SchemaKind.JSON, "true") == ""
