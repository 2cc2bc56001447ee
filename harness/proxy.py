"""A loopback TCP proxy in front of a server, with which a test disturbs the network.

It runs an event loop in its own thread, so that tests can use it from plain code, from coroutines and with child
processes. Every method returns when its effect has happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Self

CHUNK = 1 << 16
HELD_BYTES = 64 << 20
"""At most this many bytes of one connection are held while nothing passes."""


class _Pipe:
    """A client's connection, and the proxy's own connection to the server for it."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.lossy = False
        """Whether bytes were dropped. Then the connection can only be ended."""
        self.stranded = False
        """Whether the client is gone, but its bytes may still arrive."""

    def abort(self) -> None:
        self.abort_client()
        if self.server is not None:
            self.server.transport.abort()

    def abort_client(self) -> None:
        self.client.transport.abort()


class Proxy(AbstractContextManager["Proxy"]):
    """Forwards `127.0.0.1:port` to the server at `target`, unless the test interferes."""

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self.target = target
        self.host = host
        self.port = 0
        self.connections = 0
        """The number of connections so far."""
        self.held_bytes = 0
        """Bytes for the server that are held now."""
        self.lost_bytes = 0
        """Bytes from the server that were dropped."""
        self._pipes: set[_Pipe] = set()
        self._dropping = False
        self._refusing = False
        self._loop = asyncio.new_event_loop()
        self._gate = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def __enter__(self) -> Self:
        self._gate.set()
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    # --- faults ----------------------------------------------------------------------------------------

    def cut(self) -> None:
        """End every connection at once. New connections are forwarded."""
        self._do(self._cut)

    def refuse(self) -> None:
        """End every connection, and every new one at once, until `resume`."""
        self._do(self._refuse)

    def hold(self) -> None:
        """Let nothing pass, in either direction. Connections stay open, and new ones are accepted."""
        self._do(self._gate.clear)

    def strand(self) -> None:
        """End the connections of clients while nothing passes. Bytes that they sent arrive at `resume`."""
        self._do(self._strand)

    def drop_replies(self) -> None:
        """Forward what clients send, and drop what the server sends. Such connections end at `resume`."""
        self._do(self._drop)

    def resume(self) -> None:
        """Let everything pass again."""
        self._do(self._resume)

    def _do(self, step: Callable[[], None]) -> None:
        async def run() -> None:
            step()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    # --- on the loop -----------------------------------------------------------------------------------

    def _cut(self) -> None:
        for pipe in list(self._pipes):
            pipe.abort()

    def _refuse(self) -> None:
        self._refusing = True
        self._cut()

    def _strand(self) -> None:
        for pipe in list(self._pipes):
            pipe.stranded = True
            pipe.abort_client()

    def _drop(self) -> None:
        self._dropping = True

    def _resume(self) -> None:
        self._dropping = self._refusing = False
        for pipe in list(self._pipes):
            if pipe.lossy:
                pipe.abort()
        self._gate.set()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._serve, self.host, 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._listener is not None
        self._listener.close()
        self._gate.set()
        self._cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        pipe = _Pipe(writer)
        self._pipes.add(pipe)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                if self._refusing:
                    return
                from_server, pipe.server = await asyncio.open_connection(self.host, self.target)
                back = asyncio.ensure_future(self._pass_back(from_server, pipe))
                await self._pass_on(reader, pipe)
                if not pipe.stranded:
                    back.cancel()
                await asyncio.gather(back, return_exceptions=True)
        finally:
            pipe.abort()
            self._pipes.discard(pipe)
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, pipe: _Pipe) -> None:
        """Forward from client to server. Reads on while nothing passes, so that it has all bytes when a client ends."""
        assert pipe.server is not None
        held: list[bytes] = []
        size = 0
        reading: asyncio.Future[bytes] | None = asyncio.ensure_future(_read(reader))
        opening: asyncio.Task[bool] | None = None
        try:
            while reading is not None or held:
                if self._gate.is_set():
                    for data in held:
                        pipe.server.write(data)
                    self.held_bytes -= size
                    held, size = [], 0
                    await pipe.server.drain()
                elif opening is None:
                    opening = asyncio.create_task(self._open())
                if reading is None and not held:
                    return
                waiting = {f for f in (reading, opening) if f is not None}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if opening is not None and opening.done():
                    opening = None
                if reading is not None and reading.done():
                    data = reading.result()
                    held.append(data)
                    size += len(data)
                    self.held_bytes += len(data)
                    reading = asyncio.ensure_future(_read(reader)) if data and size < HELD_BYTES else None
        finally:
            self.held_bytes -= size
            for future in (reading, opening):
                if future is not None:
                    future.cancel()

    async def _open(self) -> bool:
        return await self._gate.wait()

    async def _pass_back(self, reader: asyncio.StreamReader, pipe: _Pipe) -> None:
        while data := await _read(reader):
            await self._gate.wait()
            if self._dropping or pipe.stranded:
                pipe.lossy = pipe.lossy or not pipe.stranded
                self.lost_bytes += len(data)
                continue
            pipe.client.write(data)
            await pipe.client.drain()
        if not pipe.stranded:
            pipe.abort_client()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(CHUNK)
    except OSError:
        return b""
