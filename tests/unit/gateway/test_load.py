"""A gateway that is late all the time lets nobody in, and one that was late once does."""

import asyncio

import pytest

from harness.loop import SimLoop
from harness.virtual import VirtualClock, run
from headwater.background import Background
from headwater.gateway.load import EVERY_SECONDS, LOOKS, Load
from headwater.gateway.problems import OVERLOADED, Refusal
from tests.support.gateways import gateway


async def measured(load: Load, *delays: float) -> None:
    """Let the event loop be late at each of the next looks."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    for delay in delays:
        await asyncio.sleep(EVERY_SECONDS / 2)
        loop.now += EVERY_SECONDS / 2 + delay
        for _ in range(3):
            await asyncio.sleep(0)


def test_late_all_the_time() -> None:
    async def story() -> None:
        background, load = Background(VirtualClock()), Load(1_000, VirtualClock())
        load.check()
        load.start(background)
        await asyncio.sleep(0)
        await measured(load, *[3.0] * (LOOKS - 1))
        load.check()
        await measured(load, 2.0, 2.0)
        with pytest.raises(Refusal, match=r"2\.0 s late") as refused:
            load.check()
        assert refused.value.kind is OVERLOADED and ("Retry-After", "1") in refused.value.all_headers
        await measured(load, 0.5)
        load.check()
        await load.close()
        await background.close()

    run(story())


def test_refused_before_anything_is_done() -> None:
    """The refusal is a 429 for all callers. Pages that say nothing about the cluster are still shown."""

    async def story() -> None:
        async with gateway() as found:
            await found.topic("orders")
            found.services.load._late.extend([5.0] * LOOKS)
            body = {"records": [{"value": 1}]}
            answer = await found.ask("POST", "/v1/topics/orders/records", json=body)
            assert answer.status_code == 429 and answer.json()["type"] == "/problems/overloaded"
            assert answer.headers["retry-after"] == "1" and await found.records("orders") == []
            assert (await found.get("/v1/health")).status_code == 200
            assert found.services.stats.refusals == {"overloaded": 1} and found.services.requests.count == 0
            found.services.load._late.append(0.0)
            assert (await found.ask("POST", "/v1/topics/orders/records", json=body)).status_code == 200

    asyncio.run(story())
