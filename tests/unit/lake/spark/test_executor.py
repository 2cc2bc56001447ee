"""What a task makes of WAL runs, with transactions in them."""

import pytest

from harness.virtual import run
from headwater.errors import StoreUnavailable
from headwater.lake.planning import Limits, TopicPlan, plan_settle, table_root
from headwater.lake.spark import executor
from headwater.lake.spark.executor import perform, run_task
from headwater.lake.tasks import FileFacts, Task, TaskFacts, decode_facts, encode
from headwater.objects.memory import MemoryStore
from headwater.state.records import Command
from headwater.state.results import Result
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Pieces
from tests.support.batches import Rec
from tests.support.promise import promise
from tests.support.scribe import START_MS, TOPIC, Scribe
from tests.support.transactions import PLAIN, ObjectWriter

PROMISES = ("T1",)

ONE = Domain(1)
A = 1


class Written:
    """A stream with real objects."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.state = StreamsState(ONE)
        self.scribe = Scribe(self.state)
        self.scribe.streams(A, epoch=5)
        self.by = ObjectWriter(5, self._submit, self.store, ONE)

    async def _submit(self, command: Command) -> Result:
        return self.scribe.do(5, command)

    async def write(self, name: str, *times: int) -> None:
        await self.by.write((A, name, [Rec(b"x" * 40, timestamp=time) for time in times]), created_ms=START_MS)

    def task(self) -> Task:
        plan = TopicPlan(TOPIC, table_root("t", TOPIC), list(self.state.streams.values()), 1_000)
        [task] = plan_settle(self.state, [plan], store="m://", prefix="1-1-", slots=1, limits=Limits()).tasks
        return task

    async def settle(self) -> FileFacts:
        [facts] = (await perform(self.store, self.task())).files
        return facts


@promise("T1", "K5")
def test_newest_timestamps() -> None:
    """The largest timestamp of a run is that of a record that is left."""

    async def told() -> None:
        written = Written()
        await written.write(PLAIN, 5, 9, 7)
        await written.write("a", 50)
        await written.by.end("a", commit=False)
        facts = await written.settle()
        assert [(run.start, run.end, run.groups, run.newest) for run in facts.runs] == [(0, 5, 1, 9)]
        assert facts.file is not None and facts.file.max_timestamp == 9

    run(told())


@promise("T1")
def test_nothing_is_left() -> None:
    """No file is written if all records are aborted, or if there are markers only."""

    async def told() -> None:
        written = Written()
        await written.write("a", 50)
        await written.by.end("a", commit=False)
        objects = dict(written.store.objects)
        facts = await written.settle()
        assert facts.file is None
        assert [(run.start, run.end, run.groups, run.newest) for run in facts.runs] == [(0, 2, 0, -1)]
        assert written.store.objects == objects

    run(told())


@promise("T1")
def test_damage_among_markers() -> None:
    """The run that is damaged is named, and not the whole ones in front of markers."""

    async def told() -> None:
        written = Written()
        for name in ("a", "b", "c"):
            await written.write(name, 1, 2)
            await written.by.end(name, commit=True)
        paths = [found.path for found in written.task().files[0].parts[0].runs]
        data = bytearray(written.store.objects[paths[1]])
        data[-20] ^= 1
        written.store.objects[paths[1]] = bytes(data)
        facts = await written.settle()
        assert facts.file is None
        assert [(found.stream, found.start, found.path) for found in facts.damaged] == [(A, 3, paths[1])]

    run(told())


@promise("T1")
def test_a_store_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error would pass through Spark as a text, and look like a fault of the task."""
    written = Written()
    run(written.write(PLAIN, START_MS))
    task = written.task()

    async def refuse(path: str, pieces: Pieces) -> None:
        raise StoreUnavailable("the store refuses")

    written.store.put = refuse  # type: ignore[method-assign]
    monkeypatch.setattr(executor, "open_store", lambda url, options: written.store)
    assert decode_facts(run_task(encode(task))) == TaskFacts([], "StoreUnavailable: the store refuses")
