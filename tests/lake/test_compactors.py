"""Compactors beside each other, catalogs that fail, foreign commits, deleted topics."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.virtual import run
from headwater.app.compactor import health_of
from headwater.app.node import Node
from headwater.errors import EpochLost, StoreUnavailable
from headwater.lake.metrics import collect
from headwater.lake.tasks import Task, TaskFacts
from headwater.state.cluster.domain import Topic
from headwater.state.streams.tables import Follower
from tests.support.batches import Rec, batch
from tests.support.lake import ONE, Compaction, LakeWorld, files_left, log_rows
from tests.support.promise import promise
from tests.support.virtual_nodes import sent, topic

PROMISES = ("T1", "T2", "T4", "L3")


async def produce(node: Node, made: Topic, *numbers: int) -> None:
    for number in numbers:
        for stream in made.streams:
            await sent(node, stream, batch([Rec(b"%d-%d" % (number, i)) for i in range(3)]))
    await asyncio.sleep(0.01)


async def all_agree(world: LakeWorld, node: Node, made: Topic, rows: int) -> None:
    await node.domains[ONE].barrier()
    world.lay_out()
    in_log = await log_rows(node, made)
    assert len(in_log) == rows
    assert world.iceberg_rows(node, made) == in_log
    assert world.delta_rows(node, made) == in_log
    stored, known = files_left(world, node)
    assert stored == known


def paused(compaction: Compaction) -> tuple[asyncio.Event, asyncio.Event]:
    """Stop a compactor between its job and its command. (It is there, it may go on)"""
    there, go = asyncio.Event(), asyncio.Event()
    run_job = compaction.compactor._run_job

    async def slow(tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        facts = await run_job(tag, tasks)
        there.set()
        await go.wait()
        return facts

    compaction.compactor._run_job = slow
    return there, go


@promise("T1")
def test_two_at_once(tmp_path: Path) -> None:
    """The lease lets one of them work; the other one finds nothing to do."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, partitions=2)
        one, two = await world.compaction(), await world.compaction()
        for number in range(6):
            await produce(node, made, number)
            await asyncio.gather(one.round(), two.round())
        await one.finish()
        assert (one.compactor.settled_files > 0) is not (two.compactor.settled_files > 0)
        await all_agree(world, node, made, 36)
        for compaction in (one, two):
            await compaction.close()
        await node.stop()

    run(story())


@promise("T10")
def test_topics_share_jobs(tmp_path: Path) -> None:
    """One that has more than a job of records waiting does not keep those that were created later from settling."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        first, *others = [await topic(node, name) for name in ("a", "b", "c")]
        compaction = await world.compaction(file_bytes=4_000, job_bytes=8_000)
        for number in range(20):
            await sent(node, first.streams[0], batch([Rec(b"%d" % number * 500)]))
        for made in others:
            await sent(node, made.streams[0], batch([Rec(b"few")]))
        await asyncio.sleep(0.01)
        await compaction.compactor.round()
        streams = compaction.domain.state.streams
        assert [streams[made.streams[0]].settled for made in others] == [1, 1]
        assert 0 < streams[first.streams[0]].settled < 20
        for _ in range(8):
            await asyncio.sleep(0.01)
            await compaction.compactor.round()
        assert streams[first.streams[0]].settled == 20
        await compaction.close()
        await node.stop()

    run(story())


@promise("T10")
def test_settling_that_is_late(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Log, health and metrics say so while the oldest record is much older than the freshness target."""
    caplog.set_level("INFO")

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, headwater_table_freshness_ms="1000")
        busy = await world.compaction(lease_ms=600_000)
        there, go = paused(busy)
        await produce(node, made, 0)
        await asyncio.sleep(2)
        working = asyncio.create_task(busy.compactor.round())
        await there.wait()

        def judged() -> tuple[str, str, bool]:
            busy.compactor.judge_lateness(busy.domain)
            health = health_of(busy.background, busy.compactor, busy.following, True)
            found = collect(busy.cluster, busy.domains, busy.compactor, busy.following, busy.domains.clock.wall_ms())
            [late] = [m for m in found if m.name == "headwater_settle_late_seconds"]
            return health.status, health.reason, bool(late.samples)

        await asyncio.sleep(20)
        assert judged() == ("healthy", "", False)
        assert 2 < busy.compactor.lag() < 3, "a target of one second counts as ten"
        await asyncio.sleep(20)
        assert judged() == judged() == ("degraded", "settling is late for 1 topics", True)
        go.set()
        await working
        assert judged() == ("healthy", "", False) and busy.compactor.lag() == 0
        await busy.close()
        await node.stop()

    run(story())
    assert caplog.text.count("settling is late") == 1
    assert caplog.text.count("settling is in time again") == 1


@promise("T1", "L3")
@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "without its lease"])
def test_one_that_slept_too_long(tmp_path: Path, fenced: bool) -> None:
    """What a compactor did before it lost its lease or its epoch is refused, and its files go."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, partitions=2)
        await produce(node, made, 0, 1)
        sleeper = await world.compaction(lease_ms=2_000)
        there, go = paused(sleeper)
        asleep = asyncio.create_task(sleeper.compactor.round())
        await there.wait()
        if fenced:
            for duty in sleeper.membership._duties:
                duty.cancel()
        await asyncio.sleep(10)
        heir = await world.compaction()
        await heir.round()
        await produce(node, made, 2)
        await heir.finish()
        await all_agree_but_for(world, node, made, 18, sleeping=2)
        go.set()
        await asleep
        assert sleeper.compactor.settled_files == 0
        await heir.finish()
        await all_agree(world, node, made, 18)
        await heir.close()
        await node.stop()

    run(story())


async def all_agree_but_for(world: LakeWorld, node: Node, made: Topic, rows: int, sleeping: int) -> None:
    """While the other one sleeps its files may still be there."""
    await node.domains[ONE].barrier()
    assert len(await log_rows(node, made)) == rows
    stored, known = files_left(world, node)
    assert known <= stored
    assert len(stored - known) <= sleeping


@promise("T4")
def test_a_catalog_that_is_down(tmp_path: Path) -> None:
    """Log, settling and the other follower do not notice; it catches up, several entries in one commit."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node)
        compaction = await world.compaction(merge_files=1_000, keep_versions=50)
        _, delta = compaction._followers
        down = True
        commit: Any = delta.commit

        async def failing(*arguments: Any) -> Any:
            if down:
                raise StoreUnavailable("the catalog is down")
            return await commit(*arguments)

        delta.commit = failing  # type: ignore[method-assign]
        for number in range(10):
            await produce(node, made, number)
            await compaction.round()
            await asyncio.sleep(30)
        table = compaction.domain.state.tables[made.id]
        assert (table.last_sequence, table.followers["iceberg"].cursor) == (10, 10)
        assert "delta" not in table.followers
        [(key, trouble)] = compaction.following.alerts.items()
        assert key == ("delta", made.id)
        assert not trouble.foreign
        down = False
        await asyncio.sleep(120)
        await compaction.finish()
        assert compaction.following.alerts == {}
        assert table.followers["delta"].cursor == 10
        assert compaction.following.commits == {"iceberg": 10, "delta": 1}
        await all_agree(world, node, made, 30)
        await compaction.close()
        await node.stop()

    run(story())


@promise("T10")
def test_merging_and_collecting_take_turns_with_settling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that are ripe together are merged a few at a time, and settling does not wait for all of them."""

    async def story() -> None:
        monkeypatch.setattr("headwater.lake.compactor.COLLECTED_AT_ONCE", 1)
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        topics = [await topic(node, f"t{number}") for number in range(4)]
        busy = await topic(node, "busy")
        compaction = await world.compaction(merge_files=4)
        compaction.compactor._limits = replace(compaction.compactor._limits, merges_per_job=1)
        tables = compaction.domain.state.tables
        for number in range(3):
            for made in topics:
                await produce(node, made, number)
            await compaction.round()
        for made in topics:
            await produce(node, made, 3)
        for turn in range(1, 5):
            await produce(node, busy, turn)
            assert await compaction.compactor.round(), "there is more to do"
            assert sum(len(list(tables[made.id].live())) == 1 for made in topics) == turn
            settled = compaction.domain.state.streams[busy.streams[0]].settled
            assert settled == 3 * turn, "settling had its turn"
        await compaction.finish(20)
        stored, known = files_left(world, node)
        assert stored == known
        for made in (*topics, busy):
            assert len(await log_rows(node, made)) == 12
        await compaction.close()
        await node.stop()

    run(story())


@promise("T10")
def test_the_table_in_most_pieces_is_merged_first(tmp_path: Path) -> None:
    """Where merging does not keep up with settling, every table has its turn all the same."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        first, second = await topic(node, "first"), await topic(node, "second")
        compaction = await world.compaction(merge_files=100)
        tables = compaction.domain.state.tables

        def pieces() -> list[int]:
            return [len(list(tables[made.id].live())) for made in (first, second)]

        for number in range(6):
            await produce(node, second, number)
            if number < 4:
                await produce(node, first, number)
            await compaction.compactor.round()
        assert pieces() == [4, 6]
        compaction.compactor._limits = replace(compaction.compactor._limits, merge_files=4, merges_per_job=1)
        await compaction.compactor.round()
        assert pieces() == [4, 1]
        await compaction.compactor.round()
        assert pieces() == [1, 1]
        await compaction.close()
        await node.stop()

    run(story())


@promise("T2")
def test_a_foreign_commit(tmp_path: Path) -> None:
    """A follower whose table somebody else wrote to stops with an alert; everybody else goes on."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node)
        compaction = await world.compaction(merge_files=1_000, keep_versions=50)
        await produce(node, made, 0)
        await compaction.finish(2)
        table = compaction.domain.state.tables[made.id]
        foreign = f"{table.root}/_delta_log/{1:020d}.json"
        add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
        world.store.objects[foreign] = json.dumps({"add": add}).encode()
        for number in (1, 2):
            await produce(node, made, number)
            await compaction.finish(2)
        assert (table.last_sequence, table.followers["iceberg"].cursor, table.followers["delta"].cursor) == (3, 3, 1)
        [((name, topic_id), trouble)] = compaction.following.alerts.items()
        assert (name, topic_id, trouble.foreign) == ("delta", made.id, True)
        assert len(await log_rows(node, made)) == 9
        del world.store.objects[foreign]
        await asyncio.sleep(120)
        await compaction.finish(2)
        assert compaction.following.alerts == {}
        await all_agree(world, node, made, 9)
        await compaction.close()
        await node.stop()

    run(story())


@promise("T2", "T11")
def test_a_table_that_somebody_took_away(tmp_path: Path) -> None:
    """A follower whose metadata is gone is written anew, from the journal or from what is there now."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node)
        compaction = await world.compaction()
        for number in range(9):
            await produce(node, made, number)
            await compaction.round()
        await compaction.finish()
        for path in [p for p in world.store.objects if "/_delta_log/" in p]:
            del world.store.objects[path]
        await produce(node, made, 9)
        await compaction.finish()
        await all_agree(world, node, made, 30)
        await compaction.close()
        await node.stop()

    run(story())


@promise("T11")
def test_switching_a_table_on_later(tmp_path: Path) -> None:
    """A topic settles without a table; once it has one, the table includes the history."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, headwater_table_enable="false")
        compaction = await world.compaction()
        for number in range(9):
            await produce(node, made, number)
            await compaction.round()
        table = compaction.domain.state.tables[made.id]
        assert table.last_sequence >= 9
        assert table.followers == {}
        await node.broker.topics.alter(made, {"headwater.table.enable": "true"}, ())
        await asyncio.sleep(0.1)
        await compaction.finish()
        await all_agree(world, node, made, 27)
        await compaction.close()
        await node.stop()

    run(story())


@promise("L3")
def test_a_deleted_topic(tmp_path: Path) -> None:
    """Nothing of a deleted topic is left, and a new topic of its name starts with a table of its own."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, partitions=2)
        compaction = await world.compaction()
        await produce(node, made, 0, 1)
        await compaction.finish()
        assert any(path.startswith("tables/") for path in world.store.objects)
        await node.broker.topics.delete(made)
        await asyncio.sleep(0.1)
        await compaction.finish()
        assert not [path for path in world.store.objects if path.startswith("tables/")]
        assert compaction.domain.state.tables == {}
        again = await topic(node, partitions=2)
        await produce(node, again, 0)
        await compaction.finish()
        await all_agree(world, node, again, 6)
        await compaction.close()
        await node.stop()

    run(story())


@promise("L6")
def test_retention_waits(tmp_path: Path) -> None:
    """Old records stay in the log until they are in the tables; then the log forgets them and the tables do not."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, retention_ms="1000")
        compaction = await world.compaction(freshness_ms=60_000)
        await compaction.round()
        await produce(node, made, 0, 1)
        await asyncio.sleep(5)
        await node.housekeeper.round()
        assert node.housekeeper.waiting_streams == {ONE: 1}
        assert len(await log_rows(node, made)) == 6
        await asyncio.sleep(60)
        await compaction.finish(2)
        await node.domains[ONE].barrier()
        await node.housekeeper.round()
        assert node.housekeeper.waiting_streams == {ONE: 0}
        await asyncio.sleep(0.1)
        assert await log_rows(node, made) == []
        world.lay_out()
        assert [row[1] for row in world.iceberg_rows(node, made)] == list(range(6))
        assert [row[1] for row in world.delta_rows(node, made)] == list(range(6))
        await compaction.close()
        await node.stop()

    run(story())


@promise("T4")
def test_followers_outlive_a_lost_epoch(tmp_path: Path) -> None:
    """An epoch that is lost between the lease and a command puts a round off, and ends no follower."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node)
        await produce(node, made, 1)
        compaction = await world.compaction(interval_ms=100)
        await compaction.round()
        # A follower that is no longer in the settings.
        compaction.domain.state.tables[made.id].followers["gone"] = Follower(
            0, 0, "", 0, ()
        )  # no longer in the settings
        submit, lost = compaction.domain.submit, True

        async def failing(commands: Any) -> Any:
            if lost:
                raise EpochLost("fenced")
            return await submit(commands)

        compaction.domain.submit = failing  # type: ignore[method-assign]
        compaction.following.start()
        await asyncio.sleep(5)
        lost = False
        await produce(node, made, 2)
        await compaction.compactor.round()
        await asyncio.sleep(10)
        reports = [r for r in compaction.background.reports() if r.name.startswith("table-follower")]
        assert [(r.state, r.restarts, r.error) for r in reports] == [("running", 0, "")] * 2
        await all_agree(world, node, made, 6)
        await compaction.following.close()
        await compaction.close()
        await node.stop()

    run(story())
