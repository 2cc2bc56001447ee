"""Look-ups over HTTP: by offset and by key, for callers who may READ the topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import NotReady
from headwater.query.holding import Holding
from headwater.state.cluster.access import Operation
from tests.support.batches import Rec
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.links import link
from tests.support.promise import promise
from tests.support.rules import rule

LATEST = "/v1/topics/orders/latest"
ONE = "/v1/topics/orders/partitions/0/records"


async def put(world: InGateway, *records: dict[str, Any], user: str = "") -> None:
    answer = await world.ask("POST", "/v1/topics/orders/records", user, json={"records": list(records)})
    assert answer.status_code == 200, answer.text


def rec(partition: int, key: str | None, value: Any, timestamp: int) -> dict[str, Any]:
    return {"partition": partition, "key": key, "value": value, "timestamp": timestamp}


def test_by_key() -> None:
    async def main() -> None:
        async with gateway() as world:
            await world.topic("orders", 2)
            await put(world, rec(0, "a", "1", 10), rec(0, "b", {"n": 2}, 20), rec(0, None, "3", 30))
            found = (await world.get(LATEST, params={"key": "a"})).json()
            assert found == {
                "record": {"partition": 0, "offset": 0, "timestamp": 10, "key": "a", "value": "1"},
                "tombstone": False,
                "read": {"requests": 0, "bytes": 0},
            }
            shown = (await world.get(LATEST, params={"key_base64": "Yg", "format": "json"})).json()
            assert shown["record"]["value"] == {"n": 2}
            await put(world, rec(1, "a", "4", 5))  # another partition, but older by its timestamp
            assert (await world.get(LATEST, params={"key": "a"})).json()["record"]["value"] == "1"
            only = (await world.get(LATEST, params={"key": "a", "partition": 1})).json()
            assert only["record"]["value"] == "4"
            await put(world, rec(1, "a", None, 40))
            gone = (await world.get(LATEST, params={"key": "a"})).json()
            assert gone["tombstone"] and gone["record"]["offset"] == 1 and gone["record"]["value"] is None
            for query in ({"key": "c"}, {"key": ""}, {"key": "b", "partition": 1}):
                answer = await world.get(LATEST, params=query)
                assert answer.status_code == 404 and answer.json()["type"] == "/problems/no-record", query
            for bad, words in (
                ({}, "give either"),
                ({"key": "a", "key_base64": "YQ"}, "give either"),
                ({"key_base64": "!"}, "not base64"),
                ({"key": "a", "partition": -1}, "partition"),
            ):
                answer = await world.get(LATEST, params=bad)
                assert answer.status_code == 400 and words in answer.text, answer.text
            assert (await world.get(LATEST, params={"key": "a", "partition": 2})).status_code == 404

    asyncio.run(main())


def test_by_offset() -> None:
    async def main() -> None:
        async with gateway() as world:
            await world.topic("orders", 2)
            await put(world, rec(0, "a", "1", 10), {**rec(0, "b", "2", 20), "headers": [{"name": "h", "value": "x"}]})
            found = (await world.get(f"{ONE}/1")).json()
            assert found["record"] == {
                "partition": 0, "offset": 1, "timestamp": 20, "key": "b", "value": "2",
                "headers": [{"name": "h", "value": "x"}],
            }  # fmt: skip
            assert (await world.get(f"{ONE}/0", params={"format": "base64"})).json()["record"]["value_base64"] == "MQ=="
            for offset in (2, -1):
                answer = await world.get(f"{ONE}/{offset}")
                assert answer.status_code == 416 and answer.json()["start"] == 0 and answer.json()["end"] == 2
            assert (await world.get("/v1/topics/orders/partitions/5/records/0")).status_code == 404
            assert (await world.get(f"{ONE}/nine")).status_code == 404
            page = await world.get(ONE, params={"offset": "0", "until": 1})
            assert page.headers["headwater-read"] == "requests=0, bytes=0"

    asyncio.run(main())


@promise("Q4", "N1")
def test_a_topic_that_a_link_copies() -> None:
    """By offset and by key before anything is settled; gaps of the source have no record."""

    async def main() -> None:
        async with gateway() as world:
            copied = await link(world.core, "orders", 1)
            await copied.copy(3, [Rec(b"old", b"a", 10), Rec(b"other", b"b", 20)])
            await copied.copy(9, [Rec(b"new", b"a", 30)])
            for query, offset, value in (({"key": "a"}, 9, "new"), ({"key": "b"}, 4, "other")):
                record = (await world.get(LATEST, params=query)).json()["record"]
                assert (record["offset"], record["value"]) == (offset, value)
            found = [(await world.get(f"{ONE}/{offset}")).status_code for offset in range(11)]
            assert found == [404, 404, 404, 200, 200, 404, 404, 404, 404, 200, 416]
            rows = pa.ipc.open_stream((await world.get("/v1/topics/orders/rows")).content).read_all()
            assert rows["offset"].to_pylist() == [3, 4, 9]

    asyncio.run(main())


def test_what_a_look_up_reads_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it reads and no longer; and a gateway that cannot hold it answers all the same."""

    async def main() -> None:
        async with gateway() as world:
            await world.topic("orders", 1)
            await put(world, rec(0, "a", "1", 10))
            own = world.services
            held: list[int] = []
            for name in ("at", "latest"):
                monkeypatch.setattr(own.lookups, name, watched(getattr(own.lookups, name), own.holding, held))
            paths = (f"{LATEST}?key=a", f"{ONE}/0", f"{LATEST}?key=b", f"{ONE}/9")
            statuses = [200, 200, 404, 416]
            assert [(await world.get(path)).status_code for path in paths] == statuses
            assert held == [1, 1, 1, 1] and len(own.holding) == 0
            monkeypatch.setattr(own.holding, "begin", refused)
            assert [(await world.get(path)).status_code for path in paths] == statuses
            assert held[4:] == [0, 0, 0, 0]

    asyncio.run(main())


def watched(inner: Callable[..., Awaitable[Any]], holding: Holding, held: list[int]) -> Callable[..., Awaitable[Any]]:
    async def call(*arguments: Any) -> Any:
        held.append(len(holding))
        return await inner(*arguments)

    return call


async def refused() -> None:
    raise NotReady("the process has no epoch")


def test_only_callers_who_may_read() -> None:
    async def main() -> None:
        async with gateway(secured(), users=True) as world:
            await world.topic("orders", 1)
            await world.allow(rule("User:bob", Operation.WRITE, "orders"))
            await put(world, rec(0, "a", "1", 10), user="bob")
            paths = (f"{LATEST}?key=a", f"{ONE}/0")
            for path in paths:
                assert (await world.get(path)).status_code == 401
                hidden = await world.get(path, "alice")
                assert hidden.status_code == 404 and hidden.json()["type"] == "/problems/not-found"
            await world.allow(rule(ALICE, Operation.DESCRIBE, "orders"))
            assert [(await world.get(path, "alice")).status_code for path in paths] == [403, 403]
            await world.allow(rule(ALICE, Operation.READ, "orders"))
            assert [(await world.get(path, "alice")).status_code for path in paths] == [200, 200]

    asyncio.run(main())
