"""Seeded histories of a topic and its table, in memory. What holds of tables is checked on all of them.

The topic has two partitions and transactions. It is written to, settled, merged, trimmed, appended to in bulk, and its
table loses files. The segments are real Parquet files. `tests/unit/query/test_snapshot.py` has the model of the rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from harness.virtual import run
from headwater.lake.commands import replace_command, settle_command
from headwater.lake.merging import plan_merge
from headwater.lake.planning import Job, Limits, TopicPlan, plan_settle
from headwater.lake.tasks import FileFacts
from headwater.query.snapshot import Snapshot
from headwater.state.commands.tables import Replace, Settle
from headwater.state.records import Command
from headwater.state.results import Result
from headwater.state.streams.state import StreamsState
from headwater.state.streams.tables import TopicTable
from tests.support.batches import Rec
from tests.support.scribe import START_MS, TOPIC, Scribe
from tests.support.transactions import PLAIN
from tests.unit.query.test_snapshot import APPEND_TIME, COMPACTOR, IDS, PLAIN_TIME, ROOT, History, Row

EXAMPLES = 100
"""How many histories there are, and how many times a property is tried."""
STEPS, FEW = 14, 3
MARK = b"row "
"""What every value begins with."""
SMALL = Limits(merge_files=2, file_bytes=1 << 30)


@dataclass(frozen=True, slots=True)
class Commit:
    """A command, what became of it, and the version of the table before and after it."""

    command: Command
    result: Result
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Early:
    """A snapshot in the middle of a history, and what was read then: its rows, and those of its version alone."""

    snapshot: Snapshot
    rows: list[Row]
    settled: list[Row]


class NotingScribe(Scribe):
    """A scribe that notes every command."""

    def __init__(self, known: Scribe) -> None:
        super().__init__(known.state)
        self.counters, self.records, self.sequence = known.counters, known.records, known.sequence
        self.commits: list[Commit] = []

    def do(self, epoch: int, command: Command, clock_ms: int = START_MS) -> Result:
        before = version_of(self.state)
        result = super().do(epoch, command, clock_ms)
        self.commits.append(Commit(command, result, before, version_of(self.state)))
        return result


class Lake(History):
    """One history, and what can be done to it on the way."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)
        self.noted = NotingScribe(self.scribe)
        self.scribe = self.noted
        self.early: list[Early] = []

    def _made(self, count: int, stamp: int) -> list[Rec]:
        return [Rec(MARK + (rec.value or b""), timestamp=stamp) for rec in super()._made(count, stamp)]

    @property
    def table(self) -> TopicTable | None:
        return self.state.tables.get(TOPIC)

    @property
    def version(self) -> int:
        return version_of(self.state)

    def files(self) -> list[str]:
        """The paths of all objects below the table."""
        return [path for path in self.store.objects if path.startswith("tables/")]

    async def walk(self, steps: int = FEW) -> None:
        """Some steps of any kind, chosen by the seed."""
        for _ in range(steps):
            await self.step(*any_step(self.chance))

    async def begin(self) -> None:
        """A table with a version, some steps of any kind, and records that are not settled."""
        await self.write_and_settle(1)
        await self.walk()
        await self.step("write", [(PLAIN_TIME, PLAIN, 2, 5), (APPEND_TIME, PLAIN, 1, 6)])

    async def write_and_settle(self, times: int) -> None:
        """So many files, one after another, with rows of both partitions."""
        for _ in range(times):
            counts = self.chance.randint(1, 3), self.chance.randint(1, 3)
            await self.step("write", [(PLAIN_TIME, PLAIN, counts[0], 5), (APPEND_TIME, PLAIN, counts[1], 6)])
            await self.settle(1 << 20)

    def settle_job(self, limits: Limits, slots: int = 2) -> Job:
        """A plan to settle what can be settled now."""
        plan = TopicPlan(TOPIC, ROOT, list(self.state.streams.values()), 1_000)
        return plan_settle(self.state, [plan], store=self.store.url, prefix="1-1-", slots=slots, limits=limits)

    def merge_job(self, limits: Limits = SMALL) -> Job:
        """A plan to merge the small files of the table."""
        tables, streams = list(self.state.tables.values()), list(self.state.streams.values())
        return plan_merge(tables, lambda _: streams, store=self.store.url, prefix="1-2-", slots=1, limits=limits)

    async def attempted(self, job: Job) -> list[FileFacts]:
        """Do the tasks of a job. Nothing is committed."""
        return await self._perform(job.tasks)

    def settling(self, facts: list[FileFacts]) -> Settle:
        """The commit of a settle."""
        return settle_command(self._lease, TOPIC, ROOT, facts)

    def merging(self, job: Job, facts: list[FileFacts]) -> Replace:
        """The commit of a merge."""
        return replace_command(self.state, self._lease, TOPIC, job.removed[TOPIC], facts)

    def commit(self, command: Command, epoch: int = COMPACTOR) -> Result:
        """Send a command, of the compactor unless another writer is named."""
        return self.scribe.do(epoch, command, self._now)

    def content(self) -> bytes:
        """What commits change: streams with their indexes, WAL objects and tables."""
        streams = [(s.id, s.log_start, s.next_offset, s.settled, s.index.pack()) for s in self.state.streams.values()]
        tables = [table.pack() for table in self.state.tables.values()]
        return msgspec.msgpack.encode((streams, self.state.objects.pack(), tables, self.state.last_file))


def version_of(state: object) -> int:
    """The newest version of the table; 0 without one."""
    assert isinstance(state, StreamsState)
    table = state.tables.get(TOPIC)
    return table.last_sequence if table is not None else 0


def any_step(chance: random.Random) -> tuple[Any, ...]:
    """A step of a history: writes and settles are the most frequent."""
    streams = [chance.choice((PLAIN_TIME, APPEND_TIME)) for _ in range(chance.randint(1, 3))]
    parts = [(s, chance.choice((PLAIN, PLAIN, *IDS)), chance.randint(1, 3), chance.randint(0, 50)) for s in streams]
    return chance.choice(
        [
            *[("write", parts)] * 5,
            *[("settle", chance.choice((1, 150, 1 << 20)))] * 4,
            *[("merge",)] * 2,
            ("recut",),
            *[("end", chance.choice(IDS), chance.random() < 0.5)] * 2,
            ("leap", streams[0], chance.randint(0, 4)),
            ("reserve", [streams[0]], chance.randint(1, 3)),
            ("fill", chance.randint(0, 2), chance.random() < 0.7),
            ("retire", chance.randint(0, 3)),
            ("trim", streams[0], chance.randint(1, 6)),
            ("restore",),
        ]
    )


@cache
def lakes() -> list[Lake]:
    """All histories, to look at. A test that changes one makes its own."""
    return [run(_told(seed)) for seed in range(EXAMPLES)]


async def _told(seed: int) -> Lake:
    lake = Lake(seed)
    await lake.write_and_settle(1)
    await lake.walk(STEPS // 2)
    lake.early.append(Early(lake.take(), await lake.rows(), await lake.rows(version=lake.version)))
    await lake.walk(STEPS // 2)
    return lake


def tables() -> Iterator[tuple[Lake, TopicTable]]:
    """All histories, each with its table."""
    for lake in lakes():
        assert lake.table is not None
        yield lake, lake.table


def each_of(story: Callable[[Lake], Coroutine[Any, Any, bool]]) -> None:
    """Run a story with a new lake for each seed, until a hundred of them had something to try."""
    seed = tried = 0
    while tried < EXAMPLES:
        assert seed < 2 * EXAMPLES, f"only {tried} of {seed} histories had something to try"
        tried += run(_begun(story, Lake(seed)))
        seed += 1


async def _begun(story: Callable[[Lake], Coroutine[Any, Any, bool]], lake: Lake) -> bool:
    await lake.begin()
    return await story(lake)
