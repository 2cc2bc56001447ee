"""Versions of tables: what lies between two of them, expiry on demand and by age."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from harness.virtual import EPOCH_MS, run
from headwater.app.node import Node
from headwater.client.records import decode_batches
from headwater.errors import BadInput
from headwater.lake.tables.follower import Version, ref_of
from headwater.lake.versions import Changes, changes, history, read, span
from headwater.state.cluster.domain import Topic
from headwater.state.commands.tables import WantExpired
from headwater.state.results import Done
from headwater.state.streams.tables import JOURNAL_KEPT, Follower, TopicTable
from tests.support.batches import Rec, batch
from tests.support.lake import ONE, Compaction, LakeWorld, Row, files_left, log_rows, rows_of
from tests.support.promise import promise
from tests.support.virtual_nodes import sent, topic

PROMISES = ("T5", "T15")

Story = Callable[[LakeWorld, Node, Topic, Compaction], Awaitable[None]]


def play(directory: Path, story: Story, *, partitions: int = 2, **lake: Any) -> None:
    """A cluster with one topic and a compactor."""

    async def whole() -> None:
        world = LakeWorld(directory / "objects")
        node = await world.node()
        made = await topic(node, partitions=partitions)
        compaction = await world.compaction(**lake)
        await story(world, node, made, compaction)
        await compaction.close()
        await node.stop()

    run(whole())


async def settle(node: Node, made: Topic, compaction: Compaction, number: int, *partitions: int) -> None:
    """Three records for each of these partitions, and a round that settles them."""
    for partition in partitions:
        records = [Rec(b"%d-%d" % (number, i), key=b"k%d" % i, headers=((b"h", None),)) for i in range(3)]
        await sent(node, made.streams[partition], batch(records))
    await asyncio.sleep(1)
    await compaction.round()


async def versions_of(compaction: Compaction, table: TopicTable) -> dict[str, list[Version]]:
    found = {}
    for follower in compaction._followers:
        found[follower.name] = await follower.versions(ref_of(table), table.followers[follower.name].location)
    return found


async def records_of(compaction: Compaction, table: TopicTable, change: Changes) -> list[Row]:
    """What our own reader gives for a change, as the tables' rows."""
    found: list[Row] = []
    async for partition, data in read(compaction.store, table, change.ranges):
        for one in decode_batches(bytes(data)):
            for r in one.records:
                headers = tuple((k if isinstance(k, str) else k.decode(), v) for k, v in r.headers)
                found.append((partition, r.offset, r.timestamp, r.key, r.value, headers))
    return found


def iceberg(world: LakeWorld, table: TopicTable) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(f"{world.store.url}/{table.followers['iceberg'].location}")


def within(rows: list[Row], change: Changes) -> list[Row]:
    """The offset predicate, over a whole table's rows."""
    return [row for row in rows if any(r.partition == row[0] and r.start <= row[1] < r.end for r in change.ranges)]


@promise("T15")
def test_versions_and_offsets(tmp_path: Path) -> None:
    """Every version has its offset map, and the snapshot of Iceberg and version of Delta that show just that."""

    async def story(world: LakeWorld, node: Node, made: Topic, compaction: Compaction) -> None:
        for number in range(10):
            await settle(node, made, compaction, number, number % 2)
        await compaction.finish(2)
        table = compaction.domain.state.tables[made.id]
        known = history(table)
        assert {e.operation for e, _ in known} == {"settle", "merge"}
        assert [e.sequence for e, _ in known] == list(range(1, table.last_sequence + 1))
        assert known[0][1] == {0: 3}
        assert known[1][1] == {0: 3, 1: 3}
        assert known[-1][1] == {0: 15, 1: 15}
        world.lay_out()
        shown = await versions_of(compaction, table)
        for name, found in shown.items():
            assert [v.sequence for v in found] == [e.sequence for e, _ in known], name
            assert [v.operation == "replace" for v in found] == [e.replaces for e, _ in known], name
        for (entry, ends), snapshot, version in zip(known, shown["iceberg"], shown["delta"], strict=True):
            rows = rows_of(iceberg(world, table).scan(snapshot_id=snapshot.number).to_arrow())
            assert {p: sum(row[0] == p for row in rows) for p in ends} == ends, entry
            assert delta_rows(tmp_path, table, version.number) == rows

    play(tmp_path, story, keep_versions=50)


def delta_rows(directory: Path, table: TopicTable, version: int) -> list[Row]:
    from deltalake import DeltaTable

    return rows_of(DeltaTable(str(directory / "objects" / table.root), version=version).to_pyarrow_table())


@promise("T15")
def test_what_came_between_two_versions(tmp_path: Path) -> None:
    """Our reader, pyiceberg's incremental append scan and the offset predicate agree, whatever was merged."""

    async def story(world: LakeWorld, node: Node, made: Topic, compaction: Compaction) -> None:
        chance = random.Random(7)
        for number in range(14):
            await settle(node, made, compaction, number, *chance.sample(range(3), chance.randint(1, 3)))
        await compaction.finish(2)
        table, last = compaction.domain.state.tables[made.id], compaction.domain.state.tables[made.id].last_sequence
        world.lay_out()
        shown, everything = await versions_of(compaction, table), world.iceberg_rows(node, made)
        merged = 0
        for after in range(last + 1):
            for upto in range(after, last + 1, 3):
                change = changes(table, after, upto)
                found = await records_of(compaction, table, change)
                assert found == within(everything, change)
                asked = span(shown["iceberg"], after, upto) if upto else None
                assert asked is not None or not upto
                assert span(shown["delta"], after, upto) is not None or not upto
                if asked is not None and after < upto:
                    scan = iceberg(world, table).incremental_append_scan(
                        from_snapshot_id_exclusive=asked.after, to_snapshot_id_inclusive=asked.upto
                    )
                    assert rows_of(scan.to_arrow()) == found
                    merged += change.operations["merge"] > 0
        assert merged
        assert changes(table, 0).predicate.startswith("(`partition` = 0 AND `offset` >= 0 AND `offset` <")
        assert changes(table, last).predicate == "FALSE"

    play(tmp_path, story, partitions=3, keep_versions=50)


@promise("T15")
def test_by_the_predicate_where_versions_are_gone(tmp_path: Path) -> None:
    """When a follower has dropped a version in between, no span is told, and the offsets still say what came."""

    async def story(world: LakeWorld, node: Node, made: Topic, compaction: Compaction) -> None:
        for number in range(14):
            await settle(node, made, compaction, number, 0)
        await compaction.finish()
        table = compaction.domain.state.tables[made.id]
        shown = await versions_of(compaction, table)
        world.lay_out()
        for name, found in shown.items():
            assert len(found) < table.last_sequence, name
            assert span(found, 2, table.last_sequence) is None, name
        change = changes(table, 2)
        assert change.operations["merge"]
        assert await records_of(compaction, table, change) == within(world.delta_rows(node, made), change)

    play(tmp_path, story)


@promise("T15")
def test_versions_that_cannot_be_told() -> None:
    """From the future, the wrong way round, or past what the journal remembers."""
    table = TopicTable(uuid.UUID(int=7), "tables/t-7")
    for number in range(3):
        table.record(EPOCH_MS, EPOCH_MS, [], [], [(number % 2, number + 1)], replaces=False)
    for after, upto, says in ((0, 4, "no version 4 yet"), (9, None, "no version 9 yet"), (2, 1, "newer than")):
        with pytest.raises(BadInput, match=says):
            changes(table, after, upto)
    assert [(r.partition, r.start, r.end) for r in changes(table, 1).ranges] == [(0, 1, 3), (1, 0, 2)]
    table.followed("delta", Follower(2, 1, "", 0, ()))
    for number in range(3, JOURNAL_KEPT + 3):
        table.record(EPOCH_MS, EPOCH_MS, [], [], [(0, number + 1)], replaces=False)
    assert table.first_version == 2
    assert table.ends_at(2) == {0: 1, 1: 2}
    assert [(r.partition, r.start, r.end) for r in changes(table, 2, 5).ranges] == [(0, 1, 5)]
    with pytest.raises(BadInput, match="no longer reaches version 1: the oldest is 2"):
        changes(table, 1)
    assert TopicTable.unpack(table.pack()).ends_at(2) == table.ends_at(2)


async def expire(compaction: Compaction, made: Topic, keep: int, before_ms: int = 0) -> None:
    [result] = await compaction.domain.submit([WantExpired(made.id, keep, before_ms)])
    assert isinstance(result, Done)
    table = compaction.domain.state.tables[made.id]
    assert table.expiry is not None
    assert table.expiry.waiting == ["iceberg", "delta"]
    await compaction.round()
    await compaction.round()
    assert table.expiry is None
    assert table.ripe() == []


@promise("T5")
@pytest.mark.parametrize("keep", [1, 4])
def test_expiry_on_demand(tmp_path: Path, keep: int) -> None:
    """Somebody wants old versions gone: both formats keep as many as told, files that only they showed go."""

    async def story(world: LakeWorld, node: Node, made: Topic, compaction: Compaction) -> None:
        for number in range(13):
            await settle(node, made, compaction, number, 0, 1)
        table = compaction.domain.state.tables[made.id]
        assert len(table.files) > len(list(table.live()))
        await expire(compaction, made, keep)
        kept = await versions_of(compaction, table)
        for name, found in kept.items():
            assert [v.sequence for v in found] == list(range(table.last_sequence - keep + 1, table.last_sequence + 1))
            assert table.followers[name].oldest == table.last_sequence - keep + 1
        world.lay_out()
        for snapshot, version in zip(kept["iceberg"], kept["delta"], strict=True):
            rows = rows_of(iceberg(world, table).scan(snapshot_id=snapshot.number).to_arrow())
            assert rows == delta_rows(tmp_path, table, version.number)
            assert rows == await records_of(compaction, table, changes(table, 0, version.sequence))
        shown = {f.number for f in table.files.values() if not f.removed or f.removed > table.last_sequence - keep + 1}
        assert set(table.files) == shown
        stored, known = files_left(world, node)
        assert stored == known
        await all_agree(world, node, made)
        lists = [path for path in world.store.objects if "-list-" in path]
        assert len(lists) == keep
        await settle(node, made, compaction, 99, 0, 1)
        await all_agree(world, node, made)

    play(tmp_path, story, keep_versions=50, expire_interval_ms=1 << 40)


async def all_agree(world: LakeWorld, node: Node, made: Topic) -> None:
    await node.domains[ONE].barrier()
    world.lay_out()
    in_log = await log_rows(node, made)
    assert world.iceberg_rows(node, made) == in_log
    assert world.delta_rows(node, made) == in_log


@promise("T5")
def test_expiry_by_age(tmp_path: Path) -> None:
    """Versions older than the settings say go by themselves, and older than somebody says when told to."""

    async def story(world: LakeWorld, node: Node, made: Topic, compaction: Compaction) -> None:
        for number in range(8):
            await settle(node, made, compaction, number, 0)
        table = compaction.domain.state.tables[made.id]
        times = {entry.sequence: entry.ms for entry in table.journal}
        oldest = table.last_sequence - 2
        await expire(compaction, made, 0, times[oldest])
        for name, found in (await versions_of(compaction, table)).items():
            assert [v.sequence for v in found] == [oldest, oldest + 1, oldest + 2], name
        await asyncio.sleep(700)
        await compaction.round()
        for name, found in (await versions_of(compaction, table)).items():
            assert [v.sequence for v in found] == [table.last_sequence], name
        await all_agree(world, node, made)

    play(tmp_path, story, keep_versions=50, version_age_ms=600_000, expire_interval_ms=1_000)


@promise("T5")
def test_two_wishes_at_once(tmp_path: Path) -> None:
    """Who waits for the first one gets no less than that; a follower that is let go is not waited for."""

    async def story(world: LakeWorld, node: Node, made: Topic, compaction: Compaction) -> None:
        for number in range(6):
            await settle(node, made, compaction, number, 0)
        table = compaction.domain.state.tables[made.id]
        await compaction.domain.submit([WantExpired(made.id, 2, 0)])
        await compaction.domain.submit([WantExpired(made.id, 4, 0)])
        await compaction.domain.submit([WantExpired(made.id, 0, 5)])
        assert table.expiry is not None
        assert (table.expiry.number, table.expiry.keep, table.expiry.before_ms) == (3, 2, 5)
        await compaction.round()
        assert table.expiry is None
        assert {len(found) for found in (await versions_of(compaction, table)).values()} == {2}

    play(tmp_path, story, keep_versions=50, merge_files=1_000, expire_interval_ms=1 << 40)
