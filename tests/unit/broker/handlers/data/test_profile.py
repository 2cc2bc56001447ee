"""The profile of a topic changes while clients write: their order stays, and none gets an error."""

import asyncio
import random

import pytest
from kio.schema.errors import ErrorCode

from headwater.settings.settings import Profile, Settings, Wal
from tests.support.batches import Rec, batch, values
from tests.support.nodes import cluster
from tests.support.virtual_nodes import CountingStore
from tests.unit.broker.calling import NOW, TOPIC, create, fetch, produce

PROMISES = ("L1", "K11")

ALTER, SET = 44, 0
REQUESTS = 200
SETTINGS = Settings(
    objects="memory://",
    wal=Wal(
        latency=Profile(object_bytes=1 << 20, min_interval_ms=0, gather_ms=0, flushes=2),
        cost=Profile(object_bytes=1 << 20, min_interval_ms=5, gather_ms=0, flushes=2),
    ),
)


@pytest.mark.parametrize("producer", [7, -1], ids=["idempotent", "plain"])
def test_the_profile_changes_under_load(producer: int) -> None:
    async def main() -> None:
        store, rng = CountingStore(), random.Random(3)
        async with cluster(1, SETTINGS, store=store) as [one]:
            await create(one)
            waiting = []
            for i in range(REQUESTS):
                if i % 10 == 5:
                    config = {"name": "headwater.wal.profile", "value": rng.choice(["cost", "latency"])}
                    changed = {
                        "resource_type": TOPIC,
                        "resource_name": "t",
                        "configs": [config | {"config_operation": SET}],
                    }
                    [answer] = (await one(ALTER, 1, resources=[changed])).responses
                    assert answer.error_code is ErrorCode.none
                store.put_seconds = rng.choice([0, 0, 0.005, 0.02])
                identity = (producer, 0, i) if producer >= 0 else (-1, -1, -1)
                data = batch([Rec(b"%d" % i, timestamp=NOW)], producer=identity)
                waiting.append(asyncio.create_task(produce(one, data)))
                await asyncio.sleep(0)
            answers = await asyncio.gather(*waiting)
            assert [(a.error_code, a.base_offset) for a in answers] == [(ErrorCode.none, i) for i in range(REQUESTS)]
            found = values((await fetch(one, 0)).records)
            assert found == [(i, b"%d" % i) for i in range(REQUESTS)]
            assert one.node.broker.budget.used == 0

    asyncio.run(main())
