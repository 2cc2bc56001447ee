"""The REST Proxy shows and changes configs of one broker and of all brokers."""

from __future__ import annotations

import asyncio

from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation
from tests.support.gateways import ALICE, InGateway, gateway, secured
from tests.support.rules import rule


def base(found: InGateway) -> str:
    return f"/v3/clusters/{found.services.state.cluster_id}"


def test_a_config_of_all_brokers() -> None:
    async def story() -> None:
        async with gateway() as found:
            url = f"{base(found)}/broker-configs"
            assert (await found.get(url)).json()["data"] == []
            assert (await found.ask("PUT", f"{url}/compression.type", json={"value": "gzip"})).status_code == 204
            [one] = (await found.get(url)).json()["data"]
            assert (one["kind"], one["config_type"], one["value"]) == ("KafkaClusterConfig", "BROKER", "gzip")
            assert one["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG" and not one["is_default"]
            assert (await found.get(f"{url}/compression.type")).json() == one
            await found.topic("orders")
            of_topic = (await found.get(f"{base(found)}/topics/orders/configs/compression.type")).json()
            assert (of_topic["value"], of_topic["source"]) == ("gzip", "DYNAMIC_DEFAULT_BROKER_CONFIG")
            assert (await found.ask("DELETE", f"{url}/compression.type")).status_code == 204
            assert (await found.get(f"{url}/compression.type")).status_code == 404

    asyncio.run(story())


def test_configs_of_all_brokers_are_altered_together() -> None:
    async def story() -> None:
        async with gateway() as found:
            url = f"{base(found)}/broker-configs:alter"
            wanted = [{"name": "max.connections", "value": "5"}, {"name": "log.retention.ms", "value": "1000"}]
            assert (await found.ask("POST", url, json={"data": wanted, "validate_only": True})).status_code == 204
            bad = await found.ask("POST", url, json={"data": [*wanted, {"name": "broker.id", "value": "7"}]})
            assert bad.status_code == 400 and bad.json()["error_code"] == 40002
            assert found.services.state.resources.common == {}
            assert (await found.ask("POST", url, json={"data": wanted})).status_code == 204
            assert found.services.state.resources.common == {"max.connections": "5", "log.retention.ms": "1000"}

    asyncio.run(story())


def test_a_config_of_one_broker() -> None:
    async def story() -> None:
        async with gateway() as found:
            await found.broker(3)
            url = f"{base(found)}/brokers/3/configs"
            names = [one["name"] for one in (await found.get(url)).json()["data"]]
            assert "log.retention.ms" in names and "max.connections" not in names
            assert (await found.ask("PUT", f"{url}/max.connections", json={"value": "9"})).status_code == 204
            one = (await found.get(f"{url}/max.connections")).json()
            assert (one["kind"], one["broker_id"], one["value"]) == ("KafkaBrokerConfig", 3, "9")
            assert one["source"] == "DYNAMIC_BROKER_CONFIG"
            reset = {"data": [{"name": "max.connections", "operation": "DELETE"}]}
            assert (await found.ask("POST", f"{url}:alter", json=reset)).status_code == 204
            assert (await found.get(f"{url}/max.connections")).status_code == 404
            assert (await found.ask("DELETE", f"{url}/max.connections")).status_code == 204
            for_topics = await found.ask("PUT", f"{url}/log.retention.ms", json={"value": "9"})
            assert for_topics.status_code == 400 and "all brokers" in for_topics.json()["message"]
            other = await found.ask("PUT", f"{base(found)}/brokers/4/configs/max.connections", json={"value": "9"})
            assert other.status_code == 404

    asyncio.run(story())


def test_configs_of_brokers_need_rights() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            await found.broker(3)
            url = f"{base(found)}/broker-configs"
            assert (await found.get(url, "alice")).status_code == 403
            await found.allow(rule(ALICE, Operation.DESCRIBE_CONFIGS, THE_CLUSTER, AclResource.CLUSTER))
            assert (await found.get(url, "alice")).status_code == 200
            assert (await found.get(f"{base(found)}/brokers/3/configs", "alice")).status_code == 200
            answer = await found.ask("PUT", f"{url}/max.connections", "alice", json={"value": "9"})
            assert answer.status_code == 403 and answer.json()["error_code"] == 40301

    asyncio.run(story())
