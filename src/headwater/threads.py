"""A few threads for blocking calls. A call is cheaper than with an executor and its futures.

It needs one queue entry on the way to the thread and one wake-up of the event loop on the way back. This matters at
thousands of synced writes per second.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")
_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class Threads:
    """Runs blocking calls. The threads start with the first call."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
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
