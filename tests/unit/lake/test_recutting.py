"""Which files are merged and which are cut by partition, and that this comes to an end. The files are made up."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from headwater.lake.merging import mergeable
from headwater.lake.planning import Job, Limits, TopicPlan, plan_settle, table_root
from headwater.lake.recutting import plan_merges, target_bytes
from headwater.lake.tasks import FileTask
from headwater.state.commands.base import SetLevel, TakeLease
from headwater.state.commands.columns import FileTyping, Replace, SettleFiles
from headwater.state.commands.streams import Chunk, TrimStreams
from headwater.state.commands.tables import NewFile, SegmentRun
from headwater.state.machine import LEVEL, LEVELS
from headwater.state.results import Done
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.state import StreamsState
from headwater.state.streams.tables import DataFile, TopicTable
from headwater.types import Domain
from tests.support.promise import promise
from tests.support.scribe import FIRST_CHUNK, TOPIC, Scribe

PROMISES = ("T17",)

LIMITS = Limits(
    file_bytes=48_000, job_bytes=1_000_000, min_task_bytes=4_000, small_file_bytes=8_000, partition_bytes=8_000,
    read_bytes=0,
)  # fmt: skip
ROOT = table_root("t", TOPIC)


class Table:
    """A topic that is written to, settled and merged. The rows of each file are counted by partition."""

    def __init__(self, partitions: int, seed: int = 1) -> None:
        self.scribe = Scribe(StreamsState(Domain(1)))
        self.scribe.streams(*range(1, partitions + 1))
        self.scribe.do(1, SetLevel(LEVEL, LEVELS[LEVEL]))
        lease = self.scribe.do(1, TakeLease(COMPACTION, 1 << 40))
        assert isinstance(lease, Done)
        self.lease = lease.value
        self.chance = random.Random(seed)
        self.rows: dict[str, dict[int, int]] = {}
        """By name of the file: the rows of each partition. A row has a byte."""
        self.written = 0

    @property
    def state(self) -> StreamsState:
        assert isinstance(self.scribe.state, StreamsState)
        return self.scribe.state

    @property
    def table(self) -> TopicTable:
        return self.state.tables[TOPIC]

    def live(self) -> list[DataFile]:
        return sorted(self.table.live(), key=lambda file: file.number)

    def settle(self, sizes: Sequence[int], limits: Limits = LIMITS) -> None:
        """Append so many bytes to each partition, in one object, and settle."""
        at, chunks = FIRST_CHUNK, []
        for stream, size in enumerate(sizes, 1):
            if size:
                chunks.append(Chunk(stream, at, [(size, size, 10)], []))
                at += size + 4
        self.scribe.do(1, self.scribe.wal(*chunks))
        plan = TopicPlan(TOPIC, ROOT, list(self.state.streams.values()), 1_000)
        job = plan_settle(self.state, [plan], store="m://", prefix="x", slots=1, limits=limits)
        files, runs = [], []
        for task in (one for tasks in job.tasks for one in tasks.files):
            count = {part.partition: part.end - part.start for part in task.parts}
            runs += [SegmentRun(p.stream, p.start, p.end, len(files), i, 1) for i, p in enumerate(task.parts)]
            files.append(self._file(count))
        command = SettleFiles(self.lease, TOPIC, ROOT, files, runs, [10] * len(runs), [_typing(f) for f in files])
        assert isinstance(self.scribe.do(1, command), Done)

    def plan(self, limits: Limits = LIMITS) -> Job:
        streams = list(self.state.streams.values())
        return plan_merges(
            [self.table], lambda _: streams, store="m://", prefix="y", slots=1, limits=limits, cut={TOPIC}
        )

    def carry_out(self, job: Job) -> None:
        """Do what an executor does: every row of the sources goes into one new file."""
        files, runs = [], []
        for task in (one for tasks in job.tasks for one in tasks.files):
            count = self._taken(task)
            present = [part for part in task.parts if count.get(part.partition)]
            runs += [SegmentRun(p.stream, p.start, p.end, len(files), i, 1) for i, p in enumerate(present)]
            files.append(self._file(count))
        runs.sort(key=lambda run: (run.stream, run.start))
        typings = [_typing(file) for file in files]
        command = Replace(self.lease, TOPIC, job.removed[TOPIC], files, runs, typings, False)
        result = self.scribe.do(1, command)
        assert isinstance(result, Done), result

    def finish(self, limits: Limits = LIMITS) -> int:
        """Merge and cut until there is nothing to do; returns how many rows were written for it."""
        written = self.written
        for _ in range(200):
            job = self.plan(limits)
            if not job:
                return self.written - written
            self.carry_out(job)
        raise AssertionError("files are merged and cut for ever")

    def _taken(self, task: FileTask) -> dict[int, int]:
        count: dict[int, int] = {}
        for name, _ in task.sources:
            for partition, rows in self.rows[name].items():
                if task.takes(partition):
                    count[partition] = count.get(partition, 0) + rows
        return count

    def _file(self, count: dict[int, int]) -> NewFile:
        name = f"{len(self.rows)}.parquet"
        self.rows[name] = count
        rows = sum(count.values())
        self.written += rows
        size = int(rows * self.chance.uniform(0.9, 1.1))
        return NewFile(name, size, rows, len(count), min(count), max(count), 0, rows, 1, 10, 0, 7)


def _typing(file: NewFile) -> FileTyping:
    return FileTyping(file.rows, 0, 0, ())


@promise("T17")
def test_files_that_partitions_share_are_cut() -> None:
    """As soon as each partition has enough for a file that is not small."""
    made = Table(4)
    made.settle([5_000, 6_000, 5_000, 4_000])
    assert not made.plan()
    made.settle([6_000, 7_000, 7_000, 7_000])
    made.finish()
    assert [(f.first_partition, f.last_partition) for f in made.live()] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert [f.rows for f in made.live()] == [11_000, 13_000, 12_000, 11_000]
    assert not made.plan(Limits(file_bytes=48_000, small_file_bytes=8_000, partition_bytes=0))


@promise("T17")
def test_a_large_partition_has_several_files() -> None:
    """None is larger than files may be; small partitions go on sharing one."""
    made = Table(4)
    for _ in range(5):
        made.settle([30_000, 500, 500, 500], Limits(partition_bytes=0))
    made.finish()
    alone = [file for file in made.live() if file.first_partition == file.last_partition == 0]
    assert sum(file.rows for file in alone) == 150_000 and len(alone) >= 3
    assert max(file.rows for file in made.live()) <= LIMITS.file_bytes
    assert [file.rows for file in made.live() if file not in alone] == [7_500]


@promise("T17")
def test_rows_that_the_log_has_left_go_along() -> None:
    """Their partitions are in no index any more, and no file may be without a place in it."""
    made = Table(3)
    made.settle([7_000, 7_000, 7_000])
    made.settle([12_000, 0, 9_000], Limits(partition_bytes=0))
    made.scribe.do(1, TrimStreams([(1, 7_000), (2, 7_000)]))
    made.finish()
    assert sum(file.rows for file in made.live()) == 42_000
    counts = [made.rows[file.name] for file in made.live()]
    assert {0: 19_000} in counts and {1: 7_000, 2: 16_000} in counts


@promise("T17")
@pytest.mark.parametrize(("partitions", "rounds"), [(2, 60), (5, 60), (16, 40), (100, 12)])
def test_it_comes_to_an_end(partitions: int, rounds: int) -> None:
    """Whatever settles, files are not written again and again, small ones do not pile up, and most are narrow."""
    made = Table(partitions, partitions)
    chance, total, again = made.chance, 0, 0
    weights = [chance.paretovariate(1.2) for _ in range(partitions)]
    for _ in range(rounds):
        amount = chance.choice([500, 3_000, 12_000, 40_000])
        sizes = [int(amount * weight / sum(weights)) for weight in weights]
        if not any(sizes):
            continue
        total += sum(sizes)
        made.settle(sizes)
        again += made.finish()
        assert sum(file.rows for file in made.live()) == total
        small = [file for file in made.live() if file.size < LIMITS.small_file_bytes]
        assert len(small) <= 2 * LIMITS.merge_files + 2 * total // LIMITS.partition_bytes
    assert again < 4 * total
    assert not any(True for _ in mergeable(made.table, list(made.state.streams.values()), LIMITS))
    if total > 6 * partitions * target_bytes(LIMITS):
        files = made.live()
        read = [sum(f.rows for f in files if f.first_partition <= p <= f.last_partition) for p in range(partitions)]
        assert total <= sum(read) < total + 0.3 * total * partitions
