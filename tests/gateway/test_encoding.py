"""Values that HTTP and `headwater produce` encode are read by Confluent's deserializers; `consume` decodes."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from google.protobuf import message_factory

from headwater.cli import consume, produce, topic
from headwater.cli import errors as cli_errors
from tests.cli.test_commands import Commands
from tests.gateway.consuming import consumed
from tests.gateway.test_schemas import ORDER, PERSON, messages_of, opened, proto
from tests.support.running import Running

PROMISES = ("T7",)

PROTO = 'syntax = "proto3"; package shop; message Place { string city = 1; }'
PAID = {**ORDER, "fields": ORDER["fields"][:2]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("encoding"), gateway=True) as running:
        yield running


@pytest.fixture
def registry(server: Running) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": server.gateway_url}) as client:
        yield client


@pytest.fixture
def commands(server: Running, monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
    for module in (topic, produce, consume):
        module.register(made)
    return Commands(made, server.bootstrap, monkeypatch)


def post(server: Running, path: str, body: object) -> tuple[int, Any]:
    """Status and document of an answer."""
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(server.gateway_url + path, json.dumps(body).encode(), head)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_http_appends_what_deserializers_read(
    server: Running, registry: SchemaRegistryClient, commands: Commands
) -> None:
    commands.ok("topic", "create", "mixed")
    for subject, text, kind in (
        ("avro", json.dumps(PAID), "AVRO"),
        ("proto", PROTO, "PROTOBUF"),
        ("json", json.dumps(PERSON), "JSON"),
    ):
        registry.register_schema(subject, Schema(text, kind))
    records = [
        {"value": {"id": 7, "paid": "12.50"}, "value_schema": "avro"},
        {"value": {"city": "Rome"}, "value_schema": {"subject": "proto", "version": 1}},
        {"value": {"name": "Ann"}, "value_schema": "json"},
    ]
    status, told = post(server, "/v1/topics/mixed/records", {"records": records})
    assert status == 200, told
    avro, place, person = consumed(server, "mixed", 0, 3)
    assert str(opened(AvroDeserializer(registry), avro)["paid"]) == "12.50"
    pool = messages_of(proto("shop/place.proto", "Place", city="string"))
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Place"))
    assert opened(ProtobufDeserializer(kind, schema_registry_client=registry), place).city == "Rome"
    assert opened(JSONDeserializer(json.dumps(PERSON)), person) == {"name": "Ann"}
    status, told = post(
        server, "/v1/topics/mixed/records", {"records": [*records, {"value": {}, "value_schema": "avro"}]}
    )
    assert status == 422 and told["type"] == "/problems/does-not-fit" and "records[3]" in told["detail"]
    status, receipt = post(
        server, "/v3/clusters/c/topics/mixed/records", {"value": {"subject": "avro", "data": {"id": 8, "paid": 1}}}
    )
    assert (status, receipt["error_code"], receipt["offset"]) == (200, 200, 3), receipt
    assert opened(AvroDeserializer(registry), consumed(server, "mixed", 0, 4)[3])["id"] == 8


def test_produce_and_consume(server: Running, registry: SchemaRegistryClient, commands: Commands) -> None:
    commands.ok("topic", "create", "paid", "--config", "headwater.value.schema=auto")
    number = registry.register_schema("paid-value", Schema(json.dumps(PAID), "AVRO"))
    where = ["--registry", server.gateway_url]
    lines = b'k1|{"id": 1, "paid": "1.00"}\nk2|{"id": 2, "paid": 2}\nk3|null\n'
    keyed = ["--key-separator", "|", *where]
    commands.ok("produce", "paid", "--value-schema", "paid-value", *keyed, stdin=lines)
    flawed = lines + b'k4|{"id": "four", "paid": 4}\n'
    refused = commands("produce", "paid", "--value-schema", f"id:{number}", *keyed, stdin=flawed)
    assert refused.code == cli_errors.INPUT and "line 4: the value does not fit its schema" in refused.err
    assert "at /id is no integer" in refused.err
    [first, *_] = consumed(server, "paid", 0, 6)
    assert opened(AvroDeserializer(registry), first)["id"] == 1
    shown = commands.ok("consume", "paid", "--output", "json", *where).lines
    assert [one["value"] for one in shown] == [{"id": 1, "paid": "1.00"}, {"id": 2, "paid": "2.00"}, None] * 2
    assert [one.get("value_schema") for one in shown] == [number, number, None] * 2
    assert {one["key"] for one in shown} == {"k1", "k2", "k3"}
    plain = commands.ok("consume", "paid", "--output", "json", "--no-decode", "--count", "1", *where).lines
    assert isinstance(plain[0]["value"], str) and "value_schema" not in plain[0]
    away = commands.ok("consume", "paid", "--output", "json", "--count", "1", "--registry", "http://127.0.0.1:1").lines
    assert "registry cannot be asked" in away[0]["value_error"] and away[0]["value"] == plain[0]["value"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--value-schema", "nothing"], cli_errors.INPUT, "the registry has no subject 'nothing'"),
        (["--value-schema", "id:999"], cli_errors.INPUT, "the registry has no schema 999"),
        (["--value-schema", "id:x"], cli_errors.INPUT, "is not the id of a schema"),
        (["--key-schema", "a"], cli_errors.INPUT, "--key-schema needs --key-separator"),
        (["--value-schema", "a", "--registry", "ftp://127.0.0.1"], cli_errors.INPUT, "--registry"),
        (["--value-schema", "a", "--registry", "http://127.0.0.1:1"], cli_errors.REFUSED, "cannot be asked"),
    ],
)
def test_what_produce_refuses(server: Running, commands: Commands, options: list[str], code: int, words: str) -> None:
    where = [] if "--registry" in options else ["--registry", server.gateway_url]
    result = commands("produce", "none", *options, *where, "--no-create", stdin=b"1\n")
    assert result.code == code and words in result.err, result.err
