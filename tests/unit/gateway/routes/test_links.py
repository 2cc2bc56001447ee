"""Links over HTTP: creating, pausing, resuming, promoting and deleting them, and who may do so."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from headwater.replica.links import Linking
from headwater.settings.settings import Gateway, Links, Settings
from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation
from tests.support.gateways import ALICE, BOB, InGateway, gateway, secured
from tests.support.rules import rule

PROMISES = ("H2",)

NEW = {"name": "old", "source": ["127.0.0.1:9192"], "topics": ["orders"]}
SECRET = "correct horse"


async def linked(found: InGateway, name: str) -> None:
    """A topic that the link `old` copies."""
    own = found.services
    linking = Linking(own.cluster, own.domains, own.topics, own.chance)
    await linking.create_topic("old", name, name, uuid.uuid4(), 2, {})


def test_the_life_of_a_link() -> None:
    async def story() -> None:
        async with gateway() as found:
            checked = await found.ask("POST", "/v1/links", json=NEW, params={"validate_only": "true"})
            assert checked.status_code == 200 and checked.json()["state"] == "copying"
            assert not found.services.state.links.links
            created = await found.ask("POST", "/v1/links", json=NEW)
            assert created.status_code == 201
            assert created.json() == {**checked.json(), "created_ms": created.json()["created_ms"]}
            assert (await found.ask("POST", "/v1/links", json=NEW)).json()["type"] == "/problems/already-exists"
            await linked(found, "orders")
            [line] = (await found.get("/v1/links")).json()["items"]
            assert line == {"name": "old", "source": NEW["source"], "state": "copying", "linked": 1, "stopped": 0}
            paused = await found.ask("POST", "/v1/links/old/pause", json={})
            assert paused.status_code == 200 and paused.json()["state"] == "paused"
            [topic] = paused.json()["linked"]
            assert (topic["topic"], topic["source"], topic["state"]) == ("orders", "orders", "copying")
            assert topic["starts"] == topic["ends"] == [0, 0]
            paused = await found.ask("POST", "/v1/links/old/pause", json={"topics": ["orders"]})
            assert paused.json()["linked"][0]["state"] == "paused"
            resumed = await found.ask("POST", "/v1/links/old/resume", json={"accept_gap": True})
            assert resumed.json()["state"] == "copying" and resumed.json()["options"] == {"accept.gap": "true"}
            assert resumed.json()["linked"][0]["state"] == "copying"
            refused = await found.ask("DELETE", "/v1/links/old")
            assert (refused.status_code, refused.json()["type"]) == (409, "/problems/conflict")
            waiting = await found.ask("POST", "/v1/links/old/promote", json={"finish": True}, params={"wait": "0"})
            assert (waiting.status_code, waiting.json()["linked"][0]["state"]) == (202, "finishing")
            both = {"finish": True, "force": True}
            assert (await found.ask("POST", "/v1/links/old/promote", json=both)).status_code == 400
            promoted = await found.ask("POST", "/v1/links/old/promote", json={})
            assert promoted.status_code == 200
            assert promoted.json()["linked"][0]["state"] == "promoted"
            assert (await found.get("/v1/links/old")).json() == promoted.json()
            assert (await found.ask("DELETE", "/v1/links/old")).status_code == 204
            assert (await found.ask("DELETE", "/v1/links/old")).status_code == 404
            assert (await found.get("/v1/links")).json() == {"items": []}

    asyncio.run(story())


@pytest.mark.parametrize(
    "body",
    [
        {},
        {**NEW, "name": "a/b"},
        {**NEW, "source": []},
        {**NEW, "source": ["kafka"]},
        {**NEW, "topics": []},
        {**NEW, "topics": ["a b"]},
        {**NEW, "patterns": ["("]},
        {**NEW, "groups": ["["]},
        {**NEW, "options": {"speed": "fast"}},
        {**NEW, "security": {"sasl.password": SECRET}},
        {**NEW, "password": SECRET},
    ],
)
def test_what_is_not_a_link_changes_nothing(body: dict[str, Any]) -> None:
    async def story() -> None:
        async with gateway() as found:
            answer = await found.ask("POST", "/v1/links", json=body)
            assert answer.status_code == 400, answer.text
            assert SECRET not in answer.text
            assert not found.services.state.links.links

    asyncio.run(story())


@pytest.mark.parametrize("dry", ["true", "false"])
def test_a_file_or_a_variable_that_the_operator_has_not_listed_is_refused(tmp_path: Path, dry: str) -> None:
    (tmp_path / "listed").mkdir()
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "listed" / "out").symlink_to(tmp_path / "secret")
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "ann"}

    async def story(links: Links, security: dict[str, str], code: int) -> None:
        async with gateway(Settings(links=links)) as found:
            body = {**NEW, "security": {**login, **security}}
            answer = await found.ask("POST", "/v1/links", json=body, params={"validate_only": dry})
            assert answer.status_code == code, answer.text
            assert code < 400 or ("links.secret_" in answer.json()["detail"] and SECRET not in answer.text)
            assert bool(found.services.state.links.links) == (code == 201)

    listed = Links(secret_directories=(str(tmp_path / "listed"),), secret_variables=("PASSWORD",))
    ok = 200 if dry == "true" else 201
    for links, security, code in (
        (Links(), {"sasl.password.file": str(tmp_path / "secret")}, 403),
        (Links(), {"sasl.password.env": "HOME"}, 403),
        (listed, {"sasl.password.file": str(tmp_path / "secret")}, 403),
        (listed, {"sasl.password.file": str(tmp_path / "listed" / "out")}, 403),
        (listed, {"sasl.password.file": str(tmp_path / "listed" / ".." / "secret")}, 403),
        (listed, {"sasl.password.env": "HOME"}, 403),
        (listed, {"sasl.password.file": str(tmp_path / "listed" / "password")}, ok),
        (listed, {"sasl.password.env": "PASSWORD"}, ok),
    ):
        asyncio.run(story(links, security, code))


def test_links_in_pages() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(page_items=1))) as found:
            for name in ("b", "a"):
                await found.ask("POST", "/v1/links", json={**NEW, "name": name})
            first = (await found.get("/v1/links")).json()
            assert [line["name"] for line in first["items"]] == ["a"]
            second = (await found.get("/v1/links", params={"next": first["next"]})).json()
            assert [line["name"] for line in second["items"]] == ["b"] and "next" not in second

    asyncio.run(story())


def test_links_need_rights_on_the_cluster() -> None:
    calls = [
        ("POST", "/v1/links", NEW),
        ("POST", "/v1/links/old/pause", {}),
        ("POST", "/v1/links/old/resume", {}),
        ("POST", "/v1/links/old/promote", {}),
        ("DELETE", "/v1/links/old", None),
    ]

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.allow(
                rule(ALICE, Operation.ALTER, THE_CLUSTER, AclResource.CLUSTER),
                rule(BOB, Operation.DESCRIBE, THE_CLUSTER, AclResource.CLUSTER),
            )
            for method, path, body in calls:
                assert (await found.ask(method, path, "bob", json=body)).status_code == 403
            assert not found.services.state.links.links
            statuses = [(await found.ask(method, path, "alice", json=body)).status_code for method, path, body in calls]
            assert statuses == [201, 200, 200, 200, 204]
            assert (await found.get("/v1/links", "bob")).status_code == 200
            assert (await found.get("/v1/links/old", "bob")).status_code == 404

    asyncio.run(story())


def test_topics_that_the_link_does_not_have() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.ask("POST", "/v1/links", json=NEW)
            for order in ("pause", "resume", "promote"):
                answer = await found.ask("POST", f"/v1/links/old/{order}", json={"topics": ["payments"]})
                assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")

    asyncio.run(story())
