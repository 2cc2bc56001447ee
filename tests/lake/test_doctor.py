"""T1, O6: `headwater doctor` checks journal, files, index and what Iceberg and Delta show against each other."""

import asyncio
from pathlib import Path

from headwater.app.doctor_tables import check_followers, check_segments, check_tables
from headwater.app.report import Report
from tests.support.batches import Rec, batch
from tests.support.lake import Compaction, LakeWorld
from tests.support.virtual import run
from tests.support.virtual_nodes import sent, topic


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
