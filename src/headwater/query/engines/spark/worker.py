"""A child of the gateway that answers queries with Spark, one at a time.

Rows of files are read by Spark itself. Rows that are still in the WAL are written into a file beside them first. The
main thread works; others listen for `CANCEL`, report progress, and end the process when the gateway is gone. Spark's
Java ends with this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import resource
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import BadInput, ConfigError, CorruptObject, HeadwaterError, Retriable
from headwater.lake.spark.session import reason_of
from headwater.ops import logs
from headwater.priority import step_back
from headwater.query.asking import Refused
from headwater.query.engines.contract import EngineTask, TaskTable
from headwater.query.engines.frames import Channel, Failure, Kind, Setup, Why
from headwater.query.engines.sending import pieces_of, stream_of
from headwater.query.engines.spark.lockdown import check
from headwater.settings.objects import local_path

if TYPE_CHECKING:
    from headwater.query.engines.hot import HotRows
    from headwater.query.engines.spark.session import Session

log = logging.getLogger("headwater.sql")
PROGRESS_SECONDS = 0.5
AGAIN_SECONDS = 0.2
"""How often a query that was cancelled is interrupted. An interrupt has no effect between two jobs."""
KILL_FIRST = 800
"""How much sooner the system kills this process than others when memory is short, of 1000."""
_SAID = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*")
"""How Spark's own errors begin."""
_GONE = ("PATH_NOT_FOUND", "FileNotFoundException", "FAILED_READ_FILE", "does not exist")
_TOO_MUCH = ("OutOfMemoryError", "spark.driver.maxResultSize", "No space left on device")


class Stopped(HeadwaterError):
    """The gateway has cancelled the query."""


class Listener:
    """The threads that hear the gateway, report progress and interrupt, while the main thread works."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._changed = threading.Condition()
        self._tasks: list[bytes] = []
        self._session: Session | None = None
        self._current = self._cancelled = ""
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        threading.Thread(target=self._tend, name="tender", daemon=True).start()

    def next_task(self) -> bytes:
        """Wait for the next task."""
        with self._changed:
            self._changed.wait_for(lambda: self._tasks)
            return self._tasks.pop(0)

    @contextlib.contextmanager
    def working(self, query: str, session: Session) -> Iterator[None]:
        """Work on a query: it may be interrupted, and its progress is reported."""
        with self._changed:
            self._current, self._session = query, session
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._current, self._session = "", None

    @property
    def stopped(self) -> bool:
        """Whether the gateway has cancelled the query."""
        return bool(self._current) and self._cancelled == self._current

    def check(self) -> None:
        """Raise `Stopped` if the gateway has cancelled the query."""
        if self.stopped:
            raise Stopped("the query was cancelled")

    def _listen(self) -> None:
        while True:
            try:
                frame = self.channel.receive()
            except OSError:
                frame = None
            if frame is None:
                os._exit(0)  # the gateway is gone: nobody waits for the answer
            kind, body = frame
            with self._changed:
                if kind is Kind.TASK:
                    self._tasks.append(body)
                elif kind is Kind.CANCEL:
                    self._cancelled = body.decode()
                self._changed.notify_all()

    def _tend(self) -> None:
        told = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._session is not None)
                self._changed.wait(AGAIN_SECONDS if self.stopped else PROGRESS_SECONDS)
                session, stopped = self._session, self.stopped
            if session is None:
                told = 0.0
                continue
            try:
                if stopped:
                    session.interrupt()
                    continue
                percent = session.percent()
            except Exception as error:  # noqa: BLE001 - Java may be gone, which the main thread reports
                log.info("Spark does not answer", extra={"reason": reason_of(error)})
                continue
            if percent > told:
                told = percent
                with contextlib.suppress(OSError):
                    self.channel.send(Kind.PROGRESS, msgspec.msgpack.encode(percent))


class Worker:
    """Answers queries."""

    def __init__(
        self, setup: Setup, listener: Listener, session: Session, hot: HotRows, runner: asyncio.Runner
    ) -> None:
        root = local_path(setup.store, "file")
        if root is None:
            raise ConfigError("Spark answers queries over objects in a local directory only")
        self._root = Path(root)
        self._setup = setup
        self._answers = listener.channel
        self._session = session
        self._hot = hot
        self._runner = runner
        self._listener = listener
        self._tasks = msgspec.msgpack.Decoder(EngineTask)

    def serve(self) -> None:
        """Answer one query after the other, until the process ends."""
        while True:
            task = self._tasks.decode(self._listener.next_task())
            failure = self._answered(task)
            if failure is None:
                self._answers.send(Kind.DONE)
            else:
                self._answers.send(Kind.FAILED, msgspec.msgpack.encode(failure))

    def _answered(self, task: EngineTask) -> Failure | None:
        """Answer a query; returns why it has failed."""
        directory = Path(self._setup.spill) / f"query-{task.id}"
        directory.mkdir()
        with self._listener.working(task.id, self._session):
            try:
                self._answer(task, directory)
            except Stopped as error:
                return Failure(Why.CANCELLED, str(error))
            except Refused as error:
                return Failure(Why.FAILED, str(error))
            except CorruptObject as error:
                return Failure(Why.CORRUPT, str(error))
            except Retriable as error:  # SnapshotGone, and a store that does not answer
                return Failure(Why.GONE, str(error))
            except BadInput as error:
                return Failure(Why.TOO_MUCH, str(error))
            except OSError as error:
                if not self._alive():
                    raise
                return Failure(Why.TOO_MUCH, f"rows that are not settled cannot be put aside: {error}")
            except Exception as error:  # Spark's own, of several libraries
                if self._listener.stopped:
                    return Failure(Why.CANCELLED, "the query was cancelled")
                if not self._alive():
                    raise
                return failure_of(error, task.tables)
            finally:
                shutil.rmtree(directory, ignore_errors=True)
        return None

    def _alive(self) -> bool:
        """Whether Spark's Java still answers. Without it this process is of no use, and ends."""
        try:
            self._session.percent()
        except Exception as error:  # noqa: BLE001 - whatever it is, it does not answer
            log.warning("Spark has died", extra={"reason": reason_of(error)})
            return False
        return True

    def _answer(self, task: EngineTask, directory: Path) -> None:
        import pyarrow as pa

        self._session.begin()
        check(self._session.parsed(task.sql), self._setup.functions)
        for table in task.tables:
            files = [] if task.columns_only else table.files
            whole = [self._root / file.path for file in files if not file.cut]
            cut = [self._root / file.path for file in files if file.cut]
            if table.hot and not task.columns_only:
                whole.append(self._put_aside(table, directory))
            bounds = [(bound.partition, bound.start, bound.end) for bound in table.bounds]
            self._session.view(table.view, whole, cut, bounds)
            self._listener.check()
        statement = self._session.prepared(task.sql, task.named)
        if task.explain:
            plan = pa.record_batch([pa.array(statement.plan.splitlines())], ["plan"])
            self._answers.send(Kind.COLUMNS, stream_of(plan.schema, None))
            self._answers.send(Kind.ROWS, stream_of(plan.schema, plan))
            return
        schema = statement.schema
        self._answers.send(Kind.COLUMNS, stream_of(schema, None))
        if task.columns_only:
            return
        for batch in statement.batches():
            for piece in pieces_of(batch):
                self._listener.check()
                self._answers.send(Kind.ROWS, stream_of(schema, piece))
        self._listener.check()

    def _put_aside(self, table: TaskTable, directory: Path) -> Path:
        """The rows of the WAL in a file, so that Spark reads them as it reads the others."""
        from pyarrow import parquet

        from headwater.query.scan import schema_of

        path = directory / f"{table.view}.parquet"

        async def write() -> None:
            size = 0
            with parquet.ParquetWriter(path, schema_of(), compression="lz4") as writer:
                async for piece in self._hot.pieces(table.hot):
                    self._listener.check()
                    writer.write_table(piece)
                    size += piece.nbytes
                    if size > self._setup.spill_bytes:
                        raise BadInput("rows that are not settled take more than sql.spill_bytes")

        self._runner.run(write())
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
    first = found[0] if found else next((line for line in text.splitlines() if line.strip()), "Spark has failed")
    return re.sub(r"( If necessary set .*)? SQLSTATE: \w+.*$", "", first)[:500]


# --- the process ---------------------------------------------------------------------------------------------


def main(descriptor: int) -> None:
    """Serve the gateway at the other end of a socket."""
    channel = Channel(socket.socket(fileno=descriptor))
    frame = channel.receive()
    if frame is None or frame[0] is not Kind.SETUP:
        return
    setup = msgspec.msgpack.decode(frame[1], type=Setup)
    logs.setup(setup.log_level, node="sql-spark")
    step_back(setup.niceness)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(KILL_FIRST))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from headwater.objects import open_store
    from headwater.query.engines.hot import HotRows
    from headwater.query.engines.spark.session import Session

    channel.send(Kind.READY)  # tasks wait until Spark has started
    listener = Listener(channel)  # a gateway that goes while Spark starts is noticed
    session = Session(setup.memory_bytes, setup.threads, setup.spill)
    with asyncio.Runner() as runner:
        store = open_store(setup.store, setup.options)
        Worker(setup, listener, session, HotRows(store, setup.hot_bytes), runner).serve()


if __name__ == "__main__":
    code = 1
    try:
        main(int(sys.argv[1]))
        code = 0
    except Exception:
        log.exception("Spark's process for queries has failed")
    finally:
        sys.stderr.flush()
        os._exit(code)  # Java ends when its standard input is closed
