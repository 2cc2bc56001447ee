"""An index swap is atomic. A consumer that reads all the time while topics settle, merge, expire and lose their WAL
never sees an error, a gap, a repetition or another order, whatever offset it asks for."""

import asyncio
import random
from pathlib import Path

import pytest

from harness.virtual import run
from headwater.app.node import Node
from headwater.client.records import decode_batches
from headwater.state.cluster.domain import Topic
from tests.support.batches import Rec, batch
from tests.support.lake import ONE, LakeWorld, log_rows
from tests.support.promise import promise
from tests.support.virtual_nodes import sent, topic

PROMISES = ("I5",)


def value(number: int) -> bytes:
    return b"v%d" % number


async def read_all_the_time(node: Node, made: Topic, rng: random.Random, seen: list[int]) -> None:
    stream, replica = made.streams[0], node.domains[ONE]
    while True:
        end = replica.state.streams[stream].next_offset
        start = rng.randrange(end) if end else 0
        if end:
            result = await node.broker.reader.read(replica, stream, start, rng.choice((50, 500, 1 << 20)), True)
            records = [r for b in decode_batches(bytes(result.records)) for r in b.records if r.offset >= start]
            assert records, f"nothing at {start} of {end}"
            assert [r.offset for r in records] == list(range(start, start + len(records)))
            assert [r.value for r in records] == [value(r.offset) for r in records]
            seen.append(len(records))
        await asyncio.sleep(rng.random() * 0.01)


@promise("I5", "T3")
@pytest.mark.parametrize("seed", range(4))
def test_readers_never_notice(tmp_path: Path, seed: int) -> None:
    async def story() -> None:
        rng = random.Random(seed)
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node)
        compaction = await world.compaction()
        seen: list[int] = []
        readers = [asyncio.create_task(read_all_the_time(node, made, rng, seen)) for _ in range(3)]
        number = 0
        for _ in range(30):
            for _ in range(rng.randrange(1, 4)):
                count = rng.randrange(1, 6)
                await sent(node, made.streams[0], batch([Rec(value(number + i)) for i in range(count)]))
                number += count
            await asyncio.sleep(0.02)
            await compaction.round()
            await node.housekeeper.round()
            assert all(not reader.done() or reader.result() for reader in readers)
        for reader in readers:
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
        assert len(seen) > 100
        assert [row[4] for row in await log_rows(node, made)] == [value(i) for i in range(number)]
        await compaction.close()
        await node.stop()

    run(story())
