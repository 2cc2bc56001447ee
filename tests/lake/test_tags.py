"""Hourly tags: a table as it was at the end of an hour, after merges, expiry and garbage collection."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from harness.virtual import EPOCH_MS, VirtualClock, run
from headwater.app.node import Node
from headwater.lake.tables.follower import HOUR_MS
from headwater.lake.tables.iceberg.retention import hour_tag
from headwater.state.clocks import Clocks
from headwater.state.cluster.domain import Topic
from headwater.state.streams.tables import TopicTable
from tests.support.batches import Rec, batch
from tests.support.lake import ONE, Compaction, LakeWorld, Row, files_left, log_rows, rows_of
from tests.support.promise import promise
from tests.support.virtual_nodes import sent, topic

PROMISES = ("T5", "T15")

HOURS = 7
PER_HOUR = 6
TAG_HOURS = 3
HASTE = 60


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """All wall clocks go fast, so that hours pass without an hour's beats. Retention believes them."""
    monkeypatch.setattr(Clocks, "retention_now_ms", lambda self, wall_ms: wall_ms)
    monkeypatch.setattr(VirtualClock, "wall_ms", lambda self: EPOCH_MS + int(self.monotonic() * 1000 * HASTE))


async def pass_hours(count: float) -> None:
    await asyncio.sleep(count * HOUR_MS / 1000 / HASTE)


def table_of(compaction: Compaction, made: Topic) -> TopicTable:
    return compaction.domain.state.tables[made.id]


def iceberg(world: LakeWorld, table: TopicTable) -> Any:
    return StaticTable.from_metadata(f"{world.store.url}/{table.followers['iceberg'].location}")


def tags(world: LakeWorld, table: TopicTable) -> dict[str, list[Row]]:
    """What a reader gets at every tag."""
    found = iceberg(world, table)
    named = {name: ref.snapshot_id for name, ref in found.metadata.refs.items() if name != "main"}
    return {name: rows_of(found.scan(snapshot_id=snapshot).to_arrow()) for name, snapshot in named.items()}


async def hours(world: LakeWorld, node: Node, made: Topic, compaction: Compaction, count: int) -> dict[str, list[Row]]:
    """Commit every few minutes, for hours; what the table held at the end of each."""
    ended: dict[str, list[Row]] = {}
    for number in range(count * PER_HOUR):
        await sent(node, made.streams[number % 2], batch([Rec(b"%d-%d" % (number, i)) for i in range(3)]))
        await pass_hours(1 / PER_HOUR)
        await compaction.round()
        ms = table_of(compaction, made).journal[-1].ms
        ended[hour_tag(ms)] = await log_rows(node, made)
        state = compaction.domain.state
        assert len(state.tables[made.id].followers["iceberg"].pinned) <= TAG_HOURS
    return ended


@promise("T15")
def test_the_end_of_every_hour(tmp_path: Path) -> None:
    """A tag shows exactly the rows of its hour's end; there are so many tags and no more, and so are the files."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, partitions=2)
        compaction = await world.compaction(tag_hours=TAG_HOURS)
        ended = await hours(world, node, made, compaction, HOURS)
        for _ in range(3):
            await compaction.round()
        table = table_of(compaction, made)
        world.lay_out()
        found = tags(world, table)
        newest = max(ended)
        assert sorted(found) == sorted(ended)[-1 - TAG_HOURS : -1]
        assert found == {name: ended[name] for name in found}
        assert world.iceberg_rows(node, made) == world.delta_rows(node, made) == ended[newest]

        # Files of the past stay only if a version shows them.
        stored, known = files_left(world, node)
        assert stored == known
        follower = table.followers["iceberg"]
        assert follower.pinned
        shown = {*follower.pinned, *range(follower.recent, table.last_sequence + 1)}
        for file in table.files.values():
            lived = range(file.added, file.removed or table.last_sequence + 1)
            assert not shown.isdisjoint(lived), file
        assert len(table.files) < HOURS * PER_HOUR / 2

        # The hours pass while nothing is committed: the tags go, and with them all but a few files.
        await pass_hours(TAG_HOURS + 1)
        for _ in range(3):
            await compaction.round()
        await node.domains[ONE].barrier()
        world.lay_out()
        assert tags(world, table) == {}
        assert table.followers["iceberg"].pinned == ()
        assert world.iceberg_rows(node, made) == ended[newest]
        stored, known = files_left(world, node)
        assert stored == known
        await compaction.close()
        await node.stop()

    run(story())


@promise("T15", "T4")
def test_a_catalog_that_was_down_for_hours(tmp_path: Path) -> None:
    """It catches up hour by hour, so that the ends of the hours it missed are versions too."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, partitions=2)
        compaction = await world.compaction(tag_hours=50)
        ended = await hours(world, node, made, compaction, 1)
        followers, compaction._followers = compaction._followers, []
        for number in range(3 * PER_HOUR):
            await sent(node, made.streams[number % 2], batch([Rec(b"%d" % number)]))
            await pass_hours(1 / PER_HOUR)
            await compaction.round()
            ended[hour_tag(table_of(compaction, made).journal[-1].ms)] = await log_rows(node, made)
        compaction._followers = followers
        for _ in range(3):
            await compaction.round()
        world.lay_out()
        found = tags(world, table_of(compaction, made))
        assert sorted(found) == sorted(ended)[:-1]
        assert found == {name: ended[name] for name in found}
        await compaction.close()
        await node.stop()

    run(story())


@promise("T5")
def test_switched_off(tmp_path: Path) -> None:
    """Without tags there are none, and those of before go."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, partitions=2)
        compaction = await world.compaction(tag_hours=TAG_HOURS)
        ended = await hours(world, node, made, compaction, 3)
        world.lay_out()
        assert sorted(tags(world, table_of(compaction, made))) == sorted(ended)[:-1]
        await compaction.close()
        other = await world.compaction(tag_hours=0, lease_ms=1_000)
        await asyncio.sleep(60)
        await other.round()
        await sent(node, made.streams[0], batch([Rec(b"x")]))
        await asyncio.sleep(1)
        await other.round()
        world.lay_out()
        assert tags(world, table_of(other, made)) == {}
        assert table_of(other, made).followers["iceberg"].pinned == ()
        await other.close()
        await node.stop()

    run(story())
