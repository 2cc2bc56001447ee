"""Creating, growing, trimming and deleting topics over HTTP: what is refused changes nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.settings.settings import Limits, Settings
from headwater.state.cluster.access import AclResource, Operation
from tests.support.gateways import ALICE, BOB, InGateway, gateway, secured
from tests.support.rules import rule

PROMISES = ("H2",)

NAME = "/v1/topics/orders"


def names(found: InGateway) -> list[str]:
    return sorted(found.services.state.names)


def test_a_topic_is_created_grown_and_deleted() -> None:
    async def story() -> None:
        async with gateway() as found:
            wanted = {"name": "orders", "partitions": 2, "configs": {"retention.ms": "1000"}}
            answer = await found.ask("POST", "/v1/topics", json=wanted)
            assert answer.status_code == 201 and answer.headers["location"] == NAME
            topic = found.services.state.names["orders"]
            assert answer.json() == {"name": "orders", "partitions": 2, "id": str(topic.id)}
            assert topic.ready == 2 and topic.configs == {"retention.ms": "1000"}
            grown = await found.ask("POST", f"{NAME}/partitions", json={"partitions": 5})
            assert grown.status_code == 200 and grown.json()["partitions"] == 5
            assert len((await found.get(NAME)).json()["partitions"]) == 5
            assert (await found.ask("DELETE", NAME)).status_code == 204
            assert (await found.get(NAME)).status_code == 404 and names(found) == []
            assert (await found.ask("DELETE", NAME)).status_code == 404

    asyncio.run(story())


def test_a_topic_has_the_default_number_of_partitions() -> None:
    async def story() -> None:
        async with gateway(Settings(default_partitions=3)) as found:
            answer = await found.ask("POST", "/v1/topics", json={"name": "orders"})
            assert answer.status_code == 201 and answer.json()["partitions"] == 3

    asyncio.run(story())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "a b"}, 400),
        ({"name": ""}, 400),
        ({"name": "x", "partitions": 0}, 400),
        ({"name": "x", "partitions": 11}, 400),
        ({"name": "x", "partitions": 9}, 422),
        ({"name": "x", "configs": {"retention.ms": "soon"}}, 400),
        ({"name": "x", "configs": {"no.such": "1"}}, 400),
        ({"name": "x", "configs": {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"}}, 400),
        ({"name": "x", "colour": "red"}, 400),
        ({"partitions": 1}, 400),
        ({"name": "taken"}, 409),
        ({"name": "__consumer_offsets"}, 409),
        ({"name": "a_topic"}, 400),
    ],
)
def test_what_cannot_be_created(body: dict[str, Any], status: int) -> None:
    """Bad input, a topic that exists, one that differs in dots only, and more partitions than the limits allow."""

    async def story() -> None:
        limits = Limits(partitions=10, partitions_per_topic=10)
        async with gateway(Settings(limits=limits)) as found:
            await found.topic("taken")
            await found.topic("a.topic")
            for query in ({}, {"validate_only": "true"}):
                answer = await found.ask("POST", "/v1/topics", json=body, params=query)
                assert answer.status_code == status, answer.text
                assert answer.headers["content-type"] == "application/problem+json"
            assert names(found) == ["a.topic", "taken"]

    asyncio.run(story())


def test_validate_only_changes_nothing() -> None:
    async def story() -> None:
        async with gateway() as found:
            only = {"validate_only": "true"}
            answer = await found.ask("POST", "/v1/topics", json={"name": "orders", "partitions": 4}, params=only)
            assert answer.status_code == 200 and answer.json() == {"name": "orders", "partitions": 4}
            assert names(found) == []
            topic = await found.topic("orders", 1)
            answer = await found.ask("POST", f"{NAME}/partitions", json={"partitions": 4}, params=only)
            assert answer.status_code == 200 and topic.ready == 1

    asyncio.run(story())


@pytest.mark.parametrize("partitions", [2, 1, 0, -1, 100_000])
def test_partitions_only_rise(partitions: int) -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 2)
            answer = await found.ask("POST", f"{NAME}/partitions", json={"partitions": partitions})
            assert answer.status_code == 400 and answer.json()["detail"]
            assert topic.ready == len(topic.streams) == 2

    asyncio.run(story())


def test_records_are_deleted_up_to_an_offset() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 2)
            await found.fill("orders", 10)
            body = {"partitions": [{"partition": 0, "before": 4}]}
            answer = await found.ask("POST", f"{NAME}/trim", json=body)
            assert answer.status_code == 200 and answer.json() == {"partitions": [{"partition": 0, "start": 4}]}
            told = (await found.get(NAME)).json()["partitions"][0]
            assert (told["start"], told["end"]) == (4, 10) and told["bytes"] > 0
            both = {"partitions": [{"partition": 1}, {"partition": 0}]}
            answer = await found.ask("POST", f"{NAME}/trim", json=both)
            assert [line["start"] for line in answer.json()["partitions"]] == [0, 10]
            assert (await found.get(NAME)).json()["partitions"][0]["bytes"] == 0

    asyncio.run(story())


@pytest.mark.parametrize(
    "lines",
    [
        [{"partition": 0, "before": 5}, {"partition": 1, "before": 1}],
        [{"partition": 0, "before": 5}, {"partition": 2}],
        [{"partition": 0, "before": 5}, {"partition": 0, "before": 6}],
        [{"partition": 0, "before": 11}],
        [{"partition": 0, "before": -1}],
        [{"partition": -1}],
    ],
)
def test_records_are_deleted_in_all_partitions_or_in_none(lines: list[dict[str, int]]) -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 2)
            await found.fill("orders", 10)
            answer = await found.ask("POST", f"{NAME}/trim", json={"partitions": lines})
            assert answer.status_code == 400, answer.text
            assert [line["start"] for line in (await found.get(NAME)).json()["partitions"]] == [0, 0]

    asyncio.run(story())


def test_records_of_a_compacted_topic_stay() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 1, **{"cleanup.policy": "compact"})
            answer = await found.ask("POST", f"{NAME}/trim", json={"partitions": [{"partition": 0}]})
            assert answer.status_code == 400 and "compact" in answer.json()["detail"]

    asyncio.run(story())


def test_rights_are_those_of_kafka() -> None:
    """Alice may describe and nothing else: 403. Bob may nothing: 404, but 403 for what he would create."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            topic = await found.topic("orders", 1)
            await found.allow(rule(ALICE, Operation.DESCRIBE, "orders"))
            calls: list[tuple[str, str, dict[str, Any]]] = [
                ("DELETE", NAME, {}),
                ("POST", f"{NAME}/partitions", {"json": {"partitions": 2}}),
                ("POST", f"{NAME}/trim", {"json": {"partitions": []}}),
            ]
            for method, path, options in calls:
                assert (await found.ask(method, path, "alice", **options)).status_code == 403
                assert (await found.ask(method, path, "bob", **options)).status_code == 404
                assert (await found.ask(method, path, **options)).status_code == 401
            for user in ("alice", "bob"):
                answer = await found.ask("POST", "/v1/topics", user, json={"name": "new"})
                assert answer.status_code == 403 and "CREATE" in answer.json()["detail"]
            assert names(found) == ["orders"] and topic.ready == 1
            assert (await found.get(NAME, "alice")).json()["configs"] is None

    asyncio.run(story())


def test_a_right_is_enough_for_its_call() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.allow(
                rule(ALICE, Operation.CREATE, "mine"),
                rule(ALICE, Operation.ALTER, "mine"),
                rule(BOB, Operation.CREATE, "kafka-cluster", kind=AclResource.CLUSTER),
                rule(BOB, Operation.DELETE, "mine"),
            )
            assert (await found.ask("POST", "/v1/topics", "alice", json={"name": "mine"})).status_code == 201
            assert (await found.ask("POST", "/v1/topics", "alice", json={"name": "other"})).status_code == 403
            assert (await found.ask("POST", "/v1/topics", "bob", json={"name": "other"})).status_code == 201
            grown = await found.ask("POST", "/v1/topics/mine/partitions", "alice", json={"partitions": 2})
            assert grown.status_code == 200
            assert (await found.ask("DELETE", "/v1/topics/mine", "bob")).status_code == 204

    asyncio.run(story())
