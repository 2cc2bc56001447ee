"""Configs of topics over HTTP: values and their sources, changes as a whole, and rights."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.configs.topics import DLQ_SETTER, DLQ_TOPIC, KEY_SCHEMA, KEYS, VALUE_SCHEMA
from headwater.replica.topic_rights import shown
from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation
from headwater.state.cluster.resources import ALL_BROKERS, ConfigResource
from headwater.state.commands.cluster import AlterResource
from tests.support.gateways import ALICE, gateway, secured
from tests.support.promise import promise
from tests.support.rules import rule

PROMISES = ("H2",)

PATH = "/v1/topics/orders/configs"
SETTING = (Operation.CREATE, Operation.ALTER_CONFIGS)


def test_values_and_where_they_come_from() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 1, **{"retention.ms": "1000"})
            common = AlterResource(ConfigResource.BROKER, ALL_BROKERS, {"log.retention.bytes": "77"}, ())
            await found.core.cluster.submit([common])
            seen: list[dict[str, Any]] = []
            query = {"limit": "7"}
            while True:
                answer = (await found.get(PATH, params=query)).json()
                seen += answer["items"]
                if "next" not in answer:
                    break
                query["next"] = answer["next"]
            assert [line["name"] for line in seen] == sorted(KEYS)
            by_name = {line["name"]: (line["value"], line["source"], line["type"]) for line in seen}
            assert by_name["retention.ms"] == ("1000", "topic", "long")
            assert by_name["retention.bytes"] == ("77", "cluster", "long")
            assert by_name["cleanup.policy"] == ("delete", "default", "list")
            assert all(line["meaning"] for line in seen)

    asyncio.run(story())


def test_configs_are_set_and_reset() -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 1, **{"retention.ms": "1000"})
            change = {"set": {"max.message.bytes": "5000"}, "reset": ["retention.ms"]}
            checked = await found.ask("PATCH", PATH, json=change, params={"validate_only": "true"})
            assert checked.status_code == 200 and checked.json() == {"configs": {"max.message.bytes": "5000"}}
            assert topic.configs == {"retention.ms": "1000"}
            changed = await found.ask("PATCH", PATH, json=change)
            assert changed.json() == checked.json() and topic.configs == {"max.message.bytes": "5000"}
            assert (await found.ask("DELETE", f"{PATH}/max.message.bytes")).status_code == 204
            assert topic.configs == {}

    asyncio.run(story())


@pytest.mark.parametrize(
    "change",
    [
        {"set": {"retention.ms": "5", "max.message.bytes": "many"}},
        {"set": {"retention.ms": "5", "no.such": "1"}},
        {"set": {"retention.ms": "5"}, "reset": ["no.such"]},
        {"set": {"retention.ms": "5"}, "reset": ["retention.ms"]},
        {"set": {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"}},
        {"set": {"retention.ms": "5", "headwater.dlq.topic": "orders"}},
        {"set": {"retention.ms": 5}},
        {"put": {"retention.ms": "5"}},
        [],
    ],
)
def test_a_change_that_is_not_valid_changes_nothing(change: object) -> None:
    async def story() -> None:
        async with gateway() as found:
            topic = await found.topic("orders", 1, **{"retention.ms": "1000"})
            answer = await found.ask("PATCH", PATH, json=change)
            assert answer.status_code == 400 and answer.json()["type"] == "/problems/bad-request"
            assert topic.configs == {"retention.ms": "1000"}

    asyncio.run(story())


def test_an_unknown_config_or_topic() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            assert (await found.ask("DELETE", f"{PATH}/no.such")).status_code == 400
            assert (await found.get("/v1/topics/none/configs")).status_code == 404
            assert (await found.ask("PATCH", "/v1/topics/none/configs", json={})).status_code == 404

    asyncio.run(story())


def test_rights_are_those_of_kafka() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            topic = await found.topic("orders")
            change = {"json": {"set": {"retention.ms": "5"}}}
            await found.allow(rule(ALICE, Operation.DESCRIBE, "orders"))
            assert (await found.get(PATH, "alice")).status_code == 403
            assert (await found.ask("PATCH", PATH, "alice", **change)).status_code == 403
            assert (await found.ask("DELETE", f"{PATH}/retention.ms", "alice")).status_code == 403
            assert (await found.get(PATH, "bob")).status_code == 404
            assert (await found.ask("PATCH", PATH, "bob", **change)).status_code == 404
            await found.allow(rule(ALICE, Operation.DESCRIBE_CONFIGS, "orders"))
            assert (await found.get(PATH, "alice")).status_code == 200
            assert (await found.ask("PATCH", PATH, "alice", **change)).status_code == 403
            assert topic.configs == {}
            await found.allow(rule(ALICE, Operation.ALTER_CONFIGS, "orders"))
            assert (await found.ask("PATCH", PATH, "alice", **change)).status_code == 200
            assert topic.configs == {"retention.ms": "5"}

    asyncio.run(story())


@promise("S2")
def test_who_sets_a_dead_letter_topic_is_kept_and_not_shown() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            topic = await found.topic("orders")
            await found.topic("failed")
            for operation in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.READ):
                await found.allow(rule(ALICE, operation, "orders"))
            await found.allow(rule(ALICE, Operation.WRITE, "failed"))
            told = await found.ask("PATCH", PATH, "alice", json={"set": {DLQ_TOPIC: "failed"}})
            assert told.status_code == 200 and topic.configs[DLQ_SETTER].endswith(f" {ALICE}")
            for path in (PATH, "/v1/topics/orders"):
                assert DLQ_SETTER not in (await found.get(path, "alice")).text
            assert (await found.ask("DELETE", f"{PATH}/{DLQ_TOPIC}", "alice")).status_code == 204
            assert topic.configs == {}
            told = await found.ask("PATCH", PATH, "alice", json={"set": {DLQ_SETTER: "x"}})
            assert told.status_code == 400, "its name cannot be set"

    asyncio.run(story())


@promise("S2")
@pytest.mark.parametrize("style", ["v1", "v3"])
@pytest.mark.parametrize(
    ("configs", "missing"),
    [
        ({DLQ_TOPIC: "failed"}, ["READ orders", "WRITE failed"]),
        ({VALUE_SCHEMA: "subject:secret-value"}, ["READ secret"]),
        ({KEY_SCHEMA: "subject:secret-key"}, ["WRITE secret"]),
        ({VALUE_SCHEMA: "subject:secret"}, ["DESCRIBE"]),
    ],
)
def test_what_a_config_makes_the_server_do_needs_its_rights(
    configs: dict[str, str], missing: list[str], style: str
) -> None:
    """The caller may change configs, and create topics. All that else is needed is needed."""

    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            proxy = style == "v3"
            at = f"/v3/clusters/{found.services.state.cluster_id}/topics" if proxy else "/v1/topics"
            topic = await found.topic("orders")
            await found.topic("failed")
            await found.allow(*(rule(ALICE, one, name) for one in SETTING for name in ("orders", "made")))

            async def change() -> int:
                if proxy:
                    data = [{"name": name, "value": value} for name, value in configs.items()]
                    path, body = f"{at}/orders/configs:alter", {"data": data}
                    return (await found.ask("POST", path, "alice", json=body)).status_code
                return (await found.ask("PATCH", f"{at}/orders/configs", "alice", json={"set": configs})).status_code

            async def create() -> int:
                if proxy:
                    rows = [{"name": name, "value": value} for name, value in configs.items()]
                    body: dict[str, object] = {"topic_name": "made", "configs": rows}
                else:
                    body = {"name": "made", "configs": configs}
                return (await found.ask("POST", at, "alice", json=body)).status_code

            for need in missing:
                assert (await change(), await create()) == (403, 403), need
                assert topic.configs == {} and "made" not in found.services.state.names
                operation, _, name = need.partition(" ")
                kind = AclResource.TOPIC if name else AclResource.CLUSTER
                for one in ("orders", "made") if name == "orders" else (name or THE_CLUSTER,):
                    await found.allow(rule(ALICE, Operation[operation], one, kind))
            assert await change() in (200, 204) and shown(topic.configs) == configs
            assert await create() == 201

    asyncio.run(story())
