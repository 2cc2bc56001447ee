"""`headwater doctor` checks journal, files, index and what Iceberg and Delta show against each other."""

import asyncio
import random
from pathlib import Path

import msgspec
import pyarrow as pa
from pyarrow import parquet

from harness.virtual import run
from headwater.app.doctor.objects import ObjectCheck, Progress
from headwater.app.doctor.report import Report
from headwater.app.doctor.tables import check_followers, check_segments, check_tables
from tests.support.batches import Rec, batch
from tests.support.lake import Compaction, LakeWorld
from tests.support.promise import promise
from tests.support.virtual_nodes import sent, topic

PROMISES = ("T1", "O6")


async def examined(compaction: Compaction) -> Report:
    report, state = Report(), compaction.domain.state
    check_tables(state, report)
    await check_segments(compaction.store, state, report)
    await check_followers(compaction._followers, state, report)
    return report


def test_what_is_found(tmp_path: Path) -> None:
    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, partitions=2)
        compaction = await world.compaction()
        for number in range(6):
            for stream in made.streams:
                await sent(node, stream, batch([Rec(b"%d" % number)]))
            await asyncio.sleep(0.01)
            await compaction.round()
        await compaction.finish()
        sound = await examined(compaction)
        assert sound.findings == []
        assert (sound.checked["tables"], sound.checked["followers"]) == (1, 2)
        table = compaction.domain.state.tables[made.id]
        live = next(table.live())

        # A segment that is gone, and one that is shorter than it was.
        path = f"{table.root}/{live.name}"
        data = world.store.objects.pop(path)
        assert [f.check for f in (await examined(compaction)).findings] == ["segments"]
        world.store.objects[path] = data[:-1]
        assert [f.check for f in (await examined(compaction)).findings] == ["segments"]
        world.store.objects[path] = data

        # Catalogs that show something else than the journal says.
        live.name = "_data/other.parquet"
        world.store.objects[f"{table.root}/{live.name}"] = data
        kinds = [f.check for f in (await examined(compaction)).findings]
        assert kinds == ["followers"] * 4
        live.name = path.removeprefix(f"{table.root}/")

        # Counts, heads and the journal.
        live.references += 1
        assert [f.check for f in (await examined(compaction)).findings] == ["references"]
        live.references -= 1
        compaction.domain.state.streams[made.streams[0]].settled -= 1
        assert {f.check for f in (await examined(compaction)).findings} == {"heads"}
        compaction.domain.state.streams[made.streams[0]].settled += 1
        del table.journal[-2]
        assert [f.check for f in (await examined(compaction)).findings] == ["journal"]
        await compaction.close()
        await node.stop()

    run(story())


@promise("L10")
def test_every_byte_of_a_segment_counts(tmp_path: Path) -> None:
    """`--deep` notices any bit that changes what readers get, and names topic, partition and offsets."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, "named", partitions=2)
        compaction = await world.compaction()
        for number in range(3):
            for stream in made.streams:
                await sent(node, stream, batch([Rec(b"%d-%d" % (number, i), b"key") for i in range(20)]))
        await asyncio.sleep(0.01)
        await compaction.round()
        table = compaction.domain.state.tables[made.id]
        [file] = table.live()
        path = f"{table.root}/{file.name}"
        sound = world.store.objects[path]

        async def deep() -> Report:
            told: list[str] = []
            report, state = Report(), compaction.domain.state
            progress = Progress(lambda now: told.append(str(now)))
            check = ObjectCheck(world.ledger, world.store, compaction.cluster.state, state, report, progress)
            await check.segments()
            assert told == [f"read 1 of 1 objects, {len(sound) / 1e9:.2f} of {len(sound) / 1e9:.2f} GB"]
            return report

        assert (await deep()).findings == []
        rng = random.Random(18)
        noticed = 0
        for _ in range(150):
            changed = bytearray(sound)
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            world.store.objects[path] = bytes(changed)
            findings = (await deep()).findings
            if findings:
                noticed += 1
                assert all(f.check == "segments" and f.subject == path for f in findings)
                assert any("named-" in f.problem and "offsets 0 to 59" in f.problem for f in findings)
            else:
                assert rows(bytes(changed)) == rows(sound), "a change of rows went unnoticed"
        assert noticed > 100
        world.store.objects[path] = sound

        file.rows += 1
        assert [f.problem for f in (await deep()).findings] == ["has 120 rows in 2 row groups, not 121 in 2"]
        file.rows -= 1
        known = compaction.domain.state.typed[made.id].files
        right = known[file.number]
        known[file.number] = msgspec.structs.replace(right, digest=right.digest ^ 1)
        problems = [f.problem for f in (await deep()).findings]
        assert problems == ["has other rows than the ledger knows: their digests differ"]
        known[file.number] = right
        stream = compaction.domain.state.streams[made.streams[1]]
        stream.partition = 0
        assert ["of partition 1" in f.problem for f in (await deep()).findings] == [True]
        stream.partition = 1
        await compaction.close()
        await node.stop()

    def rows(data: bytes) -> list[object]:
        return [row for row in parquet.read_table(pa.BufferReader(data)).to_pylist()]

    run(story())
