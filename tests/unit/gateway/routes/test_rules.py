"""Rules over HTTP: filters, adding and deleting as a whole, and who may do that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.rules import rule

PROMISES = ("H2",)

READ = {"resource": "TOPIC", "name": "orders", "principal": "User:bob", "operation": "READ"}
WHOLE = {**READ, "pattern": "LITERAL", "host": "*", "permission": "ALLOW"}


async def ready(found: InGateway) -> None:
    """Alice may change rules."""
    await found.allow(rule(ALICE, Operation.ALTER, THE_CLUSTER, AclResource.CLUSTER))


async def add(found: InGateway, *rules: dict[str, Any]) -> Any:
    return await found.ask("POST", "/v1/rules", "alice", json={"rules": list(rules)})


async def listed(found: InGateway, **query: str) -> list[dict[str, Any]]:
    answer = await found.get("/v1/rules", "alice", params=query)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def test_a_rule_applies_until_it_is_deleted() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await ready(found)
            await found.topic("orders")
            assert (await found.get("/v1/topics/orders", "bob")).status_code == 404
            assert (await add(found, READ, READ)).json() == {"added": 1}
            assert (await add(found, READ)).json() == {"added": 0}
            assert (await found.get("/v1/topics/orders", "bob")).status_code == 200
            assert await listed(found, principal="User:bob") == [WHOLE]
            gone = await found.ask("DELETE", "/v1/rules", "alice", params={"name": "orders", "operation": "READ"})
            assert gone.status_code == 200 and gone.json() == {"deleted": [WHOLE]}
            assert (await found.get("/v1/topics/orders", "bob")).status_code == 404

    asyncio.run(story())


def test_filters_and_pages() -> None:
    async def story() -> None:
        async with gateway(secured(page_items=2), users=True) as found:
            await ready(found)
            long = {**READ, "name": "l" * 1_000, "principal": "User:" + "é" * 1_000, "host": "h" * 1_000}
            await add(
                found,
                READ,
                {**READ, "permission": "DENY", "host": "10.0.0.1"},
                {**READ, "name": "ord", "pattern": "PREFIXED"},
                {"resource": "GROUP", "name": "readers", "principal": "User:*", "operation": "ALL"},
                {"resource": "CLUSTER", "principal": "User:bob", "operation": "IDEMPOTENT_WRITE"},
                long,
                {**long, "operation": "WRITE"},
            )
            seen, query = [], {"limit": "2"}
            while True:
                answer = (await found.get("/v1/rules", "alice", params=query)).json()
                seen += answer["items"]
                if "next" not in answer:
                    break
                query["next"] = answer["next"]
            assert len(seen) == 8 and len({str(line) for line in seen}) == 8
            assert [line["name"] for line in await listed(found, resource="GROUP")] == ["readers"]
            assert len(await listed(found, name="orders")) == 2
            assert [line["permission"] for line in await listed(found, host="10.0.0.1")] == ["DENY"]
            assert [line["name"] for line in await listed(found, pattern="PREFIXED")] == ["ord"]
            matching = {"pattern": "MATCH", "name": "ord-2", "resource": "TOPIC"}
            assert [line["name"] for line in await listed(found, **matching)] == ["ord"]
            assert await listed(found, permission="DENY", operation="WRITE") == []
            assert [line["name"] for line in await listed(found, resource="CLUSTER", principal="User:bob")] == [
                THE_CLUSTER
            ]

    asyncio.run(story())


@pytest.mark.parametrize(
    "flawed",
    [
        {**READ, "resource": "ANY"},
        {**READ, "operation": "ANY"},
        {**READ, "operation": "read"},
        {**READ, "pattern": "MATCH"},
        {**READ, "principal": "bob"},
        {**READ, "name": ""},
        {**READ, "name": "x" * 1_025},
        {**READ, "resource": "CLUSTER"},
        {**READ, "colour": "red"},
        {"resource": "TOPIC", "name": "orders"},
    ],
)
def test_rules_are_added_together_or_not_at_all(flawed: dict[str, Any]) -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await ready(found)
            answer = await add(found, READ, flawed)
            assert answer.status_code == 400, answer.text
            assert len(list(found.services.state.access.acls())) == 1

    asyncio.run(story())


def test_what_is_too_much_or_nothing() -> None:
    async def story() -> None:
        async with gateway(secured(page_items=3), users=True) as found:
            await ready(found)
            many = [{**READ, "name": f"t{i}"} for i in range(65)]
            assert (await add(found)).status_code == 400
            assert (await add(found, *many)).status_code == 400
            assert (await add(found, *many[:4])).json() == {"added": 4}
            assert (await found.ask("DELETE", "/v1/rules", "alice")).status_code == 400
            wide = await found.ask("DELETE", "/v1/rules", "alice", params={"principal": "User:bob"})
            assert wide.status_code == 422 and "narrow" in wide.json()["detail"]
            for query in ({"operation": "FLY"}, {"resource": "ANY"}, {"pattern": "x"}, {"permission": "MAYBE"}):
                assert (await found.ask("DELETE", "/v1/rules", "alice", params=query)).status_code == 400
            assert len(list(found.services.state.access.acls())) == 5

    asyncio.run(story())


def test_rights_are_those_of_kafka() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.allow(rule(ALICE, Operation.DESCRIBE, THE_CLUSTER, AclResource.CLUSTER))
            assert (await found.get("/v1/rules", "bob")).status_code == 403
            assert len(await listed(found)) == 1
            assert (await add(found, READ)).status_code == 403
            gone = await found.ask("DELETE", "/v1/rules", "alice", params={"principal": ALICE})
            assert gone.status_code == 403 and len(await listed(found)) == 1

    asyncio.run(story())


def test_a_cluster_without_rules_says_so() -> None:
    async def story() -> None:
        async with gateway() as found:
            answers = [
                await found.get("/v1/rules"),
                await found.ask("POST", "/v1/rules", json={"rules": [READ]}),
                await found.ask("DELETE", "/v1/rules", params={"name": "x"}),
            ]
            assert [answer.status_code for answer in answers] == [422, 422, 422]
            assert all("security.acls" in answer.json()["detail"] for answer in answers)

    asyncio.run(story())
