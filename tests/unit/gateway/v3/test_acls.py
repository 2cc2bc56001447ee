"""The REST Proxy's access rules."""

from __future__ import annotations

import asyncio
from typing import Any

from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.rules import rule

ADMIN = rule(ALICE, Operation.ALTER, THE_CLUSTER, AclResource.CLUSTER)


def base(found: InGateway) -> str:
    return f"/v3/clusters/{found.services.state.cluster_id}/acls"


def fields(**other: str) -> dict[str, Any]:
    return {
        "resource_type": "TOPIC",
        "resource_name": "topic-",
        "pattern_type": "PREFIXED",
        "principal": "User:alice",
        "host": "*",
        "operation": "ALL",
        "permission": "ALLOW",
        **other,
    }


def test_rules_are_created_found_and_deleted() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.allow(ADMIN)
            made = await found.ask("POST", base(found), "alice", json=fields())
            assert made.status_code == 201 and made.content == b""
            cluster = fields(resource_type="CLUSTER", resource_name=THE_CLUSTER, pattern_type="LITERAL")
            cluster |= {"operation": "DESCRIBE", "permission": "DENY", "principal": "User:bob"}
            batch = {"data": [cluster, fields(resource_name="other", pattern_type="LITERAL", operation="READ")]}
            assert (await found.ask("POST", f"{base(found)}:batch", "alice", json=batch)).status_code == 201
            every = (await found.get(base(found), "alice")).json()
            assert every["kind"] == "KafkaAclList" and len(every["data"]) == 4
            [one] = (await found.get(made.headers["location"], "alice")).json()["data"]
            assert one["kind"] == "KafkaAcl" and {name: one[name] for name in fields()} == fields()
            matching = {"resource_type": "TOPIC", "resource_name": "topic-1", "pattern_type": "MATCH"}
            assert (await found.get(base(found), "alice", params=matching)).json()["data"] == [one]
            first = (await found.get(base(found), "alice", params={"resource_type": "TOPIC", "page_size": 1})).json()
            second = (await found.get(first["metadata"]["next"], "alice")).json()
            assert [x["resource_type"] for x in first["data"] + second["data"]] == ["TOPIC", "TOPIC"]
            assert second["metadata"]["next"] is None
            gone = await found.ask("DELETE", one["metadata"]["self"], "alice")
            assert gone.status_code == 200 and gone.json() == {"data": [one]}
            assert len((await found.get(base(found), "alice")).json()["data"]) == 3

    asyncio.run(story())


def test_rules_that_are_refused() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.allow(ADMIN)
            for other, code in (
                ({"resource_type": "CLUSTER"}, 40002),
                ({"principal": "alice"}, 40002),
                ({"operation": "ANY"}, 40002),
                ({"pattern_type": "MATCH"}, 40002),
                ({"operation": "EAT"}, 400),
                ({"permission": "UNKNOWN"}, 400),
                ({"resource_kind": "TOPIC"}, 400),
            ):
                for url, body in (
                    (base(found), fields(**other)),
                    (f"{base(found)}:batch", {"data": [fields(**other)]}),
                ):
                    answer = await found.ask("POST", url, "alice", json=body)
                    assert answer.status_code == 400 and answer.json()["error_code"] == code, other
            await found.ask("POST", base(found), "alice", json=fields())
            for query in ({}, {"resource_type": "TOPIC"}, fields(permission="")):
                answer = await found.ask("DELETE", base(found), "alice", params=query)
                assert answer.status_code == 400 and "cannot be unspecified or UNKNOWN" in answer.json()["message"]
            assert len(list(found.services.state.access.acls())) == 2

    asyncio.run(story())


def test_rules_need_rights() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.allow(rule(ALICE, Operation.DESCRIBE, THE_CLUSTER, AclResource.CLUSTER))
            assert (await found.get(base(found), "alice")).status_code == 200
            made = await found.ask("POST", base(found), "alice", json=fields())
            gone = await found.ask("DELETE", base(found), "alice", params=fields())
            assert [made.status_code, gone.status_code] == [403, 403] and made.json()["error_code"] == 40301
            assert (await found.get(base(found), "bob")).status_code == 403

    asyncio.run(story())
