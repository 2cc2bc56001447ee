"""Transactions over HTTP: what is open, since when and where; aborting it fences the producer."""

from __future__ import annotations

import asyncio

import pytest

from headwater.settings.settings import Gateway, Settings
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.commands.transactions import EndTransaction
from headwater.state.results import Judgement, Transacted
from headwater.state.streams.stored.transactions import LAST_EPOCH
from headwater.types import Domain
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.rules import rule
from tests.support.transactions import Transactor, submitting

PROMISES = ("H2",)

PATH = "/v1/transactions/pay"
ID = AclResource.TRANSACTIONAL_ID


async def opened(found: InGateway, id: str = "pay", fresh: int = 77) -> Transactor:
    """An open transaction in both partitions of `orders`."""
    if "orders" not in found.services.state.names:
        await found.topic("orders", 2)
    made = await Transactor.start(submitting(found.core.domains[Domain(1)]), id, fresh)
    await made.join(*found.services.state.names["orders"].streams)
    return made


def test_an_open_transaction() -> None:
    async def story() -> None:
        async with gateway() as found:
            await opened(found)
            told = (await found.get(PATH)).json()
            assert (told["id"], told["state"], told["producer"], told["epoch"]) == ("pay", "Ongoing", 77, 0)
            assert told["started_ms"] > 0 and told["timeout_ms"] > 0
            assert told["partitions"] == [{"topic": "orders", "partition": p} for p in (0, 1)]
            assert (await found.get("/v1/transactions/none")).status_code == 404

    asyncio.run(story())


def test_transactions_in_pages_and_by_state() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(page_items=2))) as found:
            for number, id in enumerate(("c", "a", "b")):
                made = await opened(found, id, 100 + number)
            await made.end(commit=True)
            first = (await found.get("/v1/transactions")).json()
            assert [(t["id"], t["state"]) for t in first["items"]] == [("a", "Ongoing"), ("b", "CompleteCommit")]
            second = (await found.get("/v1/transactions", params={"next": first["next"]})).json()
            assert [t["id"] for t in second["items"]] == ["c"]
            only = (await found.get("/v1/transactions", params={"state": "Ongoing"})).json()
            assert [t["id"] for t in only["items"]] == ["a", "c"]
            old = {"older_than_ms": str(10**9)}
            assert (await found.get("/v1/transactions", params=old)).json() == {"items": []}
            for bad in ({"state": "open"}, {"older_than_ms": "-1"}, {"older_than_ms": "long"}):
                assert (await found.get("/v1/transactions", params=bad)).status_code == 400

    asyncio.run(story())


def test_an_abort_fences_the_producer() -> None:
    async def story() -> None:
        async with gateway() as found:
            made = await opened(found)
            replica = found.core.domains[Domain(1)]
            answer = await found.ask("POST", f"{PATH}/abort")
            assert answer.status_code == 200 and answer.json()["state"] == "CompleteAbort"
            [result] = await replica.submit([EndTransaction("pay", made.producer, made.epoch, True, False, -1)])
            assert isinstance(result, Transacted) and result.judgement is Judgement.FENCED
            assert (await found.get(PATH)).json()["partitions"] == []
            again = await found.ask("POST", f"{PATH}/abort")
            assert again.status_code == 409 and "CompleteAbort" in again.json()["detail"]
            assert (await found.ask("POST", "/v1/transactions/none/abort")).status_code == 404

    asyncio.run(story())


@pytest.mark.parametrize("epoch", [5, LAST_EPOCH])
def test_an_abort_at_the_last_epoch_takes_another_producer_id(epoch: int) -> None:
    async def story() -> None:
        async with gateway() as found:
            await opened(found)
            stored = found.core.domains[Domain(1)].state.transactions.get("pay")
            assert stored is not None
            stored.epoch = epoch
            told = (await found.ask("POST", f"{PATH}/abort")).json()
            assert (told["producer"] != 77, told["epoch"]) == ((True, 0) if epoch == LAST_EPOCH else (False, epoch + 1))

    asyncio.run(story())


def test_rights_are_those_of_kafka() -> None:
    """DESCRIBE to see an id, and its topics too; WRITE to abort."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await opened(found)
            await found.allow(rule(ALICE, Operation.DESCRIBE, "pay", ID))
            assert (await found.get(PATH, "alice")).json()["partitions"] == []
            await found.allow(rule(ALICE, Operation.DESCRIBE, "orders"))
            assert len((await found.get(PATH, "alice")).json()["partitions"]) == 2
            assert len((await found.get("/v1/transactions", "alice")).json()["items"]) == 1
            assert (await found.ask("POST", f"{PATH}/abort", "alice")).status_code == 403
            assert (await found.get("/v1/transactions", "bob")).json() == {"items": []}
            assert (await found.get(PATH, "bob")).status_code == 404
            assert (await found.ask("POST", f"{PATH}/abort", "bob")).status_code == 404
            assert (await found.get(PATH, "alice")).json()["state"] == "Ongoing"
            await found.allow(rule(ALICE, Operation.WRITE, "pay", ID))
            assert (await found.ask("POST", f"{PATH}/abort", "alice")).status_code == 200

    asyncio.run(story())
