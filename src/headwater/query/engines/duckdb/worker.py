"""A child of the gateway that answers queries with DuckDB, one at a time.

It leads a session of its own, gives way to other processes, and is the first that the system kills when memory is
short. Every query gets a database of its own, in memory, that is locked down before the statement is prepared. The main
thread works; others listens for `CANCEL`, report progress, and end the process when the gateway is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headwater import landlock
from headwater.errors import BadInput, CorruptObject, HeadwaterError, Retriable
from headwater.ops import logs
from headwater.priority import step_back
from headwater.query.asking import Refused
from headwater.query.engines.contract import EngineTask, TaskTable
from headwater.query.engines.frames import Channel, Failure, Kind, Setup, Why
from headwater.query.engines.sending import pieces_of, stream_of

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from headwater.query.engines.hot import HotRows

log = logging.getLogger("headwater.sql")
ROWS = 65_536
"""Rows that DuckDB gives at once."""
PROGRESS_SECONDS = 0.5
KILL_FIRST = 800
"""How much sooner the system kills this process than others when memory is short, of 1000."""
AGAIN_SECONDS = 0.05
"""How often a query that was cancelled is interrupted. An interrupt has no effect between two steps of a query."""


class Stopped(HeadwaterError):
    """The gateway has cancelled the query."""


class Listener:
    """The thread that hears the gateway while the main thread works."""

    def __init__(self, channel: Channel) -> None:
        self._answers = channel
        self._changed = threading.Condition()
        self._tasks: list[bytes] = []
        self._connection: DuckDBPyConnection | None = None
        self._current = ""
        self._cancelled = ""
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        threading.Thread(target=self._tend, name="tender", daemon=True).start()

    def next_task(self) -> bytes:
        """Wait for the next task."""
        with self._changed:
            self._changed.wait_for(lambda: self._tasks)
            return self._tasks.pop(0)

    @contextlib.contextmanager
    def working(self, query: str, connection: DuckDBPyConnection) -> Iterator[None]:
        """Work on a query: it may be interrupted, and its progress is reported."""
        with self._changed:
            self._current, self._connection = query, connection
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._current, self._connection = "", None

    def check(self) -> None:
        """Raise `Stopped` if the gateway has cancelled the query."""
        if self._current and self._cancelled == self._current:
            raise Stopped("the query was cancelled")

    def _listen(self) -> None:
        while True:
            try:
                frame = self._answers.receive()
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
        """Report progress and interrupt what was cancelled."""
        told = -1.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._connection is not None)
                wanted = self._cancelled == self._current
                self._changed.wait(AGAIN_SECONDS if wanted else PROGRESS_SECONDS)
                connection = self._connection
                if connection is None:
                    continue
                if self._cancelled == self._current:
                    connection.interrupt()
                    continue
                percent = connection.query_progress()
            if percent >= 0 and percent != told:
                told = percent
                with contextlib.suppress(OSError):
                    self._answers.send(Kind.PROGRESS, msgspec.msgpack.encode(percent))


class Worker:
    """Answers queries."""

    def __init__(self, setup: Setup, channel: Channel, hot: HotRows, runner: asyncio.Runner) -> None:
        from headwater.query.engines.duckdb.places import Places

        self._setup = setup
        self._answers = channel
        self._hot = hot
        self._runner = runner
        self._places = Places(setup.store, setup.options)
        self._listener = Listener(channel)
        self._database: DuckDBPyConnection | None = None
        """A new database, for the next query."""
        self._tasks = msgspec.msgpack.Decoder(EngineTask)

    def serve(self) -> None:
        """Answer one query after the other, until the process ends."""
        gc.collect()
        gc.freeze()  # modules and compiled loops never become garbage
        while True:
            self._database = self._database or self._opened()  # so that the next query does not wait for it
            task = self._tasks.decode(self._listener.next_task())
            failure = self._answered(task)
            if failure is None:
                self._answers.send(Kind.DONE)
            else:
                self._answers.send(Kind.FAILED, msgspec.msgpack.encode(failure))

    def _answered(self, task: EngineTask) -> Failure | None:
        """Answer a query; returns why it has failed."""
        import duckdb

        connection, self._database = self._database, None
        assert connection is not None
        try:
            with self._listener.working(task.id, connection):
                self._answer(connection, task)
        except (Stopped, duckdb.InterruptException):
            return Failure(Why.CANCELLED, "the query was cancelled")
        except duckdb.Error as error:
            return self._failure(task, error)
        except MemoryError:
            return Failure(Why.TOO_MUCH, "the query needs more memory than it may have")
        except CorruptObject as error:
            return Failure(Why.CORRUPT, str(error))
        except Retriable as error:  # SnapshotGone, and a store that does not answer
            return Failure(Why.GONE, str(error))
        except Refused as error:
            return Failure(Why.REFUSED, str(error))
        except BadInput as error:
            return Failure(Why.TOO_MUCH, str(error))
        finally:
            connection.close()
        return None

    def _failure(self, task: EngineTask, error: Exception) -> Failure:
        import duckdb

        text = str(error)
        if isinstance(error, duckdb.OutOfMemoryException):
            return Failure(
                Why.TOO_MUCH, f"the query needs more than sql.memory_bytes and sql.spill_bytes allow: {text}"
            )
        if isinstance(error, duckdb.IOException | duckdb.PermissionException):
            for table in task.tables:
                for file in table.files:
                    if file.path in text:
                        return Failure(Why.GONE, f"{file.path} cannot be read: {text}")
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            log.error("DuckDB has failed", extra={"query": task.id}, exc_info=error)
        return Failure(Why.FAILED, _plain(text, task.tables))

    def _opened(self) -> DuckDBPyConnection:
        """A new database in memory, with limits."""
        import duckdb

        from headwater.query.engines.duckdb.lockdown import CONFIG

        own = self._setup
        connection = duckdb.connect(
            ":memory:",
            config={
                **CONFIG,
                "threads": str(own.threads),
                "memory_limit": f"{own.memory_bytes}B",
                "temp_directory": own.spill,
                "max_temp_directory_size": f"{own.spill_bytes}B",
                "preserve_insertion_order": "false",
            },
        )
        for statement in (
            "SET enable_progress_bar = true",
            "SET enable_progress_bar_print = false",
            "SET progress_bar_time = 0",
            "SET TimeZone = 'UTC'",
        ):
            connection.execute(statement)
        self._places.prepare(connection)
        return connection

    def _answer(self, connection: DuckDBPyConnection, task: EngineTask) -> None:
        from headwater.query.engines.duckdb.lockdown import lock_down
        from headwater.query.engines.duckdb.reading import check_reading
        from headwater.query.engines.duckdb.tables import make_view

        if task.columns_only:
            task = msgspec.structs.replace(task, tables=[_empty(table) for table in task.tables])
        for table in task.tables:
            make_view(connection, table, self._places.of, self._rows_of(connection, table))
            self._listener.check()
        lock_down(connection, [self._places.of(file.path) for table in task.tables for file in table.files])
        check_reading(connection, task.sql, [table.view for table in task.tables], self._setup.functions)
        sql, parameters = f"EXPLAIN {task.sql}" if task.explain else task.sql, task.named or None
        # The columns are known before the query is run, which may take long; its plan is made in any case.
        first = sql if task.explain else f"SELECT * FROM (\n{sql}\n) LIMIT 0"
        schema = connection.execute(first, parameters).to_arrow_table().schema
        self._answers.send(Kind.COLUMNS, stream_of(schema, None))
        if task.columns_only:
            return
        for batch in connection.execute(sql, parameters).to_arrow_reader(ROWS):
            for piece in pieces_of(batch):
                self._listener.check()
                self._answers.send(Kind.ROWS, stream_of(schema, piece))
        self._listener.check()

    def _rows_of(self, connection: DuckDBPyConnection, table: TaskTable) -> pa.Table | None:
        """The rows of the WAL; None if there are too many for memory, and DuckDB has them."""
        import pyarrow as pa

        from headwater.query.engines.duckdb.tables import hold_hot
        from headwater.query.scan import schema_of

        async def load() -> pa.Table | None:
            held: list[pa.Table] = []
            size, spilled = 0, False
            async for piece in self._hot.pieces(table.hot):
                self._listener.check()
                held.append(piece)
                size += piece.nbytes
                if size > self._setup.hot_bytes:
                    hold_hot(connection, table, held)
                    held, size, spilled = [], 0, True
            if not spilled:
                return pa.concat_tables(held) if held else schema_of().empty_table()
            hold_hot(connection, table, held)
            return None

        return self._runner.run(load())


def _empty(table: TaskTable) -> TaskTable:
    return msgspec.structs.replace(table, files=[], hot=[])


def _plain(text: str, tables: list[TaskTable]) -> str:
    """A message of DuckDB's without the line of the statement, which is not as the caller wrote it."""
    text = text.split("\n\nLINE ", 1)[0].strip()
    for table in tables:
        text = text.replace(table.view, table.topic)
    return text


# --- the process ---------------------------------------------------------------------------------------------


def main(descriptor: int) -> None:
    """Serve the gateway at the other end of a socket."""
    channel = Channel(socket.socket(fileno=descriptor))
    frame = channel.receive()
    if frame is None or frame[0] is not Kind.SETUP:
        return
    setup = msgspec.msgpack.decode(frame[1], type=Setup)
    logs.setup(setup.log_level, node="sql")
    step_back(setup.niceness)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(KILL_FIRST))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _confine(setup)
    _load()
    from headwater.objects import open_store
    from headwater.query.engines.hot import HotRows

    with asyncio.Runner() as runner:
        store = open_store(setup.store, setup.options)
        worker = Worker(setup, channel, HotRows(store, setup.hot_bytes), runner)
        channel.send(Kind.READY)
        worker.serve()


def _confine(setup: Setup) -> None:
    """Give up all rights but those that queries need: to read objects and libraries, to spill, to reach the store.

    The loops are compiled before, because numba looks for a directory that it can write to. DuckDB and pyarrow are
    imported afterwards, because they start threads; so does numpy, for linear algebra.
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from headwater.log.segment.decode import compile_kernels
    from headwater.query.engines.duckdb.places import Places

    compile_kernels()
    places = Places(setup.store, setup.options)
    read = [*places.directories, *landlock.SYSTEM, *landlock.libraries()]
    landlock.confine(read, [setup.spill], places.ports)


def _load() -> None:
    """Import what queries need, before the first one waits for it."""
    import duckdb  # noqa: F401
    import pyarrow.compute
    import pyarrow.dataset  # noqa: F401


if __name__ == "__main__":
    code = 1
    try:
        main(int(sys.argv[1]))
        code = 0
    except Exception:
        log.exception("a process for queries has failed")
    finally:
        sys.stderr.flush()
        os._exit(code)  # threads of libraries must not keep a worker that is done
