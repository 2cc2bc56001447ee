"""The schema registry over HTTP: subjects, versions, references, deletion, rights."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from headwater.gateway.registry.errors import MEDIA_TYPE
from headwater.replica.schema_sources import Draft
from headwater.state.cluster.access import AclResource, Operation, Pattern, Permission
from headwater.state.commands.access import Acl
from tests.support.gateways import ALICE, BOB, InGateway, gateway, secured
from tests.support.promise import promise

PROMISES = ("T6",)

STRING, INT, LONG = '"string"', '"int"', '"long"'


def record(*fields: str, name: str = "R") -> str:
    """An Avro record with fields that have defaults."""
    return json.dumps({"type": "record", "name": name, "fields": [field(name) for name in fields]})


def field(name: str, kind: str = "string", default: object = "") -> dict[str, object]:
    return {"name": name, "type": kind, "default": default}


async def register(found: InGateway, subject: str, schema: str, user: str = "", **more: Any) -> httpx.Response:
    return await found.ask("POST", f"/subjects/{subject}/versions", user, json={"schema": schema, **more})


def told(answer: httpx.Response) -> tuple[int, int]:
    """The status and the code of a refusal."""
    body = answer.json()
    assert set(body) == {"error_code", "message"} and body["message"]
    assert answer.headers["content-type"] == MEDIA_TYPE
    return answer.status_code, body["error_code"]


@promise("T6")
def test_versions() -> None:
    """A schema is registered once, found by its id, its GUID, its version and its content."""

    async def story() -> None:
        async with gateway() as found:
            first = await register(found, "orders-value", record("a"))
            assert (first.status_code, first.headers["content-type"]) == (200, MEDIA_TYPE)
            assert (first.json()["id"], first.json()["version"], first.json()["schemaType"]) == (1, 1, "AVRO")
            second = (await register(found, "orders-value", record("a", "b"), schemaType="AVRO")).json()
            assert (second["id"], second["version"]) == (2, 2)
            assert (await register(found, "orders-value", " " + record("a"))).json()["id"] == 1
            assert (await register(found, "other", record("a"))).json()["id"] == 1
            assert (await found.get("/subjects")).json() == ["orders-value", "other"]
            assert (await found.get("/subjects?subjectPrefix=ot")).json() == ["other"]
            assert (await found.get("/subjects?offset=1&limit=1")).json() == ["other"]
            assert (await found.get("/subjects/orders-value/versions")).json() == [1, 2]
            latest = (await found.get("/subjects/orders-value/versions/latest")).json()
            assert (latest["subject"], latest["version"], latest["id"]) == ("orders-value", 2, 2)
            assert [f["name"] for f in json.loads(latest["schema"])["fields"]] == ["a", "b"]
            assert (await found.get("/subjects/:.:orders-value/versions/-1")).json() == latest
            alone = await found.get("/subjects/orders-value/versions/2/schema")
            assert alone.text == latest["schema"] == (await found.get("/schemas/ids/2/schema")).text
            by_id = (await found.get("/schemas/ids/2?fetchMaxId=true")).json()
            assert (by_id["schema"], by_id["maxId"], by_id["guid"]) == (latest["schema"], 2, latest["guid"])
            by_guid = (await found.get(f"/schemas/guids/{latest['guid']}")).json()
            assert by_guid["schema"] == latest["schema"]
            assert (await found.get(f"/schemas/guids/{latest['guid']}/ids")).json() == [{"context": ".", "id": 2}]
            assert (await found.get("/schemas/ids/1/subjects")).json() == ["orders-value", "other"]
            uses = (await found.get("/schemas/ids/1/versions")).json()
            assert uses == [{"subject": "orders-value", "version": 1}, {"subject": "other", "version": 1}]
            seen = await found.ask("POST", "/subjects/orders-value", json={"schema": record("a", "b")})
            assert (seen.json()["version"], seen.json()["id"], seen.json()["subject"]) == (2, 2, "orders-value")
            rows = (await found.get("/schemas?latestOnly=true&subjectPrefix=orders")).json()
            assert [(row["subject"], row["version"]) for row in rows] == [("orders-value", 2)]
            assert len((await found.get("/schemas")).json()) == 3
            assert set((await found.get("/schemas/types")).json()) == {"AVRO", "JSON", "PROTOBUF"}
            assert (await found.get("/contexts")).json() == ["."]
            assert "version" in (await found.get("/v1/metadata/version")).json()
            assert "kafka-cluster" in (await found.get("/v1/metadata/id")).json()["scope"]["clusters"]

    asyncio.run(story())


@promise("T6")
def test_empty_metadata_and_rules() -> None:
    """They are none: the same body has the same id, whatever was sent before, and takes away what there was."""

    async def story() -> None:
        async with gateway() as found:
            empty: list[dict[str, Any]] = [
                {"ruleSet": {}}, {"metadata": {}}, {"metadata": {"properties": {}, "tags": {}, "sensitive": []}},
                {"ruleSet": {"domainRules": []}}, {}, {"metadata": {}, "ruleSet": {}}, {"metadata": None},
            ]  # fmt: skip
            for more in (*empty, *empty):
                made = (await register(found, "s", STRING, **more)).json()
                assert (made["id"], made["version"]) == (1, 1) and "metadata" not in made and "ruleSet" not in made
            full = {"properties": {"owner": "me"}}
            assert (await register(found, "s", STRING, metadata=full)).json()["id"] == 2
            assert (await register(found, "s", STRING)).json()["id"] == 2
            assert (await register(found, "s", STRING, metadata={})).json()["id"] == 1

    asyncio.run(story())


@promise("T6")
def test_media_types() -> None:
    """A client that likes plain JSON only gets it, also with an error; others get the media type of the registry."""

    async def story() -> None:
        async with gateway() as found:
            for accept, wanted in {
                "application/json": "application/json",
                "application/json, */*; q=0.1": "application/json",
                "application/vnd.schemaregistry+json, application/json": MEDIA_TYPE,
                f"{MEDIA_TYPE}, application/json": MEDIA_TYPE,
                f"{MEDIA_TYPE}; q=0.5, application/json": "application/json",
                "*/*": MEDIA_TYPE,
                "text/plain": MEDIA_TYPE,
                "application/json; q=x": MEDIA_TYPE,
            }.items():
                for path, status in {"/subjects": 200, "/subjects/none/versions": 404, "/": 200}.items():
                    answer = await found.get(path, headers={"Accept": accept})
                    assert (answer.status_code, answer.headers["content-type"]) == (status, wanted), (path, accept)

    asyncio.run(story())


@promise("T6")
def test_the_front() -> None:
    """Clients look there whether the registry serves. People get a page that leads on. Neither has to log in."""

    async def story() -> None:
        async with gateway(secured()) as found:
            assert (await found.get("/")).json() == {}
            page = await found.get("/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
            assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
            assert all(f'href="{path}"' in page.text for path in ("docs", "subjects", "v1/topics"))

    asyncio.run(story())


@promise("T6")
def test_words_of_refusals() -> None:
    """They begin as those of Confluent's registry: clients look at these words."""

    async def story() -> None:
        async with gateway() as found:
            assert (await register(found, "base", record("a", name="Base"))).status_code == 200
            reference = {"name": "Base", "subject": "base", "version": 1}
            assert (await register(found, "user", '"Base"', references=[reference])).status_code == 200
            none = {**reference, "version": 2}
            for schema, more, words in (
                ('{"type": "x"}', {}, "Invalid schema of type AVRO, details: The Avro schema, at /type: "),
                ('{"type": "x"}', {"schemaType": "JSON"}, "Invalid schema of type JSON, details: "),
                (STRING, {"schemaType": "XML"}, "Invalid schema type XML"),
                ("", {}, "Empty schema"),
                (
                    STRING,
                    {"references": [none]},
                    'Invalid schema of type AVRO, details: No schema reference found for subject "base" and version 2',
                ),
            ):
                refused = await register(found, "s", schema, **more)
                assert told(refused) == (422, 42201) and refused.json()["message"].startswith(words)
            refused = await found.ask("DELETE", "/subjects/base/versions/1")
            assert told(refused) == (422, 42206)
            assert refused.json()["message"] == (
                "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=base,version=1}."
            )

    asyncio.run(story())


@promise("T6")
def test_what_does_not_exist() -> None:
    """Each has the number that clients know."""

    async def story() -> None:
        async with gateway() as found:
            await register(found, "s", STRING)
            for path, code in (
                ("/subjects/none/versions", 40401),
                ("/subjects/none/versions/1", 40401),
                ("/subjects/s/versions/2", 40402),
                ("/subjects/s/versions/0", 42202),
                ("/subjects/s/versions/x", 42202),
                ("/subjects/s/versions/99999999999", 42202),
                ("/schemas/ids/2", 40403),
                ("/schemas/ids/2/versions", 40403),
                ("/schemas/guids/x", 40403),
                ("/schemas/guids/00000000-0000-0000-0000-000000000000", 40403),
                ("/config/s", 40408),
                ("/mode/s", 40409),
                ("/subjects/s/nonsense", 404),
                ("/schemas/ids/x", 404),
            ):
                assert told(await found.get(path)) == (code if code < 1000 else code // 100, code), path
            asked = {"json": {"schema": INT}}
            assert told(await found.ask("POST", "/subjects/none", **asked)) == (404, 40401)
            assert told(await found.ask("POST", "/subjects/s", **asked)) == (404, 40403)
            assert told(await found.ask("DELETE", "/subjects/none")) == (404, 40401)
            assert told(await found.ask("DELETE", "/subjects/s/versions/7")) == (404, 40402)
            assert told(await found.ask("DELETE", "/config/s")) == (404, 40401)

    asyncio.run(story())


@promise("T6")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"schema": ""}, 42201),
        ({}, 42201),
        ({"schema": '{"type": "nonsense"}'}, 42201),
        ({"schema": "{"}, 42201),
        ({"schema": STRING, "schemaType": "XML"}, 42201),
        ({"schema": STRING, "id": -7}, 42201),
        ({"schema": STRING, "metadata": []}, 400),
        ({"schema": STRING, "version": 5}, 42201),
        ({"schema": STRING, "id": 5}, 42205),
        ({"schema": STRING, "references": [{"name": "r", "subject": "none", "version": 1}]}, 42201),
        ({"schema": 5}, 400),
    ],
    ids=repr,
)
def test_schemas_that_are_refused(body: dict[str, object], code: int) -> None:
    """Nothing is registered."""

    async def story() -> None:
        async with gateway() as found:
            answer = await found.ask("POST", "/subjects/s/versions", json=body)
            assert told(answer) == (code if code < 1000 else code // 100, code)
            assert (await found.get("/subjects?deleted=true")).json() == []

    asyncio.run(story())


@promise("T6")
def test_names_of_subjects() -> None:
    """Slashes and other characters; contexts are refused."""

    async def story() -> None:
        async with gateway() as found:
            assert (await register(found, "a%2Fb%20%C3%A9-value", STRING)).status_code == 200
            assert (await found.get("/subjects")).json() == ["a/b é-value"]
            assert (await found.get("/subjects/a%2Fb%20%C3%A9-value/versions/1")).json()["subject"] == "a/b é-value"
            assert told(await register(found, ":.other:s", STRING)) == (422, 42208)
            assert told(await register(found, "__GLOBAL", STRING)) == (422, 42208)
            assert told(await register(found, "a%0Ab", STRING)) == (422, 42208)
            assert told(await register(found, "n" * 2000, STRING)) == (422, 42208)

    asyncio.run(story())


@promise("T6")
def test_deletion() -> None:
    """In two steps, with the numbers that clients know; a deleted schema can be read by its id."""

    async def story() -> None:
        async with gateway() as found:
            for schema in (record("a"), record("a", "b"), record("a", "c")):
                await register(found, "s", schema)
            path = "/subjects/s"
            assert told(await found.ask("DELETE", f"{path}?permanent=true")) == (404, 40405)
            assert told(await found.ask("DELETE", f"{path}/versions/1?permanent=true")) == (404, 40407)
            assert (await found.ask("DELETE", f"{path}/versions/latest")).json() == 3
            assert told(await found.ask("DELETE", f"{path}/versions/3")) == (404, 40406)
            assert (await found.get(f"{path}/versions")).json() == [1, 2]
            assert (await found.get(f"{path}/versions?deleted=true")).json() == [1, 2, 3]
            assert (await found.get(f"{path}/versions?deletedOnly=true")).json() == [3]
            assert (await found.get(f"{path}/versions?deletedAsNegative=true")).json() == [1, 2, -3]
            assert told(await found.get(f"{path}/versions/3")) == (404, 40402)
            assert (await found.get(f"{path}/versions/3?deleted=true")).json()["deleted"] is True
            assert (await found.get("/schemas/ids/3")).status_code == 200
            assert (await register(found, "s", record("a", "c"))).json()["version"] == 4
            assert (await found.get(f"{path}/versions?deleted=true")).json() == [1, 2, 4]
            assert (await found.ask("DELETE", path)).json() == [1, 2, 4]
            assert told(await found.ask("DELETE", path)) == (404, 40404)
            assert (await found.get("/subjects")).json() == []
            assert (await found.get("/subjects?deleted=true")).json() == ["s"]
            assert (await found.get("/subjects?deletedOnly=true")).json() == ["s"]
            assert told(await found.ask("POST", path, json={"schema": record("a")})) == (404, 40401)
            again = await found.ask("POST", f"{path}?deleted=true", json={"schema": record("a")})
            assert again.json()["version"] == 1
            assert (await found.ask("DELETE", f"{path}/versions/2?permanent=true")).json() == 2
            assert (await found.ask("DELETE", f"{path}?permanent=true")).json() == [1, 4]
            assert told(await found.get("/schemas/ids/1")) == (404, 40403)
            assert (await register(found, "s", record("a"))).json()["id"] == 4, "no id is used twice"

    asyncio.run(story())


@promise("T6")
def test_references() -> None:
    """A schema uses another one by its name; what is used cannot be deleted."""

    async def story() -> None:
        async with gateway() as found:
            await register(found, "address", record("street", name="shop.Address"))
            user = json.dumps({"type": "record", "name": "User", "fields": [{"name": "home", "type": "shop.Address"}]})
            references = [{"name": "shop.Address", "subject": "address", "version": 1}]
            assert told(await register(found, "user", user)) == (422, 42201)
            made = (await register(found, "user", user, references=references)).json()
            assert (made["id"], made["references"]) == (2, references)
            assert (await found.get("/subjects/address/versions/1/referencedby")).json() == [2]
            assert told(await found.ask("DELETE", "/subjects/address")) == (422, 42206)
            assert told(await found.ask("DELETE", "/subjects/address/versions/1")) == (422, 42206)
            assert told(await found.ask("DELETE", "/subjects/address?permanent=true")) == (422, 42206)
            assert told(await found.ask("DELETE", "/subjects/address/versions/1?permanent=true")) == (422, 42206)
            whole = (await found.get("/schemas/ids/2?format=resolved")).json()["schema"]
            assert "street" in whole and "street" not in (await found.get("/schemas/ids/2/schema")).text
            latest = [{"name": "shop.Address", "subject": "address"}]
            assert (await register(found, "user", user, references=latest)).json()["id"] == 2
            await found.ask("DELETE", "/subjects/user")
            assert (await found.ask("DELETE", "/subjects/address")).json() == [1]
            assert (await found.get("/subjects/address/versions/1/referencedby?deleted=true")).json() == [2]

    asyncio.run(story())


@promise("T6")
def test_metadata_and_rules() -> None:
    """They are part of a schema, and a version without them takes those of the version before."""

    async def story() -> None:
        async with gateway() as found:
            metadata = {"properties": {"owner": "ann"}, "tags": {"x": ["PII"]}}
            rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE"}]}
            first = (await register(found, "s", record("a"), metadata=metadata, ruleSet=rules)).json()
            assert (first["metadata"], first["ruleSet"]) == (metadata, rules)
            assert (await register(found, "s", record("a"))).json()["version"] == 1
            assert (await register(found, "s", record("a", "b"))).json()["metadata"] == metadata
            other = await register(found, "s", record("a", "b"), metadata={"properties": {"owner": "bob"}})
            assert (other.json()["id"], other.json()["ruleSet"]) == (3, rules)
            path = "/subjects/s/metadata?key=owner&value="
            assert (await found.get(f"{path}ann")).json()["version"] == 2
            assert (await found.get(f"{path}bob")).json()["version"] == 3
            assert told(await found.get(f"{path}eve")) == (404, 40403)

    asyncio.run(story())


@promise("T6")
def test_json_schemas() -> None:
    """JSON Schemas are registered as well."""

    async def story() -> None:
        async with gateway() as found:
            schema = json.dumps({"type": "object", "properties": {"a": {"type": "string"}}})
            assert (await register(found, "j", schema, schemaType="JSON")).json()["schemaType"] == "JSON"
            assert told(await register(found, "k", '{"type": 7}', schemaType="JSON")) == (422, 42201)
            assert (await found.get("/schemas/ids/1")).json()["schemaType"] == "JSON"

    asyncio.run(story())


def rule(principal: str, operation: Operation, kind: AclResource, name: str) -> Acl:
    return Acl(kind, name, Pattern.LITERAL, principal, "*", operation, Permission.ALLOW)


@promise("T6")
def test_rights() -> None:
    """Subjects of a topic go by the topic, others by the cluster; what one may not see does not exist."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.allow(
                rule(ALICE, Operation.WRITE, AclResource.TOPIC, "orders"),
                rule(BOB, Operation.READ, AclResource.TOPIC, "orders"),
                rule(BOB, Operation.DESCRIBE, AclResource.TOPIC, "seen"),
            )
            for subject in ("orders-value", "other", "hidden-key", "seen-value"):
                await found.services.registry.register(subject, Draft("AVRO", record(subject[0])))
            assert (await register(found, "orders-value", record("o", "x"), "alice")).status_code == 200
            denied = await register(found, "orders-value", record("o", "x", "y"), "bob")
            assert (denied.status_code, denied.json()["error_code"]) == (403, 403)
            assert told(await register(found, "other", STRING, "alice")) == (404, 40401)
            assert told(await register(found, "hidden-key", STRING, "alice")) == (404, 40401)
            assert (await found.get("/subjects", "alice")).json() == ["orders-value"]
            assert (await found.get("/subjects", "bob")).json() == ["orders-value", "seen-value"]
            assert (await found.get("/subjects/orders-value/versions/1", "bob")).status_code == 200
            assert (await found.get("/subjects/seen-value/versions", "bob")).json() == [1]
            assert (await found.get("/subjects/seen-value/versions/1", "bob")).status_code == 403
            assert told(await found.get("/subjects/other/versions/1", "bob")) == (404, 40401)
            assert (await found.get("/schemas/ids/1", "bob")).status_code == 200
            assert told(await found.get("/schemas/ids/2", "bob")) == (404, 40403)
            assert told(await found.get("/schemas/ids/2/versions", "bob")) == (404, 40403)
            assert [row["subject"] for row in (await found.get("/schemas", "bob")).json()] == ["orders-value"] * 2
            assert (await found.ask("DELETE", "/subjects/orders-value", "bob")).status_code == 403
            assert (await found.get("/config", "bob")).status_code == 403
            assert (await found.ask("PUT", "/mode", "alice", json={"mode": "READONLY"})).status_code == 403
            assert told(await found.ask("PUT", "/config/other", "alice", json={"compatibility": "NONE"})) == (
                404,
                40401,
            )
            hidden = [{"name": "h", "subject": "hidden-key", "version": 1}]
            refused = await register(found, "orders-value", STRING, "alice", references=hidden)
            absent = await register(
                found, "orders-value", STRING, "alice", references=[{**hidden[0], "subject": "nothing-key"}]
            )
            assert refused.json()["message"].replace("hidden", "nothing") == absent.json()["message"]
            unknown = await found.get("/subjects")
            assert (unknown.status_code, unknown.json()["error_code"]) == (401, 401)

    asyncio.run(story())
