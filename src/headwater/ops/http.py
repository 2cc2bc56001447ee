"""A small HTTP server: health, metrics, and whatever is mounted below a prefix."""

from __future__ import annotations

import asyncio
import contextlib
import http
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

log = logging.getLogger("headwater.http")
MAX_REQUEST_BYTES = 16 << 10
MAX_CONNECTIONS = 256
TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 64 << 20
MAX_BODY_BYTES = 1 << 20
_CHUNK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as far as anybody here looks at it."""

    method: str
    path: str
    """Still percent-encoded."""
    query: str


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    body: str
    status: int = 200
    content_type: str = "application/json"


Route = Callable[[Request], Awaitable[Page]]


class HttpServer:
    """Serves a few paths. A path that ends in a slash takes every method of everything below it."""

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
        await _skip_body(head, reader)
        path, _, query = target.partition("?")
        page = await self._page(Request(method, path, query))
        body = page.body.encode()
        reason = http.HTTPStatus(page.status).phrase
        writer.write(
            f"HTTP/1.1 {page.status} {reason}\r\nContent-Type: {page.content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        )
        if method != "HEAD":
            writer.write(body)
        await writer.drain()

    async def _page(self, request: Request) -> Page:
        route = self._routes.get(request.path)
        mounted = None
        if route is None:
            mounted = next((r for p, r in self._routes.items() if p.endswith("/") and request.path.startswith(p)), None)
        if route is None and mounted is None:
            return Page('{"title":"not found"}', 404, "application/problem+json")
        if mounted is None and request.method not in ("GET", "HEAD"):
            return Page('{"title":"method not allowed"}', 405, "application/problem+json")
        try:
            return await (route or mounted)(request)  # type: ignore[misc]
        except Exception:
            log.exception("a page failed", extra={"path": request.path})
            return Page('{"title":"internal error"}', 500, "application/problem+json")


async def _skip_body(head: str, reader: asyncio.StreamReader) -> None:
    """Nothing here looks at what a client sends, but it must be read before it is answered."""
    for line in head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-length":
            left = int(value)
            if not 0 <= left <= MAX_BODY_BYTES:
                raise ValueError(f"a body of {left} bytes")
            while left:
                data = await reader.read(min(left, _CHUNK_BYTES))
                if not data:
                    return
                left -= len(data)


async def get(host: str, port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Status and body of a page, for a process that asks its children."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        reader, writer = await asyncio.open_connection(host, port, limit=MAX_ANSWER_BYTES)
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            body = await _rest(reader)
        finally:
            writer.close()
    return int(head.split(" ", 2)[1]), body.decode()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the other end closes: one read gives no more than what is there at that moment."""
    body = bytearray()
    while data := await reader.read(_CHUNK_BYTES):
        body += data
        if len(body) > MAX_ANSWER_BYTES:
            raise ValueError(f"a page of more than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)
