"""What Confluent's serializers write is decoded, by prefix, for every kind of schema."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory

from headwater.schemas.decoding.by_schema import decoder_of
from headwater.schemas.framing import frames_of, message_frames
from headwater.schemas.parsing import ProtobufModel, SchemaKind, Source, parse
from headwater.schemas.protobuf.model import pool_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

CONTEXT = SerializationContext("orders", MessageField.VALUE)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "who": "é", "tags": ["a", "b"], "price": 1.5},
    {"id": -(2**40), "who": "", "tags": [], "price": 0.0},
]
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "price", "type": "double"},
    ],
}
JSON = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "who": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "price": {"type": "number"},
    },
}
PROTO = """syntax = "proto3";
package shop;
message Other { int32 x = 1; }
message Outer {
  message Order { int64 id = 1; string who = 2; repeated string tags = 3; double price = 4; }
}
"""


def registry() -> Any:
    return SchemaRegistryClient.new_client({"url": "mock://"})


def schema_of(client: Any, payload: bytes) -> Source:
    """The schema that the prefix of a payload names, as the registry has it."""
    schema: Schema = client.get_schema(int.from_bytes(payload[1:5], "big"))
    return Source(SchemaKind(schema.schema_type or "AVRO"), schema.schema_str)


def decoded(client: Any, payloads: list[bytes]) -> list[Any]:
    given = pa.array(payloads, pa.binary())
    [frame] = frames_of(given, pa.nulls(len(payloads), pa.null()), "").frames
    assert frame.schema.key == str(int.from_bytes(payloads[0][1:5], "big"))
    source = schema_of(client, payloads[0])
    parsed, indexes, bare = parse(source), (), frame.payloads
    if source.kind is SchemaKind.PROTOBUF:
        [[message], _] = message_frames(bare)
        indexes, bare = message.indexes, message.payloads
    found = decoder_of(parsed, indexes).decode(bare)
    assert not found.errors
    return list(found.array.to_pylist())


@pytest.mark.filterwarnings("ignore")
def test_avro_of_confluent() -> None:
    client = registry()
    serialize = AvroSerializer(client, json.dumps(AVRO))
    assert decoded(client, [serialize(row, CONTEXT) for row in ROWS]) == ROWS


@pytest.mark.filterwarnings("ignore")
def test_json_schema_of_confluent() -> None:
    client = registry()
    serialize = JSONSerializer(json.dumps(JSON), client)
    assert decoded(client, [serialize(row, CONTEXT) for row in ROWS]) == ROWS


@pytest.mark.filterwarnings("ignore")
def test_protobuf_of_confluent() -> None:
    client = registry()
    model = parse(Source(SchemaKind.PROTOBUF, PROTO)).model
    assert isinstance(model, ProtobufModel)
    kind = message_factory.GetMessageClass(pool_of(model.descriptors).FindMessageTypeByName("shop.Outer.Order"))
    serialize = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    assert decoded(client, [serialize(kind(**row), CONTEXT) for row in ROWS]) == ROWS


@pytest.mark.parametrize(
    ("kind", "text", "payloads"),
    [
        (SchemaKind.AVRO, json.dumps(AVRO), [b"\x02\x02x\x00" + bytes(8), b"\x02\x02\xff", b"\x02", b"", None]),
        (SchemaKind.PROTOBUF, PROTO, [b"\x08\x01", b"", b"\x08", None, b"\x08\x05\x08\x07"]),
        (SchemaKind.JSON, json.dumps(JSON), [b'{"id":1}', b'{"id":', b"", b'{"id":"x"}', None]),
    ],
)
def test_bytes_in_front_of_payloads_are_passed_over(kind: SchemaKind, text: str, payloads: list[bytes | None]) -> None:
    decoder = decoder_of(parse(Source(kind, text)))
    bare = decoder.decode(pa.array(payloads, pa.binary()))
    behind = decoder.decode(
        pa.array([None if one is None else b"\xff\xff\xff" + one for one in payloads], pa.binary()), 3
    )
    assert bare.errors and behind.errors == bare.errors
    assert behind.array.equals(bare.array)
