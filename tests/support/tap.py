"""A proxy between an HTTP client and its server. It records the heads of requests, and a test may interfere.

It runs an event loop in its own thread. Requests of one connection follow one another, as in HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Self

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)
LIMIT = 1 << 20


class Tap(AbstractContextManager["Tap"]):
    """Forwards `port` to the server at `target`."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.heads: list[str] = []
        """The heads of all requests so far: first line and headers."""
        self.mangle: Callable[[str, bytes], bytes] = lambda head, body: body
        """Changes the body of a request before it is forwarded."""
        self.stall: Callable[[str], bool] = lambda head: False
        """Whether a request gets stuck: it is not forwarded, and its connection stays open until the client ends it."""
        self.cut: Callable[[str], bool] = lambda head: False
        """Whether the connection is ended at such a request."""
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="tap", daemon=True)

    def lines(self) -> list[str]:
        """The first lines of all requests so far."""
        return [head.split("\r\n", 1)[0] for head in self.heads]

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LIMIT)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
                back = asyncio.ensure_future(_copy(from_server, writer))
                try:
                    await self._requests(reader, to_server)
                finally:
                    back.cancel()
                    to_server.transport.abort()
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _requests(self, reader: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        while True:
            raw = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(raw)
            body = await reader.readexactly(int(length[1]) if length else 0)
            head = raw.decode("latin-1")
            self.heads.append(head)
            if self.cut(head):
                return
            if self.stall(head):
                await reader.read(1)
                return
            to_server.write(raw + self.mangle(head, body))
            await to_server.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()
