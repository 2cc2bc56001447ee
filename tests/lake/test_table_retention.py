"""A table keeps its rows by a retention of its own, apart from the log's."""

import asyncio
from pathlib import Path

from pyiceberg.table import StaticTable

from harness.virtual import EPOCH_MS, run
from headwater.app.doctor.report import Report
from headwater.app.doctor.tables import check_followers, check_segments, check_tables
from headwater.app.node import Node
from headwater.lake.retiring import LAST_MS, newest_ms, outdated
from headwater.lake.tables.follower import ref_of
from headwater.lake.versions import changes, span
from headwater.state.cluster.domain import Topic
from headwater.state.commands.streams import TrimStreams
from headwater.state.commands.tables import WantExpired
from tests.support.batches import Rec, batch
from tests.support.lake import ONE, Compaction, LakeWorld, files_left, log_rows
from tests.support.promise import promise
from tests.support.virtual_nodes import sent, topic

PROMISES = ("L6",)

HOUR_MS = 3_600_000


async def produce(node: Node, made: Topic, compaction: Compaction, number: int, ms: int) -> None:
    """Three records of a time for every partition, and a round that settles them."""
    for stream in made.streams:
        await sent(node, stream, batch([Rec(b"%d-%d" % (number, i), timestamp=ms + i) for i in range(3)]))
    await asyncio.sleep(0.05)
    await compaction.round()


async def examined(compaction: Compaction) -> list[str]:
    report, state = Report(), compaction.domain.state
    check_tables(state, report)
    await check_segments(compaction.store, state, report)
    await check_followers(compaction._followers, state, report)
    return [finding.check for finding in report.findings]


@promise("L6")
def test_rows_leave_the_tables_and_not_the_log(tmp_path: Path) -> None:
    """Iceberg deletes and Delta removes; consumers notice nothing; files go when the log forgets them."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, partitions=2, headwater_table_retention_ms=str(HOUR_MS))
        compaction = await world.compaction(merge_files=1_000, keep_versions=50)
        for number in range(4):
            await produce(node, made, compaction, number, EPOCH_MS + (number - 2) * HOUR_MS)
        table = compaction.domain.state.tables[made.id]
        await node.domains[ONE].barrier()
        world.lay_out()
        assert [e.operation for e in table.journal] == ["settle", "retire", "settle", "retire", "settle", "settle"]
        assert compaction.compactor.retired_files == 2
        in_log = await log_rows(node, made)
        kept = [row for row in in_log if row[1] >= 6]
        assert len(in_log) == 24
        assert world.iceberg_rows(node, made) == world.delta_rows(node, made) == kept

        # Both say what happened, each in a version of its own.
        location = table.followers["iceberg"].location
        snapshots = StaticTable.from_metadata(f"{world.store.url}/{location}").metadata.snapshots
        wanted = ["append", "delete", "append", "delete", "append", "append"]
        assert [s.summary.operation.value for s in snapshots if s.summary] == wanted
        for follower in compaction._followers:
            versions = await follower.versions(ref_of(table), table.followers[follower.name].location)
            assert [v.operation for v in versions] == wanted, follower.name
            assert span(versions, 2, 6) is not None
        commits = [data for path, data in world.store.objects.items() if "/_delta_log/" in path and ".json" in path]
        removes = [line for data in commits for line in data.splitlines() if line.startswith(b'{"remove"')]
        assert len(removes) == 2
        assert all(b'"dataChange":true' in line for line in removes)
        assert [(r.start, r.end) for r in changes(table, 2).ranges] == [(3, 12), (3, 12)]

        # The doctor finds nothing wrong, unless the log's file is gone.
        assert await examined(compaction) == []
        retired = next(f for f in table.files.values() if f.removed)
        path = f"{table.root}/{retired.name}"
        data = world.store.objects.pop(path)
        assert await examined(compaction) == ["segments"]
        world.store.objects[path] = data

        # The log forgets them too, and their versions expire: nobody needs the files.
        await node.domains[ONE].submit([TrimStreams([(stream, 6) for stream in made.streams])])
        await asyncio.sleep(0.1)
        await compaction.domain.submit([WantExpired(made.id, 1, 0)])
        await compaction.finish(2)
        await node.domains[ONE].barrier()
        stored, known = files_left(world, node)
        assert stored == known
        assert len(stored) == 2
        assert await examined(compaction) == []
        world.lay_out()
        assert world.iceberg_rows(node, made) == world.delta_rows(node, made) == kept == await log_rows(node, made)
        await compaction.close()
        await node.stop()

    run(story())


@promise("L6")
def test_for_ever_by_default(tmp_path: Path) -> None:
    """Without the config nothing leaves, however old; with it, as soon as it is set."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, retention_ms="-1")
        compaction = await world.compaction()
        for number in range(6):
            await produce(node, made, compaction, number, 1_000)
        await node.domains[ONE].barrier()
        world.lay_out()
        assert len(world.iceberg_rows(node, made)) == 18
        await node.broker.topics.alter(made, {"headwater.table.retention.ms": "1000"}, ())
        await asyncio.sleep(0.1)
        await compaction.finish(2)
        await node.domains[ONE].barrier()
        world.lay_out()
        assert world.iceberg_rows(node, made) == world.delta_rows(node, made) == []
        assert len(await log_rows(node, made)) == 18
        assert await examined(compaction) == []
        for number in range(6):  # segments that the table has let go lie before the ones that are merged
            await produce(node, made, compaction, number, EPOCH_MS + HOUR_MS)
        await node.domains[ONE].barrier()
        world.lay_out()
        assert len(world.iceberg_rows(node, made)) == len(world.delta_rows(node, made)) == 18
        assert len(await log_rows(node, made)) == 36
        assert compaction.compactor.merged_files
        assert await examined(compaction) == []
        await compaction.close()
        await node.stop()

    run(story())


@promise("L6")
def test_records_without_an_age(tmp_path: Path) -> None:
    """Where a timestamp is none, a file is as old as the file itself."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, headwater_table_retention_ms=str(HOUR_MS))
        compaction = await world.compaction(merge_files=1_000)
        for number, ms in enumerate((-9, LAST_MS + 1)):
            await produce(node, made, compaction, number, ms)
        table = compaction.domain.state.tables[made.id]
        assert [newest_ms(f) for f in table.live()][1] == table.files[2].created_ms
        assert len(list(table.live())) == 2
        assert outdated(table, HOUR_MS, EPOCH_MS + HOUR_MS // 2) == []
        assert len(outdated(table, HOUR_MS, EPOCH_MS + 2 * HOUR_MS)) == 2
        assert outdated(table, -1, 1 << 60) == []
        await compaction.close()
        await node.stop()

    run(story())
