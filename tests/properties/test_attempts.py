"""Properties 3, 14, 16 and 19 to 21: jobs that settle, their tasks, and attempts of which one counts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headwater.lake.planning import Limits, pending
from headwater.lake.spark.executor import perform
from headwater.lake.tasks import FileFacts, Task, WalRun, decode_task, encode
from headwater.objects.memory import MemoryStore
from headwater.state.commands.columns import SettleFiles
from headwater.state.results import Done, Refused
from tests.properties.lakes import MARK, Lake, each_of
from tests.support.transactions import PLAIN
from tests.unit.query.test_snapshot import APPEND_TIME, PLAIN_TIME, ROOT

PROMISES = ("T1",)

WHOLE = Limits(file_bytes=1 << 20)


def test_each_record_is_in_one_task() -> None:
    """14: a job divides what can be settled into tasks and files. Each run is in one of them, and in order."""

    async def story(lake: Lake) -> bool:
        for _ in range(3):
            await lake.step("write", [(PLAIN_TIME, PLAIN, 2, 5), (APPEND_TIME, PLAIN, 2, 6)])
        limits = Limits(file_bytes=lake.chance.choice((1, 150, 400)), min_task_bytes=lake.chance.choice((1, 300)))
        job = lake.settle_job(limits, slots=lake.chance.randint(1, 4))
        assert [len(task.files) for task in job.tasks] == [len(topics) for topics in job.topics]
        files = [file for task in job.tasks for file in task.files]
        for stream in lake.state.streams.values():
            parts = [part for file in files for part in file.parts if part.stream == stream.id]
            entries = list(pending(lake.state, stream))
            ends = [stream.settled, *(part.end for part in parts)]
            assert [part.start for part in parts] == ends[:-1]
            assert ends[-1] == max([stream.settled, *(entry.end for entry in entries)])
            runs = [(one.start, one.end) for part in parts for one in part.runs]
            assert runs == [(entry.start, entry.end) for entry in entries if entry.in_wal]
        for file in files:
            sizes = [one.length for part in file.parts for one in part.runs]
            assert sum(sizes) <= limits.file_bytes or len(sizes) == 1
        return len(files) > 1

    each_of(story)


def test_rows_go_through_the_object_store() -> None:
    """16: tasks and their facts name objects and have no rows; whoever has the task and the store can do it."""

    async def story(lake: Lake) -> bool:
        job = lake.settle_job(WHOLE)
        for task in job.tasks:
            elsewhere = MemoryStore()
            elsewhere.objects = {path: lake.store.objects[path] for path in paths_of(task)}
            sent = encode(task)
            answer = encode(await perform(elsewhere, decode_task(sent)))
            assert MARK not in sent and MARK not in answer
            stored = b"".join(data for path, data in elsewhere.objects.items() if path.startswith(ROOT))
            assert MARK in stored
        return bool(job.tasks)

    each_of(story)


def paths_of(task: Task) -> set[str]:
    """The objects that a task reads."""
    runs: list[WalRun] = [one for file in task.files for part in file.parts for one in part.runs]
    return {one.path for one in runs} | {f"{file.root}/{name}" for file in task.files for name, _ in file.sources}


def names_of(facts: list[FileFacts]) -> set[str]:
    return {f"{ROOT}/{fact.file.name}" for fact in facts if fact.file is not None}


def plain(facts: list[FileFacts]) -> list[FileFacts]:
    """Facts without the names of the files."""
    return [
        msgspec.structs.replace(fact, file=fact.file and msgspec.structs.replace(fact.file, name="")) for fact in facts
    ]


def test_of_several_attempts_one_counts() -> None:
    """3, 19, 21: each attempt writes files of its own, which no reader sees. After the commit of one, only that counts.

    Executors may die or run a task twice. What other attempts left may be damaged or deleted; no answer changes.
    """

    async def story(lake: Lake) -> bool:
        before, content, rows = dict(lake.store.objects), lake.content(), lake.visible()
        job = lake.settle_job(WHOLE)
        made = [await lake.attempted(job) for _ in range(lake.chance.randint(2, 4))]
        written = set[str]().union(*map(names_of, made))
        assert sum(len(names_of(facts)) for facts in made) == len(written)
        assert lake.store.objects.keys() - before.keys() == written
        assert {path: lake.store.objects[path] for path in before} == before
        assert all(path.startswith(f"{ROOT}/_data/1-1-") for path in written)
        assert all(plain(facts) == plain(made[0]) for facts in made)
        assert lake.content() == content and not written & {file.path for file in lake.take().files}
        chosen = lake.chance.choice(made)
        if not names_of(chosen):
            return False
        assert isinstance(lake.commit(lake.settling(chosen)), Done)
        others = written - names_of(chosen)
        for path in others:
            if lake.chance.random() < 0.5:
                lake.store.objects[path] = b"half a file"
            else:
                del lake.store.objects[path]
        assert names_of(chosen) <= {file.path for file in lake.take(version=lake.version).files}
        assert not others & {file.path for file in lake.take().files}
        assert await lake.rows() == lake.visible() == rows
        return True

    each_of(story)


Spoil = Callable[[SettleFiles], SettleFiles]


def _file(**changed: object) -> Spoil:
    return lambda made: msgspec.structs.replace(
        made, files=[msgspec.structs.replace(made.files[0], **changed), *made.files[1:]]
    )


def _run(change: Callable[[SettleFiles], dict[str, int]]) -> Spoil:
    return lambda made: msgspec.structs.replace(
        made, runs=[msgspec.structs.replace(made.runs[0], **change(made)), *made.runs[1:]]
    )


SPOILS: dict[str, Spoil] = {
    "a file without rows": _file(rows=0),
    "a file without bytes": _file(size=0),
    "a file without row groups": _file(groups=0),
    "a file without a name": _file(name=""),
    "a run that begins later": _run(lambda made: {"start": made.runs[0].start + 1}),
    "a run that ends later": _run(lambda made: {"end": made.runs[0].end + 1_000}),
    "a run in a file that is not there": _run(lambda made: {"file": len(made.files)}),
    "a run in row groups that are not there": _run(lambda made: {"file": 0, "first_group": 1_000}),
    "a run of another topic": _run(lambda made: {"stream": 77}),
    "a timestamp that no record has": lambda made: msgspec.structs.replace(made, newest=[1 << 50, *made.newest[1:]]),
    "a timestamp too few": lambda made: msgspec.structs.replace(made, newest=made.newest[1:]),
    "a file that no run names": lambda made: msgspec.structs.replace(made, files=[*made.files, made.files[0]]),
    "no runs": lambda made: msgspec.structs.replace(made, runs=[], newest=[]),
    "another lease": lambda made: msgspec.structs.replace(made, lease=made.lease + 1),
}


def test_a_commit_is_checked_as_a_whole() -> None:
    """20: the ledger's commit makes outputs count. One wrong fact refuses all of it; the right facts then stand."""
    used = set[str]()

    async def story(lake: Lake) -> bool:
        facts = await lake.attempted(lake.settle_job(WHOLE))
        if not names_of(facts):
            return False
        made, content = lake.settling(facts), lake.content()
        assert isinstance(made, SettleFiles)
        for name in lake.chance.sample(sorted(SPOILS), 4):
            result = lake.commit(SPOILS[name](made))
            assert isinstance(result, Refused), name
            assert lake.content() == content, name
            used.add(name)
        assert isinstance(lake.commit(made), Done) and lake.content() != content
        return True

    each_of(story)
    assert used == SPOILS.keys()
