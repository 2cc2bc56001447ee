"""Bytes of records, compared with those that the serializers of Confluent's client write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from headwater.errors import BadValue
from headwater.schemas.encoding import codec, prefix
from headwater.schemas.parsing import ProtobufModel, SchemaKind, Source, parse
from headwater.schemas.protobuf.model import message_indexes, message_name, pool_of

CONTEXT = SerializationContext("t", MessageField.VALUE)
PROTO = """syntax = "proto3"; package p; import "google/protobuf/timestamp.proto";
    message A { message B { string s = 1; repeated int64 n = 2; google.protobuf.Timestamp t = 3; } }
    message C { map<string, double> m = 1; oneof o { int32 i = 2; bytes b = 3; } }"""


@pytest.fixture
def client() -> Any:
    return SchemaRegistryClient.new_client({"url": "mock://"})


def test_avro(client: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "string"]}]}
    written = AvroSerializer(client, json.dumps(schema))({"a": "x"}, CONTEXT)
    parsed = parse(Source(SchemaKind.AVRO, client.get_latest_version("t-value").schema.schema_str))
    assert prefix(1) + codec(parsed).encode({"a": "x"}) == written
    assert codec(parsed).decode(written[5:]) == {"a": "x"}


def test_json(client: Any) -> None:
    schema = {"type": "object", "title": "R", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    written = JSONSerializer(json.dumps(schema), client)({"a": 5}, CONTEXT)
    parsed = parse(Source(SchemaKind.JSON, client.get_latest_version("t-value").schema.schema_str))
    assert codec(parsed).decode(written[5:]) == {"a": 5} == codec(parsed).decode(codec(parsed).encode({"a": 5}))
    for wrong, flaw in (
        ({"a": "5"}, "at /a does not fit"),
        ({}, "at the top does not fit"),
        ({"a": float("nan")}, "a"),
    ):
        with pytest.raises(BadValue, match=flaw):
            codec(parsed).encode(wrong)
    for data in (b"", b"{", b"\xff", b"[" * 100_000, b'{"a": "5"}'):
        with pytest.raises(BadValue):
            codec(parsed).decode(data)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("p.A.B", {"s": "x", "n": ["1", "-2"], "t": "2024-01-01T00:00:00.000000001Z"}),
        ("p.C", {"m": {"k": 0.5}, "b": "AP8="}),
        ("p.A", {}),
    ],
)
def test_protobuf(client: Any, name: str, value: dict[str, Any]) -> None:
    own = parse(Source(SchemaKind.PROTOBUF, PROTO)).model
    assert isinstance(own, ProtobufModel)
    message = message_factory.GetMessageClass(pool_of(own.descriptors).FindMessageTypeByName(name))
    payload = codec(parse(Source(SchemaKind.PROTOBUF, PROTO)), name).encode(value)
    serializer = ProtobufSerializer(message, client, {"use.deprecated.format": False})
    written = serializer(message.FromString(payload), CONTEXT)
    sent = client.get_latest_version("t-value")
    parsed = parse(Source(SchemaKind.PROTOBUF, sent.schema.schema_str))
    assert isinstance(parsed.model, ProtobufModel)
    indexes = message_indexes(parsed.model, name)
    assert message_name(parsed.model, indexes) == name
    assert prefix(sent.schema_id, indexes) + payload == written
    assert codec(parsed, name).decode(payload) == value


@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        ([], "at the top is no object"),
        ({"i": "x"}, "i"),
        ({"i": 1 << 40}, "i"),
        ({"none": 1}, "none"),
        ({"i": 1, "b": ""}, "oneof"),
        ({"m": {"k": "x"}}, "m"),
    ],
)
def test_protobuf_refuses_what_does_not_fit(value: Any, flaw: str) -> None:
    with pytest.raises(BadValue, match=flaw):
        codec(parse(Source(SchemaKind.PROTOBUF, PROTO)), "p.C").encode(value)


def test_protobuf_without_the_message() -> None:
    parsed = parse(Source(SchemaKind.PROTOBUF, PROTO))
    assert codec(parsed).encode({}) == b""
    for name in ("p.D", "p.A.D"):
        with pytest.raises(BadValue, match="no message"):
            codec(parsed, name)
    with pytest.raises(BadValue, match="no message"):
        codec(parse(Source(SchemaKind.PROTOBUF, 'syntax = "proto3"; enum E { X = 0; }')))
    assert isinstance(parsed.model, ProtobufModel)
    with pytest.raises(KeyError):
        message_indexes(parsed.model, "p.D")
    with pytest.raises(BadValue, match="not of the message"):
        codec(parsed, "p.C").decode(b"\xff")


def test_required_field_that_is_missing() -> None:
    text = 'syntax = "proto2"; message M { required int32 a = 1; optional M m = 2; }'
    parsed = parse(Source(SchemaKind.PROTOBUF, text))
    with pytest.raises(BadValue, match="a"):
        codec(parsed).encode({})
    deep: Any = {"a": 1}
    for _ in range(500):
        deep = {"a": 1, "m": deep}
    with pytest.raises(BadValue):
        codec(parsed).encode(deep)
