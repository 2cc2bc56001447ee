"""A small HTTP server: health, metrics, and whatever is mounted below a prefix; and a client for a process's children.

It says who is at the other end as far as the connection tells: an address, a certificate, a header. What that is worth
is for others to judge. A server with a secret answers nobody but the one who knows it: its supervisor, who then tells
for whom it asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import http
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

log = logging.getLogger("headwater.http")
MAX_REQUEST_BYTES = 16 << 10
MAX_CONNECTIONS = 256
TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 64 << 20
MAX_BODY_BYTES = 1 << 20
FORWARDED = "Headwater-Forwarded"
"""What a supervisor says to its children: the secret, the address of whoever asks, and whom its certificate names."""
PASSED_ON = ("www-authenticate", "retry-after")
"""What of a child's answer reaches whoever asked, besides its body."""
_ONCE = ("authorization", "content-length", FORWARDED.lower())
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CHUNK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as far as anybody here looks at it."""

    method: str
    path: str
    """Still percent-encoded."""
    query: str = ""
    host: str = ""
    """The address it comes from."""
    authorization: str = field(default="", repr=False)
    certified: str = ""
    """Whom a certificate names that was shown, as a principal."""
    principal: str = ""
    """Who asks, once that was judged."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    body: str
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


Route = Callable[[Request], Awaitable[Page]]


def problem(status: int, title: str, headers: tuple[tuple[str, str], ...] = ()) -> Page:
    """An answer that says what is wrong. The title must need no escapes."""
    return Page(f'{{"title":"{title}"}}', status, "application/problem+json", headers)


class HttpServer:
    """Serves a few paths. A path that ends in a slash takes every method of everything below it."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        *,
        secret: str = "",
        identify: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        self._routes = routes
        self._secret = secret
        self._identify = identify
        """Tells whom a client's certificate names."""
        self._server: asyncio.Server | None = None
        self._open = 0

    def __repr__(self) -> str:
        return f"<HttpServer of {len(self._routes)} routes, {self._open} connections>"

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Open the port and answer which one it is."""
        more: dict[str, Any] = {"ssl": tls, "ssl_handshake_timeout": TIMEOUT_SECONDS} if tls is not None else {}
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST_BYTES, **more)
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
        headers = _headers(head)
        await _skip_body(headers, reader)
        path, _, query = target.partition("?")
        peer = writer.get_extra_info("peername") or ("",)
        shown = writer.get_extra_info("peercert")
        certified = self._identify(shown) if shown and self._identify is not None else ""
        request = Request(method, path, query, str(peer[0]), headers.get("authorization", ""), certified)
        page = await self._let_in(request, headers.get(FORWARDED.lower(), ""))
        body = page.body.encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in page.headers)
        writer.write(
            f"HTTP/1.1 {page.status} {http.HTTPStatus(page.status).phrase}\r\nContent-Type: {page.content_type}\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n{more}Connection: close\r\n\r\n".encode()
        )
        if method != "HEAD":
            writer.write(body)
        await writer.drain()

    async def _let_in(self, request: Request, forwarded: str) -> Page:
        """Answer, on behalf of whoever the supervisor asks for if there is one."""
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
            mounted = next((r for p, r in self._routes.items() if p.endswith("/") and request.path.startswith(p)), None)
        if route is None and mounted is None:
            return problem(404, "not found")
        if mounted is None and request.method not in ("GET", "HEAD"):
            return problem(405, "method not allowed")
        try:
            return await (route or mounted)(request)  # type: ignore[misc]
        except Exception:
            log.exception("a page failed", extra={"path": request.path})
            return problem(500, "internal error")


def _headers(head: str) -> dict[str, str]:
    """What a message says before its body, by names in lower case. What could be taken in two ways is refused."""
    found: dict[str, str] = {}
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    if _UNPRINTABLE.search(first):
        raise ValueError("a request with control characters")
    for line in lines:
        name, _, value = line.partition(":")
        name = name.strip().lower()
        if _UNPRINTABLE.search(line) or (name in _ONCE and name in found):
            raise ValueError(f"a header that cannot be read: {name}")
        found[name] = value.strip()
    return found


async def _skip_body(headers: Mapping[str, str], reader: asyncio.StreamReader) -> None:
    """Nothing here looks at what a client sends, but it must be read before it is answered."""
    left = int(headers.get("content-length", "0"))
    if not 0 <= left <= MAX_BODY_BYTES:
        raise ValueError(f"a body of {left} bytes")
    while left:
        data = await reader.read(min(left, _CHUNK_BYTES))
        if not data:
            return
        left -= len(data)


async def ask(port: int, request: Request, secret: str = "") -> Page:
    """A page of a process on this machine, for whoever the request comes from."""
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
    """All that comes until the other end closes: one read gives no more than what is there at that moment."""
    body = bytearray()
    while data := await reader.read(_CHUNK_BYTES):
        body += data
        if len(body) > MAX_ANSWER_BYTES:
            raise ValueError(f"a page of more than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)
