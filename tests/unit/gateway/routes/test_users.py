"""Users over HTTP: passwords that work at once and never come back, and who may change them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.settings.settings import Gateway, Settings
from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation
from tests.support.gateways import ALICE, basic, gateway, secured
from tests.support.rules import rule

PROMISES = ("H2",)

SECRET = "correct horse"


def test_a_user_is_created_logs_in_and_is_deleted() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.allow(rule(ALICE, Operation.ALTER, THE_CLUSTER, AclResource.CLUSTER))
            answer = await found.ask("PUT", "/v1/users/carol", "alice", json={"password": SECRET, "iterations": 5000})
            assert answer.status_code == 201
            both = {"SCRAM-SHA-256": 5000, "SCRAM-SHA-512": 5000}
            assert answer.json() == {"name": "carol", "mechanisms": both}
            carol = basic("carol", SECRET)
            assert (await found.get("/v1/topics", headers=carol)).status_code == 200
            answer = await found.ask("PUT", "/v1/users/carol", "alice", json={"password": "another"})
            assert answer.status_code == 200
            assert (await found.get("/v1/topics", headers=carol)).status_code == 401
            told = await found.get("/v1/users/carol", "alice")
            assert told.json() == {"name": "carol", "mechanisms": dict.fromkeys(both, 4096)}
            query = {"mechanism": "SCRAM-SHA-512"}
            assert (await found.ask("DELETE", "/v1/users/carol", "alice", params=query)).status_code == 204
            assert (await found.ask("DELETE", "/v1/users/carol", "alice", params=query)).status_code == 404
            assert (await found.get("/v1/users/carol", "alice")).json()["mechanisms"] == {"SCRAM-SHA-256": 4096}
            assert (await found.ask("DELETE", "/v1/users/carol", "alice")).status_code == 204
            assert (await found.ask("DELETE", "/v1/users/carol", "alice")).status_code == 404
            assert (await found.get("/v1/topics", headers=basic("carol", "another"))).status_code == 401

    asyncio.run(story())


def test_users_in_pages() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(page_items=1)), users=True) as found:
            first = (await found.get("/v1/users")).json()
            assert first["items"] == [{"name": "alice", "mechanisms": {"SCRAM-SHA-256": 4096}}]
            second = (await found.get("/v1/users", params={"next": first["next"]})).json()
            assert [line["name"] for line in second["items"]] == ["bob"] and "next" not in second

    asyncio.run(story())


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"password": ""},
        {"password": 123_456_789},
        {"password": "x" * 1_025},
        {"password": SECRET, "iterations": 4_095},
        {"password": SECRET, "iterations": 16_385},
        {"password": SECRET, "mechanisms": []},
        {"password": SECRET, "mechanisms": ["PLAIN"]},
        {"password": SECRET, "salt": "x"},
    ],
)
def test_what_is_not_a_password_changes_nothing(body: dict[str, Any]) -> None:
    async def story() -> None:
        async with gateway() as found:
            answer = await found.ask("PUT", "/v1/users/carol", json=body)
            assert answer.status_code == 400
            assert SECRET not in answer.text and "123456789" not in answer.text
            assert not found.services.state.access.users

    asyncio.run(story())


def test_a_name_that_is_too_long() -> None:
    async def story() -> None:
        async with gateway() as found:
            answer = await found.ask("PUT", f"/v1/users/{'x' * 1_025}", json={"password": SECRET})
            assert answer.status_code == 400 and not found.services.state.access.users

    asyncio.run(story())


def test_rights_are_those_of_kafka() -> None:
    """DESCRIBE on the cluster to see users, ALTER on the cluster to change them."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.allow(rule(ALICE, Operation.DESCRIBE, THE_CLUSTER, AclResource.CLUSTER))
            before = dict(found.services.state.access.users)
            for path in ("/v1/users", "/v1/users/bob", "/v1/users/nobody"):
                assert (await found.get(path, "bob")).status_code == 403
            assert (await found.get("/v1/users", "alice")).status_code == 200
            assert (await found.get("/v1/users/nobody", "alice")).status_code == 404
            for user in ("alice", "bob"):
                put = await found.ask("PUT", "/v1/users/bob", user, json={"password": SECRET})
                assert put.status_code == 403
                assert (await found.ask("DELETE", "/v1/users/bob", user)).status_code == 403
            assert found.services.state.access.users == before

    asyncio.run(story())
