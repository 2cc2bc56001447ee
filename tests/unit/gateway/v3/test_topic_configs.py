"""The REST Proxy shows and changes configs of topics."""

from __future__ import annotations

import asyncio

from headwater.state.cluster.access import Operation
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.rules import rule


def base(found: InGateway) -> str:
    return f"/v3/clusters/{found.services.state.cluster_id}/topics"


def set_for(found: InGateway, topic: str) -> dict[str, str]:
    return found.services.state.names[topic].configs


def test_configs_and_one_of_them() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 1, **{"compression.type": "gzip"})
            listing = (await found.get(f"{base(found)}/orders/configs")).json()
            assert listing["kind"] == "KafkaTopicConfigList" and len(listing["data"]) > 20
            one = (await found.get(f"{base(found)}/orders/configs/compression.type")).json()
            assert one in listing["data"] and one["kind"] == "KafkaTopicConfig" and one["topic_name"] == "orders"
            assert (one["value"], one["is_default"], one["source"]) == ("gzip", False, "DYNAMIC_TOPIC_CONFIG")
            assert one["synonyms"] == [
                {"name": "compression.type", "value": "gzip", "source": "DYNAMIC_TOPIC_CONFIG"},
                {"name": "compression.type", "value": "producer", "source": "DEFAULT_CONFIG"},
            ]
            other = (await found.get(f"{base(found)}/orders/configs/cleanup.policy")).json()
            assert other["is_default"] and other["source"] == "DEFAULT_CONFIG"
            assert "broker_id" not in other and "config_type" not in other
            missing = await found.get(f"{base(found)}/orders/configs/no.such")
            assert missing.status_code == 404 and missing.json()["message"] == "Config no.such cannot be found."

    asyncio.run(story())


def test_a_config_is_set_and_reset() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            url = f"{base(found)}/orders/configs/compression.type"
            assert (await found.ask("PUT", url, json={"value": "gzip"})).status_code == 204
            assert set_for(found, "orders") == {"compression.type": "gzip"}
            assert (await found.ask("DELETE", url)).status_code == 204
            assert set_for(found, "orders") == {}
            for body in ({"value": "nonsense"}, {"value": None}, {}):
                answer = await found.ask("PUT", url, json=body)
                assert answer.status_code == 400 and answer.json()["error_code"] == 40002
            assert set_for(found, "orders") == {}

    asyncio.run(story())


def test_configs_are_altered_together_or_not_at_all() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders", 1, **{"cleanup.policy": "compact"})
            url = f"{base(found)}/orders/configs:alter"
            wanted = [{"name": "cleanup.policy", "operation": "DELETE"}, {"name": "compression.type", "value": "gzip"}]
            assert (await found.ask("POST", url, json={"data": wanted, "validate_only": True})).status_code == 204
            assert set_for(found, "orders") == {"cleanup.policy": "compact"}
            for flaw in (
                {"name": "retention.ms", "value": "x"},
                {"name": "cleanup.policy", "value": "delete"},
                {"name": "retention.ms", "value": "1", "operation": "APPEND"},
                {"name": "no.such", "operation": "DELETE"},
            ):
                answer = await found.ask("POST", url, json={"data": [*wanted, flaw]})
                assert answer.status_code == 400 and answer.json()["error_code"] == 40002, flaw
            assert set_for(found, "orders") == {"cleanup.policy": "compact"}
            assert (await found.ask("POST", url, json={"data": wanted})).status_code == 204
            assert set_for(found, "orders") == {"compression.type": "gzip"}

    asyncio.run(story())


def test_configs_of_all_topics() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            for name in ("a", "b", "c"):
                await found.topic(name)
            await found.allow(*(rule(ALICE, Operation.DESCRIBE_CONFIGS, name) for name in ("a", "b")))
            listing = (await found.get(f"{base(found)}/-/configs", "alice")).json()
            assert {one["topic_name"] for one in listing["data"]} == {"a", "b"}
            assert listing["metadata"]["next"] is None

    asyncio.run(story())


def test_configs_need_rights() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.topic("orders")
            await found.allow(rule(ALICE, Operation.DESCRIBE, "orders"))
            orders = f"{base(found)}/orders/configs"
            answers = [
                await found.get(orders, "alice"),
                await found.ask("PUT", f"{orders}/retention.ms", "alice", json={"value": "1"}),
                await found.ask("DELETE", f"{orders}/retention.ms", "alice"),
                await found.ask("POST", f"{orders}:alter", "alice", json={"data": []}),
            ]
            assert [(answer.status_code, answer.json()["error_code"]) for answer in answers] == [(403, 40301)] * 4
            hidden = await found.get(orders, "bob")
            assert hidden.status_code == 404 and hidden.json()["error_code"] == 40403

    asyncio.run(story())
