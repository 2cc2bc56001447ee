"""Protobuf schemas that do and do not read what others wrote, by the rules that Confluent publishes."""

from __future__ import annotations

import pytest

from headwater.schemas.compatibility import Level, differences, incompatibilities
from headwater.schemas.parsing import Parsed, SchemaKind, Source, parse


def parsed(body: str, *references: tuple[str, str], syntax: str = "proto3") -> Parsed:
    texts = tuple((name, f'syntax = "proto3"; {text}') for name, text in references)
    return parse(Source(SchemaKind.PROTOBUF, f'syntax = "{syntax}"; {body}', texts))


def found(reader: Parsed, writer: Parsed) -> list[str]:
    return [f"{one.type} {one.place}" for one in differences(reader, writer)]


@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        ("package a; message M {}", "package b; message M {}", ["PACKAGE_CHANGED #/"]),
        ("message M {}", "message M {} message N {}", []),
        ("message M {} message N {}", "message N {}", ["MESSAGE_REMOVED #/M"]),
        ("message M { message N {} }", "message M {}", ["MESSAGE_REMOVED #/M/N"]),
        ("message M {} message N {}", "message N {} message M {}", []),
        ("message M { string a = 1; }", "message M { string b = 1; string c = 2; }", []),
        ("message M { string a = 1; }", "message M {}", []),
        ("message M { int32 a = 1; }", "message M { uint64 a = 1; }", []),
        ("message M { int32 a = 1; }", "message M { E a = 1; } enum E { X = 0; }", []),
        ("message M { string a = 1; }", "message M { bytes a = 1; }", []),
        ("message M { int32 a = 1; }", "message M { sint32 a = 1; }", ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
        ("message M { fixed32 a = 1; }", "message M { sfixed32 a = 1; }", []),
        ("message M { float a = 1; }", "message M { double a = 1; }", ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
        ("message M { string a = 1; }", "message M { M a = 1; }", ["FIELD_KIND_CHANGED #/M/1"]),
        ("message M { M a = 1; }", "message M { repeated M a = 1; }", []),
        (
            "message M { optional int32 a = 1; }",
            "message M { repeated int32 a = 1; }",
            ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"],
        ),
        ("message M { optional string a = 1; }", "message M { repeated string a = 1; }", []),
        (
            "message M { N a = 1; } message N {} message O {}",
            "message M { O a = 1; } message N {} message O {}",
            ["FIELD_NAMED_TYPE_CHANGED #/M/1"],
        ),
        ("message M { map<string, int32> a = 1; }", "message M { map<string, int64> a = 1; }", []),
        (
            "message M { map<string, int32> a = 1; }",
            "message M { map<string, float> a = 1; }",
            ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
        ),
        ("message M { map<string, int32> a = 1; }", "message M { string a = 1; }", ["FIELD_KIND_CHANGED #/M/1"]),
        ("message M { string a = 1; }", "message M { oneof o { string a = 1; string b = 2; } }", []),
        (
            "message M { string a = 1; string b = 2; }",
            "message M { oneof o { string a = 1; string b = 2; } }",
            ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"],
        ),
        (
            "message M { string a = 1; oneof o { string b = 2; } }",
            "message M { oneof o { string a = 1; string b = 2; } }",
            ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"],
        ),
        ("message M { oneof o { string a = 1; string b = 2; } }", "message M { string a = 1; string b = 2; }", []),
        (
            "message M { oneof o { string a = 1; string b = 2; } }",
            "message M { oneof o { string a = 1; } }",
            ["ONEOF_FIELD_REMOVED #/M/o/2"],
        ),
        ("message M { oneof o { string a = 1; string b = 2; } }", "message M {}", []),
        (
            "message M { oneof o { string a = 1; string b = 2; } }",
            "message M { oneof p { string a = 1; float b = 2; } }",
            ["FIELD_SCALAR_KIND_CHANGED #/M/p/2"],
        ),
        ("enum E { X = 0; Y = 1; }", "enum E { X = 0; Z = 2; }", []),
    ],
)
def test_rules(writer: str, reader: str, expected: list[str]) -> None:
    assert found(parsed(reader), parsed(writer)) == expected


def test_required_fields_and_groups() -> None:
    plain = parsed("message M { optional int32 a = 1; }", syntax="proto2")
    required = parsed("message M { optional int32 a = 1; required int32 b = 2; }", syntax="proto2")
    assert found(required, plain) == ["REQUIRED_FIELD_ADDED #/M/2"]
    assert found(plain, required) == ["REQUIRED_FIELD_REMOVED #/M/2"]
    group = parsed("message M { optional group G = 1 { optional int32 a = 1; } }", syntax="proto2")
    other = parsed("message M { optional group G = 1 { optional float a = 1; } }", syntax="proto2")
    assert found(other, group) == ["FIELD_SCALAR_KIND_CHANGED #/M/G/1"]
    assert found(group, plain) == ["FIELD_KIND_CHANGED #/M/1"]


def test_imported_types_are_compared() -> None:
    body = 'import "n.proto"; message M { n.Out.N a = 1; n.Out.N b = 2; }'
    old = parsed(body, ("n.proto", "package n; message Out { message N { int32 x = 1; N next = 2; } }"))
    same = parsed(body, ("n.proto", "package n; message Out { message N { int64 x = 1; N next = 2; } }"))
    other = parsed(body, ("n.proto", "package n; message Out { message N { string x = 1; N next = 2; } }"))
    renamed = parsed(
        body.replace("n.Out", "m.Out"), ("n.proto", "package m; message Out { message N { int32 x = 1; } }")
    )
    assert found(same, old) == []
    assert found(renamed, old) == []
    assert found(other, old) == [
        "FIELD_SCALAR_KIND_CHANGED #/Out/N/1",
        "FIELD_NAMED_TYPE_CHANGED #/M/1",
        "FIELD_NAMED_TYPE_CHANGED #/M/2",
    ]


def test_moving_a_type_to_an_import() -> None:
    own = parsed("package n; message M { N a = 1; } message N { int32 x = 1; }")
    imported = parsed(
        'package n; import "n.proto"; message M { N a = 1; }', ("n.proto", "package n; message N { int32 x = 1; }")
    )
    assert found(imported, own) == ["MESSAGE_REMOVED #/N"]
    assert found(own, imported) == []


def test_types_that_double_at_every_level_are_compared_once() -> None:
    parts = ["message T0 { int32 x = 1; }"]
    parts += [f"message T{at} {{ T{at - 1} a = 1; T{at - 1} b = 2; }}" for at in range(1, 60)]
    old, new = "package t; " + " ".join(parts), "package t; " + " ".join(parts).replace("int32", "float")
    body = 'import "t.proto"; message M { t.T59 t = 1; }'
    assert len(found(parsed(body, ("t.proto", new)), parsed(body, ("t.proto", old)))) == 120


def test_described() -> None:
    (said,) = incompatibilities(Level.BACKWARD, parsed("message N {}"), [parsed("message M {}")])
    assert said == (
        "{errorType:'MESSAGE_REMOVED', description:'the new schema is missing a message of the old schema at path #/M'}"
    )
