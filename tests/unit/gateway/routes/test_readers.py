"""Readers with a group: committed offsets, positions, rights, groups with members."""

from __future__ import annotations

import asyncio

from headwater.state.cluster.access import AclResource, Operation
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.rules import rule

PROMISES = ("H1",)

URL = "/v1/topics/orders/records"
MINE = "/v1/groups/readers/topics/orders"


async def put_records(found: InGateway, *values: str, partition: int = 0) -> None:
    records = [{"value": value, "partition": partition} for value in values]
    assert (await found.ask("POST", URL, json={"records": records})).status_code == 200


def test_a_group_reads_on_from_what_it_committed() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 2)
            await put_records(found, "a", "b")
            await put_records(found, "c", partition=1)
            first = (await found.get(f"{MINE}/records")).json()
            assert sorted(line["value"] for line in first["records"]) == ["a", "b", "c"]
            again = (await found.get(f"{MINE}/records")).json()
            assert len(again["records"]) == 3
            done = await found.ask("PUT", f"{MINE}/position", json={"next": first["next"]})
            assert done.json() == {"partitions": [{"partition": 0, "offset": 2}, {"partition": 1, "offset": 1}]}
            assert (await found.get(f"{MINE}/records")).json()["records"] == []
            await put_records(found, "d", partition=1)
            await found.services.topics.add_partitions(topic, 3)
            await put_records(found, "e", partition=2)
            later = (await found.get(f"{MINE}/records")).json()
            assert [(line["partition"], line["value"]) for line in later["records"]] == [(1, "d"), (2, "e")]
            whole = (await found.get(f"{MINE}/records", params={"offset": "earliest"})).json()
            assert len(whole["records"]) == 5

    asyncio.run(story())


def test_what_is_refused() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders")
            assert (await found.get(f"{MINE}/records", "alice")).status_code == 404
            await found.allow(rule(ALICE, Operation.READ, "orders"))
            assert (await found.get(f"{MINE}/records", "alice")).status_code == 404
            await found.allow(rule(ALICE, Operation.READ, "readers", kind=AclResource.GROUP))
            page = await found.get(f"{MINE}/records", "alice")
            assert page.status_code == 200
            for body in ({"next": "nonsense!"}, {"next": ""}, {}, {"next": page.json()["next"], "more": 1}):
                answer = await found.ask("PUT", f"{MINE}/position", "alice", json=body)
                assert answer.status_code == 400, answer.text
            good = {"next": page.json()["next"]}
            assert (await found.ask("PUT", f"{MINE}/position", "alice", json=good)).status_code == 200
            assert (await found.ask("PUT", f"{MINE}/position", "bob", json=good)).status_code == 404

    asyncio.run(story())
