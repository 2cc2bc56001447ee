"""A small HTTP server for GET requests: health and metrics, nothing that changes anything."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

log = logging.getLogger("headwater.http")
MAX_REQUEST_BYTES = 16 << 10
MAX_CONNECTIONS = 256
TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 64 << 20
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error",
            503: "Service Unavailable"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    body: str
    status: int = 200
    content_type: str = "application/json"


Route = Callable[[], Awaitable[Page]]


class HttpServer:
    """Serves a few paths."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self._routes = routes
        self._server: asyncio.Server | None = None
        self._open = 0

    async def listen(self, host: str, port: int) -> int:
        """Open the port and answer which one it is."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST_BYTES)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MAX_CONNECTIONS:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await self._answer(reader, writer)
        except (
            TimeoutError,
            ConnectionError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            ValueError,
        ):
            pass  # a client that is slow, gone or talks nonsense gets no answer
        finally:
            self._open -= 1
            with contextlib.suppress(ConnectionError):
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, _ = head.split("\r\n", 1)[0].split(" ", 2)
        route = self._routes.get(target.partition("?")[0])
        if route is None:
            page = Page('{"title":"not found"}', 404, "application/problem+json")
        elif method not in ("GET", "HEAD"):
            page = Page('{"title":"method not allowed"}', 405, "application/problem+json")
        else:
            try:
                page = await route()
            except Exception:
                log.exception("a page failed", extra={"path": target})
                page = Page('{"title":"internal error"}', 500, "application/problem+json")
        body = page.body.encode()
        writer.write(
            f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        )
        if method != "HEAD":
            writer.write(body)
        await writer.drain()


async def get(host: str, port: int, path: str) -> tuple[int, str]:
    """Status and body of a page, for a process that asks its children."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        reader, writer = await asyncio.open_connection(host, port, limit=MAX_ANSWER_BYTES)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            body = await reader.read(MAX_ANSWER_BYTES)
        finally:
            writer.close()
    return int(head.split(" ", 2)[1]), body.decode()
