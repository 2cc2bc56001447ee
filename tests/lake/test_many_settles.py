"""Many settles of a small topic leave as much metadata behind as a few."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from harness.virtual import run
from headwater.app.node import Node
from headwater.state.cluster.domain import Topic
from tests.support.batches import Rec, batch
from tests.support.lake import ONE, Compaction, LakeWorld, files_left, log_rows
from tests.support.promise import promise
from tests.support.virtual_nodes import sent, topic

PROMISES = ("T5",)

SETTLES = 60
EARLY = slice(15, 30)
LATE = slice(45, 60)
GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class Size:
    """What a table takes up after a settle."""

    segments: int
    iceberg: int
    """Objects below `_iceberg/`, and their bytes."""
    iceberg_bytes: int
    delta: int
    """Objects below `_delta_log/`, and their bytes."""
    delta_bytes: int


def measure(world: LakeWorld) -> Size:
    def below(directory: str) -> list[int]:
        return [len(data) for path, data in world.store.objects.items() if f"/{directory}/" in path]

    iceberg, delta = below("_iceberg"), below("_delta_log")
    return Size(len(below("_data")), len(iceberg), sum(iceberg), len(delta), sum(delta))


async def settle_once(world: LakeWorld, node: Node, made: Topic, compaction: Compaction, number: int) -> Size:
    for stream in made.streams:
        await sent(node, stream, batch([Rec(b"%d-%d" % (number, i)) for i in range(3)]))
    await asyncio.sleep(1)  # of virtual time
    await compaction.round()
    return measure(world)


@promise("T5")
def test_sixty_settles(tmp_path: Path) -> None:
    """Segments, metadata objects and their bytes stop growing; rows, files and versions stay exact."""

    async def story() -> list[Size]:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, partitions=2)
        compaction = await world.compaction()
        sizes = [await settle_once(world, node, made, compaction, number) for number in range(SETTLES)]
        await compaction.finish()
        await node.domains[ONE].barrier()
        world.lay_out()
        in_log = await log_rows(node, made)
        assert len(in_log) == SETTLES * 2 * 3
        assert world.iceberg_rows(node, made) == in_log
        assert world.delta_rows(node, made) == in_log
        stored, known = files_left(world, node)
        assert stored == known
        assert compaction.compactor.settled_files == SETTLES
        assert compaction.compactor.merged_files > SETTLES / 2
        await compaction.close()
        await node.stop()
        return sizes

    sizes = run(story())
    for name in Size.__dataclass_fields__:
        early, late = (max(getattr(size, name) for size in sizes[part]) for part in (EARLY, LATE))
        assert late <= early * GROWTH, f"{name}: at most {early} after 30 settles, {late} after 60"
