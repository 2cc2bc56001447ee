"""Spark jobs: one row per task, `mapInArrow`, facts about files as the result. No data passes through the JVM."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.errors import ConfigError, HeadwaterError, Retriable
from headwater.lake.spark.archive import QUIET, WRITING, archive_path, beside
from headwater.lake.spark.java import java_home
from headwater.lake.spark.session import DEFAULTS, JAVA_OPTIONS, PATIENCE_SECONDS, Sessions, bounded, reason_of
from headwater.lake.tasks import Task, TaskFacts, decode_facts, encode
from headwater.settings.settings import Spark

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("headwater.spark")
SCHEMA = "task int, facts binary"
ARCHIVE_SECONDS = 300.0
"""How long a job and the end of its JVM may take while an archive of classes is written."""

Shipped: TypeAlias = "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]"
"""A function that Spark runs on executors, batch by batch."""


class JobFailed(Retriable):
    """A Spark job failed or took too long. Nothing is lost: nothing refers to the files that it wrote."""


class Jobs:
    """Runs lists of tasks as Spark jobs, one at a time per caller."""

    def __init__(self, sessions: Sessions, timeout_seconds: float) -> None:
        self._sessions = sessions
        self._timeout = timeout_seconds

    def run(self, tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        """The facts of every task, in order. Blocks; call it from a thread."""
        rows = self.collect(tag, len(tasks), _executor_side([encode(task) for task in tasks]))
        facts = {row["task"]: decode_facts(bytes(row["facts"])) for row in rows}
        if len(rows) != len(tasks) or sorted(facts) != list(range(len(tasks))):
            raise JobFailed(f"job {tag}: {len(rows)} answers to {len(tasks)} tasks")
        return [facts[i] for i in range(len(tasks))]

    def warm_up(self, slots: int) -> None:
        """Start the session, and let `slots` workers load what a first task would wait for. A failure is logged."""
        try:
            self.collect("headwater-warm-up", slots, _warming())
        except HeadwaterError as error:
            log.warning("Spark could not be warmed up", extra={"reason": str(error)})

    def collect(self, tag: str, tasks: int, work: Shipped) -> list[Any]:
        """Run a function on the numbers of the tasks; returns its rows. Blocks, but at most as long as a job may take.

        A session that is stuck or dead is dropped, so the next job gets another.
        """
        watch = _Watch(self._sessions, tag, self._timeout)
        try:
            with watch:
                session = watch.session = self._sessions.get()
                session.addTag(tag)
                try:
                    return list(session.range(tasks, numPartitions=tasks).mapInArrow(work, SCHEMA).collect())
                finally:
                    _untag(session, tag)
        except ConfigError:
            raise
        except Exception as error:
            if watch.session is not None and (watch.expired or not _answers(watch.session)):
                self._sessions.replace(watch.session)
            reason = f"took more than {self._timeout:g} s" if watch.expired else reason_of(error)
            raise JobFailed(f"job {tag} of {tasks} tasks: {reason}") from error


class _Watch:
    """Ends a job that takes too long: first it interrupts the job, then it ends the session."""

    def __init__(self, sessions: Sessions, tag: str, seconds: float) -> None:
        self._sessions = sessions
        self._tag = tag
        self._over = threading.Event()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True
        self.session: Any = None
        """None while the session is being started."""
        self.expired = False

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._timer.cancel()
        self._timer.join()

    def _expire(self) -> None:
        self.expired = True
        log.error("a Spark job takes too long", extra={"job": self._tag})
        if self.session is not None:
            # Without Connect only the thread that set a tag knows it, but no other job uses the session.
            bounded(lambda: self.session.interruptTag(self._tag) or self.session.interruptAll(), PATIENCE_SECONDS)
        if not self._over.wait(PATIENCE_SECONDS):
            log.error("a Spark job cannot be interrupted; its session is ended", extra={"job": self._tag})
            self._sessions.abort()


def _untag(session: Any, tag: str) -> None:
    try:
        session.removeTag(tag)
    except Exception as error:  # noqa: BLE001 - the session may be dead
        log.info("a Spark session is gone", extra={"reason": reason_of(error)})


def _answers(session: Any) -> bool:
    """Whether a session whose job failed still runs jobs. If so, the job was at fault and the session is kept."""
    answers: list[Any] = []
    return bounded(lambda: answers.extend(session.range(1).collect()), PATIENCE_SECONDS) and bool(answers)


def _executor_side(tasks: list[bytes]) -> Shipped:
    """The function that Spark sends to executors. It finds its task by the number in the row."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headwater.lake.spark.worker import ease, prepare

        prepare()

        import pyarrow as pa

        from headwater.lake.spark.executor import run_task

        for batch in batches:
            numbers = batch.column(0).to_pylist()
            facts = [run_task(tasks[number]) for number in numbers]
            ease()
            yield pa.record_batch([pa.array(numbers, pa.int32()), pa.array(facts, pa.binary())], ["task", "facts"])

    return work


def _warming() -> Shipped:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headwater.lake.spark.worker import prepare

        prepare()

        import pyarrow as pa

        from headwater.lake.spark.executor import warm_up

        for batch in batches:
            warm_up()
            numbers = batch.column(0).cast(pa.int32())
            yield pa.record_batch([numbers, pa.nulls(len(numbers), pa.binary())], ["task", "facts"])

    return work


def write_archive() -> bool:
    """Write the archive of the classes that a session and a job load. Returns whether it is there now."""
    path = archive_path(java_home())
    fresh = beside(path)
    options = f"{DEFAULTS[JAVA_OPTIONS]} {WRITING}{fresh} {QUIET}"
    sessions = Sessions(Spark(master="local[1]", conf={JAVA_OPTIONS: options}), end_seconds=ARCHIVE_SECONDS)
    try:
        Jobs(sessions, ARCHIVE_SECONDS).warm_up(1)
    finally:
        sessions.close()
    if fresh.exists():
        fresh.replace(path)
    return path.exists()
