"""A worker as the gateway sees it: a child process and the socket that leads to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import (
    BadInput,
    Damaged,
    NoEngine,
    QueryCancelled,
    QueryFailed,
    QueryLimit,
    SnapshotGone,
    StatementRefused,
)
from headwater.query.engines.contract import EngineTask
from headwater.query.engines.frames import HEAD, Failure, FrameTooLong, Kind, Setup, Why, framed, head_of
from headwater.query.typed import SchemasMissing

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("headwater.sql")
START_SECONDS = 300.0
"""How long a worker may take to start. A busy machine takes its time."""
KILL_SECONDS = 3.0
"""How long a worker may take to give up a query that was cancelled. Then it is killed."""
BUFFER_BYTES = 256 << 10
"""Bytes that are read ahead of the caller."""


class WorkerProcess:
    """One worker. It answers one query at a time."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._head: tuple[Kind, int] | None = None

    def __repr__(self) -> str:
        return f"<WorkerProcess {self.pid}, {'running' if self.alive else 'ended'}>"

    @classmethod
    async def start(cls, module: str, setup: Setup) -> WorkerProcess:
        """Start a module as a worker and wait until it is ready. Raises `NoEngine` if it does not start."""
        try:
            own, theirs = socket.socketpair()
        except OSError as error:
            raise NoEngine(f"a process for queries cannot be started: {error}") from error
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # so that it can lower its priority without lowering the gateway's
            )
        except OSError as error:
            own.close()
            raise NoEngine(f"a process for queries cannot be started: {error}") from error
        finally:
            theirs.close()
        own.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=own, limit=BUFFER_BYTES)
        worker = cls(process, reader, writer)
        try:
            async with asyncio.timeout(START_SECONDS):
                await worker.send(Kind.SETUP, msgspec.msgpack.encode(setup))
                kind, _ = await worker.receive()
        except BaseException as error:
            await worker.kill()
            if isinstance(error, TimeoutError):
                raise NoEngine(f"a process for queries was not ready in {START_SECONDS:g} s") from None
            raise
        if kind is not Kind.READY:
            await worker.kill()
            raise NoEngine(f"a process for queries began with {kind.name}")
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None and not self._reader.at_eof()

    async def send(self, kind: Kind, body: bytes = b"") -> None:
        """Send a frame. Raises `NoEngine` if the process is gone."""
        try:
            self._writer.write(framed(kind, body) + body)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise NoEngine("the process that worked on the query died") from error

    async def receive(self) -> tuple[Kind, bytes]:
        """The next frame. A caller that is cancelled may call again. Raises `NoEngine` if the process is gone."""
        try:
            if self._head is None:
                self._head = head_of(await self._reader.readexactly(HEAD.size))
            kind, length = self._head
            body = await self._reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise NoEngine("the process that worked on the query died") from error
        self._head = None
        return kind, body

    async def kill(self) -> None:
        """End the process, and everything that it has started."""
        self._writer.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


class WorkerAnswer:
    """A statement that a worker works on. `contract.Answer` says how it is used."""

    def __init__(self, worker: WorkerProcess, query: str) -> None:
        self._worker = worker
        self._query = query
        self._schema: pa.Schema | None = None
        self._percent = 0.0
        self._over = False
        self._closed = False
        self._receiving = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<WorkerAnswer {self._query} of {self._worker!r}>"

    @property
    def schema(self) -> pa.Schema:
        assert self._schema is not None
        return self._schema

    @property
    def percent(self) -> float:
        return self._percent

    @property
    def over(self) -> bool:
        """Whether the worker is done with the statement, and can take another."""
        return self._over and self._worker.alive

    async def begin(self, task: EngineTask) -> None:
        """Send the task and wait until its columns are known."""
        try:
            body = msgspec.msgpack.encode(task)
            framed(Kind.TASK, body)
        except FrameTooLong:
            self._over = True  # nothing was sent
            raise QueryLimit(
                "the statement reads too many files: name fewer topics, or wait for them to be merged"
            ) from None
        await self._worker.send(Kind.TASK, body)
        kind, body = await self._next()
        if kind is Kind.COLUMNS:
            self._schema = _opened(body)[0]
            return
        raise NoEngine(f"the process that worked on the query answered {kind.name}")

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows. See `contract.Answer`."""
        while not self._over:
            kind, body = await self._next()
            if self._closed:
                raise QueryCancelled("the query was cancelled")
            if kind is Kind.ROWS:
                for batch in _opened(body)[1]:
                    yield batch
        if self._closed:
            raise QueryCancelled("the query was cancelled")

    async def _next(self) -> tuple[Kind, bytes]:
        """The next frame but those about progress. Raises what a `FAILED` says."""
        while True:
            async with self._receiving:
                if self._over:
                    return Kind.DONE, b""
                kind, body = await self._worker.receive()
                self._over = kind in (Kind.DONE, Kind.FAILED)
            if kind is Kind.PROGRESS:
                self._percent = max(self._percent, min(100.0, msgspec.msgpack.decode(body, type=float)))
                continue
            if kind is Kind.FAILED:
                raise _error(msgspec.msgpack.decode(body, type=Failure))
            return kind, body

    async def close(self) -> None:
        """End the work. A worker that does not give up is killed."""
        self._closed = True
        if self._over or not self._worker.alive:
            return
        try:
            async with asyncio.timeout(KILL_SECONDS):
                await self._worker.send(Kind.CANCEL, self._query.encode())
                while not self._over:
                    with contextlib.suppress(BadInput, Damaged, SnapshotGone):
                        await self._next()
        except (TimeoutError, NoEngine):
            log.warning("a process for queries is killed", extra={"query": self._query, "pid": self._worker.pid})
            await self._worker.kill()


class LentAnswer(WorkerAnswer):
    """An answer that gives its worker back when it is closed."""

    def __init__(self, worker: WorkerProcess, query: str, give_back: Callable[..., None]) -> None:
        super().__init__(worker, query)
        self._give_back = give_back
        self._given = False

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        async for batch in super().batches():
            yield batch
        await self.close()

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            if not self._given:
                self._given = True
                self._give_back(self._worker, usable=self.over)


def _opened(body: bytes) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.schema, list(reader)


def _error(failure: Failure) -> Exception:
    match failure.why:
        case Why.REFUSED:
            return StatementRefused(failure.message)
        case Why.TOO_MUCH:
            return QueryLimit(failure.message)
        case Why.CANCELLED:
            return QueryCancelled(failure.message)
        case Why.GONE:
            return SnapshotGone(failure.message)
        case Why.CORRUPT:
            return Damaged(failure.message)
        case Why.SCHEMAS:
            return SchemasMissing(failure.names, failure.table)
    return QueryFailed(failure.message)
