"""The REST Proxy creates, grows and deletes topics."""

from __future__ import annotations

import asyncio
from typing import Any

from headwater.state.cluster.access import Operation
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.rules import rule


def base(found: InGateway) -> str:
    return f"/v3/clusters/{found.services.state.cluster_id}/topics"


def test_a_topic_is_created_grown_and_deleted() -> None:
    async def story() -> None:
        async with gateway() as found:
            wanted = {
                "topic_name": "topic-X",
                "partitions_count": 4,
                "replication_factor": 3,
                "configs": [
                    {"name": "cleanup.policy", "value": "compact"},
                    {"name": "compression.type", "value": "gzip"},
                ],
            }
            dry = await found.ask("POST", base(found), json={**wanted, "validate_only": True})
            assert dry.status_code == 200 and "topic-X" not in found.services.state.names
            made = await found.ask("POST", base(found), json=wanted)
            assert made.status_code == 201 and made.json() == dry.json()
            assert made.json()["kind"] == "KafkaTopic" and made.json()["partitions_count"] == 4
            assert (await found.get(made.headers["location"])).json() == made.json()
            configs = found.services.state.names["topic-X"].configs
            assert configs == {"cleanup.policy": "compact", "compression.type": "gzip"}
            grown = await found.ask("PATCH", f"{base(found)}/topic-X", json={"partitions_count": 6})
            assert grown.status_code == 200 and grown.json()["partitions_count"] == 6
            gone = await found.ask("DELETE", f"{base(found)}/topic-X")
            assert gone.status_code == 204 and gone.content == b""
            assert (await found.get(f"{base(found)}/topic-X")).status_code == 404

    asyncio.run(story())


def test_replicas_assignments_count_partitions() -> None:
    async def story() -> None:
        async with gateway() as found:
            wanted = {"topic_name": "t", "replicas_assignments": {"0": [1, 2], "1": [2, 3], "2": [3, 1]}}
            made = await found.ask("POST", base(found), json=wanted)
            assert made.status_code == 201 and made.json()["partitions_count"] == 3

    asyncio.run(story())


FLAWED: list[tuple[dict[str, Any], int, str]] = [
    ({"topic_name": "orders"}, 40002, "Topic 'orders' already exists."),
    ({"topic_name": "a b"}, 40002, "Topic name is invalid"),
    ({"topic_name": "t", "partitions_count": 0}, 40002, "at least one partition"),
    ({"topic_name": "t", "replication_factor": 0}, 40002, "Replication factor must be larger than 0"),
    ({"topic_name": "t", "replicas_assignments": {"1": [1]}}, 40002, "from 0 on without a gap"),
    ({"topic_name": "t", "partitions_count": 1, "replicas_assignments": {"0": [1]}}, 40002, "excludes"),
    ({"topic_name": "t", "configs": [{"name": "no.such", "value": "1"}]}, 40002, "Unknown topic config"),
    ({"topic_name": "t", "configs": [{"name": "retention.ms"}]}, 40002, "Null value"),
    ({"topic_name": "t", "configs": [{"name": "retention.ms", "value": "1"}] * 2}, 40002, "more than once"),
    ({"topic_name": "t", "partition_count": 3}, 400, ""),
    ({}, 400, ""),
]


def test_topics_that_are_not_created() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            for body, code, message in FLAWED:
                answer = await found.ask("POST", base(found), json=body)
                assert answer.status_code == 400 and answer.json()["error_code"] == code, body
                assert message in answer.json()["message"]
            assert list(found.services.state.names) == ["orders"]

    asyncio.run(story())


def test_the_number_of_partitions_does_not_fall() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 3)
            for count in (3, 2, -1):
                answer = await found.ask("PATCH", f"{base(found)}/orders", json={"partitions_count": count})
                assert answer.status_code == 400 and answer.json()["error_code"] == 40002
            assert found.services.state.names["orders"].ready == 3

    asyncio.run(story())


def test_changes_need_rights() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders", 1)
            await found.allow(rule(ALICE, Operation.DESCRIBE, "orders"))
            orders = f"{base(found)}/orders"
            created = await found.ask("POST", base(found), "alice", json={"topic_name": "t"})
            grown = await found.ask("PATCH", orders, "alice", json={"partitions_count": 2})
            deleted = await found.ask("DELETE", orders, "alice")
            for answer in (created, grown, deleted):
                assert answer.status_code == 403 and answer.json()["error_code"] == 40301
            hidden = await found.ask("DELETE", orders, "bob")
            assert hidden.status_code == 404 and hidden.json()["error_code"] == 40403
            assert found.services.state.names["orders"].ready == 1

    asyncio.run(story())
