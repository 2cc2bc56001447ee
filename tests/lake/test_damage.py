"""Inputs that cannot be read hold up the streams that need them, and nothing else."""

import asyncio
from pathlib import Path

import pytest

from harness.virtual import run
from headwater.app.node import Node
from headwater.errors import StoreUnavailable
from headwater.lake.spark import executor
from headwater.log.damage import RECHECK_SECONDS
from headwater.settings.links import Links
from headwater.state.cluster.domain import Topic
from headwater.state.commands.streams import TrimStreams
from tests.support.batches import Rec, batch
from tests.support.lake import ONE, Compaction, LakeWorld, files_left, log_rows
from tests.support.promise import promise
from tests.support.virtual_nodes import send, sent, topic

PROMISES = ("L10",)

ROUNDS = 4


async def produce(node: Node, topics: list[Topic], number: int) -> None:
    """One WAL object with a batch for every partition of every topic."""
    streams = [stream for made in topics for stream in made.streams]
    await asyncio.gather(*(send(node, s, batch([Rec(b"%d-%d" % (number, i)) for i in range(3)])) for s in streams))
    await asyncio.sleep(0.01)


def settled(compaction: Compaction, made: Topic) -> list[int]:
    return [compaction.domain.state.streams[stream].settled for stream in made.streams]


def spoil(world: LakeWorld, path: str, node: Node, stream: int) -> None:
    """Change a byte in a stream's run of an object."""
    entry = next(e for e in node.domains[ONE].state.streams[stream].index if path.endswith(f"/{e.object}.wo"))
    changed = bytearray(world.store.objects[path])
    changed[entry.position + 70] ^= 4
    world.store.objects[path] = bytes(changed)


@pytest.mark.parametrize("harm", ["flipped", "missing"])
def test_settling_stops_before_the_damage(tmp_path: Path, harm: str) -> None:
    """Streams settle up to a damaged range, others to their ends. The range settles once it is mended."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        one, two = await topic(node, "one", partitions=2), await topic(node, "two")
        for number in range(ROUNDS):
            await produce(node, [one, two] if number != 2 else [one], number)
        path = world.wal_paths()[2]
        kept = world.store.objects[path]
        if harm == "missing":
            del world.store.objects[path]
        else:
            spoil(world, path, node, one.streams[1])
        compaction = await world.compaction()
        await compaction.finish(3)
        assert settled(compaction, two) == [9]
        assert settled(compaction, one) == ([6, 6] if harm == "missing" else [12, 6])
        lines = compaction.compactor.damage.lines(10)
        partitions = [0, 1] if harm == "missing" else [1]
        assert [(x.topic, x.partition, x.first_offset, x.last_offset, x.object) for x in lines] == [
            ("one", partition, 6, 8, path) for partition in partitions
        ]
        stored, known = files_left(world, node)
        assert stored == known, "files of a job that met damage are deleted"

        await produce(node, [one, two], ROUNDS)
        await compaction.round()
        assert settled(compaction, two) == [12]
        assert settled(compaction, one)[1] == 6
        assert compaction.compactor.failed_jobs == 0

        world.store.objects[path] = kept
        await asyncio.sleep(RECHECK_SECONDS)
        await compaction.finish(3)
        assert settled(compaction, one) == [15, 15]
        assert not compaction.compactor.damage.lines(10)
        await node.domains[ONE].barrier()
        world.lay_out()
        assert world.delta_rows(node, one) == await log_rows(node, one)
        await compaction.close()
        await node.stop()

    run(story())


def test_a_batch_that_opens_to_too_much_holds_up_its_stream_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link copies batches without opening them. What it may open itself settles."""
    assert executor.OPENED_LIMIT >= Links().opened_bytes > 100 << 20
    monkeypatch.setattr(executor, "OPENED_LIMIT", 10_000)

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        one, two = await topic(node, "one", partitions=2), await topic(node, "two")
        await produce(node, [one, two], 0)
        await sent(node, one.streams[1], batch([Rec(b"a" * 20_000)], codec=4))
        await produce(node, [one, two], 1)
        compaction = await world.compaction()
        await compaction.finish(3)
        assert settled(compaction, one) == [6, 3] and settled(compaction, two) == [6]
        [line] = compaction.compactor.damage.lines(10)
        assert (line.topic, line.partition, line.first_offset) == ("one", 1, 3)
        assert "more than 10000 bytes" in line.reason
        assert compaction.compactor.failed_jobs == 0
        await compaction.close()
        await node.stop()

    run(story())


def test_settling_goes_on_behind_damage_that_left_the_log(tmp_path: Path) -> None:
    """DeleteRecords past a damaged range lets the stream settle again."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node)
        for number in range(ROUNDS):
            await produce(node, [made], number)
        del world.store.objects[world.wal_paths()[1]]
        compaction = await world.compaction()
        await compaction.finish(3)
        assert settled(compaction, made) == [3]
        await node.domains[ONE].submit([TrimStreams([(made.streams[0], 6)])])
        await compaction.finish(3)
        assert settled(compaction, made) == [12]
        await compaction.close()
        await node.stop()

    run(story())


def test_a_damaged_segment_is_not_merged(tmp_path: Path) -> None:
    """Other tables are merged, and the table itself without that file."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        one, two = await topic(node, "one"), await topic(node, "two")
        compaction = await world.compaction(merge_files=4)
        for number in range(3):
            await produce(node, [one, two], number)
            await compaction.round()
        table = compaction.domain.state.tables[one.id]
        path = f"{table.root}/{min(table.live(), key=lambda file: file.number).name}"
        changed = bytearray(world.store.objects[path])
        changed[len(changed) // 3] ^= 16
        world.store.objects[path] = bytes(changed)
        for number in range(3, 9):
            await produce(node, [one, two], number)
            await compaction.round()
        assert compaction.compactor.failed_jobs == 0
        assert settled(compaction, one) == settled(compaction, two) == [27]
        assert len(list(compaction.domain.state.tables[two.id].live())) < 6
        assert len(list(compaction.domain.state.tables[one.id].live())) < 7
        [line] = compaction.compactor.damage.lines(10)
        assert (line.topic, line.object) == ("one", path)
        await compaction.close()
        await node.stop()

    run(story())


@promise("L3")
def test_collection_goes_on_while_jobs_fail(tmp_path: Path) -> None:
    """Files that nothing needs are deleted although Spark is away."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node)
        compaction = await world.compaction(orphan_interval_ms=1)
        await produce(node, [made], 0)
        await compaction.round()
        root = compaction.domain.state.tables[made.id].root
        orphan = f"{root}/_data/{compaction.domain.epoch:010d}-00000001-x.parquet"
        world.store.objects[orphan] = b"left behind"
        await produce(node, [made], 1)

        async def away(*_: object) -> list[object]:
            raise StoreUnavailable("no Spark")

        compaction.compactor._run_job = away  # type: ignore[assignment]
        await asyncio.sleep(0.01)
        await compaction.compactor.round()
        assert compaction.compactor.failed_jobs == 1
        assert orphan not in world.store.objects
        await compaction.close()
        await node.stop()

    run(story())
