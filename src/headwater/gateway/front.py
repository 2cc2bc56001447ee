"""The front of the gateway, an ASGI middleware: it sees every request first and every answer last.

It gives each request an id, tells who calls, keeps the limits (requests under way, the rate of a caller, the bytes of a
body, clients that stop sending or reading), answers browsers that ask about other origins, and counts. What it refuses
is answered by a problem document, like all refusals.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from email.utils import formatdate
from typing import Any

from litestar.exceptions import LitestarException

from headwater.errors import HeadwaterError, QuotaExceeded
from headwater.gateway.asgi import OURS, App, Message, Receive, Scope, Send, first_values
from headwater.gateway.callers import MAX_FORM_BYTES, TOKENS, Callers, is_open
from headwater.gateway.limits import BodyBytes, Rates
from headwater.gateway.origins import Origins, Raw
from headwater.gateway.problems import BAD_REQUEST, INTERNAL, TOO_LARGE, TOO_SLOW, Refusal, Style, refusal_of, style_of
from headwater.gateway.quotas import Usage
from headwater.gateway.services import Call, Services, Taken
from headwater.security.logins import network_of
from headwater.settings.settings import parse_address
from headwater.threads import CALLER

log = logging.getLogger("headwater.gateway")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
CLOSE = (b"connection", b"close")
UNROUTED = "none"
LEAST_BYTES_PER_SECOND = 16 * 1024
"""A body must come at this rate, after `gateway.idle_ms` of grace."""
WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")
LEFT = "left"
MAX_DIGITS = 18
"""A length with more digits is not even read."""


class Stalled(HeadwaterError):
    """The client does not read its answer."""


class Front:
    """See the module."""

    def __init__(self, app: App, services: Services, styles: Mapping[str, Style]) -> None:
        self._app = app
        self._services = services
        self._styles = styles
        self._callers = Callers(services.http_logins)
        self._origins = Origins(services.own.origins, parse_address(services.own.http)[0], services.own.url)
        self._rates = Rates(services.own.requests_per_second, services.clock)
        self._date = (0, b"")

    def __repr__(self) -> str:
        return f"<Front of {self._services!r}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = first_values(scope)
        own = self._services
        answer = _Answer(scope, send, own, self._common(headers))
        began = own.clock.monotonic()
        own.stats.under_way += 1
        call: Call | None = None
        try:
            preflight = self._preflight(scope, headers)
            if preflight is not None:
                await answer.whole(204, preflight, b"")
                return
            call = await self._let_in(scope, headers, answer.request_id)
            if not is_open(scope["path"]):
                known(scope)
            CALLER.set(call.caller.account)
            scope.setdefault("state", {})[OURS] = call
            answer.usage = call.usage
            body = _Body(call, receive, scope["method"], self._body_bytes(scope))
            await call.usage.timed(self._app(scope, body.receive, answer.send))
        except Exception as error:  # noqa: BLE001 - it becomes an answer, and is logged there
            await self._failed(scope, answer, cause_of(error))
        finally:
            for place in call.places if call is not None else ():
                place.release()
            own.stats.under_way -= 1
            route = str(scope.get("path_template") or UNROUTED)
            own.stats.answered(scope["method"], route, answer.status, own.clock.monotonic() - began)

    async def _let_in(self, scope: Scope, headers: Mapping[bytes, bytes], request_id: str) -> Call:
        """Check the limits and tell who calls. Open paths have no limit but that on connections: they cost little."""
        own = self._services
        places: list[Taken] = []
        try:
            if not is_open(scope["path"]):
                self._origins.check(scope["method"], headers.get(b"origin"), headers.get(b"host"))
                own.load.check()
                taken = (own.strangers if scope["path"] == TOKENS else own.requests).enter(_network(scope))
                places.append(taken)
            call = Call(own, await self._callers.who(scope), request_id, places)
            if not is_open(scope["path"]):
                taken.move(call.caller.account)
                self._rates.take(call.caller.account)
                call.usage.check_time()
            length = headers.get(b"content-length", b"0")
            most = self._body_bytes(scope)
            if not length.isdigit() or len(length) > MAX_DIGITS or int(length) > most:
                raise too_large(most)
        except BaseException as error:
            for place in places:
                place.release()
            if isinstance(error, Refusal | QuotaExceeded):
                own.stats.refuse(refusal_of(error).kind.name)
            raise
        return call

    def _body_bytes(self, scope: Scope) -> int:
        """The largest body. A form of a caller who is not known yet is small."""
        most = self._services.own.body_bytes
        return min(most, MAX_FORM_BYTES) if scope["path"] == TOKENS else most

    async def _failed(self, scope: Scope, answer: _Answer, error: BaseException) -> None:
        """Answer a request that failed, or cut off the answer: the client must not take a part of it for the whole."""
        if isinstance(error, Stalled):
            self._services.stats.refuse("stalled")
            return
        log_failure(scope["path"], answer.request_id, error)
        if answer.started:
            abort(scope)
        else:
            await self._refuse(scope, answer, refusal_of(error))

    async def _refuse(self, scope: Scope, answer: _Answer, refusal: Refusal) -> None:
        body = style_of(scope["path"], self._styles)(refusal, first_values(scope))
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in refusal.all_headers]
        headers.append((b"content-type", body.media_type.encode()))
        if refusal.kind in (TOO_LARGE, TOO_SLOW):
            headers.append(CLOSE)  # the rest of the body is not read
        try:
            await answer.whole(refusal.kind.status, headers, body.data)
        except Stalled:
            self._services.stats.refuse("stalled")

    def _preflight(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Raw | None:
        if scope["method"] != "OPTIONS":
            return None
        return self._origins.preflight(headers.get(b"origin"), headers.get(b"access-control-request-method"))

    def _common(self, headers: Mapping[bytes, bytes]) -> Raw:
        """The headers of every answer. The caller's own request id is kept if it is a short word."""
        given = headers.get(b"x-request-id", b"")
        own = given if _REQUEST_ID.fullmatch(given) else self._services.chance.uuid().hex.encode()
        now = self._services.clock.wall_ms() // 1000
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return [
            (b"x-request-id", own),
            (b"date", self._date[1]),
            (b"x-content-type-options", b"nosniff"),
            *self._origins.headers(headers.get(b"origin")),
        ]


class _Answer:
    """Sends an answer, with the headers of every answer. A client that does not read it in time loses it."""

    def __init__(self, scope: Scope, send: Send, services: Services, common: Raw) -> None:
        self._scope = scope
        self._send = send
        self._stats = services.stats
        self._seconds = services.own.stalled_ms / 1000
        self._common = common
        self._stopping = services.until_stopping
        self.usage: Usage | None = None
        """What the request uses of its caller's quotas; None until the caller is known."""
        self.request_id = common[0][1].decode()
        self.status = 0
        """0 if no answer was sent: the client has left."""

    @property
    def started(self) -> bool:
        return self.status != 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", ())}
            more = [pair for pair in self._common if pair[0] not in names]
            if b"cache-control" not in names:
                more.append((b"cache-control", b"no-store"))
            message["headers"] = [*message.get("headers", ()), *more]
            self.status = message["status"]
        else:
            self._sent(len(message.get("body", b"")))
        if not await self._delivered(message):
            abort(self._scope)
            raise Stalled("the client does not read its answer")
        if message.get("more_body") and self.usage is not None and self.usage.pause_before_sending:
            await asyncio.wait([self._stopping()], timeout=self.usage.pause_before_sending)

    def _sent(self, size: int) -> None:
        self._stats.sent_bytes += size
        if self.usage is not None:
            self.usage.sent(size)

    async def _delivered(self, message: Message) -> bool:
        """Send a message and wait until most of it is read. False if the client reads too slowly, or not at all."""
        drained = of_connection(self._scope).get("drained")
        if drained is not None:
            await self._send(message)
            return bool(await drained(self._seconds))
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            return False
        return True

    async def whole(self, status: int, headers: Raw, body: bytes) -> None:
        """Send an answer that is known as a whole."""
        length = [(b"content-length", str(len(body)).encode())] if status != 204 else []
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
        await self.send({"type": "http.response.body", "body": body})


class _Body:
    """Receives the body of a request, up to the limit, from a client that keeps sending, and not too slowly."""

    def __init__(self, call: Call, receive: Receive, method: str, most: int) -> None:
        self._call = call
        self._has_body = method not in WITHOUT_BODY
        self._receive = receive
        self._clock = call.services.clock
        self._stats = call.services.stats
        self._most = most
        self._bytes = BodyBytes(call.services.bodies, call.caller.account)
        call.places.append(self._bytes)
        self._seconds = call.services.own.idle_ms / 1000
        self._began = self._clock.monotonic()
        self._got = 0
        self._more = True

    def _patience(self) -> float:
        """How long to wait for more: not for ever for a client that sends a byte now and then."""
        if self._call.is_stream:
            return self._seconds
        left = self._began + self._seconds + self._got / LEAST_BYTES_PER_SECOND - self._clock.monotonic()
        return max(0.0, min(self._seconds, left))

    async def receive(self) -> Message:
        if not self._more:
            return await self._receive()  # waits until the client leaves
        pause = self._call.usage.pause_before_receiving if self._call.is_stream else 0.0
        if pause:
            await asyncio.sleep(pause)
        try:
            async with asyncio.timeout(self._patience()):
                message = await self._receive()
        except TimeoutError:
            self._stats.refuse(TOO_SLOW.name)
            raise Refusal(TOO_SLOW) from None
        if message["type"] == "http.disconnect" and self._has_body:
            self._stats.refuse(LEFT)
            raise Refusal(BAD_REQUEST, "the client left before its body was whole")  # which nobody reads
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self._got += size
            self._stats.received_bytes += size
            self._call.usage.received(size)
            self._more = message.get("more_body", False)
            if self._got > self._most and not self._call.is_stream:
                self._stats.refuse(TOO_LARGE.name)
                raise too_large(self._most)
            if not self._call.is_stream:
                self._hold(size)
        return message

    def _hold(self, size: int) -> None:
        """Count bytes that are kept until the answer has ended."""
        try:
            self._bytes.add(size)
        except Refusal as refusal:
            self._stats.refuse(refusal.kind.name)
            raise


def too_large(most: int) -> Refusal:
    """The refusal of a body that is too large."""
    return Refusal(TOO_LARGE, f"the body has more than {most} bytes (gateway.body_bytes)")


def abort(scope: Scope) -> None:
    """Close the connection of a request at once."""
    close = of_connection(scope).get("abort")
    if close is not None:
        close()


def known(scope: Scope) -> None:
    """Note that the client of a connection has been let in: it is not closed to make room for another."""
    note = of_connection(scope).get("known")
    if note is not None:
        note()


def of_connection(scope: Scope) -> Mapping[str, Any]:
    """What the server gives of a connection; nothing where there is no socket."""
    found: Mapping[str, Any] = scope.get("extensions", {}).get(OURS, {})
    return found


def _network(scope: Scope) -> str:
    """The address of a client that has not said who it is."""
    client = scope.get("client")
    return network_of(str(client[0])) if client else ""


def cause_of(error: BaseException) -> BaseException:
    """The error that Litestar wraps when it comes after the answer has begun, or from a stream."""
    while True:
        if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        elif isinstance(error, LitestarException) and error.__cause__ is not None:
            error = error.__cause__
        else:
            return error


def log_failure(path: str, request_id: str, error: BaseException) -> None:
    """Log what `refusal_of` does not tell the caller."""
    if refusal_of(error).kind is INTERNAL:
        log.error("a request failed", extra={"path": path, "request": request_id}, exc_info=error)
