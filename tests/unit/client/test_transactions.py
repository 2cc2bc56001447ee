"""Calls about transactional ids: which broker is asked, and what its answers become."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from kio.schema.errors import ErrorCode

from headwater.client.client import Client
from headwater.client.errors import KafkaError
from headwater.client.model import ProducerIdentity, Transaction
from headwater.client.routing import ClientSettings
from headwater.clock import SystemClock
from headwater.errors import ConfigError
from tests.support.transaction_brokers import (
    CONCURRENT,
    DESCRIBE_TRANSACTIONS,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    NOT_COORDINATOR,
    Id,
    TransactionBrokers,
)

PROMISES = ("K12",)

HASTY = ClientSettings(first_pause_s=0.001, longest_pause_s=0.001)


def now_ms() -> int:
    return SystemClock().wall_ms()


def some() -> dict[str, Id]:
    return {
        "b-open": Id(0, "Ongoing", 7, 3, now_ms() - 100_000, {"t": [0, 2], "u": [1]}),
        "a-fresh": Id(1, "Ongoing", 8, 0, now_ms(), {"t": [1]}),
        "c-done": Id(1, "CompleteCommit", 9, 5, now_ms() - 500_000),
        "d-new": Id(0, "Empty", 10, 0),
    }


def told(brokers: TransactionBrokers, test: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Client(brokers.bootstrap, settings=HASTY) as client:
            await test(client)

    with brokers:
        asyncio.run(main())


def test_the_lists_of_all_brokers_are_added_up() -> None:
    async def test(client: Client) -> None:
        found = await client.list_transactions()
        assert [t.id for t in found] == ["a-fresh", "b-open", "c-done", "d-new"]
        assert found[1] == Transaction(
            "b-open",
            "Ongoing",
            ProducerIdentity(7, 3),
            60_000,
            brokers.ids["b-open"].started_ms,
            (("t", 0), ("t", 2), ("u", 1)),
        )
        assert [t.open for t in found] == [True, True, False, False]
        assert found[3].started_ms == -1
        asked = brokers.asked(DESCRIBE_TRANSACTIONS)
        assert sorted((broker, *body.transactional_ids) for broker, body in asked) == [
            (0, "b-open", "d-new"),
            (1, "a-fresh", "c-done"),
        ]

    brokers = TransactionBrokers(some())
    told(brokers, test)


def test_filters() -> None:
    async def test(client: Client) -> None:
        assert [t.id for t in await client.list_transactions(["CompleteCommit", "Empty"])] == ["c-done", "d-new"]
        with pytest.raises(ConfigError, match="no state 'Broken'"):
            await client.list_transactions(["Broken"])
        found = await client.list_transactions(older_than_ms=5_000)
        assert {body.duration_filter for _, body in brokers.asked(LIST_TRANSACTIONS)[-2:]} == {5_000}
        assert [t.id for t in found] == ["a-fresh", "b-open"], "the brokers compare ages; what is not open has none"

    brokers = TransactionBrokers(some())
    told(brokers, test)


def test_a_broker_that_knows_no_ages() -> None:
    async def test(client: Client) -> None:
        assert [t.id for t in await client.list_transactions(older_than_ms=50_000)] == ["b-open"]
        assert await client.list_transactions(older_than_ms=5_000_000) == []

    told(TransactionBrokers(some(), list_version=0), test)


def test_an_id_that_goes_while_it_is_listed() -> None:
    async def test(client: Client) -> None:
        assert [t.id for t in await client.list_transactions(["Ongoing"])] == ["a-fresh", "b-open"]

    brokers = TransactionBrokers(some())
    brokers.listed = {"gone": "Ongoing"}
    told(brokers, test)


def test_describing() -> None:
    async def test(client: Client) -> None:
        found = await client.describe_transaction("a-fresh")
        assert (found.producer, found.partitions) == (ProducerIdentity(8, 0), (("t", 1),))
        assert [broker for broker, _ in brokers.asked(DESCRIBE_TRANSACTIONS)] == [1, 1], "retried at the coordinator"
        with pytest.raises(KafkaError, match="there is no such transactional id") as raised:
            await client.describe_transaction("nobody")
        assert raised.value.code is ErrorCode.transactional_id_not_found

    brokers = TransactionBrokers(some())
    brokers.failures = {DESCRIBE_TRANSACTIONS: [NOT_COORDINATOR]}
    told(brokers, test)


def test_aborting() -> None:
    async def test(client: Client) -> None:
        found = await client.describe_transaction("a-fresh")
        assert await client.abort_transaction(found) == ProducerIdentity(8, 1)
        asked = [(broker, body.transactional_id) for broker, body in brokers.asked(INIT_PRODUCER_ID)]
        assert asked == [(1, "a-fresh")] * 2, "what is under way elsewhere is waited for"
        body = brokers.asked(INIT_PRODUCER_ID)[0][1]
        assert body.transaction_timeout.total_seconds() == 60
        with pytest.raises(KafkaError, match="has started under the id meanwhile") as raised:
            await client.abort_transaction(found)
        assert raised.value.code is ErrorCode.producer_fenced

    brokers = TransactionBrokers(some())
    brokers.failures = {INIT_PRODUCER_ID: [CONCURRENT]}
    told(brokers, test)
