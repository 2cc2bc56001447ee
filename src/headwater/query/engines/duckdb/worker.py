"""A child of the gateway that answers queries with DuckDB, one at a time.

Every query gets a database of its own, in memory, that is locked down before the statement is prepared. The next ones
are opened before their queries come.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from headwater.query.engines.contract import EngineTask, TaskTable
from headwater.query.engines.frames import Failure, Kind, Setup, Why
from headwater.query.engines.serving import Listener, Outlet, Worker, bound_memory, confine, hot_rows, received, run

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from headwater.query.engines.duckdb.places import Places
    from headwater.query.engines.hot import HotRows

log = logging.getLogger("headwater.sql")
ROWS = 65_536
"""Rows that DuckDB gives at once."""
READY = 2
"""Databases that are open before their queries come."""
BESIDE_BYTES = 512 << 20
"""What a process may take beside DuckDB's memory and twice `sql.hot_bytes`: stacks, answers, and what is freed late."""


class Databases:
    """DuckDB in its process: a database for every query. `serving.Answering` says how it is used."""

    def __init__(self, setup: Setup, places: Places, hot: HotRows, runner: asyncio.Runner) -> None:
        self.setup = setup
        self.places = places
        self.hot = hot
        self.runner = runner
        self._ready: list[DuckDBPyConnection] = []

    def prepare(self, waiting: Callable[[], bool]) -> None:
        """Open the databases of the next queries. That takes longer than many a query."""
        while len(self._ready) < READY and not waiting():
            self._ready.append(self._opened())

    def begin(self, task: EngineTask) -> Work:
        """A query in a new database."""
        return Work(self, self._ready.pop() if self._ready else self._opened(), task)

    def _opened(self) -> DuckDBPyConnection:
        """A new database in memory, with limits."""
        import duckdb

        from headwater.query.engines.duckdb.lockdown import CONFIG

        own = self.setup
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
        self.places.prepare(connection)
        return connection


class Work:
    """One query. `serving.Work` says how it is used."""

    def __init__(self, engine: Databases, connection: DuckDBPyConnection, task: EngineTask) -> None:
        self._engine = engine
        self._connection = connection
        self._task = task
        self._closing = threading.Lock()
        self._closed = False

    def answer(self, out: Outlet) -> None:
        """Lock the database, make the views, and run the statement."""
        from headwater.query.engines.duckdb.comparing import check_same
        from headwater.query.engines.duckdb.lockdown import lock_down
        from headwater.query.engines.duckdb.narrowing import narrowed
        from headwater.query.engines.duckdb.reading import check_reading
        from headwater.query.engines.duckdb.tables import make_view

        connection, task, engine = self._connection, self._task, self._engine
        place = engine.places.of
        tables = [_empty(table) for table in task.tables] if task.columns_only else task.tables
        lock_down(connection, [place(file.path) for table in tables for file in table.files])
        nodes = check_reading(connection, task.sql, [table.view for table in tables], engine.setup.functions)
        if task.source:
            check_same(connection, task.source, task.sql, {table.view: table.topic for table in tables})
        for table in tables:
            make_view(connection, table, place, self._rows_of(table, out), narrowed(table.columns, nodes))
            out.check()
        sql, parameters = f"EXPLAIN {task.sql}" if task.explain else task.sql, task.named or None
        # The columns are known before the query is run, which may take long; its plan is made in any case.
        first = sql if task.explain else f"SELECT * FROM (\n{sql}\n) LIMIT 0"
        out.columns(connection.execute(first, parameters).to_arrow_table().schema)
        if task.columns_only:
            return
        for batch in connection.execute(sql, parameters).to_arrow_reader(ROWS):
            out.rows(batch)

    def interrupt(self) -> None:
        """End what runs."""
        with self._closing:
            if not self._closed:
                self._connection.interrupt()

    def percent(self) -> float:
        """What DuckDB tells of its progress."""
        with self._closing:
            return -1.0 if self._closed else float(self._connection.query_progress())

    def close(self) -> None:
        """Drop the database."""
        with self._closing:
            self._closed = True
            self._connection.close()

    def failure(self, error: Exception) -> Failure:
        """What an error of DuckDB means. Others are faults of this process, which ends."""
        import duckdb

        if isinstance(error, duckdb.InterruptException):
            return Failure(Why.CANCELLED, "the query was cancelled")
        if not isinstance(error, duckdb.Error):
            raise error
        text, tables = str(error), self._task.tables
        if isinstance(error, duckdb.OutOfMemoryException):
            return Failure(
                Why.TOO_MUCH, f"the query needs more than sql.memory_bytes and sql.spill_bytes allow: {text}"
            )
        if isinstance(error, duckdb.IOException | duckdb.PermissionException):
            for table in tables:
                for file in table.files:
                    if file.path in text:
                        return Failure(Why.GONE, f"{file.path} cannot be read: {text}")
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            log.error("DuckDB has failed", extra={"query": self._task.id}, exc_info=error)
        return Failure(Why.FAILED, _plain(text, tables))

    def _rows_of(self, table: TaskTable, out: Outlet) -> pa.Table | None:
        """The rows of the WAL; None if there are too many for memory, and DuckDB has them."""
        import pyarrow as pa

        from headwater.query.engines.duckdb.tables import hold_hot
        from headwater.query.engines.hot import hot_schema

        most, connection = self._engine.setup.hot_bytes, self._connection

        async def load() -> pa.Table | None:
            held: list[pa.Table] = []
            size, spilled = 0, False
            async for piece in self._engine.hot.pieces(table.hot, table.columns, table.typing, table.view):
                out.check()
                held.append(piece)
                size += piece.nbytes
                if size > most:
                    hold_hot(connection, table, held)
                    held, size, spilled = [], 0, True
            if not spilled:
                return pa.concat_tables(held) if held else hot_schema(table.columns).empty_table()
            hold_hot(connection, table, held)
            return None

        return self._engine.runner.run(load())


def _empty(table: TaskTable) -> TaskTable:
    return msgspec.structs.replace(table, files=[], hot=[], typing=None)


def _plain(text: str, tables: list[TaskTable]) -> str:
    """A message of DuckDB's without the line of the statement, which is not as the caller wrote it."""
    text = text.split("\n\nLINE ", 1)[0].strip()
    for table in tables:
        text = text.replace(table.view, table.topic)
    return text


# --- the process ---------------------------------------------------------------------------------------------


def main(descriptor: int) -> None:
    """Serve the gateway at the other end of a socket."""
    from headwater.query.engines.duckdb.places import Places

    channel, setup = received(descriptor, "sql")
    places = Places(setup.store, setup.options)
    places.enter()
    confine(setup, places.directories, places.ports)
    _load()
    bound_memory(setup.memory_bytes + 2 * setup.hot_bytes + BESIDE_BYTES)
    with asyncio.Runner() as runner:
        engine = Databases(setup, places, hot_rows(setup), runner)
        engine.prepare(lambda: False)
        worker = Worker(channel, Listener(channel), engine)
        channel.send(Kind.READY)
        gc.collect()
        gc.freeze()  # modules and compiled loops never become garbage
        worker.serve()


def _load() -> None:
    """Import what queries need, before the first one waits for it."""
    import duckdb  # noqa: F401
    import pyarrow.compute
    import pyarrow.dataset  # noqa: F401


if __name__ == "__main__":
    run(main)
