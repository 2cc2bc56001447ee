"""A small HTTP server for health, metrics and pages below a prefix, and a client for the pages of child processes.

A request carries what the connection shows of its client: an address, a certificate, a header. The routes judge that. A
server with a secret answers only requests with that secret. They come from its supervisor, which passes on the address
and the certificate of its own client.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import http
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from headwater.descriptors import Seat
from headwater.ops.accepting import Accepting, Streams

log = logging.getLogger("headwater.http")
MAX_REQUEST_BYTES = 16 << 10
MAX_CONNECTIONS = 256
"""Requests that are being answered, and connections that have not sent theirs yet."""
HEALTH_PATHS = ("/healthz", "/readyz", "/health")
RESERVED_CONNECTIONS = 16
"""How many descriptors these pages may use that other connections do not get."""
HEALTH_CONNECTIONS = 64
"""Requests for one health page that are being answered. They do not count with the others."""
TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 64 << 20
MAX_BODY_BYTES = 1 << 20
FORWARDED = "Headwater-Forwarded"
"""Headers from a supervisor to its children: the secret, the client's address, the principal of its certificate."""
PASSED_ON = ("www-authenticate", "retry-after", "location")
"""Headers of a child's answer that the supervisor passes on."""
_ONCE = ("authorization", "content-length", FORWARDED.lower())
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CHUNK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request that routes use."""

    method: str
    path: str
    """Still percent-encoded."""
    query: str = ""
    host: str = ""
    """Address of the client."""
    authorization: str = field(default="", repr=False)
    certified: str = ""
    """Principal of the client's certificate; empty without one."""
    principal: str = ""
    """Principal of the client, set once it is authenticated."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    body: str
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


Route = Callable[[Request], Awaitable[Page]]


def problem(status: int, title: str, headers: tuple[tuple[str, str], ...] = ()) -> Page:
    """An answer that reports an error. The title must need no JSON escapes."""
    return Page(f'{{"title":"{title}"}}', status, "application/problem+json", headers)


class HttpServer:
    """Serves a few paths. A path that ends in a slash takes every method of everything below it; `/` is one page."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        *,
        secret: str = "",
        identify: Callable[[dict[str, Any]], str] | None = None,
        connections: int = MAX_CONNECTIONS,
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._connections = connections
        self._answering: dict[str, int] = {}
        """Requests that are being answered, by the path of a health page; all others together."""
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """Connections that have not sent their request yet, the oldest first."""
        self._refused = refused
        self._routes = routes
        self._secret = secret
        self._identify = identify
        """Returns the principal of a client's certificate."""
        self._server: Accepting | None = None

    def __repr__(self) -> str:
        return f"<HttpServer of {len(self._routes)} routes, {sum(self._answering.values())} requests>"

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Open the port and return its number."""
        self._server = Accepting(
            lambda seat: Streams(seat, functools.partial(self._serve, seat), MAX_REQUEST_BYTES),
            tls=tls,
            handshake_seconds=TIMEOUT_SECONDS,
            extra=RESERVED_CONNECTIONS,
        )
        return await self._server.open(host, port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, seat: Seat, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._silent[writer] = None
        if len(self._silent) > self._connections:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            self._refused("http_connections")
            oldest.transport.abort()
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._answer(seat, reader, writer)
        except (
            TimeoutError,
            ConnectionError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            ValueError,
        ):
            pass  # a client that is slow, gone or sends invalid bytes gets no answer
        finally:
            self._silent.pop(writer, None)
            with contextlib.suppress(ConnectionError):
                writer.close()

    async def _answer(self, seat: Seat, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, _ = head.split("\r\n", 1)[0].split(" ", 2)
        headers = _headers(head)
        await _skip_body(headers, reader)
        self._silent.pop(writer, None)
        seat.known()
        path, _, query = target.partition("?")
        peer = writer.get_extra_info("peername") or ("",)
        shown = writer.get_extra_info("peercert")
        certified = self._identify(shown) if shown and self._identify is not None else ""
        request = Request(method, path, query, str(peer[0]), headers.get("authorization", ""), certified)
        place = path if path in HEALTH_PATHS else ""
        now = self._answering.get(place, 0)
        if now >= (HEALTH_CONNECTIONS if place else self._connections):
            self._refused("http_connections")
            await _send(writer, method, problem(503, "too many requests are being answered"))
            return
        self._answering[place] = now + 1
        try:
            await _send(writer, method, await self._let_in(request, headers.get(FORWARDED.lower(), "")))
        finally:
            self._answering[place] -= 1

    async def _let_in(self, request: Request, forwarded: str) -> Page:
        """Answer a request; one from the supervisor as if its client had sent it."""
        if not self._secret:
            return await self._page(request)
        secret, host, certified = [*forwarded.split(" "), "", "", ""][:3]
        if not hmac.compare_digest(secret.encode(), self._secret.encode()):
            return problem(403, "this process answers its supervisor only")
        asked = Request(
            request.method, request.path, request.query, unquote(host), request.authorization, unquote(certified)
        )
        return await self._page(asked)

    async def _page(self, request: Request) -> Page:
        route = self._routes.get(request.path)
        mounted = None
        if route is None:
            below = (p for p in self._routes if p.endswith("/") and p != "/" and request.path.startswith(p))
            mounted = next((self._routes[p] for p in below), None)
        if route is None and mounted is None:
            return problem(404, "not found")
        if mounted is None and request.method not in ("GET", "HEAD"):
            return problem(405, "method not allowed")
        try:
            return await (route or mounted)(request)  # type: ignore[misc]
        except Exception:
            log.exception("a page failed", extra={"path": request.path})
            return problem(500, "internal error")


async def _send(writer: asyncio.StreamWriter, method: str, page: Page) -> None:
    body = page.body.encode()
    more = "".join(f"{name}: {value}\r\n" for name, value in page.headers)
    writer.write(
        f"HTTP/1.1 {page.status} {http.HTTPStatus(page.status).phrase}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n{more}Connection: close\r\n\r\n".encode()
    )
    if method != "HEAD":
        writer.write(body)
    await writer.drain()


def _headers(head: str) -> dict[str, str]:
    """The headers of a message by their names in lower case. Ambiguous ones are refused."""
    found: dict[str, str] = {}
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    if _UNPRINTABLE.search(first):
        raise ValueError("the request contains control characters")
    for line in lines:
        name, _, value = line.partition(":")
        name = name.strip().lower()
        if _UNPRINTABLE.search(line) or (name in _ONCE and name in found):
            raise ValueError(f"cannot read the header {name}")
        found[name] = value.strip()
    return found


async def _skip_body(headers: Mapping[str, str], reader: asyncio.StreamReader) -> None:
    """Read and drop the body: it is not used, but must be read before the answer."""
    left = int(headers.get("content-length", "0"))
    if not 0 <= left <= MAX_BODY_BYTES:
        raise ValueError(f"the body of {left} bytes is too large")
    while left:
        data = await reader.read(min(left, _CHUNK_BYTES))
        if not data:
            return
        left -= len(data)


async def ask(port: int, request: Request, secret: str = "") -> Page:
    """A page of a process on this machine, requested on behalf of a client."""
    target = f"{request.path}?{request.query}" if request.query else request.path
    lines = [f"{request.method} {target} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    if request.authorization:
        lines.append(f"Authorization: {request.authorization}")
    if secret:
        lines.append(f"{FORWARDED}: {secret} {quote(request.host, safe='')} {quote(request.certified, safe='')}")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MAX_ANSWER_BYTES)
        try:
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            body = await _rest(reader)
        finally:
            writer.close()
    headers = _headers(head)
    passed_on = tuple((name.title(), headers[name]) for name in PASSED_ON if name in headers)
    return Page(body.decode(), int(head.split(" ", 2)[1]), headers.get("content-type", ""), passed_on)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """All bytes until the other end closes. One read returns only what has arrived."""
    body = bytearray()
    while data := await reader.read(_CHUNK_BYTES):
        body += data
        if len(body) > MAX_ANSWER_BYTES:
            raise ValueError(f"the page has more than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)
