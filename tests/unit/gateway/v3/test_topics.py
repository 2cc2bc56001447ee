"""The REST Proxy's topics and partitions."""

from __future__ import annotations

import asyncio

from headwater.state.cluster.access import Operation
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.rules import rule


def base(found: InGateway, prefix: str = "/v3") -> str:
    return f"{prefix}/clusters/{found.services.state.cluster_id}"


def test_topics_and_one_of_them() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 2)
            await found.topic("a b".replace(" ", "."), 1)
            listing = (await found.get(f"{base(found)}/topics")).json()
            assert listing["kind"] == "KafkaTopicList" and listing["metadata"]["next"] is None
            assert [(one["topic_name"], one["partitions_count"]) for one in listing["data"]] == [
                ("a.b", 1),
                ("orders", 2),
            ]
            one = (await found.get(f"{base(found)}/topics/orders")).json()
            assert one == listing["data"][1]
            assert one["kind"] == "KafkaTopic" and not one["is_internal"] and one["replication_factor"] == 1
            assert one["metadata"]["resource_name"].endswith("/topic=orders")
            assert one["configs"]["related"] == one["metadata"]["self"] + "/configs"
            assert "authorized_operations" not in one
            more = await found.get(f"{base(found)}/topics/orders", params={"include_authorized_operations": "true"})
            assert {"READ", "WRITE", "DESCRIBE"} <= set(more.json()["authorized_operations"])

    asyncio.run(story())


def test_topics_in_parts() -> None:
    async def story() -> None:
        async with gateway() as found:
            names = [f"t{number}" for number in range(5)]
            for name in names:
                await found.topic(name)
            url: str | None = f"{base(found)}/topics?page_size=2"
            seen, sizes = [], []
            while url is not None:
                listing = (await found.get(url)).json()
                seen += [one["topic_name"] for one in listing["data"]]
                sizes.append(len(listing["data"]))
                url = listing["metadata"]["next"]
            assert seen == names and sizes == [2, 2, 1]

    asyncio.run(story())


def test_a_topic_that_is_hidden_or_missing() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("open")
            await found.topic("hidden")
            await found.allow(rule(ALICE, Operation.DESCRIBE, "open"))
            listing = (await found.get(f"{base(found)}/topics", "alice")).json()
            assert [one["topic_name"] for one in listing["data"]] == ["open"]
            told = {"error_code": 40403, "message": "This server does not host this topic-partition."}
            for name in ("hidden", "none"):
                for path in ("", "/partitions", "/partitions/0", "/partitions/0/offset", "/partitions/-/reassignment"):
                    answer = await found.get(f"{base(found)}/topics/{name}{path}", "alice")
                    assert answer.status_code == 404 and answer.json() == told, path

    asyncio.run(story())


def test_partitions() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 3)
            await found.broker(7)
            topic = f"{base(found)}/topics/orders"
            listing = (await found.get(f"{topic}/partitions")).json()
            assert [one["partition_id"] for one in listing["data"]] == [0, 1, 2]
            one = (await found.get(f"{topic}/partitions/1")).json()
            assert one == listing["data"][1] and one["kind"] == "KafkaPartition"
            [replica] = (await found.get(one["replicas"]["related"])).json()["data"]
            assert (replica["broker_id"], replica["is_leader"], replica["is_in_sync"]) == (7, True, True)
            assert (await found.get(one["leader"]["related"])).json() == replica
            offsets = (await found.get(f"{topic}/partitions/1/offset?offset_type=latest")).json()
            assert (offsets["earliest_offset"], offsets["latest_offset"]) == (0, 0)

    asyncio.run(story())


def test_partitions_that_do_not_exist() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 1)
            topic = f"{base(found)}/topics/orders"
            assert (await found.get(f"{topic}/partitions/1")).json()["error_code"] == 40403
            assert (await found.get(f"{topic}/partitions/-1")).json()["error_code"] == 40403
            assert (await found.get(f"{topic}/partitions/0/replicas/7")).status_code == 404
            assert (await found.get(f"{topic}/partitions/0/reassignment")).status_code == 404
            assert (await found.get(f"{topic}/partitions/x")).status_code == 404

    asyncio.run(story())


def test_nothing_is_reassigned() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 1)
            for name in ("-", "orders"):
                listing = (await found.get(f"{base(found)}/topics/{name}/partitions/-/reassignment")).json()
                assert listing["kind"] == "KafkaReassignmentList" and listing["data"] == []

    asyncio.run(story())
