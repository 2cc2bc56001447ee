"""Jobs: one row a task, `mapInArrow`, file facts back. No data passes through the driver or the JVM."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headwater.errors import StoreUnavailable
from headwater.lake.spark.session import Sessions
from headwater.lake.tasks import Task, TaskFacts, decode_facts, encode

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("headwater.spark")
SCHEMA = "task int, facts binary"


class JobFailed(StoreUnavailable):
    """A Spark job failed or took too long. Nothing is lost: what it wrote is not referred to by anything."""


class Jobs:
    """Runs lists of tasks as Spark jobs, one at a time per caller."""

    def __init__(self, sessions: Sessions, timeout_seconds: float) -> None:
        self._sessions = sessions
        self._timeout = timeout_seconds

    def run(self, tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        """The facts of every task, in order. Blocks; call it from a thread."""
        session = self._sessions.get()
        timer = threading.Timer(self._timeout, self._interrupt, (session, tag))
        timer.daemon = True
        timer.start()
        try:
            session.addTag(tag)
            rows = (
                session.range(len(tasks), numPartitions=len(tasks))
                .mapInArrow(_executor_side([encode(task) for task in tasks]), SCHEMA)
                .collect()
            )
        except Exception as error:
            self._sessions.replace(session)
            raise JobFailed(f"job {tag} of {len(tasks)} tasks: {_first_line(error)}") from error
        finally:
            timer.cancel()
            _untag(session, tag)
        facts = {row["task"]: decode_facts(bytes(row["facts"])) for row in rows}
        if len(rows) != len(tasks) or sorted(facts) != list(range(len(tasks))):
            raise JobFailed(f"job {tag}: {len(rows)} answers to {len(tasks)} tasks")
        return [facts[i] for i in range(len(tasks))]

    def _interrupt(self, session: Any, tag: str) -> None:
        log.error("a Spark job takes too long", extra={"job": tag, "seconds": self._timeout})
        try:
            session.interruptTag(tag)
        except Exception:
            log.exception("a Spark job could not be interrupted", extra={"job": tag})
        # A job that does not even react is left to its dead session.
        self._sessions.replace(session)


def _untag(session: Any, tag: str) -> None:
    try:
        session.removeTag(tag)
    except Exception as error:  # noqa: BLE001 - the session may be dead
        log.info("a Spark session is gone", extra={"reason": _first_line(error)})


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0][:500] or type(error).__name__


def _executor_side(tasks: list[bytes]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark ships: it finds its task by the row's number."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from headwater.lake.spark.executor import run_task

        for batch in batches:
            numbers = batch.column(0).to_pylist()
            facts = [run_task(tasks[number]) for number in numbers]
            yield pa.record_batch([pa.array(numbers, pa.int32()), pa.array(facts, pa.binary())], ["task", "facts"])

    return work
