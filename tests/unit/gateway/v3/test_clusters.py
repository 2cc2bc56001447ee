"""The REST Proxy's clusters: links, both prefixes, and errors in its form."""

from __future__ import annotations

import asyncio

from headwater.settings.settings import Gateway, Settings
from tests.support.gateways import gateway, secured

HOST = "http://localhost:8081"


def test_the_cluster_below_both_prefixes() -> None:
    async def story() -> None:
        async with gateway() as found:
            id = found.services.state.cluster_id
            for prefix in ("/v3", "/kafka/v3"):
                answer = await found.get(f"{prefix}/clusters")
                assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
                listing = answer.json()
                assert listing["kind"] == "KafkaClusterList"
                assert listing["metadata"] == {"self": f"{HOST}{prefix}/clusters", "next": None}
                [one] = listing["data"]
                base = f"{HOST}{prefix}/clusters/{id}"
                assert one["metadata"] == {"self": base, "resource_name": f"crn:///kafka={id}"}
                assert one["topics"] == {"related": f"{base}/topics"}
                assert (await found.get(f"{prefix}/clusters/{id}")).json() == one

    asyncio.run(story())


def test_links_lead_where_clients_reach_the_gateway() -> None:
    async def story() -> None:
        async with gateway(Settings(gateway=Gateway(url="https://log.example.com"))) as found:
            listing = (await found.get("/v3/clusters")).json()
            assert listing["metadata"]["self"] == "https://log.example.com/v3/clusters"

    asyncio.run(story())


def test_another_cluster_and_an_unknown_path() -> None:
    async def story() -> None:
        async with gateway() as found:
            other = await found.get("/v3/clusters/another/topics")
            assert other.status_code == 404
            assert other.json() == {"error_code": 404, "message": "Cluster another cannot be found."}
            nothing = await found.get("/v3/nothing")
            assert nothing.status_code == 404 and nothing.json()["error_code"] == 404

    asyncio.run(story())


def test_a_caller_without_a_password() -> None:
    async def story() -> None:
        async with gateway(secured(), users=True) as found:
            answer = await found.get("/kafka/v3/clusters")
            assert answer.status_code == 401 and answer.json()["error_code"] == 40101
            assert (await found.get("/kafka/v3/clusters", "alice")).status_code == 200

    asyncio.run(story())
