"""Rows over HTTP: the whole topic or a part of it as Arrow, for callers who may READ it."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from headwater.gateway.routes import rows
from headwater.gateway.services import MAX_SCANS
from headwater.query.scan import scan
from headwater.state.cluster.access import Operation
from headwater.types import Domain
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.promise import promise
from tests.support.rules import rule


async def _filled(world: InGateway, user: str = "") -> None:
    await world.topic("orders", 2)
    records = [{"partition": i % 2, "value": str(i), "timestamp": 100 * i} for i in range(6)]
    answer = await world.ask("POST", "/v1/topics/orders/records", user, json={"records": records})
    assert answer.status_code == 200, answer.text


def _table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _values(table: pa.Table) -> list[str]:
    return sorted(value.decode() for value in table["value"].to_pylist())


def test_rows() -> None:
    async def main() -> None:
        async with gateway() as world:
            await _filled(world)
            for query, wanted in (
                ("", "012345"),
                ("?partitions=1", "135"),
                ("?partitions=", ""),
                ("?from_offset=1", "2345"),
                ("?from_offsets=0:2&until_offsets=1:1", "14"),
                ("?from_offsets=0:2&until_offset=1", "1"),
                ("?from=200&until=400", "23"),
                ("?version=0", ""),
            ):
                answer = await world.get(f"/v1/topics/orders/rows{query}")
                assert answer.status_code == 200, answer.text
                assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
                assert _values(_table(answer.content)) == list(wanted), query
            some = _table((await world.get("/v1/topics/orders/rows?columns=value,%20offset")).content)
            assert some.column_names == ["value", "offset"] and some.num_rows == 6

    asyncio.run(main())


@promise("Q2")
def test_scans_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """From before the snapshot until the answer has ended, however it ends."""
    held: list[int] = []

    async def main() -> None:
        async with gateway() as world:
            await _filled(world)
            holding = world.services.holding

            def watched(*given: Any) -> Any:
                assert world.core.domains[Domain(1)].state.held.get(world.core.membership.epoch) is not None
                held.append(len(holding))
                return scan(*given)

            monkeypatch.setattr(rows, "scan", watched)
            for path, status in (("", 200), ("?version=9", 400), ("?columns=value", 200)):
                assert (await world.get(f"/v1/topics/orders/rows{path}")).status_code == status
                assert len(holding) == 0
            assert held == [1, 1]

    asyncio.run(main())


def test_parts() -> None:
    """Together they have every row once; later rows are in none of them."""

    async def main() -> None:
        async with gateway() as world:
            await _filled(world)
            [whole] = (await world.get("/v1/topics/orders/splits")).json()["parts"]
            assert [line["partition"] for line in whole["ranges"]] == [0, 1] and whole["bytes"] > 0
            plan = (await world.get("/v1/topics/orders/splits?split_bytes=1&from_offsets=0:1")).json()
            assert plan["id"] == str(world.services.state.names["orders"].id) and plan["version"] == 0
            assert plan["partitions"] == [{"partition": 0, "kept": 0}, {"partition": 1, "kept": 0}]
            assert len(plan["parts"]) > 1
            await world.fill("orders", 3)
            got: list[str] = []
            for part in plan["parts"]:
                [line] = part["ranges"]
                number = line["partition"]
                query = f"partitions={number}&from_offsets={number}:{line['from_offset']}&kept={number}:0"
                query += f"&until_offsets={number}:{line['until_offset']}"
                got += _values(_table((await world.get(f"/v1/topics/orders/rows?{query}")).content))
            assert sorted(got) == list("12345")

    asyncio.run(main())


def test_rows_that_retention_removed() -> None:
    async def main() -> None:
        async with gateway() as world:
            await _filled(world)
            trim = {"partitions": [{"partition": 0, "before": 2}]}
            assert (await world.ask("POST", "/v1/topics/orders/trim", json=trim)).status_code == 200
            assert (await world.get("/v1/topics/orders/splits")).json()["partitions"][0] == {"partition": 0, "kept": 2}
            for path in ("rows", "splits"):
                answer = await world.get(f"/v1/topics/orders/{path}?kept=0:1")
                assert answer.status_code == 400 and "complete from 2 on" in answer.json()["detail"]
                assert (await world.get(f"/v1/topics/orders/{path}?kept=0:2,1:0")).status_code == 200

    asyncio.run(main())


def test_bad_requests() -> None:
    async def main() -> None:
        async with gateway() as world:
            await _filled(world)
            for query, words in (
                ("columns=nope", "no column 'nope'"),
                ("columns=key,key", "each of them once"),
                ("partitions=2", "no partition 2"),
                ("partitions=x", "'x' is not a number"),
                ("from_offsets=1", "PARTITION:OFFSET"),
                ("from_offsets=7:1", "no partition 7"),
                ("version=9", "no version 9"),
            ):
                answer = await world.get(f"/v1/topics/orders/rows?{query}")
                assert answer.status_code == 400 and words in answer.json()["detail"], answer.text
            assert (await world.get("/v1/topics/none/rows")).status_code == 404
            assert (await world.get("/v1/topics/orders/rows?from_offset=-1")).status_code == 400

    asyncio.run(main())


def test_a_limit_of_scans() -> None:
    """Each holds rows in memory. Places are given back when an answer has ended."""

    async def main() -> None:
        async with gateway() as world:
            await _filled(world)
            held = [world.services.scans.enter(f"caller {n}") for n in range(MAX_SCANS)]
            answer = await world.get("/v1/topics/orders/rows")
            assert answer.status_code == 429 and "16 scans already" in answer.json()["detail"]
            held[0].release()
            for _ in range(3):
                assert (await world.get("/v1/topics/orders/rows")).status_code == 200
            assert world.services.scans.count == MAX_SCANS - 1 and world.services.streams.count == 0

    asyncio.run(main())


def test_rights() -> None:
    """READ is needed. What a caller may not describe does not exist."""

    async def main() -> None:
        async with gateway(secured(), users=True) as world:
            await world.allow(rule("User:bob", Operation.WRITE, "orders"))
            await _filled(world, "bob")
            assert (await world.get("/v1/topics/orders/rows", "alice")).status_code == 404
            await world.allow(rule(ALICE, Operation.DESCRIBE, "orders"))
            assert (await world.get("/v1/topics/orders/rows", "alice")).status_code == 403
            assert (await world.get("/v1/topics/orders/splits", "alice")).status_code == 403
            await world.allow(rule(ALICE, Operation.READ, "orders"))
            assert _table((await world.get("/v1/topics/orders/rows", "alice")).content).num_rows == 6

    asyncio.run(main())
