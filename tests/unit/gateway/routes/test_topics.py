"""Topics over HTTP: pages, offsets, and what a caller may not describe."""

from __future__ import annotations

import asyncio

from headwater.settings.settings import Gateway, Settings
from headwater.state.cluster.access import Operation
from headwater.state.commands.links import LinkPhase
from tests.support.gateways import ALICE, gateway, secured
from tests.support.links import link
from tests.support.rules import rule

PROMISES = ("H2",)


def test_a_topic_with_its_partitions() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 2, **{"retention.ms": "1000"})
            answer = await found.get("/v1/topics/orders")
            assert answer.status_code == 200
            told = answer.json()
            assert (told["name"], told["id"], told["configs"]) == ("orders", str(topic.id), {"retention.ms": "1000"})
            assert told["created_ms"] == topic.created_ms
            empty = {"start": 0, "end": 0, "stable": 0, "settled": 0, "bytes": 0}
            assert told["partitions"] == [{"partition": 0, **empty}, {"partition": 1, **empty}]
            assert told["link"] is None
            copied = await link(found.core, "copied")
            await copied.change(LinkPhase.PAUSED, "for the night")
            told = (await found.get("/v1/topics/copied")).json()["link"]
            assert told == {"link": "old", "source": "source", "phase": "paused", "reason": "for the night"}
            grown = await found.ask("POST", "/v1/topics/copied/partitions", json={"partitions": 2})
            assert grown.status_code == 409 and "those of the source" in grown.text

    asyncio.run(story())


def test_topics_in_pages() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(page_items=3))) as found:
            names = [f"t{i}" for i in range(7)]
            for name in names:
                await found.topic(name)
            seen, cursor, sizes = [], "", []
            while cursor is not None:
                answer = (await found.get("/v1/topics", params={"limit": 100, "next": cursor})).json()
                seen += [line["name"] for line in answer["items"]]
                sizes.append(len(answer["items"]))
                cursor = answer.get("next")
            assert seen == names and sizes == [3, 3, 1]
            assert [line["partitions"] for line in answer["items"]] == [1]

    asyncio.run(story())


def test_what_a_caller_may_not_describe_does_not_exist() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("open")
            await found.topic("hidden")
            await found.allow(rule(ALICE, Operation.DESCRIBE, "open"))
            listed = await found.get("/v1/topics", "alice")
            assert [line["name"] for line in listed.json()["items"]] == ["open"]
            assert (await found.get("/v1/topics/open", "alice")).status_code == 200
            hidden, missing = [await found.get(f"/v1/topics/{name}", "alice") for name in ("hidden", "none")]
            assert hidden.status_code == missing.status_code == 404
            assert hidden.json()["detail"].replace("hidden", "none") == missing.json()["detail"]
            assert (await found.get("/v1/topics", "bob")).json() == {"items": []}

    asyncio.run(story())
