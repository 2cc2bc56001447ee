"""The REST Proxy's consumer groups: members, assignments and lag."""

from __future__ import annotations

import asyncio

from headwater.state.cluster.access import AclResource, Operation
from headwater.state.commands.groups import CommitAlone
from headwater.types import Domain
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.rules import rule
from tests.support.stored_groups import classic, reads


def base(found: InGateway) -> str:
    return f"/v3/clusters/{found.services.state.cluster_id}/consumer-groups"


async def commit(found: InGateway, group: str, topic: str, **offsets: int) -> None:
    """Commit offsets of a group without members, by partition: `p0=5`."""
    id = found.services.state.names[topic].id.bytes
    rows = [(id, int(name[1:]), offset, -1, "") for name, offset in offsets.items()]
    await found.core.domains[Domain(1)].submit([CommitAlone(group, rows)])


def test_groups_and_one_of_them() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 2)
            await commit(found, "b-only-offsets", "orders", p0=0)
            await classic(found, "a-readers", reads("orders", 0, 1))
            listing = (await found.get(base(found))).json()
            assert listing["kind"] == "KafkaConsumerGroupList"
            shown = [(g["consumer_group_id"], g["state"], g["type"], g["is_simple"]) for g in listing["data"]]
            assert shown == [("a-readers", "STABLE", "CLASSIC", False), ("b-only-offsets", "EMPTY", "CLASSIC", True)]
            one = (await found.get(f"{base(found)}/a-readers")).json()
            assert one == listing["data"][0]
            assert one["partition_assignor"] == "range" and not one["is_mixed_consumer_group"]
            assert one["consumers"]["related"].endswith("/consumer-groups/a-readers/consumers")
            first = (await found.get(f"{base(found)}?page_size=1")).json()
            second = (await found.get(first["metadata"]["next"])).json()
            assert first["data"] + second["data"] == listing["data"] and second["metadata"]["next"] is None

    asyncio.run(story())


def test_members_and_what_they_read() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 2)
            await classic(found, "readers", reads("orders", 0, 1))
            [member] = (await found.get(f"{base(found)}/readers/consumers")).json()["data"]
            assert (member["consumer_id"], member["client_id"], member["instance_id"]) == ("m1", "app", "one")
            assert (await found.get(f"{base(found)}/readers/consumers/m1")).json() == member
            listing = (await found.get(member["assignments"]["related"])).json()
            assert [(x["topic_name"], x["partition_id"]) for x in listing["data"]] == [("orders", 0), ("orders", 1)]
            one = listing["data"][1]
            assert (await found.get(one["metadata"]["self"])).json() == one
            assert (await found.get(one["partition"]["related"])).status_code == 200
            for path in ("none", "readers/consumers/m2", "readers/consumers/m1/assignments/orders/partitions/7"):
                assert (await found.get(f"{base(found)}/{path}")).status_code == 404

    asyncio.run(story())


def test_lag() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 3)
            for partition, count in enumerate((5, 9, 1)):
                await found.fill("orders", count, partition)
            await commit(found, "readers", "orders", p0=4, p1=2, p2=1)
            await classic(found, "readers", reads("orders", 1))
            listing = (await found.get(f"{base(found)}/readers/lags")).json()
            lags = [(x["partition_id"], x["current_offset"], x["log_end_offset"], x["lag"]) for x in listing["data"]]
            assert lags == [(0, 4, 5, 1), (1, 2, 9, 7), (2, 1, 1, 0)]
            assert [x["consumer_id"] for x in listing["data"]] == ["", "m1", ""]
            one = (await found.get(f"{base(found)}/readers/lags/orders/partitions/1")).json()
            assert one == listing["data"][1] and one["client_id"] == "app" and one["instance_id"] == "one"
            assert (await found.get(f"{base(found)}/readers/lags/orders/partitions/3")).status_code == 404
            summary = (await found.get(f"{base(found)}/readers/lag-summary")).json()
            assert (summary["max_lag"], summary["total_lag"]) == (7, 8)
            assert (summary["max_lag_topic_name"], summary["max_lag_partition_id"]) == ("orders", 1)
            assert summary["max_lag_consumer_id"] == "m1" and summary["metadata"]["resource_name"].endswith(
                "/consumer-group=readers/lag-summary"
            )
            await classic(found, "fresh")
            assert (await found.get(f"{base(found)}/fresh/lag-summary")).status_code == 404

    asyncio.run(story())


def test_groups_and_topics_that_a_caller_may_not_describe() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            for name in ("open", "hidden"):
                await found.topic(name)
                await commit(found, "readers", name, p0=0)
            await commit(found, "others", "open", p0=0)
            await found.allow(
                rule(ALICE, Operation.DESCRIBE, "readers", AclResource.GROUP), rule(ALICE, Operation.DESCRIBE, "open")
            )
            listing = (await found.get(base(found), "alice")).json()
            assert [group["consumer_group_id"] for group in listing["data"]] == ["readers"]
            lags = (await found.get(f"{base(found)}/readers/lags", "alice")).json()
            assert [lag["topic_name"] for lag in lags["data"]] == ["open"]
            hidden, missing = [await found.get(f"{base(found)}/{name}", "alice") for name in ("others", "none")]
            assert hidden.status_code == missing.status_code == 404
            assert hidden.json()["message"].replace("others", "none") == missing.json()["message"]

    asyncio.run(story())
