"""Compatibility levels and modes of the schema registry, over HTTP."""

from __future__ import annotations

import asyncio
import json

import pytest

from headwater.replica.schemas import ID_STEP
from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation
from tests.support.gateways import ALICE, BOB, InGateway, gateway, secured
from tests.support.promise import promise
from tests.support.rules import rule
from tests.unit.gateway.registry.test_subjects import INT, STRING, field, record, register, told

PROMISES = ("T6",)


async def compatible(found: InGateway, subject: str, schema: str, at: str = "", query: str = "") -> object:
    answer = await found.ask("POST", f"/compatibility/subjects/{subject}/versions{at}{query}", json={"schema": schema})
    assert answer.status_code == 200, answer.text
    return answer.json()


@promise("T6")
def test_incompatible_schemas_are_refused() -> None:
    """By the level of the subject, else by the global one, else BACKWARD; the answer says why."""

    async def story() -> None:
        async with gateway() as found:
            assert (await found.get("/config")).json() == {"compatibilityLevel": "BACKWARD"}
            await register(found, "s", STRING)
            refused = await register(found, "s", INT)
            assert told(refused) == (409, 409) and '"s"' in refused.json()["message"]
            assert await compatible(found, "s", INT, "/latest") == {"is_compatible": False}
            verbose = await compatible(found, "s", INT, "/1", "?verbose=true")
            assert isinstance(verbose, dict) and not verbose["is_compatible"] and verbose["messages"]
            assert await compatible(found, "s", STRING, query="?verbose=true") == {
                "is_compatible": True,
                "messages": [],
            }
            assert await compatible(found, "none", INT) == {"is_compatible": True}
            assert await compatible(found, "none", INT, "/latest") == {"is_compatible": True}
            asked = {"json": {"schema": INT}}
            assert told(await found.ask("POST", "/compatibility/subjects/s/versions/9", **asked)) == (404, 40402)
            assert told(await found.ask("POST", "/compatibility/subjects/s/versions/x", **asked)) == (422, 42202)
            bad = {"json": {"schema": "{"}}
            assert told(await found.ask("POST", "/compatibility/subjects/s/versions", **bad)) == (422, 42201)
            put = await found.ask("PUT", "/config/s", json={"compatibility": "none"})
            assert put.json() == {"compatibility": "NONE"}
            assert (await register(found, "s", INT)).json()["version"] == 2
            assert (await found.get("/config/s")).json() == {"compatibilityLevel": "NONE"}
            assert (await found.ask("DELETE", "/config/s")).json() == {"compatibilityLevel": "NONE"}
            assert (await found.get("/config/s?defaultToGlobal=true")).json() == {"compatibilityLevel": "BACKWARD"}
            assert told(await register(found, "s", '"boolean"')) == (409, 409)

    asyncio.run(story())


@promise("T6")
def test_clients_that_know_more_codes() -> None:
    """A client that tells a version of the time when the registry got the code 40901 gets it; others know 409."""

    async def story() -> None:
        async with gateway() as found:
            await register(found, "s", STRING)
            for version, code in {
                "java/7.9.1": 409, "java/8.0.3": 409, "java/8.0.4": 40901, "java/8.1.1-ccs": 409,
                "java/8.1.2": 40901, "java/8.2.0": 40901, "java/10.0.0": 40901, "python/2.16.1": 40901, "": 409,
            }.items():  # fmt: skip
                headers = {"Confluent-Client-Version": version} if version else {}
                refused = await found.ask("POST", "/subjects/s/versions", json={"schema": INT}, headers=headers)
                assert told(refused) == (409, code), version

    asyncio.run(story())


@promise("T6")
def test_what_old_schema_is_not_compatible() -> None:
    """Clients look for the version, its schema and the level. A long schema is cut."""

    async def story() -> None:
        async with gateway() as found:
            long = record(*(f"field_{i}" for i in range(1_000)))
            for subject, before in (("short", STRING), ("long", long)):
                await register(found, subject, before)
                message = (await register(found, subject, INT)).json()["message"]
                assert "{oldSchemaVersion: 1}" in message
                assert message.endswith("{validateFields: 'false', compatibility: 'BACKWARD'}]")
                verbose = await compatible(found, subject, INT, "/1", "?verbose=true")
                assert isinstance(verbose, dict) and verbose["messages"][-3:-1] == [
                    "{oldSchemaVersion: 1}",
                    f"{{oldSchema: '{before}'}}" if before == STRING else verbose["messages"][-2],
                ]
                if before == long:
                    assert verbose["messages"][-2].startswith("{oldSchema: <truncated> '{") and len(message) < 12_000

    asyncio.run(story())


@promise("T6")
def test_transitive_levels() -> None:
    """They look at all versions, the others at the newest one."""

    async def story() -> None:
        async with gateway() as found:
            await found.ask("PUT", "/config", json={"compatibility": "NONE"})
            await register(found, "s", STRING)
            await register(found, "s", INT)
            for level, wanted in (("BACKWARD", 200), ("BACKWARD_TRANSITIVE", 409)):
                await found.ask("PUT", "/config", json={"compatibility": level})
                assert await compatible(found, "s", '"long"') == {"is_compatible": wanted == 200}
                assert await compatible(found, "s", '"long"', "/latest") == {"is_compatible": True}
            assert told(await register(found, "s", '"long"')) == (409, 409)
            assert (await found.ask("DELETE", "/config")).json() == {"compatibilityLevel": "BACKWARD_TRANSITIVE"}
            assert (await register(found, "s", '"long"')).status_code == 200

    asyncio.run(story())


@promise("T6")
def test_settings_that_are_refused() -> None:
    """Unknown levels and what is not supported; nothing changes."""

    async def story() -> None:
        async with gateway() as found:
            assert told(await found.ask("PUT", "/config", json={"compatibility": "SOME"})) == (422, 42203)
            assert told(await found.ask("PUT", "/config/s", json={"alias": "t"})) == (422, 42205)
            assert told(await found.ask("PUT", "/config/s", content=b"{")) == (400, 400)
            assert told(await found.ask("PUT", "/mode", json={"mode": "SOME"})) == (422, 42204)
            assert told(await found.ask("PUT", "/mode/:.c:", json={"mode": "IMPORT"})) == (422, 42208)
            assert (await found.get("/config")).json() == {"compatibilityLevel": "BACKWARD"}
            normal = await found.ask("PUT", "/config/s", json={"normalize": True, "later": 1})
            assert normal.json() == {"normalize": True}
            both = await found.ask("PUT", "/config/s", json={"compatibility": "FULL"})
            assert both.json() == {"compatibility": "FULL", "normalize": True}
            less = await found.ask("PUT", "/config/s", json={"compatibility": None})
            assert less.json() == {"normalize": True}

    asyncio.run(story())


@promise("T6")
def test_normalize() -> None:
    """With it, schemas that mean the same are one."""

    async def story() -> None:
        async with gateway() as found:
            plain = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":{"type":"string"}}]}'
            other = '{"type":"record","name":"n.R","fields":[{"type":"string","name":"a"}]}'
            answers = []
            for schema in (plain, other):
                answer = await found.ask("POST", "/subjects/s/versions?normalize=true", json={"schema": schema})
                answers.append(answer.json()["id"])
            assert answers == [1, 1]
            await found.ask("PUT", "/config/s", json={"normalize": True})
            assert (await found.ask("POST", "/subjects/s", json={"schema": other})).json()["version"] == 1

    asyncio.run(story())


@promise("T6")
@pytest.mark.parametrize("path", ["/mode", "/mode/s"])
def test_read_only(path: str) -> None:
    """Nothing can be registered, deleted or set."""

    async def story() -> None:
        async with gateway() as found:
            await register(found, "s", STRING)
            assert (await found.get("/mode")).json() == {"mode": "READWRITE"}
            assert (await found.ask("PUT", path, json={"mode": "readonly"})).status_code == 200
            assert told(await register(found, "s", STRING)) == (422, 42205)
            assert told(await found.ask("DELETE", "/subjects/s")) == (422, 42205)
            assert told(await found.ask("DELETE", "/subjects/s/versions/1")) == (422, 42205)
            assert told(await found.ask("PUT", "/config/s", json={"compatibility": "NONE"})) == (422, 42205)
            assert (await found.get("/mode/s?defaultToGlobal=true")).json() == {"mode": "READONLY"}
            assert (await found.ask("DELETE", path)).json() == {"mode": "READONLY"}
            assert (await register(found, "s", STRING)).json()["id"] == 1

    asyncio.run(story())


@promise("T6")
def test_an_override_is_stronger_than_subjects() -> None:
    """READONLY_OVERRIDE holds for subjects with another mode, too."""

    async def story() -> None:
        async with gateway() as found:
            await found.ask("PUT", "/mode/s", json={"mode": "READWRITE"})
            await found.ask("PUT", "/mode", json={"mode": "READONLY"})
            assert (await register(found, "s", STRING)).status_code == 200
            await found.ask("PUT", "/mode", json={"mode": "READONLY_OVERRIDE"})
            assert told(await register(found, "s", STRING)) == (422, 42205)

    asyncio.run(story())


@promise("T6")
def test_imports() -> None:
    """Schemas come with the ids and versions that they have elsewhere, compatible or not."""

    async def story() -> None:
        async with gateway() as found:
            await register(found, "old", STRING)
            assert told(await found.ask("PUT", "/mode", json={"mode": "IMPORT"})) == (422, 42205)
            assert told(await found.ask("PUT", "/mode/old", json={"mode": "IMPORT"})) == (422, 42205)
            assert (await found.ask("PUT", "/mode/old?force=true", json={"mode": "IMPORT"})).status_code == 200
            assert (await found.ask("PUT", "/mode/new", json={"mode": "IMPORT"})).json() == {"mode": "IMPORT"}
            assert (await register(found, "new", record("a"), id=500, version=3)).json()["id"] == 500
            assert (await register(found, "new", INT, id=400, version=2)).json()["version"] == 2
            assert (await found.get("/subjects/new/versions")).json() == [2, 3]
            assert told(await register(found, "new", STRING, id=500, version=4)) == (422, 42205)
            assert told(await register(found, "new", STRING)) == (422, 42205)
            await found.ask("DELETE", "/mode/new")
            assert told(await register(found, "new", record("b"), id=501)) == (422, 42205)
            assert (await register(found, "new", record("a", "b"))).json()["id"] == 501

    asyncio.run(story())


@promise("S2")
def test_a_writer_of_one_topic_cannot_use_up_the_ids_of_all() -> None:
    """Neither by a mode that lets it choose ids, nor by choosing them where an operator has set that mode."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.allow(rule(ALICE, Operation.ALL, "orders"), rule(BOB, Operation.ALL, "orders"))
            await found.allow(rule(BOB, Operation.ALTER, THE_CLUSTER, AclResource.CLUSTER))
            path, largest = "/mode/orders-value", 2**31 - 1
            wanted = {"json": {"mode": "IMPORT"}}
            assert (await found.ask("PUT", path, "alice", **wanted)).status_code == 403
            assert (await found.ask("PUT", f"{path}?force=true", "alice", **wanted)).status_code == 403
            assert (await found.ask("PUT", path, "bob", **wanted)).status_code == 200
            assert (await found.ask("DELETE", path, "alice")).status_code == 403
            for number in (1, largest):
                assert (await register(found, "orders-value", INT, "alice", id=number, version=1)).status_code == 403
            for number in (ID_STEP + 1, largest):
                refused = await register(found, "orders-value", INT, "bob", id=number, version=1)
                assert told(refused) == (422, 42205) and "would be lost" in refused.json()["message"]
            assert not found.services.state.schemas.schemas
            assert (await register(found, "orders-value", INT, "bob", id=ID_STEP, version=1)).status_code == 200
            assert (await register(found, "orders-value", STRING, "bob", id=ID_STEP + 9, version=2)).status_code == 200
            assert (await found.ask("DELETE", path, "bob")).status_code == 200

    asyncio.run(story())


@promise("T6")
def test_a_field_needs_a_default() -> None:
    """The message names the field."""

    async def story() -> None:
        async with gateway() as found:
            await register(found, "s", record("a"))
            added = {"type": "record", "name": "R", "fields": [field("a"), {"name": "b", "type": "int"}]}
            verbose = await compatible(found, "s", json.dumps(added), query="?verbose=true")
            assert isinstance(verbose, dict) and "b" in " ".join(verbose["messages"])

    asyncio.run(story())
