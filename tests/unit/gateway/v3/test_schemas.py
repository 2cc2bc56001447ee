"""Data with schemas, as Confluent documents it for the REST Proxy: by id, version, subject, strategy, and given."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headwater.replica.schema_sources import Draft
from headwater.settings.schema_registry import SchemaRegistry
from headwater.settings.settings import Settings
from headwater.state.cluster.access import Operation
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.protobuf import compile_in_process
from tests.support.rules import rule
from tests.unit.gateway.v3.test_records import receipts
from tests.unit.schemas.test_typer import OBJECT, POINT, PROTO, framed

PROMISES = ("T7",)

URL = "/v3/clusters/c/topics/t/records"
AVRO = json.dumps(POINT)


@pytest.fixture(autouse=True)
def _compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_in_process(monkeypatch)


async def register(world: InGateway, subject: str, text: str = AVRO, kind: str = "AVRO") -> int:
    _, schema = await world.services.registry.register(subject, Draft(kind, text))
    return schema.id


async def produce(world: InGateway, *values: dict[str, Any], user: str = "") -> list[dict[str, Any]]:
    """The receipts of records with these values."""
    body = b"".join(json.dumps({"value": value}).encode() for value in values)
    return receipts(await world.ask("POST", URL, user, content=body, headers={"Content-Type": "application/json"}))


def test_documented_ways_to_a_schema() -> None:
    async def story() -> None:
        async with gateway() as world:
            await world.topic("t")
            first = await register(world, "t-value")
            other = await register(world, "mine", '"string"')
            await register(world, "geo.Point")
            await register(world, "t-geo.Point")
            proto = await register(world, "p", PROTO, "PROTOBUF")
            shape = await register(world, "j", json.dumps(OBJECT), "JSON")
            data = {"data": {"x": 1}}
            answers = await produce(
                world,
                data,  # the newest schema of the topic's subject
                {"schema_id": first, **data},
                {"subject_name_strategy": "TOPIC_NAME", "schema_id": first, **data},
                {"schema_version": 1, **data},
                {"subject": "mine", "data": "text"},
                {"subject": "mine", "schema_id": other, "data": "text"},
                {"subject": "mine", "schema_version": 1, "data": "text"},
                {"subject_name_strategy": "RECORD_NAME", "schema_id": first, **data},
                {"subject_name_strategy": "TOPIC_RECORD_NAME", "schema_id": first, **data},
                {"subject": "p", "data": {"n": 5}},
                {"type": "JSONSCHEMA", "subject": "j", "data": {"t": "x"}},
                {"type": "AVRO", "schema_id": first, **data},
                {"schema_version": 1, "data": None},
            )
            assert [one["error_code"] for one in answers] == [200] * 13, answers
            point, words = framed(first, b"\x02"), framed(other, b"\x08text")
            assert [record.value for record in await world.records("t")] == [
                *[point] * 4, *[words] * 3, *[point] * 2,
                framed(proto, b"\x00\x08\x05"), framed(shape, b'{"t":"x"}'), point, None,
            ]  # fmt: skip
            told = {"type": "AVRO", "size": 6, "subject": "t-value", "schema_id": first, "schema_version": 1}
            assert answers[0]["value"] == answers[3]["value"] == told
            assert [one["value"].get("subject") for one in answers[7:9]] == ["geo.Point", "t-geo.Point"]
            assert [one["value"]["type"] for one in answers[9:11]] == ["PROTOBUF", "JSONSCHEMA"]

    asyncio.run(story())


def test_given_schemas_are_registered_once() -> None:
    async def story() -> None:
        async with gateway() as world:
            await world.topic("t")
            given = {"type": "AVRO", "schema": AVRO, "data": {"x": 1}}
            answers = await produce(world, given, given, {**given, "subject": "own"})
            answers += await produce(world, given, {**given, "subject_name_strategy": "RECORD_NAME"})
            assert [one["error_code"] for one in answers] == [200] * 5, answers
            assert [one["value"]["subject"] for one in answers] == ["t-value", "t-value", "own", "t-value", "geo.Point"]
            assert {one["value"]["schema_id"] for one in answers} == {1}
            assert list(world.services.registry.schemas.subjects["t-value"].versions) == [1]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        ({"data": {"x": "one"}}, 400, "the value does not fit its schema. The value at /x is no integer"),
        ({"schema_id": 99, "data": 1}, 42207, "there is no schema 99"),
        ({"schema_version": 9, "data": 1}, 42207, "has no version 9"),
        ({"subject": "none", "data": 1}, 42207, "the subject 'none' does not exist"),
        ({"subject": "other", "schema_id": 1, "data": {"x": 1}}, 42207, "is no version of the subject 'other'"),
        ({"subject_name_strategy": "RECORD_NAME", "data": 1}, 400, "without schema_id or schema"),
        ({"type": "PROTOBUF", "data": {"x": 1}}, 400, "its schema is AVRO"),
        ({"type": "AVRO", "schema": "{}", "data": 1}, 42205, "Invalid schema"),
        ({"type": "AVRO", "schema": '"int"', "data": 1}, 42207, "incompatible"),
    ],
)
def test_what_is_refused_does_not_stop_the_others(value: dict[str, Any], code: int, words: str) -> None:
    async def story() -> None:
        async with gateway() as world:
            await world.topic("t")
            number = await register(world, "t-value")
            good, flawed, last = await produce(world, {"data": {"x": 1}}, value, {"type": "STRING", "data": "x"})
            assert (good["error_code"], last["error_code"]) == (200, 200)
            assert flawed["error_code"] == code and words in flawed["message"], flawed
            assert [record.value for record in await world.records("t")] == [framed(number, b"\x02"), b"x"]

    asyncio.run(story())


def test_data_without_a_schema_is_json() -> None:
    """If the topic's subject does not exist, or the topic takes JSON."""

    async def story() -> None:
        async with gateway() as world:
            await world.topic("t")
            [before] = await produce(world, {"data": {"x": 1}})
            assert before["value"] == {"type": "JSON", "size": 7}
            await world.services.topics.alter(world.services.state.names["t"], {"headwater.value.schema": "json"}, [])
            await register(world, "t-value")
            plain, refused = await produce(world, {"data": {"x": 1}}, {"schema_id": 1, "data": {"x": 1}})
            assert plain["value"]["type"] == "JSON" and refused["error_code"] == 422

    asyncio.run(story())


def test_rights_and_another_registry() -> None:
    async def story() -> None:
        given = {"type": "AVRO", "schema": AVRO, "data": {"x": 1}}
        async with gateway(secured(), users=True) as world:
            await world.topic("t")
            await register(world, "other", '"int"')
            await world.allow(rule(ALICE, Operation.WRITE, "t"))
            answers = await produce(
                world, given, {**given, "subject": "other"}, {"subject": "other", "data": 1},
                {"schema_id": 1, "subject": "other", "data": 1}, user="alice",
            )  # fmt: skip
            assert [one["error_code"] for one in answers] == [200, 42207, 42207, 42207], answers
        own = Settings(schema_registry=SchemaRegistry(url="http://127.0.0.1:1", retries=0))
        async with gateway(own) as world:
            await world.topic("t")
            away, raw = await produce(world, {"schema_id": 1, "data": 1}, given)
            assert away["error_code"] == 50003 and raw["error_code"] == 400 and "register the schema" in raw["message"]

    asyncio.run(story())
