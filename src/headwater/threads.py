"""A few threads for blocking calls. A call is cheaper than with an executor and its futures.

It needs one queue entry on the way to the thread and one wake-up of the event loop on the way back. This matters at
thousands of synced writes per second.

Threads that work for many callers take their jobs in turns (`Turns`), so that the jobs of one caller do not hold up
those of another.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")
_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]
CALLER: ContextVar[str] = ContextVar("caller", default="")
"""For whom the present task works. Those that work for nobody in particular share one name."""


class Jobs(Protocol):
    """What threads have to do. None ends one of them."""

    def put(self, job: _Job | None, /) -> None: ...

    def get(self) -> _Job | None: ...

    def qsize(self) -> int: ...


class Turns:
    """Jobs by caller: each caller who has some gets one done, then the next caller."""

    def __init__(self) -> None:
        self._there: queue.SimpleQueue[None] = queue.SimpleQueue()
        """An entry for each job."""
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, deque[_Job | None]] = OrderedDict()
        """The caller whose turn it is comes first."""

    def __repr__(self) -> str:
        return f"<Turns of {len(self._jobs)} callers, {self.qsize()} jobs>"

    def put(self, job: _Job | None, /) -> None:
        """Add a job of the present caller."""
        with self._lock:
            self._jobs.setdefault(CALLER.get(), deque()).append(job)
        self._there.put(None)

    def get(self) -> _Job | None:
        """Wait for a job, and take the first one of the next caller."""
        self._there.get()
        with self._lock:
            caller, own = next(iter(self._jobs.items()))
            job = own.popleft()
            if own:
                self._jobs.move_to_end(caller)
            else:
                del self._jobs[caller]
        return job

    def qsize(self) -> int:
        """How many jobs wait."""
        return self._there.qsize()


class Threads:
    """Runs blocking calls. The threads start with the first call."""

    def __init__(self, count: int, name: str, jobs: Jobs | None = None) -> None:
        """By default jobs are done in the order in which they came."""
        self._count = count
        self._name = name
        self._jobs: Jobs = queue.SimpleQueue() if jobs is None else jobs
        self._threads: list[threading.Thread] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"<Threads {self._name}, {self._jobs.qsize()} waiting>"

    def run(self, call: Callable[..., _T], *arguments: Any) -> asyncio.Future[_T]:
        """Call in a thread. The future belongs to the running loop."""
        if self._closed:
            raise RuntimeError(f"the threads {self._name!r} are closed")
        if not self._threads:
            self._start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self._jobs.put((loop, future, call, arguments))
        return future

    def _start(self) -> None:
        for i in range(self._count):
            thread = threading.Thread(target=self._work, name=f"{self._name}-{i}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            loop, future, call, arguments = job
            try:
                result, error = call(*arguments), None
            except BaseException as failure:  # noqa: BLE001 - it is raised to the caller
                result, error = None, failure
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                return  # the loop is closed: no caller waits any more
            del job, future, result, error

    async def close(self) -> None:
        """Finish the queued calls, then end the threads."""
        if self._closed:
            return
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class Offload(Protocol):
    """Makes a call, perhaps in a thread."""

    def __call__(self, call: Callable[..., _T], *arguments: Any) -> Awaitable[_T]: ...


async def inline(call: Callable[..., _T], *arguments: Any) -> _T:
    """Make the call directly."""
    return call(*arguments)
