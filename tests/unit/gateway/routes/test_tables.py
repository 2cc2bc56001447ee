"""Tables over HTTP: numbers of the newest version, versions and their files in pages, and settling on request."""

from __future__ import annotations

import asyncio
from typing import Any

from headwater.settings.settings import Gateway, Lake, Settings
from headwater.state.cluster.access import Operation
from headwater.state.commands.base import TakeLease
from headwater.state.commands.tables import Follow, ForgetFiles, Merge, NewFile, SegmentRun, Settle
from headwater.state.records import Command
from headwater.state.results import Done
from headwater.state.streams.domain import COMPACTION
from headwater.types import Domain
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.rules import rule

PROMISES = ("H2",)

PATH = "/v1/tables/orders"
NO_FOLLOWERS = Settings(lake=Lake(followers=()), gateway=Gateway(page_items=2))


class Compactor:
    """Enters segments into the ledger as a compactor does. No file is written."""

    def __init__(self, found: InGateway, name: str = "orders") -> None:
        self.replica = found.core.domains[Domain(1)]
        self.topic = found.services.state.names[name]
        self.lease = 0
        self.files = 0

    async def do(self, command: Command) -> int:
        [result] = await self.replica.submit([command])
        assert isinstance(result, Done), result
        return result.value

    async def start(self) -> None:
        self.lease = await self.do(TakeLease(COMPACTION, 60_000))

    def file(self, start: int, end: int) -> NewFile:
        self.files += 1
        return NewFile(f"_data/{self.files}.parquet", 1_000, end - start, 1, 0, 0, start, end - 1, 1, 9, 0, 7)

    def run(self, start: int, end: int) -> SegmentRun:
        return SegmentRun(self.topic.streams[0], start, end, 0, 0, 1)

    async def settle(self, start: int, end: int) -> None:
        files, runs = [self.file(start, end)], [self.run(start, end)]
        await self.do(Settle(self.lease, self.topic.id, "tables/orders", files, runs))

    async def merge(self, removed: list[int], start: int, end: int) -> None:
        files, runs = [self.file(start, end)], [self.run(start, end)]
        await self.do(Merge(self.lease, self.topic.id, removed, files, runs))


async def three_versions(found: InGateway) -> Compactor:
    """Two settles and a merge of both files."""
    await found.topic("orders", 2)
    for _ in range(3):
        await found.fill("orders", 5)
    compactor = Compactor(found)
    await compactor.start()
    await compactor.settle(0, 5)
    await compactor.settle(5, 10)
    await compactor.merge([1, 2], 0, 10)
    return compactor


async def items(found: InGateway, path: str) -> list[dict[str, Any]]:
    """All items of a listing, page by page."""
    seen, query = [], {}
    while True:
        answer = await found.get(path, params=query)
        assert answer.status_code == 200, answer.text
        seen += answer.json()["items"]
        if "next" not in answer.json():
            return seen
        query["next"] = answer.json()["next"]


def test_a_topic_without_a_table_yet() -> None:
    async def story() -> None:
        async with gateway(NO_FOLLOWERS) as found:
            await found.topic("orders")
            await found.fill("orders", 3)
            await asyncio.sleep(0.01)  # so that the records have an age
            told = (await found.get(PATH)).json()
            assert (told["version"], told["location"], told["pending_records"]) == (0, None, 3)
            assert told["freshness_seconds"] > 0 and told["followers"] == []
            assert await items(found, f"{PATH}/versions") == []
            assert await items(found, f"{PATH}/versions/0/files") == []
            assert (await found.get(f"{PATH}/versions/1/files")).status_code == 404

    asyncio.run(story())


def test_a_table_and_its_followers() -> None:
    async def story() -> None:
        async with gateway(NO_FOLLOWERS) as found:
            compactor = await three_versions(found)
            await compactor.do(Follow(compactor.lease, compactor.topic.id, "iceberg", "", "tables/orders/m.json", 2, 1))
            told = (await found.get(PATH)).json()
            assert (told["version"], told["rows"], told["files"], told["bytes"]) == (3, 10, 1, 1_000)
            assert (told["pending_records"], told["held_records"], told["held_by"]) == (5, 0, [])
            assert told["location"].endswith("/tables/orders")
            [follower] = told["followers"]
            assert (follower["name"], follower["version"], follower["oldest"]) == ("iceberg", 2, 1)
            assert follower["metadata"] == "tables/orders/m.json" and follower["behind_seconds"] >= 0
            [line] = await items(found, "/v1/tables")
            assert line == {key: told[key] for key in line} | {"freshness_seconds": line["freshness_seconds"]}

    asyncio.run(story())


def test_versions_and_their_files() -> None:
    async def story() -> None:
        async with gateway(NO_FOLLOWERS) as found:
            compactor = await three_versions(found)
            versions = await items(found, f"{PATH}/versions")
            assert [(v["version"], v["operation"], v["added"], v["removed"]) for v in versions] == [
                (1, "settle", 1, 0), (2, "settle", 1, 0), (3, "merge", 1, 2),
            ]  # fmt: skip
            assert versions[1]["ends"] == {"0": 10}
            numbers = {v: [f["number"] for f in await items(found, f"{PATH}/versions/{v}/files")] for v in range(4)}
            assert numbers == {0: [], 1: [1], 2: [1, 2], 3: [3]}
            [file] = await items(found, f"{PATH}/versions/1/files")
            assert (file["rows"], file["offsets"], file["version"]) == (5, [0, 4], 1)
            for version in (4, -1):
                assert (await found.get(f"{PATH}/versions/{version}/files")).status_code == 404
            assert (await found.get(f"{PATH}/versions/new/files")).status_code == 404
            await compactor.do(ForgetFiles(compactor.lease, compactor.topic.id, [1]))
            assert (await found.get(f"{PATH}/versions/2/files")).status_code == 404
            assert [f["number"] for f in await items(found, f"{PATH}/versions/3/files")] == [3]

    asyncio.run(story())


def test_settling_on_request() -> None:
    """Without a compactor the answer is 202 and says so. With one that is done in time it is 200."""

    async def story() -> None:
        async with gateway(NO_FOLLOWERS) as found:
            await found.topic("orders")
            done = await found.ask("POST", f"{PATH}/settle")
            assert done.status_code == 200 and done.json()["settled"] is True
            await found.fill("orders", 5)
            asked = await found.ask("POST", f"{PATH}/settle", params={"wait": "0.05"})
            assert asked.status_code == 202 and asked.json()["poll"] == PATH
            assert (asked.json()["settled"], asked.json()["pending_records"]) == (False, 5)
            assert "no compactor is running" in asked.json()["compactor"]
            compactor = Compactor(found)
            await compactor.start()
            waiting = asyncio.ensure_future(found.ask("POST", f"{PATH}/settle", params={"wait": "30"}))
            while not compactor.replica.state.wanted:
                await asyncio.sleep(0)
            await compactor.settle(0, 5)
            answer = await waiting
            assert answer.status_code == 200
            assert (answer.json()["settled"], answer.json()["version"]) == (True, 1)

    asyncio.run(story())


def test_a_follower_that_is_behind_is_not_settled() -> None:
    async def story() -> None:
        async with gateway(Settings(lake=Lake(followers=("delta",)))) as found:
            compactor = await three_versions(found)
            await compactor.settle(10, 15)
            assert (await found.ask("POST", f"{PATH}/settle")).status_code == 202
            await compactor.do(Follow(compactor.lease, compactor.topic.id, "delta", "", "", 4, 1))
            assert (await found.ask("POST", f"{PATH}/settle")).status_code == 200

    asyncio.run(story())


def test_a_gateway_that_stops_does_not_wait() -> None:
    async def story() -> None:
        async with gateway(NO_FOLLOWERS) as found:
            await found.topic("orders")
            await found.fill("orders", 5)
            found.services.stopping.set()
            assert (await found.ask("POST", f"{PATH}/settle", params={"wait": "60"})).status_code == 202

    asyncio.run(story())


def test_bad_input_and_rights() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders")
            await found.topic("hidden")
            await found.fill("orders", 1)
            await found.allow(rule(ALICE, Operation.DESCRIBE, "orders"))
            paths = (PATH, f"{PATH}/versions", f"{PATH}/versions/0/files")
            assert [(await found.get(path, "alice")).status_code for path in paths] == [200, 200, 200]
            assert [(await found.get(path, "bob")).status_code for path in paths] == [404, 404, 404]
            assert [line["topic"] for line in (await found.get("/v1/tables", "alice")).json()["items"]] == ["orders"]
            assert (await found.ask("POST", f"{PATH}/settle", "alice")).status_code == 403
            assert (await found.ask("POST", f"{PATH}/settle", "bob")).status_code == 404
            assert not found.core.domains[Domain(1)].state.wanted
            await found.allow(rule(ALICE, Operation.ALTER, "orders"))
            for wait in ("61", "-1", "soon"):
                answer = await found.ask("POST", f"{PATH}/settle", "alice", params={"wait": wait})
                assert answer.status_code == 400
            assert (await found.ask("POST", f"{PATH}/settle", "alice")).status_code == 202

    asyncio.run(story())
