"""Look-ups give what a full scan gives, while compactors settle, merge, index and delete."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from harness.virtual import run
from headwater.app.node import Node
from headwater.client.records import Record
from headwater.log.segment.cache import SegmentCache
from headwater.log.wal.cache import WalCache
from headwater.query.lookups.lookups import Lookups, Place
from headwater.state.cluster.domain import Topic
from tests.support.batches import Rec, batch
from tests.support.lake import ONE, LakeWorld
from tests.support.soak import WHOLE
from tests.support.virtual_nodes import sent, topic

PROMISES = ("Q4",)

KEYS = 2_000
ROUNDS, LOOKED_UP = (200, 50) if WHOLE else (25, 20)
"""How often records are written and a compactor runs, and how many keys are looked up meanwhile, with two caches."""


def place_of(node: Node, made: Topic) -> Place:
    replica = node.domains[ONE]

    async def catch_up() -> None:
        await replica.barrier()

    return Place(made.id, lambda: replica.state, lambda: [replica.state.streams[s] for s in made.streams], catch_up)


class Model:
    """The newest record of each key in each partition."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.newest: dict[bytes, dict[int, Record]] = {}
        self.ends: Counter[int] = Counter()

    def batch(self, partition: int, number: int) -> list[Rec]:
        made = []
        for i in range(self.chance.randint(1, 12)):
            key = b"key %d" % int(KEYS * self.chance.random() ** 2)
            value = None if self.chance.random() < 0.1 else b"%d-%d" % (number, i)
            made.append(Rec(value, key, timestamp=1_000 + self.chance.randint(0, 50) + number))
        for i, rec in enumerate(made):
            found = Record(self.ends[partition] + i, rec.timestamp, rec.key, rec.value)
            self.newest.setdefault(rec.key or b"", {})[partition] = found
        self.ends[partition] += len(made)
        return made

    def latest(self, key: bytes) -> tuple[int, Record] | None:
        found = self.newest.get(key, {})
        return max(found.items(), key=lambda item: (item[1].timestamp, -item[0]), default=None)


@pytest.mark.timeout(3_600 if WHOLE else 120)
def test_random_keys_while_compactors_work(tmp_path: Path) -> None:
    """One look-up cache lives through the whole history, another one begins cold each time."""

    async def story(seed: int) -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, partitions=3, headwater_key_index="true")
        compaction = await world.compaction(keys=True, merge_files=3)
        model, place = Model(seed), place_of(node, made)

        def new_lookups() -> Lookups:
            store = world.store
            return Lookups(
                store, WalCache(store, 1 << 20), SegmentCache(store, 1 << 20), opened_limit=1 << 20, cache_bytes=1 << 20
            )

        warm, asked, used = new_lookups(), 0, False
        for number in range(ROUNDS):
            for partition, stream in enumerate(made.streams):
                if model.chance.random() < 0.8:
                    await sent(node, stream, batch(model.batch(partition, number)))
            await asyncio.sleep(0.01)
            working = asyncio.create_task(compaction.round() if model.chance.random() < 0.7 else asyncio.sleep(0))
            cold = new_lookups()
            while not working.done() or asked < LOOKED_UP * (number + 1):
                key = b"key %d" % model.chance.randrange(KEYS)
                for own in (warm, cold):
                    got = await own.latest(place, key)
                    assert (got.record and (got.partition, got.record)) == model.latest(key), (seed, number, key)
                    if got.record is not None:
                        assert (await own.at(place, got.partition, got.record.offset)).record == got.record
                asked += 1
                await asyncio.sleep(0.001)
            await working
            table = node.domains[ONE].state.tables.get(made.id)
            used = used or (table is not None and "keys" in table.followers)
            if model.chance.random() < 0.2:
                await compaction.compactor.sweep(compaction.domain)
                await asyncio.sleep(70)  # what is not needed is deleted
        assert used and asked >= LOOKED_UP * ROUNDS
        table = node.domains[ONE].state.tables[made.id]
        assert any(file.removed for file in table.files.values()) or len(table.files) < table.last_sequence
        await node.broker.topics.alter(made, {"headwater.key.index": "false"}, [])
        await compaction.finish()
        await node.domains[ONE].barrier()
        assert "keys" not in table.followers and not [path for path in world.store.objects if "/_keys/" in path]
        await compaction.close()
        await node.stop()

    for seed in range(4 if WHOLE else 1):
        run(story(seed))
