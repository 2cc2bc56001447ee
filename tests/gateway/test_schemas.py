"""Confluent's serializers for Python with the built-in schema registry: produced, consumed, evolved, refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry import header_schema_id_serializer as by_header
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.gateway.consuming import consumed
from tests.support.running import Running

PROMISES = ("T6",)

ADDRESS = {"type": "record", "name": "shop.Address", "fields": [{"name": "street", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "to", "type": ["null", "shop.Address"], "default": None},
    ],
}
PERSON: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("schemas"), gateway=True) as running:
        yield running


@pytest.fixture
def registry(server: Running) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": server.gateway_url}) as client:
        yield client


def sent(server: Running, topic: str, serialize: Any, values: list[Any], before: int = 0) -> list[Any]:
    """What a consumer gets of values that a producer has serialized: bytes and headers."""
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for value in values:
        context = SerializationContext(topic, MessageField.VALUE, [])
        data = serialize(value, context)
        producer.produce(topic, data, partition=0, headers=context.headers)
    assert producer.flush(60) == 0
    return consumed(server, topic, 0, before + len(values))[before:]


def opened(deserialize: Any, message: Any) -> Any:
    context = SerializationContext(message.topic(), MessageField.VALUE, message.headers() or [])
    return deserialize(message.value(), context)


def test_avro(server: Running, registry: SchemaRegistryClient) -> None:
    """Values with a reference and a logical type; a version with one field more; one that is not compatible."""
    registry.register_schema("shop.Address", Schema(json.dumps(ADDRESS), "AVRO"))
    references = [SchemaReference("shop.Address", "shop.Address", 1)]
    serialize = AvroSerializer(registry, Schema(json.dumps(ORDER), "AVRO", references))
    values = [
        {"id": 1, "paid": Decimal("12.50"), "to": {"street": "Main"}},
        {"id": 2, "paid": Decimal("-3.00"), "to": None},
    ]
    messages = sent(server, "orders", serialize, values)
    assert [opened(AvroDeserializer(registry), message) for message in messages] == values
    assert registry.get_latest_version("orders-value").version == 1
    more = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
    evolved = AvroSerializer(registry, Schema(json.dumps(more), "AVRO", references))
    [last] = sent(server, "orders", evolved, [{**values[0], "note": "new"}], before=2)
    reader = AvroDeserializer(registry, Schema(json.dumps(ORDER), "AVRO", references))
    assert opened(reader, last) == values[0]
    wrong = Schema(json.dumps({**ORDER, "fields": [{"name": "id", "type": "string"}]}), "AVRO")
    assert not registry.test_compatibility("orders-value", wrong)
    with pytest.raises(SchemaRegistryError) as refused:
        registry.register_schema("orders-value", wrong)
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 40901)
    assert "shop.Order" in str(refused.value) or "/fields" in str(refused.value)


def test_avro_by_header(server: Running, registry: SchemaRegistryClient) -> None:
    """The GUID of the schema is in a header, and the value has no prefix."""
    schema = json.dumps({"type": "record", "name": "Seen", "fields": [{"name": "by", "type": "string"}]})
    serialize = AvroSerializer(registry, schema, conf={"schema.id.serializer": by_header})
    [message] = sent(server, "seen", serialize, [{"by": "someone"}])
    assert message.value() == b"\x0esomeone"
    assert opened(AvroDeserializer(registry), message) == {"by": "someone"}


def test_json_schema(server: Running, registry: SchemaRegistryClient) -> None:
    """A version that accepts more follows; one that accepts other values is refused."""
    serialize = JSONSerializer(json.dumps(PERSON), registry)
    [message] = sent(server, "people", serialize, [{"name": "Ann"}])
    assert opened(JSONDeserializer(None, schema_registry_client=registry), message) == {"name": "Ann"}
    assert registry.get_latest_version("people-value").schema.schema_type == "JSON"
    wrong = {**PERSON, "properties": {"name": {"type": "integer"}}}
    with pytest.raises(SchemaRegistryError) as refused:
        registry.register_schema("people-value", Schema(json.dumps(wrong), "JSON"))
    assert refused.value.http_status_code == 409
    closed = {**PERSON, "properties": {"name": {"type": ["string", "null"]}}}
    registry.register_schema("people-value", Schema(json.dumps(closed), "JSON"))
    assert registry.get_versions("people-value") == [1, 2]


def messages_of(*files: descriptor_pb2.FileDescriptorProto) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return pool


def proto(name: str, message: str, *dependencies: str, **fields: str) -> descriptor_pb2.FileDescriptorProto:
    """A file with one message, whose fields are strings or messages."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3", dependency=dependencies)
    made = file.message_type.add(name=message)
    for number, (field, kind) in enumerate(fields.items(), 1):
        of = descriptor_pb2.FieldDescriptorProto
        made.field.add(
            name=field,
            number=number,
            label=of.LABEL_OPTIONAL,
            type=of.TYPE_STRING if kind == "string" else of.TYPE_MESSAGE,
            type_name=None if kind == "string" else kind,
        )
    return file


def test_protobuf(server: Running, registry: SchemaRegistryClient) -> None:
    """A message that imports another file: the serializer registers both, the second with a reference."""
    pool = messages_of(
        proto("shop/place.proto", "Place", city="string"),
        proto("shop/visit.proto", "Visit", "shop/place.proto", who="string", where=".shop.Place"),
    )
    visit = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Visit"))
    serialize = ProtobufSerializer(visit, registry)
    [message] = sent(server, "visits", serialize, [visit(who="Ann", where={"city": "Rome"})])
    found = opened(ProtobufDeserializer(visit, schema_registry_client=registry), message)
    assert (found.who, found.where.city) == ("Ann", "Rome")
    version = registry.get_latest_version("visits-value")
    assert [reference.name for reference in version.schema.references or []] == ["shop/place.proto"]
    assert "message Visit" in version.schema.schema_str
    with pytest.raises(SchemaRegistryError) as refused:
        registry.delete_subject("shop/place.proto")
    assert refused.value.error_code == 42206
    more = version.schema.schema_str.replace("string who = 1;", "string who = 1;\n  int64 at = 7;")
    wrong = version.schema.schema_str.replace("string who = 1;", "int64 who = 1;")
    for text, accepted in ((more, True), (wrong, False)):
        schema = Schema(text, "PROTOBUF", version.schema.references)
        assert registry.test_compatibility("visits-value", schema) is accepted


def test_the_rest_of_the_client(server: Running, registry: SchemaRegistryClient) -> None:
    """What tools call: look up, delete, modes and levels, with the errors that the client knows."""
    first = Schema('"string"', "AVRO")
    made = registry.register_schema("tools", first)
    assert registry.lookup_schema("tools", first).schema_id == made
    assert registry.get_schema(made).schema_str == '"string"'
    assert "tools" in registry.get_subjects()
    assert registry.get_versions("tools") == [1]
    assert registry.get_version("tools", 1).schema_id == made
    assert registry.get_compatibility() == "BACKWARD"
    assert registry.set_compatibility("tools", "FULL_TRANSITIVE")["compatibility"] == "FULL_TRANSITIVE"
    assert registry.get_compatibility("tools") == "FULL_TRANSITIVE"
    assert registry.delete_version("tools", 1) == 1
    with pytest.raises(SchemaRegistryError) as absent:
        registry.get_latest_version("tools")
    assert (absent.value.http_status_code, absent.value.error_code) == (404, 40401)
    assert registry.delete_subject("tools", permanent=True) == [1]
