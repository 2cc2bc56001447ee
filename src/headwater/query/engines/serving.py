"""A child of the gateway that answers queries, one at a time: what the processes of all engines share.

The process leads a session of its own, gives way to others, and is the first to be killed when memory is short.
The main thread works. Others listen for `CANCEL`, report progress, and end the process when the gateway is gone.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import resource
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

import msgspec

from headwater import landlock
from headwater.errors import BadInput, Damaged, HeadwaterError, Retriable, StatementRefused
from headwater.ops import logs
from headwater.priority import leave_a_core, step_back
from headwater.query.engines.contract import EngineTask
from headwater.query.engines.frames import Channel, Failure, Kind, Setup, Why
from headwater.query.engines.sending import pieces_of, stream_of
from headwater.query.typed import SchemasMissing

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.query.engines.hot import HotRows

log = logging.getLogger("headwater.sql")
PROGRESS_SECONDS = 0.5
AGAIN_SECONDS = 0.05
"""How often a query that was cancelled is interrupted. An interrupt has no effect between two steps of a query."""
KILL_FIRST = 800
"""How much sooner the system kills this process than others when memory is short, of 1000."""

DECODERS = ("avro", "json", "protobuf")
"""The compiled loops that decode typed columns. Numba must find its cache while this process may write there."""


class Stopped(HeadwaterError):
    """The gateway has cancelled the query."""


class Work(Protocol):
    """One query in an engine. Other threads call `interrupt` and `percent`, also when it is closed."""

    def answer(self, out: Outlet) -> None:
        """Give the columns, then the rows. Raises what `failure` understands."""
        ...

    def interrupt(self) -> None:
        """Make `answer` end soon, with any error."""
        ...

    def percent(self) -> float:
        """How much is done; below 0 if that is not known."""
        ...

    def failure(self, error: Exception) -> Failure:
        """What an error of the engine's own means. Raises it if this process is of no use any more."""
        ...

    def close(self) -> None:
        """Free what the query holds."""
        ...


class Answering(Protocol):
    """An engine in its process."""

    def prepare(self, waiting: Callable[[], bool]) -> None:
        """Get ready for the next queries, unless one is waiting already."""
        ...

    def begin(self, task: EngineTask) -> Work: ...


class Outlet:
    """Where the columns and rows of a query go."""

    def __init__(self, channel: Channel, listener: Listener) -> None:
        self._answers = channel
        self._listener = listener
        self._schema: pa.Schema | None = None

    def check(self) -> None:
        """Raise `Stopped` if the gateway has cancelled the query."""
        self._listener.check()

    def columns(self, schema: pa.Schema) -> None:
        """Send the columns. They come before the rows."""
        self._schema = schema
        self._answers.send(Kind.COLUMNS, stream_of(schema, None))

    def rows(self, batch: pa.RecordBatch) -> None:
        """Send rows. Blocks while the gateway does not read."""
        for piece in pieces_of(batch):
            self.check()
            self._answers.send(Kind.ROWS, stream_of(self._schema, piece))


class Listener:
    """The threads that hear the gateway, report progress and interrupt, while the main thread works."""

    def __init__(self, channel: Channel) -> None:
        self._answers = channel
        self._changed = threading.Condition()
        self._tasks: list[bytes] = []
        self._work: Work | None = None
        self._current = self._cancelled = ""
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        threading.Thread(target=self._tend, name="tender", daemon=True).start()

    def waiting(self) -> bool:
        """Whether a task has come that nobody works on."""
        return bool(self._tasks)

    def next_task(self) -> bytes:
        """Wait for the next task."""
        with self._changed:
            self._changed.wait_for(lambda: self._tasks)
            return self._tasks.pop(0)

    @contextlib.contextmanager
    def working(self, query: str, work: Work) -> Iterator[None]:
        """Work on a query: it may be interrupted, and its progress is reported."""
        with self._changed:
            self._current, self._work = query, work
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._current, self._work = "", None

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
        query, told = "", 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._work is not None)
                self._changed.wait(AGAIN_SECONDS if self.stopped else PROGRESS_SECONDS)
                work, stopped = self._work, self.stopped
                if query != self._current:
                    query, told = self._current, 0.0
            if work is None:
                continue
            try:
                if stopped:
                    work.interrupt()
                    continue
                percent = work.percent()
            except Exception as error:  # noqa: BLE001 - the engine may be gone, which the main thread reports
                log.info("the engine does not answer", extra={"reason": str(error)[:500]})
                continue
            if percent > told:
                told = percent
                with contextlib.suppress(OSError):
                    self._answers.send(Kind.PROGRESS, msgspec.msgpack.encode(percent))


class Worker:
    """Answers queries."""

    def __init__(self, channel: Channel, listener: Listener, engine: Answering) -> None:
        self._answers = channel
        self._listener = listener
        self._engine = engine
        self._tasks = msgspec.msgpack.Decoder(EngineTask)

    def serve(self) -> NoReturn:
        """Answer one query after the other, until the process ends."""
        while True:
            self._engine.prepare(self._listener.waiting)
            self._answer(self._tasks.decode(self._listener.next_task()))

    def _answer(self, task: EngineTask) -> None:
        """Answer a query. The caller of one that has succeeded does not wait until it is cleaned up."""
        work = self._engine.begin(task)
        try:
            with self._listener.working(task.id, work):
                failure = self._tried(work)
            if failure is None:
                self._answers.send(Kind.DONE)
        finally:
            work.close()
        if failure is not None:
            self._answers.send(Kind.FAILED, msgspec.msgpack.encode(failure))

    def _tried(self, work: Work) -> Failure | None:
        try:
            work.answer(Outlet(self._answers, self._listener))
            self._listener.check()
        except Stopped as error:
            return Failure(Why.CANCELLED, str(error))
        except MemoryError:
            return Failure(Why.TOO_MUCH, "the query needs more memory than it may have")
        except Damaged as error:
            return Failure(Why.CORRUPT, str(error))
        except Retriable as error:  # SnapshotGone, and a store that does not answer
            return Failure(Why.GONE, str(error))
        except SchemasMissing as error:
            return Failure(Why.SCHEMAS, str(error), error.table, error.names)
        except StatementRefused as error:
            return Failure(Why.REFUSED, str(error))
        except BadInput as error:
            return Failure(Why.TOO_MUCH, str(error))
        except Exception as error:  # noqa: BLE001 - the engine's own, of several libraries
            if self._listener.stopped:
                return Failure(Why.CANCELLED, "the query was cancelled")
            return work.failure(error)
        return None


# --- the process ---------------------------------------------------------------------------------------------


def received(descriptor: int, node: str) -> tuple[Channel, Setup]:
    """Begin as a process of the gateway at the other end of a socket: what it works with. `node` is for the log."""
    channel = Channel(socket.socket(fileno=descriptor))
    frame = channel.receive()
    if frame is None or frame[0] is not Kind.SETUP:
        raise SystemExit(0)  # the gateway has gone
    setup = msgspec.msgpack.decode(frame[1], type=Setup)
    logs.setup(setup.log_level, node=node)
    if setup.niceness:
        step_back(setup.niceness)
        leave_a_core()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(KILL_FIRST))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return channel, setup


def confine(
    setup: Setup, objects: Sequence[str], ports: Collection[int] | None = None, run: Sequence[str] = ()
) -> None:
    """Give up all rights but those that queries need: to read objects and libraries, to spill, to reach the store.

    `objects` are directories, and `run` programs that may be started. Call it while there is no other thread. The loops
    are compiled before, because numba looks for a directory that it can write to. Libraries of engines are imported
    afterwards, because they start threads; so does numpy, for linear algebra. The loops that decode typed columns are
    loaded when they are needed, but found before.
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from headwater.log.segment.decode import compile_kernels
    from headwater.native.compiling import PLACES

    compile_kernels()
    for name in DECODERS:
        importlib.import_module(f"headwater.schemas.decoding.kernels.{name}")
    os.environ["TMPDIR"] = tempfile.tempdir = setup.spill
    read = [*objects, *landlock.SYSTEM, *landlock.libraries(), *PLACES]
    landlock.confine(read, [setup.spill], ports, run)


def bound_memory(more_bytes: int) -> None:
    """Let this process take so much more memory than it has now. Where that cannot be said, nothing changes.

    What would take more fails, or ends the process. Files and libraries that are mapped do not count.
    """
    with contextlib.suppress(OSError, ValueError):
        found = re.search(r"^VmData:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
        if found is not None:
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            most = int(found[1]) * 1024 + more_bytes
            resource.setrlimit(resource.RLIMIT_DATA, (most, most) if hard < 0 or most < hard else (hard, hard))


def hot_rows(setup: Setup) -> HotRows:
    """Rows of the WAL, from the store of the setup."""
    from headwater.objects import open_store
    from headwater.query.engines.hot import HotRows

    return HotRows(open_store(setup.store, setup.options), setup.hot_bytes)


def run(main: Callable[[int], None]) -> NoReturn:
    """Run a worker's process: its one argument is the descriptor of a socket."""
    code = 1
    try:
        main(int(sys.argv[1]))
        code = 0
    except SystemExit:
        code = 0
    except Exception:
        log.exception("a process for queries has failed")
    finally:
        sys.stderr.flush()
        os._exit(code)  # threads and children of libraries must not keep a worker that is done
