"""Appending as one unit: races, stores that stall, clients that leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.gateway.records import appending as appending_module
from headwater.gateway.records.appending import Appending
from headwater.gateway.records.bodies import Entry, Wish
from headwater.gateway.records.once import once
from headwater.settings.settings import Gateway, Settings
from headwater.state.cluster.domain import Topic
from headwater.state.commands.links import LinkPhase
from headwater.state.streams.stored.keys import KEPT_MS
from headwater.types import Domain
from tests.support.gateways import InGateway, gateway
from tests.support.links import link
from tests.support.promise import promise

URL = "/v1/topics/orders/records"
QUICK = Settings(gateway=Gateway(append_ms=300))


class Gate:
    """Lets no object into the store until it is opened."""

    def __init__(self, found: InGateway) -> None:
        self._put = found.core.domains.store.put
        self.waiting = 0
        self.opened = asyncio.Event()
        found.core.domains.store.put = self.put  # type: ignore[method-assign]

    async def put(self, path: str, pieces: Any) -> None:
        self.waiting += 1
        await self.opened.wait()
        await self._put(path, pieces)


def ends(found: InGateway, topic: Topic) -> list[int]:
    streams = found.core.domains[Domain(topic.domain)].state.streams
    return [streams[stream].end for stream in topic.streams]


async def until(look: Any) -> None:
    async with asyncio.timeout(20):
        while not look():
            await asyncio.sleep(0.005)


async def send(found: InGateway, value: Any, query: str = "", **headers: str) -> Any:
    return await found.ask("POST", URL + query, json={"records": [{"value": value, "partition": 0}]}, headers=headers)


def test_one_winner_per_offset() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")
            won: dict[int, str] = {}

            async def writer(name: str) -> None:
                at = 0
                for _ in range(6):
                    answer = await send(found, name, f"?expected_offset={at}")
                    if answer.status_code == 200:
                        assert at not in won
                        won[at] = name
                        at += 1
                    else:
                        assert answer.status_code == 409
                        [line] = answer.json()["partitions"]
                        assert line["present"] > at
                        at = line["present"]

            await asyncio.gather(*(writer(f"w{i}") for i in range(12)))
            assert sorted(won) == list(range(len(won))) and ends(found, topic) == [len(won)]
            stored = (await found.get("/v1/topics/orders/records")).json()["records"]
            assert [line["value"] for line in stored] == [won[at] for at in range(len(won))]

    asyncio.run(story())


def test_the_same_key_at_the_same_time() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")
            answers = await asyncio.gather(*(send(found, 1, **{"Idempotency-Key": "k"}) for _ in range(10)))
            assert {answer.content for answer in answers} == {answers[0].content}
            assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
            assert ends(found, topic) == [1]

    asyncio.run(story())


def test_a_key_is_forgotten_after_a_day() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")
            appending = Appending(found.services, topic)
            wish = Wish([Entry(None, b"v")])
            key = once("User:a", topic.id, "k", b"body", 1)
            assert not (await appending.append(wish, key)).repeated
            assert (await appending.append(wish, key)).repeated
            state = found.core.domains[Domain(topic.domain)].state
            state.clock_ms = state.clocks.time_ms = state.clock_ms + KEPT_MS + 1
            assert not (await appending.append(wish, key)).repeated
            assert ends(found, topic) == [2]

    asyncio.run(story())


def test_a_store_that_stalls() -> None:
    """What is being stored may be appended later; what still waits is dropped, certainly."""

    async def story() -> None:
        async with gateway(QUICK) as found:
            topic = await found.topic("orders")
            gate = Gate(found)
            slots = found.core.settings.wal.latency.flushes
            first = []
            for number in range(slots):
                first.append(asyncio.ensure_future(send(found, number, **{"Idempotency-Key": f"k{number}"})))
                await until(lambda: gate.waiting > number)  # noqa: B023
            late = await send(found, "late")
            assert late.status_code == 503 and "nothing was appended" in late.json()["detail"]
            for answer in await asyncio.gather(*first):
                assert answer.status_code == 504 and answer.json()["type"] == "/problems/outcome-unknown"
            gate.opened.set()
            await until(lambda: ends(found, topic) == [slots])
            again = await send(found, 0, **{"Idempotency-Key": "k0"})
            assert again.status_code == 200 and again.headers["idempotency-replayed"] == "true"
            assert ends(found, topic) == [slots] and found.core.writers.budget.used == 0

    asyncio.run(story())


def test_a_client_that_leaves_takes_its_records_along() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders")
            gate = Gate(found)
            appending = Appending(found.services, topic)
            under_way = []
            for number in range(found.core.settings.wal.latency.flushes):
                under_way.append(asyncio.ensure_future(appending.append(Wish([Entry(None, b"v")]))))
                await until(lambda: gate.waiting > number)  # noqa: B023
            left = asyncio.Event()
            waiting = asyncio.ensure_future(appending.append(Wish([Entry(None, b"gone")]), gone=left.wait))
            await asyncio.sleep(0)
            left.set()
            await asyncio.wait([waiting])
            assert "nothing was appended" in str(waiting.exception())
            gate.opened.set()
            await asyncio.gather(*under_way)
            assert ends(found, topic) == [len(under_way)] and found.core.writers.budget.used == 0

    asyncio.run(story())


def test_a_unit_fits_into_a_record_of_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the writer could not enter it, and would end the process."""

    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 4)
            everywhere = {"records": [{"value": 1, "partition": partition} for partition in range(4)]}
            monkeypatch.setattr(appending_module, "MAX_BATCHES_PER_OBJECT", 3)
            answer = await found.ask("POST", URL, json=everywhere)
            assert answer.status_code == 413 and "4 batches; the limit is 3" in answer.json()["detail"]
            monkeypatch.undo()
            monkeypatch.setattr(appending_module, "KEYED_PARTITIONS", 3)
            answer = await found.ask("POST", URL, json=everywhere, headers={"Idempotency-Key": "k"})
            assert answer.status_code == 413 and "4 partitions" in answer.json()["detail"]
            assert (await found.ask("POST", URL, json=everywhere)).status_code == 200
            assert ends(found, topic) == [1, 1, 1, 1]

    asyncio.run(story())


@promise("N1")
def test_a_topic_that_a_link_copies() -> None:
    """A problem of its own, which names the link, until the topic is promoted."""

    async def story() -> None:
        async with gateway() as found:
            copied = await link(found.core, "orders")
            await copied.copy(3, [b"a"])
            for headers in ({}, {"Idempotency-Key": "k"}):
                refused = await send(found, "x", **headers)
                assert (refused.status_code, refused.json()["type"]) == (409, "/problems/mirrored")
                assert "copied by link 'old'" in refused.json()["detail"]
            assert ends(found, copied.topic) == [4]
            await copied.change(LinkPhase.PROMOTED)
            accepted = await send(found, "x")
            assert accepted.json()["partitions"][0]["first_offset"] == 4

    asyncio.run(story())
