"""Dead letters over HTTP: topics that have some, the records in pages, decoding again, and rights."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headwater.errors import ObjectMissing
from headwater.gateway.admin import letters
from headwater.lake.compactor import Compactor
from headwater.lake.spark.executor import perform
from headwater.lake.tasks import Task, TaskFacts
from headwater.log.batch import check_batch
from headwater.log.write.part import Outcome, Part
from headwater.settings.settings import Gateway, Lake, Settings
from headwater.state.cluster.access import Operation
from headwater.state.results import Verdict
from headwater.types import Domain
from tests.support.batches import Rec, batch
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.rules import rule
from tests.support.virtual_nodes import LAX, One

PROMISES = ("T7",)

PATH = "/v1/dlq/t"
CONFIGS = {"headwater.value.schema": "json", "headwater.dlq.topic": "failed"}


async def settled(world: InGateway, *values: bytes) -> None:
    """Append values to the topic `t` and settle them."""
    if "t" not in world.services.state.names:
        await world.topic("t", **CONFIGS)
    topic, caller, domains = world.services.state.names["t"], One(), world.core.domains
    now = world.clock.wall_ms()
    data = check_batch(batch([Rec(value, key=b"k", timestamp=now) for value in values]), LAX, now)
    world.core.writers.of(topic.domain, "latency").append(Part(topic.streams[0], data, caller, 0))
    outcome = await caller.done
    assert isinstance(outcome, Outcome) and outcome.verdict is Verdict.ACCEPTED, outcome

    async def run(tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        return [await perform(domains.store, task) for task in tasks]

    world.clock.moved += 0.1
    await Compactor(domains, run, Lake(freshness_ms=1), slots=1).round()
    assert domains[Domain(1)].state.streams[topic.streams[0]].settled


async def read(world: InGateway, **query: Any) -> Any:
    answer = await world.get(PATH, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_letters_are_listed_shown_and_replayed() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(page_items=2))) as world:
            assert (await world.get("/v1/dlq")).json() == {"items": []}
            await world.topic("other")
            await world.topic("t", **CONFIGS)
            assert await read(world) == {"items": []}
            replayed = await world.ask("POST", f"{PATH}/replay", json={})
            assert replayed.status_code == 202 and replayed.json() == {"topic": "t", "files": 0}
            await settled(world, b'{"n": 1}', b"bad 1", b"\xff", b"bad 3")
            await settled(world, b"bad 4", b'{"n": 5}')
            line = {"topic": "t", "dead_letter_topic": "failed", "rows": 4, "waiting": True}
            assert (await world.get("/v1/dlq")).json() == {"items": [line]}
            first = await read(world, limit=3)
            assert [one["offset"] for one in first["items"]] == [1, 2] and "next" in first
            assert first["items"][0]["value"] == "bad 1" and first["items"][0]["key"] == "k"
            assert first["items"][0]["error"].startswith("bad-data: ") and first["items"][0]["partition"] == 0
            assert first["items"][1]["value_base64"] == "/w=="
            second = await read(world, next=first["next"])
            assert [one["offset"] for one in second["items"]] == [3, 4] and "next" not in second
            replayed = await world.ask("POST", f"{PATH}/replay", json={"everything": True})
            assert replayed.json() == {"topic": "t", "files": 2}

    asyncio.run(story())


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with gateway() as world:
            await settled(world, b"bad", b"x" * 100, b"worse")
            assert (await world.get("/v1/dlq/none")).status_code == 404
            listing = (await world.get("/v1/topics", params={"limit": 1})).json()
            for wrong in ("?", "AAAA", listing.get("next", "x"), "WyJkZWFkIGxldHRlcnMiLCJ4LnkiXQ"):
                assert (await world.get(PATH, params={"next": wrong})).status_code == 400, wrong
            assert (await world.ask("POST", f"{PATH}/replay", json={"all": True})).status_code == 400
            monkeypatch.setattr(letters, "MAX_BYTES", 50)
            page = await read(world)
            assert [one["offset"] for one in page["items"]] == [0, 1]
            taken = [world.services.undecoded.enter(name) for name in "ab"]
            assert (await world.get(PATH)).status_code == 429
            for place in taken:
                place.release()
            assert world.services.undecoded.count == 0

            async def gone(*_: object) -> bytes:
                raise ObjectMissing("it was replaced")

            monkeypatch.setattr(world.core.domains.store, "get", gone)
            assert (await world.get(PATH)).status_code == 503
            assert world.services.undecoded.count == 0

    asyncio.run(story())


def test_rights() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as world:
            await settled(world, b"bad")
            replay = {"json": {}}
            assert (await world.get("/v1/dlq", "alice")).json() == {"items": []}
            assert (await world.get(PATH, "alice")).status_code == 404
            await world.allow(rule(ALICE, Operation.DESCRIBE, "t"))
            assert [one["rows"] for one in (await world.get("/v1/dlq", "alice")).json()["items"]] == [1]
            assert (await world.get(PATH, "alice")).status_code == 403
            assert (await world.ask("POST", f"{PATH}/replay", "alice", **replay)).status_code == 403
            await world.allow(rule(ALICE, Operation.READ, "t"), rule(ALICE, Operation.ALTER, "t"))
            assert len((await world.get(PATH, "alice")).json()["items"]) == 1
            assert (await world.ask("POST", f"{PATH}/replay", "alice", **replay)).status_code == 202

    asyncio.run(story())
