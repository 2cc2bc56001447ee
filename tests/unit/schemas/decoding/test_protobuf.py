"""Protobuf payloads: values as Protobuf's own library reads them, in whatever order they come, and flaws by name."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError

from headwater.errors import BadSchema
from headwater.schemas.decoding.by_schema import Decoder, decoder_of
from headwater.schemas.decoding.conversions import json_text
from headwater.schemas.parsing import Parsed, ProtobufModel, SchemaKind, Source, parse
from headwater.schemas.protobuf.model import message_name, pool_of

ALL = """
syntax = "proto3";
package t;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/any.proto";
message All {
  message Nested { string x = 1; message Deep { int32 y = 1; } }
  int32 i32 = 1; int64 i64 = 2; uint32 u32 = 3; uint64 u64 = 4; sint32 s32 = 5; sint64 s64 = 6;
  fixed32 f32 = 7; fixed64 f64 = 8; sfixed32 sf32 = 9; sfixed64 sf64 = 10; float fl = 11; double db = 12;
  bool bo = 13; string st = 14; bytes by = 15; Color en = 16; Inner inner = 17;
  optional int32 maybe = 18; optional string maybe_text = 19; optional Color maybe_color = 20;
  repeated int32 numbers = 21; repeated sint64 unpacked = 22 [packed = false]; repeated string texts = 23;
  repeated Inner inners = 24; repeated Color colors = 25; repeated double doubles = 26; repeated bool flags = 27;
  map<string, int64> by_name = 30; map<int32, Inner> by_number = 31; map<bool, string> by_flag = 32;
  map<uint64, double> by_long = 33;
  oneof choice { string one = 40; int64 two = 41; Inner three = 42; google.protobuf.Int32Value four = 43; }
  google.protobuf.Timestamp at = 50; google.protobuf.Duration took = 51;
  google.protobuf.Struct free = 52; google.protobuf.Value any_value = 53; google.protobuf.Any any = 54;
  google.protobuf.Int64Value wrapped = 55; google.protobuf.StringValue wrapped_text = 56;
  google.protobuf.UInt64Value wrapped_long = 57; repeated google.protobuf.Timestamp times = 58;
  repeated google.protobuf.BoolValue wrapped_flags = 59;
  int32 far = 536870911;
  Nested.Deep deep = 60;
}
message Inner { int64 n = 1; string s = 2; repeated Inner more = 3; Inner one = 4; map<string, Inner> kin = 5; }
enum Color { RED = 0; GREEN = 1; BLUE = -3; }
message Empty {}
"""
OLD = """
syntax = "proto2";
message Old {
  required string name = 1; optional int32 number = 2 [default = 7]; repeated int32 packed = 3 [packed = true];
  optional group Sub = 4 { optional int32 x = 1; repeated group Item = 2 { optional string s = 1; } }
  extensions 100 to 199;
}
"""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@cache
def parsed(text: str) -> Parsed:
    return parse(Source(SchemaKind.PROTOBUF, text))


def kind_of(text: str, *indexes: int) -> Callable[..., Any]:
    model = parsed(text).model
    assert isinstance(model, ProtobufModel)
    descriptor = pool_of(model.descriptors).FindMessageTypeByName(message_name(model, indexes))
    return message_factory.GetMessageClass(descriptor)


@cache
def everything() -> tuple[Any, Decoder]:
    return kind_of(ALL), decoder_of(parsed(ALL))


def natural(message: Any, levels: dict[str, int] | None = None) -> Any:
    """The value of a message as the shape of a message says, read by Protobuf's library."""
    descriptor = message.DESCRIPTOR
    levels = dict(levels or {})
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return _EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if name.startswith("google.protobuf.") and list(descriptor.fields_by_name) == ["value"]:
        return scalar(descriptor.fields_by_name["value"], message.value)
    levels[name] = levels.get(name, 0) + 1
    if levels[name] > 3 or name in ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.Any"):
        pool = descriptor.file.pool
        read = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
        return json_text(read, sort=True)
    return {field.name: part(message, field, levels) for field in descriptor.fields}


def part(message: Any, field: Any, levels: dict[str, int]) -> Any:
    value = getattr(message, field.name)
    if field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
        inside = field.message_type.fields_by_name["value"]
        pairs = [(_key(key), one(inside, value[key], levels)) for key in value]
        return sorted(pairs, key=lambda pair: pair[0])
    if field.is_repeated:
        return [one(field, element, levels) for element in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return one(field, value, levels)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def one(field: Any, value: Any, levels: dict[str, int]) -> Any:
    return natural(value, levels) if field.message_type is not None else scalar(field, value)


def scalar(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return found.name if found is not None else str(value)
    return Decimal(value) if field.type in (4, 6) else value


def sorted_maps(value: Any) -> Any:
    """A decoded value with its maps in order, so that it can be compared."""
    if isinstance(value, dict):
        return {name: sorted_maps(inside) for name, inside in value.items()}
    if isinstance(value, list):
        inside = [sorted_maps(element) for element in value]
        return sorted(inside, key=lambda pair: pair[0]) if inside and isinstance(inside[0], tuple) else inside
    return (value[0], sorted_maps(value[1])) if isinstance(value, tuple) else value


def filled(message: Any, source: random.Random, depth: int = 0) -> Any:
    """Fill a message with random values."""
    for field in message.DESCRIPTOR.fields:
        if source.random() < 0.5 or (depth > 1 and field.message_type is not None):
            continue
        name = field.name
        if field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
            keys, inside = field.message_type.fields
            for _ in range(source.randint(0, 3)):
                target = getattr(message, name)
                key = value_of(keys, source)
                if inside.message_type is not None:
                    filled(target[key], source, depth + 1)
                else:
                    target[key] = value_of(inside, source)
        elif field.message_type is None:
            if field.is_repeated:
                getattr(message, name).extend(value_of(field, source) for _ in range(source.randint(0, 3)))
            else:
                setattr(message, name, value_of(field, source))
        elif field.is_repeated:
            for _ in range(source.randint(0, 3)):
                special(getattr(message, name).add(), source, depth)
        else:
            getattr(message, name).SetInParent()
            special(getattr(message, name), source, depth)
    return message


def special(message: Any, source: random.Random, depth: int) -> None:
    name = message.DESCRIPTOR.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        message.seconds, message.nanos = source.randint(-(10**9), 10**10), source.randint(0, 999_999_999)
    elif name == "google.protobuf.Struct":
        message.update({"a": source.random(), "b": [None, True, {"c": "d"}]})
    elif name == "google.protobuf.Value":
        message.string_value = "free"
    elif name == "google.protobuf.Any":
        message.Pack(everything()[0](i32=source.randint(0, 5)))
    else:
        filled(message, source, depth + 1)


def value_of(field: Any, source: random.Random) -> Any:
    kind = field.type
    if field.enum_type is not None:
        return source.choice([0, 1, -3, 77])
    if kind in (1, 2):
        return source.choice([0.0, -0.5, 1.5, 1e30, float("inf")])
    if kind == 8:
        return source.random() < 0.5
    if kind == 9:
        return source.choice(["", "a", "é€😀", "some more text"])
    if kind == 12:
        return source.randbytes(source.randint(0, 9))
    bits = 32 if kind in (5, 7, 13, 15, 17) else 64
    low, high = (0, 2**bits - 1) if kind in (4, 6, 7, 13) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return source.choice([low, high, 0, 1, source.randint(low, high), source.randint(0, 300)])


def test_random_messages_are_what_the_library_reads() -> None:
    make, decoder = everything()
    source = random.Random(7)
    messages = [filled(make(), source) for _ in range(150)]
    decoded = decoder.decode(pa.array([message.SerializeToString() for message in messages], pa.binary()))
    decoded.array.validate(full=True)
    assert not decoded.errors
    for found, message in zip(decoded.array.to_pylist(), messages, strict=True):
        expected = natural(message)
        for name, value in expected.items():
            assert sorted_maps(found[name]) == value, name


def test_names_of_a_struct_are_in_order() -> None:
    """The library's maps have no order: the same bytes must give the same text all the same."""
    make, decoder = everything()
    message: Any = make()
    message.free.update(dict.fromkeys("hgfedcba", 1))
    [found] = decoder.decode(pa.array([message.SerializeToString()], pa.binary())).array.to_pylist()
    assert list(json.loads(found["free"])) == list("abcdefgh")


def test_changed_bytes_are_accepted_or_refused_as_by_the_library() -> None:
    make, decoder = everything()
    source = random.Random(11)
    payloads = []
    for _ in range(1_500):
        payload = bytearray(filled(make(), source).SerializeToString())
        for _ in range(source.randint(1, 3)):
            at = source.randrange(len(payload) + 1)
            payload[at : at + source.randint(0, 2)] = source.randbytes(source.randint(0, 2))
        payloads.append(bytes(payload[: source.randint(1, 1_000)]))
    decoded = decoder.decode(pa.array(payloads, pa.binary()))
    decoded.array.validate(full=True)
    values = decoded.array.to_pylist()
    accepted = 0
    for row, payload in enumerate(payloads):
        try:
            message = make.FromString(payload)  # type: ignore[attr-defined]
            expected = natural(message)
        except DecodeError:
            assert row in decoded.errors, payload
            continue
        except (OverflowError, ValueError, TypeError, json_format.Error):
            continue  # a time out of range, or something that has no JSON
        assert row not in decoded.errors or "time" in decoded.errors[row], (payload, decoded.errors[row])
        if row in decoded.errors:
            continue
        accepted += 1
        for name, value in expected.items():
            if not isinstance(value, float) and "nan" not in repr(value):
                assert sorted_maps(values[row][name]) == value, (name, payload)
    assert accepted > 50


def test_parts_of_a_message_come_in_any_order() -> None:
    make, decoder = everything()
    first, second = make(i32=1, numbers=[1], texts=["a"]), make(i32=2, numbers=[2], texts=["b"], maybe=0)
    first.inner.n, second.inner.s = 5, "x"
    first.three.n, second.three.s = 1, "y"
    split = first.SerializeToString() + second.SerializeToString()
    other = make(one="z").SerializeToString()
    cases = [split, split + other, other + split, split + other + second.SerializeToString()]
    cases += [make(four={"value": 3}).SerializeToString() + other]  # type: ignore[dict-item]
    cases += [make(free={"a": 1}).SerializeToString() + make(free={"b": 2}).SerializeToString()]
    twice = make(by_name={"k": 1}, by_number={5: {"n": 1}}).SerializeToString()
    cases += [twice + make(by_name={"k": 2, "l": 3}, by_number={5: {"s": "x"}}).SerializeToString()]
    cases += [b"\xaa\x01\x00\xa8\x01\x05\xaa\x01\x02\x06\x07"]
    decoded = decoder.decode(pa.array(cases, pa.binary()))
    assert not decoded.errors
    for found, case in zip(decoded.array.to_pylist(), cases, strict=True):
        assert sorted_maps(found) == natural(make.FromString(case))  # type: ignore[attr-defined]


def test_flaws_are_named() -> None:
    _, decoder = everything()
    flawed = {
        b"\x08": "i32: the payload is cut short",
        b"\x08" + b"\xff" * 10 + b"\x01": "i32: a number has too many bits",
        b"\x72\x01\xff": "st: a string is not UTF-8",
        b"\x72\xff\xff\xff\xff\x0f": "st: a length goes beyond the payload",
        b"\x72" + b"\xff" * 9 + b"\x01": "st: a length goes beyond the payload",
        b"\x00\x01": "a field's number or wire type is impossible",
        b"\x08\x01\x00": "a field's number or wire type is impossible",
        b"\x0e\x01": "a field's number or wire type is impossible",
        b"\x0b\x14": "a group does not end where it should",
        b"\x0c": "a group does not end where it should",
        b"\x0b" * 50: "the payload is cut short",
        b"\x0b" * 5_000: "nested too deeply",
        b"\x92\x03\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f": "at: a length goes beyond",
        b"\x92\x03\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f": "at: the time is out of range",
        b"\xa2\x03\x02\x0a\x05": "free: ",
    }
    decoded = decoder.decode(pa.array(list(flawed), pa.binary()))
    assert decoded.array.null_count == len(flawed)
    for flaw, error in zip(flawed.values(), decoded.errors.values(), strict=True):
        assert flaw in error


def test_a_short_payload_claims_no_long_lists() -> None:
    _, decoder = everything()
    many = b"\xc2\x01\x00" * 400_000  # elements of inners, each with its own columns, of two bytes and a length
    decoded = decoder.decode(pa.array([b"\x08\x01", many, b"\x08\x02"], pa.binary()))
    assert "too many elements" in decoded.errors[1]
    assert [row and row["i32"] for row in decoded.array.to_pylist()] == [1, None, 2]


def test_older_syntax_with_groups() -> None:
    make, decoder = kind_of(OLD), decoder_of(parsed(OLD))
    message = make(name="n", packed=[1, 2])
    message.sub.x = 5
    message.sub.item.add().s = "s"
    unknown = b"\xa2\x06\x01x\xa3\x06\xa3\x06\xa4\x06\xa4\x06"
    rows = decoder.decode(pa.array([message.SerializeToString() + unknown, b""], pa.binary())).array.to_pylist()
    assert rows == [
        {"name": "n", "number": None, "packed": [1, 2], "sub": {"x": 5, "item": [{"s": "s"}]}},
        {"name": None, "number": None, "packed": [], "sub": None},
    ]


def test_message_indexes_choose_the_message() -> None:
    assert decoder_of(parsed(ALL), (0, 0, 0)).decode(pa.array([b"\x08\x05"], pa.binary())).array.to_pylist() == [
        {"y": 5}
    ]
    empty = decoder_of(parsed(ALL), (2,)).decode(pa.array([b"", None, b"\x08"], pa.binary()))
    assert empty.array.to_pylist() == ["{}", None, None]
    assert list(empty.errors) == [2]
    with pytest.raises(BadSchema, match=r"no message with the indexes \[9\]"):
        decoder_of(parsed(ALL), (9,))


def test_a_file_with_a_well_known_type_only() -> None:
    text = 'syntax = "proto3"; message W { int32 x = 1; } '
    assert decoder_of(parsed(text)).decode(pa.array([None, b""], pa.binary())).array.to_pylist() == [None, {"x": 0}]
