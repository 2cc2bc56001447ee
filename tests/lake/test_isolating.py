"""A topic whose jobs fail is found, and holds up no other topic, by compactors in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.virtual import run
from headwater.app.compactor import health_of
from headwater.app.node import Node
from headwater.errors import StoreUnavailable
from headwater.lake import isolating
from headwater.lake.metrics import collect
from headwater.lake.spark.jobs import JobFailed
from headwater.lake.tasks import FileTask, Task, TaskFacts
from headwater.state.cluster.domain import Topic
from headwater.state.commands.streams import TrimStreams
from headwater.types import Pieces
from tests.lake.test_letters import letters_in, origins
from tests.lake.test_typed import produce, rows_of, told
from tests.support.lake import ONE, Compaction, LakeWorld, files_left, log_rows
from tests.support.promise import promise
from tests.support.virtual_nodes import topic

PROMISES = ("L10", "T7")
TYPED = {"headwater_value_schema": "json", "headwater_dlq_topic": "dlq"}
LONGEST = 600.0
SLOW = "took more than 600 s"


class Slow:
    """Jobs that fail if a file of theirs is like that. It counts the jobs."""

    def __init__(self, compaction: Compaction, fails: Callable[[FileTask], bool]) -> None:
        self.run_job = compaction.compactor._run_job
        self.fails = fails
        self.jobs: list[tuple[float, list[bytes]]] = []
        self.failed = self.probes = 0
        compaction.compactor._run_job = self

    async def __call__(self, tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        files = [file for task in tasks for file in task.files]
        self.probes += not files
        if files:
            self.jobs.append((asyncio.get_running_loop().time(), [file.topic for file in files]))
        if any(self.fails(file) for file in files):
            self.failed += 1
            raise JobFailed(f"job {tag}: {SLOW}")
        return await self.run_job(tag, tasks)


def covers(file: FileTask, made: Topic, offset: int) -> bool:
    """Whether a file gets a record of the first partition from the log."""
    runs = [run for part in file.parts if part.partition == 0 for run in part.runs]
    return file.topic == made.id.bytes and any(run.start <= offset < run.end for run in runs)


def settled(node: Node, made: Topic) -> list[int]:
    return [node.domains[ONE].state.streams[stream].settled for stream in made.streams]


async def until(compaction: Compaction, node: Node, most: int, done: Callable[[], bool]) -> int:
    """Run rounds until something is so; returns how many there were."""
    for rounds in range(most):
        if done():
            return rounds
        await compaction.round()
        await asyncio.sleep(1)
        await node.domains[ONE].barrier()
    raise AssertionError(f"not so after {most} rounds")


@promise("T7", "L10")
def test_a_store_that_fails_is_no_fault_of_a_topic(tmp_path: Path) -> None:
    """However often it does: no row goes undecoded, and no record becomes a letter."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        dlq = await topic(node, name="dlq")
        made = await topic(node, name="made", partitions=2, **TYPED)
        for number in range(6):
            await produce(node, made, *told({"n": number}, {"n": -number}))
        compaction = await world.compaction()
        inner, compactor = compaction.compactor._run_job, compaction.compactor
        failed = 0

        async def refusing(tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
            nonlocal failed
            put, refuse = compaction.store.put, failed < 8 and any(task.files for task in tasks)

            async def refused(path: str, pieces: Pieces) -> None:
                raise StoreUnavailable("the store refuses")

            failed += refuse
            compaction.store.put = refused if refuse else put
            try:
                return await inner(tag, tasks)
            finally:
                compaction.store.put = put

        compactor._run_job = refusing
        rounds = 0
        while settled(node, made) != [12, 12]:
            rounds += 1
            with contextlib.suppress(StoreUnavailable):
                await compaction.round()
            assert rounds < 60
            await asyncio.sleep(20)
            await node.domains[ONE].barrier()
        assert failed == 8
        await compaction.finish()
        rows = await rows_of(world, node, made, ["value_data.n", "decode_error"])
        assert len(rows) == 24 and not any(row["decode_error"] for row in rows)
        assert await letters_in(node, dlq) == []
        await compaction.close()
        await node.stop()

    run(story())


@promise("T7", "L10")
def test_an_object_that_the_store_never_gives_holds_up_its_topic_only(tmp_path: Path) -> None:
    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        held = await topic(node, name="held", **TYPED)
        others = [await topic(node, name=f"other-{number}", **TYPED) for number in range(3)]
        for made in (held, *others):
            await produce(node, made, *told({"n": 1}, {"n": 2}))
        compaction = await world.compaction()
        inner = compaction.compactor._run_job

        async def refusing(tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
            if any(file.topic == held.id.bytes for task in tasks for file in task.files):
                return [TaskFacts([], "StoreRefused: no") for _ in tasks]
            return await inner(tag, tasks)

        compaction.compactor._run_job = refusing
        for _ in range(30):
            with contextlib.suppress(StoreUnavailable):
                await compaction.round()
            await asyncio.sleep(1)
        await node.domains[ONE].barrier()
        assert [settled(node, made) for made in others] == [[2]] * 3 and settled(node, held) == [0]
        [alert] = compaction.compactor.isolated.alerts.values()
        assert "StoreRefused: no" in alert
        compaction.compactor._run_job = inner
        for _ in range(10):
            await compaction.round()
            await asyncio.sleep(20)
        await node.domains[ONE].barrier()
        assert settled(node, held) == [2]
        rows = await rows_of(world, node, held, ["decode_error"])
        assert len(rows) == 2 and not any(row["decode_error"] for row in rows)
        await compaction.close()
        await node.stop()

    run(story())


@promise("T7")
def test_a_batch_that_cannot_be_decoded_in_time_becomes_letters(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Others settle after a few jobs. Of the topic only the run with the batch is not decoded."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        dlq = await topic(node, name="dlq")
        slow = await topic(node, name="slow", partitions=2, **TYPED)
        others = [await topic(node, name=f"other-{number}", **TYPED) for number in range(7)]
        for number in range(12):
            for made in (slow, *others):
                await produce(node, made, *told({"n": number}, {"n": -number}))
        compaction = await world.compaction()
        jobs = Slow(
            compaction,
            lambda f: f.typing is not None and not f.typing.refused and covers(f, slow, 9),
        )
        await until(compaction, node, 8, lambda: all(settled(node, made) == [24] for made in others))
        assert settled(node, slow) == [0, 0] and jobs.failed <= 4
        await until(compaction, node, 40, lambda: settled(node, slow) == [24, 24])
        assert jobs.failed <= 10 and jobs.failed == jobs.probes
        await compaction.finish()
        rows = await rows_of(world, node, slow, ["partition", "offset", "value_data.n", "decode_error", "value_data"])
        refused = [(row["partition"], row["offset"]) for row in rows if row["decode_error"]]
        assert refused == [(0, 8), (0, 9)]
        assert all(SLOW in row["decode_error"] for row in rows if row["decode_error"])
        assert sum(row["value_data"] is not None for row in rows) == 46
        letters = await letters_in(node, dlq)
        assert origins(letters) == refused
        assert {dict(letter[5])["headwater.dlq.error.class"] for letter in letters} == {b"not-decoded"}
        assert compaction.compactor.isolated.alerts == {}
        assert "slow-0, offsets 8 to 9" in {
            getattr(one, "topic", "") for one in caplog.records if one.levelname == "ERROR"
        }
        assert len(await log_rows(node, slow)) == 48
        stored, known = files_left(world, node)
        assert stored == known

        await produce(node, slow, *told({"n": 1}))
        done = len(jobs.jobs)
        await produce(node, others[0], *told({"n": 1}))
        await until(
            compaction, node, 1 + 1, lambda: settled(node, slow) == [25, 25] and settled(node, others[0]) == [25]
        )
        together = [set(topics) for _, topics in jobs.jobs[done:]]
        assert {slow.id.bytes, others[0].id.bytes} in together, "the topic settles with others again"
        await compaction.close()
        await node.stop()

    run(story())


@promise("L10")
def test_a_topic_that_nothing_helps_waits_and_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs become rare, its alert is in health and metrics, and it settles once the reason is gone."""
    monkeypatch.setattr(isolating, "MOST_SECONDS", LONGEST)

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        bomb, fine = await topic(node, name="bomb"), await topic(node, name="fine")
        for number in range(4):
            for made in (bomb, fine):
                await produce(node, made, b"%d" % number)
        compaction = await world.compaction()
        jobs = Slow(compaction, lambda file: covers(file, bomb, 2))
        await until(compaction, node, 20, lambda: settled(node, bomb) == [2] and settled(node, fine) == [4])
        start = asyncio.get_running_loop().time()
        for number in range(36):
            await produce(node, fine, b"%d" % number)
            await compaction.round()
            await node.domains[ONE].barrier()
            assert settled(node, fine) >= [4 + number], "at most one job lies between"
            await asyncio.sleep(33)
        tried = [at for at, topics in jobs.jobs if at > start and bomb.id.bytes in topics]
        assert 2 <= len(tried) <= 6, "it is tried again, less and less often"
        assert settled(node, bomb) == [2]
        health = health_of(compaction.background, compaction.compactor, compaction.following, True)
        assert "bomb-0, offsets 2 to 2 fails" in health.reason and SLOW in health.reason
        metrics = {
            one.name: one.samples for one in collect(
                compaction.cluster, compaction.domains, compaction.compactor, compaction.following, 0
            )
        }  # fmt: skip
        assert metrics["headwater_settle_failing_topics"] == [({"topic": "bomb"}, 1.0)]

        jobs.fails = lambda file: False
        await asyncio.sleep(LONGEST)
        await until(compaction, node, 5, lambda: settled(node, bomb) == [4])
        assert compaction.compactor.isolated.alerts == {}
        await compaction.close()
        await node.stop()

    run(story())


def test_a_machine_that_runs_no_jobs_is_no_fault_of_topics(tmp_path: Path) -> None:
    """If not even an empty job runs, no topic is suspected, and all settle in one job as soon as one can run."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        topics = [await topic(node, name=f"t{number}") for number in range(4)]
        for made in topics:
            await produce(node, made, b"x")
        compaction = await world.compaction()
        run_job = compaction.compactor._run_job

        async def away(tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
            raise JobFailed("there is no Spark")

        compaction.compactor._run_job = away
        for _ in range(5):
            await compaction.round()
            await asyncio.sleep(1)
        assert compaction.compactor.failed_jobs == 5 and compaction.compactor.isolated.alerts == {}
        compaction.compactor._run_job = run_job
        await compaction.round()
        await node.domains[ONE].barrier()
        assert all(settled(node, made) == [1] for made in topics)
        await compaction.close()
        await node.stop()

    run(story())


def test_a_table_that_cannot_be_merged_settles(tmp_path: Path) -> None:
    """Jobs that merge fail for one table: others are merged, and the table takes new rows."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        one, two = await topic(node, name="one"), await topic(node, name="two")
        compaction = await world.compaction(merge_files=3)
        jobs = Slow(compaction, lambda file: file.topic == one.id.bytes and bool(file.sources))
        for number in range(12):
            for made in (one, two):
                await produce(node, made, json.dumps(number).encode())
            await compaction.round()
            await asyncio.sleep(1)
        await node.domains[ONE].barrier()
        state = node.domains[ONE].state
        assert settled(node, one)[0] >= 10 and settled(node, two)[0] >= 10
        assert len(list(state.tables[two.id].live())) < 6 < len(list(state.tables[one.id].live()))
        assert jobs.failed == 3, "then it waits"
        assert "merging one" in compaction.compactor.isolated.alerts[one.id]
        await compaction.close()
        await node.stop()

    run(story())


def test_topics_that_leave_are_forgotten(tmp_path: Path) -> None:
    """A topic whose jobs fail and whose records are trimmed, or that is deleted, has no alert any more."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        bomb = await topic(node, name="bomb")
        for number in range(3):
            await produce(node, bomb, b"%d" % number)
        compaction = await world.compaction()
        Slow(compaction, lambda file: covers(file, bomb, 1))
        await until(compaction, node, 10, lambda: bool(compaction.compactor.isolated.alerts))
        await node.domains[ONE].submit([TrimStreams([(bomb.streams[0], 2)])])
        await asyncio.sleep(LONGEST)
        await until(compaction, node, 10, lambda: settled(node, bomb) == [3])
        assert compaction.compactor.isolated.alerts == {}
        compaction.compactor.isolated.keep([])
        assert compaction.compactor.isolated.settling.turn([bomb.id]).alone is None
        await compaction.close()
        await node.stop()

    run(story())
