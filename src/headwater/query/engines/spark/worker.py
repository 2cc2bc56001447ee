"""A child of the gateway that answers queries with Spark, one at a time.

Rows of files are read by Spark itself. Rows that are still in the WAL are written into a file beside them first.
Spark's Java ends with this process, and has the same rights.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headwater import landlock
from headwater.errors import BadInput
from headwater.lake.spark.java import java_homes
from headwater.lake.spark.session import reason_of
from headwater.query.engines.contract import EngineTask, TaskTable
from headwater.query.engines.frames import Failure, Kind, Setup, Why
from headwater.query.engines.serving import Listener, Outlet, Worker, confine, hot_rows, received, run
from headwater.query.engines.spark.lockdown import check
from headwater.query.engines.spark.places import Places, place_of

if TYPE_CHECKING:
    from headwater.query.engines.hot import HotRows
    from headwater.query.engines.spark.session import Session

log = logging.getLogger("headwater.sql")
MAX_SAID = 2_000
"""Characters of an error of Spark that are looked at."""
_SAID = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*")
"""How Spark's own errors begin."""
_CALLING = "An error occurred while calling "
"""How errors of Java begin that Python has met."""
_GONE = ("PATH_NOT_FOUND", "FileNotFoundException", "FAILED_READ_FILE", "does not exist")
_TOO_MUCH = ("OutOfMemoryError", "spark.driver.maxResultSize", "No space left on device")


class Sessions:
    """Spark in its process: a session for every query. `serving.Answering` says how it is used."""

    def __init__(self, setup: Setup, places: Places, session: Session, hot: HotRows, runner: asyncio.Runner) -> None:
        self.setup = setup
        self.places = places
        self.session = session
        self.hot = hot
        self.runner = runner

    def prepare(self, waiting: Callable[[], bool]) -> None:
        """Nothing: a session is made within milliseconds."""

    def begin(self, task: EngineTask) -> Work:
        """A query with a directory of its own."""
        directory = Path(self.setup.spill) / f"query-{task.id}"
        directory.mkdir()
        return Work(self, task, directory)


class Work:
    """One query. `serving.Work` says how it is used."""

    def __init__(self, engine: Sessions, task: EngineTask, directory: Path) -> None:
        self._engine = engine
        self._session = engine.session
        self._task = task
        self._directory = directory

    def answer(self, out: Outlet) -> None:
        """Look at the statement, make the views, and run it."""
        import pyarrow as pa

        from headwater.query.engines.hot import hot_schema

        session, task, place = self._session, self._task, self._engine.places.of
        session.begin()
        check(session.parsed(task.sql), self._engine.setup.functions)
        for table in task.tables:
            files = [] if task.columns_only else table.files
            whole = [place(file.path) for file in files if not file.cut]
            cut = [place(file.path) for file in files if file.cut]
            if table.hot and not task.columns_only:
                whole.append(place_of(self._put_aside(table, out)))
            bounds = [(bound.partition, bound.start, bound.end) for bound in table.bounds]
            session.view(table.view, hot_schema(table.columns), whole, cut, bounds)
            out.check()
        statement = session.prepared(task.sql, task.named)
        if task.explain:
            plan = pa.record_batch([pa.array(statement.plan.splitlines())], ["plan"])
            out.columns(plan.schema)
            out.rows(plan)
            return
        out.columns(statement.schema)
        if task.columns_only:
            return
        for batch in statement.batches():
            out.rows(batch)

    def interrupt(self) -> None:
        """End the jobs that run."""
        self._session.interrupt()

    def percent(self) -> float:
        """What Spark tells of its tasks."""
        return self._session.percent()

    def close(self) -> None:
        """Remove the rows that were put aside."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def failure(self, error: Exception) -> Failure:
        """What an error means. Without Spark's Java this process is of no use, and ends."""
        if not self._alive():
            raise error
        if isinstance(error, OSError):
            return Failure(Why.TOO_MUCH, f"rows that are not settled cannot be put aside: {error}")
        return failure_of(error, self._task.tables)

    def _alive(self) -> bool:
        """Whether Spark's Java still answers."""
        try:
            self._session.percent()
        except Exception as error:  # noqa: BLE001 - whatever it is, it does not answer
            log.warning("Spark has died", extra={"reason": reason_of(error)})
            return False
        return True

    def _put_aside(self, table: TaskTable, out: Outlet) -> Path:
        """The rows of the WAL in a file, so that Spark reads them as it reads the others."""
        from pyarrow import parquet

        from headwater.query.engines.hot import hot_schema

        path, most = self._directory / f"{table.view}.parquet", self._engine.setup.spill_bytes

        async def write() -> None:
            size = 0
            with parquet.ParquetWriter(path, hot_schema(table.columns), compression="lz4") as writer:
                async for piece in self._engine.hot.pieces(table.hot, table.columns, table.typing, table.view):
                    out.check()
                    writer.write_table(piece)
                    size += piece.nbytes
                    if size > most:
                        raise BadInput("rows that are not settled take more than sql.spill_bytes")

        self._engine.runner.run(write())
        return path


def failure_of(error: Exception, tables: list[TaskTable]) -> Failure:
    """What an error of Spark means, in its own words without traces."""
    text = str(error)
    if any(word in text for word in _GONE):
        for table in tables:
            for file in table.files:
                if file.path in text:
                    return Failure(Why.GONE, f"{file.path} cannot be read: {said(text)}")
    message = said(text)
    for table in tables:
        message = message.replace(table.view, table.topic)
    if any(word in text for word in _TOO_MUCH):
        return Failure(Why.TOO_MUCH, f"the query needs more than it may have: {message}")
    return Failure(Why.FAILED, message)


def said(text: str) -> str:
    """The first sentence of an error of Spark."""
    found = _SAID.search(text)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(_CALLING)]
    first = found[0] if found else lines[0].removeprefix(": ") if lines else "Spark has failed"
    return re.sub(r"( If necessary set .*)? SQLSTATE: \w+.*$", "", first[:MAX_SAID])[:500]


# --- the process ---------------------------------------------------------------------------------------------


def main(descriptor: int) -> None:
    """Serve the gateway at the other end of a socket."""
    channel, setup = received(descriptor, "sql-spark")
    places = Places(setup.store, setup.options, setup.jars)
    java, real = java_homes()
    # Python, Java and Python's workers talk over ports of the loopback that the system chooses, so none is closed.
    confine(setup, places.directories, None, programs(java, real))
    from headwater.query.engines.spark.session import Session

    channel.send(Kind.READY)  # tasks wait until Spark has started
    listener = Listener(channel)  # a gateway that goes while Spark starts is noticed
    own = (setup.memory_bytes, setup.threads, setup.spill)
    session = Session(*own, java, places.class_path, places.hadoop)
    with asyncio.Runner() as runner:
        Worker(channel, listener, Sessions(setup, places, session, hot_rows(setup), runner)).serve()


def programs(*homes: str) -> list[str]:
    """What Spark starts: shells, Python, and Java of these homes."""
    found = [place for home in homes for place in landlock.java(home)]
    return [*landlock.PROGRAMS, *landlock.libraries(), *found, sys.prefix, sys.base_prefix]


if __name__ == "__main__":
    run(main)
