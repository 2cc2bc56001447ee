"""Keys and values are encoded by the schemas that a request names; what does not fit changes nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from headwater.gateway.records import encoding
from headwater.replica.schema_sources import Draft
from headwater.settings.schema_registry import SchemaRegistry
from headwater.settings.settings import Settings
from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.protobuf import compile_in_process
from tests.support.rules import rule
from tests.unit.schemas.test_typer import OBJECT, POINT, PROTO, avro, framed

PROMISES = ("T7",)

URL = "/v1/topics/t/records"
TYPED = {"headwater.key.schema": "auto", "headwater.value.schema": "auto"}
NEWER = {**POINT, "fields": [*POINT["fields"], {"name": "y", "type": "int", "default": 5}]}  # type: ignore[misc]


@pytest.fixture(autouse=True)
def _compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_in_process(monkeypatch)


async def registered(world: InGateway, subject: str, text: Any = POINT, kind: str = "AVRO") -> int:
    draft = Draft(kind, text if isinstance(text, str) else json.dumps(text))
    _, schema = await world.services.registry.register(subject, draft)
    return schema.id


async def sent(world: InGateway, *records: dict[str, Any], user: str = "", **more: Any) -> httpx.Response:
    headers = more.pop("headers", {})
    return await world.ask("POST", URL, user, json={"records": list(records), **more}, headers=headers)


async def values(world: InGateway) -> list[bytes | None]:
    return [record.value for record in await world.records("t")]


def test_every_kind_and_every_way_to_name_a_schema() -> None:
    async def story() -> None:
        async with gateway() as world:
            await world.topic("t", **TYPED)
            old = await registered(world, "t-value")
            new = await registered(world, "t-value", NEWER)
            proto = await registered(world, "p", PROTO, "PROTOBUF")
            shape = await registered(world, "j", OBJECT, "JSON")
            word = await registered(world, "t-key", '"string"')
            answer = await sent(
                world,
                {"key": "k", "value": {"x": 1}},
                {"value": {"x": 2}, "value_schema": old},
                {"value": {"x": 3}, "value_schema": f"id:{old}"},
                {"value": {"x": 4}, "value_schema": {"subject": "t-value", "version": 1}},
                {"value": {"n": 5}, "value_schema": {"id": proto}},
                {"value": {"s": "z"}, "value_schema": {"id": proto, "message": "A.B"}},
                {"value": {"t": "x", "more": 1.50}, "value_schema": "j"},
                {"value_base64": "/wA=", "key_base64": "/w=="},
                {"value": None},
                value_schema="t-value",
                key_schema="t-key",
            )
            assert answer.status_code == 200, answer.text
            assert await values(world) == [
                framed(new, avro(NEWER, {"x": 1, "y": 5})),
                *(framed(old, avro(POINT, {"x": x})) for x in (2, 3, 4)),
                framed(proto, b"\x00\x08\x05"),
                framed(proto, b"\x04\x00\x00\x0a\x01z"),
                framed(shape, b'{"t":"x","more":1.5}'),
                b"\xff\x00",
                None,
            ]
            keys = [record.key for record in await world.records("t")]
            assert keys == [framed(word, b"\x02k"), *[None] * 6, b"\xff", None]
            read = await world.get(URL, params={"format": "decoded"})
            [first, *_] = read.json()["records"]
            assert (first["value"], first["value_schema"], first["key"]) == ({"x": 1, "y": 5}, new, "k")
            again = await sent(world, {name: first[name] for name in first if name != "offset"})
            assert again.status_code == 200 and (await values(world))[-1] == (await values(world))[0]

    asyncio.run(story())


def test_lines_and_the_query() -> None:
    async def story() -> None:
        async with gateway() as world:
            await world.topic("t", **TYPED)
            number = await registered(world, "t-value")
            kind = {"Content-Type": "application/x-ndjson"}
            body = b'{"value": {"x": 1}}\n{"value": {"x": 2}}\n'
            answer = await world.ask("POST", f"{URL}?value_schema=t-value", content=body, headers=kind)
            assert answer.status_code == 200, answer.text
            assert await values(world) == [framed(number, b"\x02"), framed(number, b"\x04")]
            for query, content_type in ((f"value_schema=id:{number}", "text/plain"), ("key_schema=a", "text/plain")):
                raw = await world.ask("POST", f"{URL}?{query}", content=b"1", headers={"Content-Type": content_type})
                assert raw.status_code == 400 and "stored as it is" in raw.json()["detail"]
            both = await world.ask(
                "POST", f"{URL}?value_schema=a", json={"records": [{"value": 1}], "value_schema": "b"}
            )
            assert both.status_code == 400 and "in the query and in the body" in both.json()["detail"]

    asyncio.run(story())


def test_what_does_not_fit_changes_nothing() -> None:
    async def story() -> None:
        async with gateway() as world:
            await world.topic("t", **TYPED)
            await registered(world, "t-value")
            await registered(world, "t-key", '"string"')
            good = {"value": {"x": 1}}
            answer = await sent(
                world,
                good,
                {"key": 5, "value": {"x": "one"}},
                good,
                {"value": {}},
                value_schema="t-value",
                key_schema="t-key",
            )
            told = answer.json()
            assert answer.status_code == 422 and told["type"] == "/problems/does-not-fit", told
            assert "records[1].key" in told["detail"] and "is no string" in told["detail"]
            assert [(one["record"], one["field"]) for one in told["errors"]] == [(1, "key"), (1, "value"), (3, "value")]
            assert "/x is no integer" in told["errors"][1]["reason"] and "missing" in told["errors"][2]["reason"]
            assert await values(world) == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("record", "status", "words"),
    [
        ({"value": 1, "value_schema": "nothing"}, 422, "there is no subject 'nothing'"),
        ({"value": 1, "value_schema": 999}, 422, "there is no schema 999"),
        ({"value": 1, "value_schema": {"subject": "t-value", "version": 9}}, 422, "version 9"),
        ({"value": {"x": 1}, "value_schema": {"subject": "t-value", "message": "A"}}, 422, "has no messages"),
        ({"value": {}, "value_schema": {"subject": "p", "message": "C"}}, 422, "no message 'C'"),
        ({"value": 1, "value_schema": {}}, 400, "an id or a subject"),
        ({"value": 1, "value_schema": {"id": 1, "subject": "a"}}, 400, "and not both"),
        ({"value": 1, "value_schema": {"id": 1, "version": 1}}, 400, "which only a subject has"),
        ({"value": 1, "value_schema": "id:x"}, 400, "is not the id of a schema"),
        ({"value": 1, "value_schema": 0}, 400, "not what the call takes"),
        ({"value_base64": "AA==", "value_schema": 1}, 400, "exclude each other"),
    ],
)
def test_schemas_that_cannot_be_used(record: dict[str, Any], status: int, words: str) -> None:
    async def story() -> None:
        async with gateway() as world:
            await world.topic("t", **TYPED)
            await registered(world, "t-value")
            await registered(world, "p", PROTO, "PROTOBUF")
            answer = await sent(world, {"value": "fine"}, record)
            assert answer.status_code == status and words in answer.json()["detail"], answer.text
            assert await values(world) == []

    asyncio.run(story())


def test_topics_without_prefixes_and_too_many_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with gateway() as world:
            await world.topic("t", **{"headwater.value.schema": "json"})
            number = await registered(world, "a")
            await registered(world, "b", '"int"')
            refused = await sent(world, {"value": {"x": 1}}, value_schema="a")
            assert refused.status_code == 422 and "headwater.value.schema=json" in refused.json()["detail"]
            assert (await sent(world, {"key": {"x": 1}, "value": "x"}, key_schema="a")).status_code == 200
            assert [record.key for record in await world.records("t")] == [framed(number, b"\x02")]
            monkeypatch.setattr(encoding, "MAX_SCHEMAS", 1)
            many = await sent(
                world, {"key": 1, "key_schema": "a", "value": 1}, {"key": 1, "key_schema": "b", "value": 1}
            )
            assert many.status_code == 422 and "names 2 schemas" in many.json()["detail"]

    asyncio.run(story())


def test_rights() -> None:
    """A subject of the topic goes by its rules, others by the cluster's; one that the topic names is for all."""

    async def story() -> None:
        async with gateway(secured(), users=True) as world:
            await world.topic("t", **{"headwater.value.schema": "subject:pinned", "headwater.key.schema": "auto"})
            await world.topic("hidden")
            ids = [await registered(world, name) for name in ("t-value", "hidden-value", "pinned")]
            other = await registered(world, "other", '"long"')
            await world.allow(rule(ALICE, Operation.WRITE, "t"))
            for name in ("t-value", "pinned", ids[0]):
                answer = await sent(world, {"value": {"x": 1}}, user="alice", value_schema=name)
                assert answer.status_code == 200, (name, answer.text)
            for name in ("hidden-value", "other", other):
                answer = await sent(world, {"value": {"x": 1}}, user="alice", value_schema=name)
                assert answer.status_code == 422 and "there is no" in answer.json()["detail"], name
            await world.allow(rule(ALICE, Operation.DESCRIBE, THE_CLUSTER, AclResource.CLUSTER))
            answer = await sent(world, {"value": 1}, user="alice", value_schema="other")
            assert answer.status_code == 200

    asyncio.run(story())


def test_a_repeated_request_gets_its_first_answer() -> None:
    """Also if the schema has another version by then, or is gone."""

    async def story() -> None:
        async with gateway() as world:
            await world.topic("t", 7, **TYPED)
            await registered(world, "t-key")
            once = {"Idempotency-Key": "a"}
            record = {"key": {"x": 1}, "value": "v"}
            first = await sent(world, record, key_schema="t-key", headers=once)
            assert first.status_code == 200 and first.json()["records"]
            await registered(world, "t-key", NEWER)
            await registered(world, "t-key", {**NEWER, "doc": "another"})
            second = await sent(world, record, key_schema="t-key", headers=once)
            assert second.status_code == 200 and second.headers["Idempotency-Replayed"] == "true"
            assert second.json()["partitions"] == first.json()["partitions"]
            await world.services.registry.delete_subject("t-key")
            third = await sent(world, record, key_schema="t-key", headers=once)
            assert third.status_code == 200 and third.json()["partitions"] == first.json()["partitions"]
            fourth = await sent(world, record, key_schema="t-key", headers={"Idempotency-Key": "b"})
            assert fourth.status_code == 422

    asyncio.run(story())


def test_another_registry_that_does_not_answer() -> None:
    async def story() -> None:
        own = Settings(schema_registry=SchemaRegistry(url="http://127.0.0.1:1", retries=0))
        async with gateway(own) as world:
            await world.topic("t", **TYPED)
            for name in ("t-value", 1):
                answer = await sent(world, {"value": {"x": 1}}, value_schema=name)
                assert answer.status_code == 503 and "cannot be asked" in answer.json()["detail"]
            assert await values(world) == []

    asyncio.run(story())
