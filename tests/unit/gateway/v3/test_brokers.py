"""The REST Proxy's brokers."""

from __future__ import annotations

import asyncio

from tests.support.gateways import gateway


def test_brokers_and_one_of_them() -> None:
    async def story() -> None:
        async with gateway() as found:
            base = f"/v3/clusters/{found.services.state.cluster_id}"
            assert (await found.get(f"{base}/brokers")).json()["data"] == []
            await found.broker(2)
            await found.broker(1)
            listing = (await found.get(f"{base}/brokers")).json()
            assert [(one["broker_id"], one["host"], one["port"]) for one in listing["data"]] == [
                (1, "127.0.0.1", 9093),
                (2, "127.0.0.1", 9094),
            ]
            one = (await found.get(f"{base}/brokers/1")).json()
            assert one == listing["data"][0] and one["rack"] == "zone-a"
            missing = await found.get(f"{base}/brokers/3")
            assert missing.status_code == 404 and missing.json()["message"] == "Broker 3 cannot be found."
            cluster = (await found.get(base)).json()
            assert cluster["controller"]["related"].endswith("/brokers/1")

    asyncio.run(story())
