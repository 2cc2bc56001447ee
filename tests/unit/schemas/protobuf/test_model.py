"""Protobuf schemas: what is accepted, what is refused and where, and the texts for comparing."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import BadSchema
from headwater.schemas.parsing import Parsed, ProtobufModel, SchemaKind, Source, parse
from headwater.schemas.protobuf import model as models
from headwater.schemas.protobuf.model import files_of, message_indexes, message_name, pool_of, serialized
from tests.support.protobuf import compile_in_process

EVERYTHING = """
syntax = "proto2";
package a.b;
import "google/protobuf/descriptor.proto";
import "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
import public "other.proto";
option java_package = "x.\\"y\\"";
option (flag) = true;
extend google.protobuf.FileOptions { optional bool flag = 50001; }
extend google.protobuf.FieldOptions { repeated string marks = 50002; optional Inner deep = 50003; }

// What happened.
message Event {
  option deprecated = true;
  reserved 2, 15, 9 to 11, 5000 to max;
  reserved "foo", "bar";
  // The name.
  required string name = 1 [default = "a\\"\\n\\303\\274", (marks) = "x", (marks) = "y", (deep) = {n: 1 s: "t"}];
  optional bytes raw = 3 [default = "\\000\\377", json_name = "RAW"]; // trailing
  repeated int32 numbers = 4 [packed = true, (confluent.field_meta).doc = "d"];
  map<string, Inner> inners = 5;
  optional group Sub = 6 { optional int32 x = 1; }
  oneof choice {
    string one = 7;
    .a.b.Inner two = 8;
  }
  optional google.protobuf.Timestamp at = 12;
  optional Color color = 13 [default = RED];
  optional other.Other other = 14;
  optional double huge = 16 [default = inf];
  extensions 100 to 199;
  message Nested { message Deep { optional Nested up = 1; } }
  enum Level { option allow_alias = true; reserved -5 to -1; LOW = 0; SAME = 0; HIGH = 7 [deprecated = true]; }
}
message Inner { optional int32 n = 1; optional string s = 2; }
enum Color { RED = 0; GREEN = 1; }
extend Event { optional int32 more = 100; }
service Calls { rpc Call (stream Event) returns (Inner) { option deprecated = true; }
  rpc Plain (Inner) returns (Inner); }
"""
OTHER = 'syntax = "proto3"; package other; message Other { optional int32 x = 1; int32 y = 2; }'


def parsed(text: str, *references: tuple[str, str]) -> Parsed:
    return parse(Source(SchemaKind.PROTOBUF, text, references))


def model(text: str, *references: tuple[str, str]) -> ProtobufModel:
    found = parsed(text, *references).model
    assert isinstance(found, ProtobufModel)
    return found


def bare(found: ProtobufModel) -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of the schema's own file, without what does not matter to readers."""
    own = files_of(found.descriptors)[-1]
    own.ClearField("source_code_info")
    own.ClearField("name")
    return own


def test_printed_text_has_the_same_descriptor() -> None:
    first = parsed(EVERYTHING, ("other.proto", OTHER))
    again = parsed(first.canonical, ("other.proto", OTHER))
    assert isinstance(first.model, ProtobufModel)
    assert isinstance(again.model, ProtobufModel)
    before, after = bare(first.model), bare(again.model)
    for file in (before, after):  # the printer puts these in an order of its own
        file.extension.sort(key=lambda one: one.number)
        for message in file.message_type:
            message.nested_type.sort(key=lambda one: one.name)
    assert after == before
    assert again.canonical == first.canonical
    assert parsed(first.normalized, ("other.proto", OTHER)).normalized == first.normalized
    assert first.model.messages == ("a.b.Event", "a.b.Inner")


def test_comments_are_kept_but_for_normalize() -> None:
    first = parsed(EVERYTHING, ("other.proto", OTHER))
    assert "// What happened.\nmessage Event {" in first.canonical
    assert "  // The name.\n  required string name" in first.canonical
    assert "// trailing\n  optional bytes raw" in first.canonical
    assert "//" not in first.normalized


def test_normalize_ignores_comments_spacing_and_orders() -> None:
    one = 'syntax="proto3";import "google/protobuf/any.proto";import "google/protobuf/empty.proto";/* c */message A{'
    one += "string b=2;google.protobuf.Any a=1;google.protobuf.Empty e=3;}"
    other = """syntax = "proto3"; import "google/protobuf/empty.proto"; import "google/protobuf/any.proto";
        message A { .google.protobuf.Any a = 1; string b = 2; google.protobuf.Empty e = 3; }"""
    assert parsed(one).canonical != parsed(other).canonical
    assert parsed(one).normalized == parsed(other).normalized


def test_descriptor_in_base64() -> None:
    text = parsed(EVERYTHING, ("other.proto", OTHER))
    assert isinstance(text.model, ProtobufModel)
    sent = serialized(text.model)
    again = parsed(sent, ("other.proto", serialized(model(OTHER))))
    assert again.normalized == text.normalized
    assert descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(sent)).package == "a.b"


def test_editions() -> None:
    text = 'edition = "2023"; package e; message A { int32 x = 1 [features.field_presence = IMPLICIT]; string y = 2; }'
    first = parsed(text)
    assert 'edition = "2023";' in first.canonical
    again = parsed(first.canonical).model
    assert isinstance(first.model, ProtobufModel)
    assert isinstance(again, ProtobufModel)
    assert bare(again) == bare(first.model)


def test_types_that_registries_know_without_a_reference() -> None:
    text = """syntax = "proto3"; import "google/type/money.proto"; import "confluent/type/decimal.proto";
        message A { google.type.Money m = 1; confluent.type.Decimal d = 2; }"""
    names = [file.name for file in files_of(model(text).descriptors)]
    assert names == ["google/type/money.proto", "confluent/type/decimal.proto", "schema.proto"]


def test_well_known_types_are_those_of_the_compiler() -> None:
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A { google.protobuf.Timestamp t = 1; }'
    fake = 'syntax = "proto3"; package google.protobuf; message Timestamp { string fake = 1; }'
    pool = pool_of(model(text, ("google/protobuf/timestamp.proto", fake)).descriptors)
    assert "seconds" in pool.FindMessageTypeByName("google.protobuf.Timestamp").fields_by_name


def test_bytes_are_read_by_the_model() -> None:
    found = model('syntax = "proto3"; package p; message A { message B { string s = 1; } B b = 1; } message C {}')
    pool = pool_of(found.descriptors)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(found.messages[0]))
    assert kind.FromString(b"\x0a\x04\x0a\x02hi").b.s == "hi"


def test_message_indexes() -> None:
    found = model('syntax = "proto3"; package p; message A { message B {} message C {} } message D {}')
    assert message_name(found, (0,)) == "p.A"
    assert message_name(found, ()) == "p.A"
    assert message_name(found, (0, 1)) == "p.A.C"
    assert message_name(found, (1,)) == "p.D"
    for wrong in ((2,), (1, 0), (-1,)):
        with pytest.raises(IndexError, match="no message with the indexes"):
            message_name(found, wrong)


JAVA = """syntax = "proto3";
package p;
message Outer {
  repeated .p.Outer.FirstEntry first = 1;
  repeated Outer.SecondEntry second = 2;
  message FirstEntry { option map_entry = true; string key = 1; int32 value = 2; }
  message A { string s = 1; }
  message SecondEntry { option  map_entry=true; string key = 1; .p.Outer.A value = 2; }
  message B { int32 n = 1; }
}
"""
"""Maps as Java's serializer writes them. protoc refuses the option."""
BY_HAND = """syntax = "proto3"; package p;
message Outer { map<string, int32> first = 1; map<string, A> second = 2;
  message A { string s = 1; } message B { int32 n = 1; } }"""


def test_maps_as_java_writes_them_are_maps_and_count_in_indexes() -> None:
    """Java's serializer numbers messages as its descriptor has them, entries of maps among them."""
    found, by_hand = parsed(JAVA), parsed(BY_HAND)
    assert isinstance(found.model, ProtobufModel)
    assert isinstance(by_hand.model, ProtobufModel)
    names = {(0, 1): "p.Outer.A", (0, 3): "p.Outer.B"}
    assert {indexes: message_name(found.model, indexes) for indexes in names} == names
    assert {indexes: message_indexes(found.model, name) for indexes, name in names.items()} == {
        indexes: indexes for indexes in names
    }
    kind = message_factory.GetMessageClass(pool_of(found.model.descriptors).FindMessageTypeByName("p.Outer"))
    assert dict(kind.FromString(b"\x0a\x05\x0a\x01k\x10\x07").first) == {"k": 7}
    assert found.normalized == by_hand.normalized
    stored = parsed(found.canonical)
    assert isinstance(stored.model, ProtobufModel)
    assert stored.canonical == found.canonical
    assert message_name(stored.model, (0, 3)) == "p.Outer.B"


def test_maps_of_a_text_do_not_count_and_those_of_a_descriptor_do() -> None:
    """Java numbers the messages of a text that has maps without their entries. Python and Go send descriptors."""
    by_hand = model(BY_HAND)
    assert [message_name(by_hand, (0, at)) for at in range(2)] == ["p.Outer.A", "p.Outer.B"]
    sent = parsed(serialized(by_hand))
    assert isinstance(sent.model, ProtobufModel)
    order = [one.name for one in files_of(by_hand.descriptors)[-1].message_type[0].nested_type]
    assert order == ["FirstEntry", "SecondEntry", "A", "B"]
    assert message_name(sent.model, (0, 3)) == message_name(model(sent.canonical), (0, 3)) == "p.Outer.B"
    plain = 'syntax = "proto3"; message M { message A {} map<string, A> all = 1; }'
    assert "map<string, .M.A> all = 1;" in parsed(serialized(model(plain))).canonical


@pytest.mark.parametrize(
    "text",
    [
        "message E { option map_entry = true; string key = 1; string value = 2; }",
        "message M { message E { option map_entry = true; string key = 1; string value = 2; } }",
        "message M { repeated E e = 1; message E { option map_entry = true; bytes key = 1; string value = 2; } }",
        "message M { repeated E e = 1; message E { option map_entry = true; string key = 1; } }",
    ],
)
def test_what_is_no_entry_of_a_map_is_refused(text: str) -> None:
    with pytest.raises(BadSchema, match="option map_entry is for"):
        parsed(f'syntax = "proto3"; {text}')


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        (" ", "is empty"),
        ("message", "The Protobuf schema, at line 1, column"),
        ('syntax = "proto3";\nmessage A { strin a = 1; }', 'line 2, column 13: "strin" is not defined'),
        ('syntax = "proto3"; import "/etc/passwd"; message A {}', "/etc/passwd"),
        ('syntax = "proto3"; import "../../etc/hosts"; message A {}', "etc/hosts"),
        ('syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "has already been used"),
        ('syntax = "proto3"; enum A { X = 1; }', "first enum value must be zero"),
        ('syntax = "proto3"; message A { int32 a = 99999999999999999999; }', "column"),
        ('syntax = "proto3"; ' + "message A {" * 5000 + "}" * 5000, "recursion limit"),
        ("Zm9v", "The Protobuf schema, at line 1, column 1"),
        ("\ud800", "half of a surrogate pair"),
    ],
)
def test_flaws_are_named_with_their_place(text: str, flaw: str) -> None:
    with pytest.raises(BadSchema) as caught:
        parsed(text)
    assert flaw in str(caught.value)


def test_number_of_types_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MAX_TYPES", 8)
    text = 'syntax = "proto3"; message A { enum E { X = 0; } message B { int32 a = 1; } B b = 1; map<string, B> m = 2;'
    assert model(text[: text.index("map")] + "}").messages == ("A",)
    with pytest.raises(BadSchema, match="more than 8 types and fields"):
        parsed(text + "}")


@pytest.mark.parametrize(
    "name", ["/etc/x.proto", "../x.proto", "a/../x.proto", "", "a//b", "a\0b", ".hidden", "x" * 300]
)
def test_names_of_references_stay_in_their_directory(name: str) -> None:
    with pytest.raises(BadSchema, match=r"is not a name that a \.proto file can import"):
        parsed('syntax = "proto3"; message A {}', (name, OTHER))


def test_names_of_references_in_each_others_way() -> None:
    with pytest.raises(BadSchema, match="in each other's way"):
        parsed('syntax = "proto3"; message A {}', ("a", OTHER), ("a/b", OTHER))


def test_flaw_of_a_reference() -> None:
    with pytest.raises(BadSchema, match=r"Reference 'o.proto', at line 1, column 1: .*Expected"):
        parsed('syntax = "proto3"; import "o.proto"; message A {}', ("o.proto", "nonsense;"))


def test_references_in_a_circle() -> None:
    one, two = 'syntax = "proto3"; import "two";', 'syntax = "proto3"; import "one";'
    with pytest.raises(BadSchema, match="recursively imports itself"):
        parsed('syntax = "proto3"; import "one"; message A {}', ("one", one), ("two", two))


WORDS = st.sampled_from(
    [
        *'{}[]()<>;=,."\\',
        *("message", "enum", "A", "b", "1", "0", "-1", "string", "int32", "map", "oneof", "reserved", "to", "max"),
        *("option", "import", "syntax", "repeated", "group"),
        *('"proto3"', "extend", "\n", "//", "/*", "\x00"),
    ]
)


@settings(max_examples=30)
@given(st.lists(WORDS, max_size=40))
def test_anything_is_parsed_or_refused(words: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        compile_in_process(patch)
        try:
            first = parsed('syntax = "proto3"; message First {} ' + " ".join(words))
        except BadSchema as flaw:
            assert str(flaw)
            return
        assert parsed(first.canonical).canonical == first.canonical
