"""The HTTP server of the gateway: uvicorn's protocol on sockets, certificates and limits of our own.

Only uvicorn's protocol is used, with httptools as the parser. The event loop, signals, sockets and the end of the
process are the process's own. A connection passes on what its client's certificate says, which uvicorn does not.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from headwater.background import Background, Supervised
from headwater.descriptors import Descriptors, Seat
from headwater.errors import ConfigError
from headwater.gateway.asgi import OURS, App
from headwater.gateway.metrics import Stats
from headwater.gateway.problems import BAD_REQUEST, HEAD_TOO_LARGE, OVERLOADED, Refusal, document
from headwater.ops.accepting import Accepting
from headwater.security.logins import network_of
from headwater.security.tls import CERTIFICATES, Certificates, principal_of
from headwater.settings.gateway import public_url
from headwater.settings.settings import Gateway, Settings, parse_address

log = logging.getLogger("headwater.gateway")
LEAST_BYTES_PER_SECOND = 16 * 1024
"""A client that waits must read at this rate, or loses its connection."""
HALF_CLOSED_SECONDS = 5.0
"""How long a client that sends no more waits for the beginning of its answer. After that it counts as gone."""


class _Doorman:
    """Counts connections, in all and by address."""

    def __init__(self, own: Gateway, stats: Stats) -> None:
        self._own = own
        self._stats = stats
        self._by_host: dict[str, int] = {}

    def enter(self, host: str) -> bool:
        """Let a connection in, unless there are too many."""
        mine = self._by_host.get(host, 0)
        if self._stats.connections >= self._own.connections or mine >= self._own.connections_per_address:
            self._stats.refuse("connections")
            return False
        self._stats.connections += 1
        self._stats.connections_total += 1
        self._by_host[host] = mine + 1
        return True

    def leave(self, host: str) -> None:
        """Forget a connection that was let in."""
        self._stats.connections -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


class Connection(HttpToolsProtocol):
    """One connection. A client that sends no whole head in time, or a head that is too large, loses it."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        own: Gateway,
        doorman: _Doorman,
        identify: Callable[[dict[str, Any]], str],
        seat: Seat,
    ) -> None:
        super().__init__(config, state, {})
        self._seat = seat
        self.timeout_keep_alive = own.idle_ms / 1000  # type: ignore[assignment]
        self._own = own
        self._doorman = doorman
        self._identify = identify
        self._host = ""
        self._inside = False
        self._certified = ""
        self._waiting: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._in_head = True
        self._half_closed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._seat.close = transport.abort
        self._host = network_of(self.client[0]) if self.client else ""
        self._inside = self._doorman.enter(self._host)
        if not self._inside:
            self._refuse(Refusal(OVERLOADED, "there are too many connections"))
            return
        shown = transport.get_extra_info("peercert")
        self._certified = self._identify(shown) if shown else ""
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._seat.release()
        self._unset_keepalive_if_required()
        if self._inside:
            self._inside = False
            self._doorman.leave(self._host)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._inside or self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and self._head_bytes > self._own.head_bytes:
            self._refuse(Refusal(HEAD_TOO_LARGE))
        elif self._waiting is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()  # a head that is not whole yet, or a body that nobody reads

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a whole request whose client closes its sending side, as `nc -N` does; returns whether to go on.

        A client that leaves looks the same until something is sent to it. So the beginning of an answer is awaited for
        some time only, and a client that has the beginning of one already is gone. TLS has no half-closed connections.
        """
        whole = self.cycle is not None and not self.cycle.more_body and not self._head_bytes
        if not whole or self.cycle.response_started or self.scheme == "https" or self.transport.is_closing():
            return False
        self._half_closed = True
        self._stop_waiting()
        self._waiting = self.loop.call_later(HALF_CLOSED_SECONDS, self.give_up)
        return True

    def give_up(self) -> None:
        """Close a half-closed connection whose answer has not begun. If it has begun, sending shows who is there."""
        self._waiting = None
        if not self.cycle.response_started:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self.scope["extensions"] = {
            OURS: {
                "certified": self._certified,
                "abort": self.transport.abort,
                "drained": self.drained,
                "known": self._seat.known,
            }
        }

    async def drained(self, seconds: float) -> bool:
        """Wait until the client has read most of what was sent. False if it reads too slowly, or not at all."""
        left = self.transport.get_write_buffer_size()
        while self.flow.write_paused:
            try:
                async with asyncio.timeout(seconds):
                    await self.flow.drain()
            except TimeoutError:
                before, left = left, self.transport.get_write_buffer_size()
                if before - left < LEAST_BYTES_PER_SECOND * seconds:
                    return False
        return True

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._half_closed and self.cycle.response_complete:
            self._stop_waiting()
            self.transport.close()
        if self.transport.is_closing() and self._waiting is None:
            self._wait()  # what is left is sent, but not for ever

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._in_head, self._head_bytes = False, 0
        if len(self.url) + sum(len(n) + len(v) for n, v in self.headers) > self._own.head_bytes:
            self._refuse(Refusal(HEAD_TOO_LARGE))
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._head_bytes = True, 0
        if not self.transport.is_closing():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal(BAD_REQUEST, "the request is not HTTP/1.1"))

    def _unsupported_upgrade_warning(self) -> None:
        """A request for a protocol that is not served is answered like any other."""

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self._own.idle_ms / 1000, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _refuse(self, refusal: Refusal) -> None:
        """Answer before there is a request, and close the connection."""
        body = document(refusal)
        head = [f"HTTP/1.1 {refusal.kind.status} ", f"content-type: {body.media_type}"]
        head += [f"content-length: {len(body.data)}", "connection: close"]
        head += [f"{name.lower()}: {value}" for name, value in refusal.all_headers]
        self.transport.write("\r\n".join([*head, "", ""]).encode("latin-1") + body.data)
        self.transport.close()
        self._stop_waiting()
        self._wait()


class HttpServer:
    """Serves an application until it is closed."""

    def __init__(
        self,
        settings: Settings,
        app: App,
        stats: Stats,
        background: Background,
        descriptors: Descriptors | None = None,
    ) -> None:
        self._descriptors = descriptors
        self._settings = settings
        self._own = settings.gateway
        self._background = background
        self._config = Config(
            cast(Any, app),
            http=HttpToolsProtocol,
            ws="none",
            loop="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        self._state = ServerState()
        self._doorman = _Doorman(self._own, stats)
        self._server: Accepting | None = None
        self._watching: Supervised | None = None
        self.host = ""
        self.port = 0

    def __repr__(self) -> str:
        return f"<HttpServer on {self.host}:{self.port}, {len(self._state.connections)} connections>"

    @property
    def url(self) -> str:
        """The URL that clients are given."""
        return public_url(self._own, self.host, self.port, tls=bool(self._settings.security.http.certificate))

    async def open(self) -> None:
        """Listen at the address of the settings."""
        self._config.load()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # the front logs what matters
        self.host, port = parse_address(self._own.http)
        security = self._settings.security
        certificates = Certificates("gateway", security.http) if security.http.certificate else None
        server = Accepting(
            self._connection,
            tls=certificates.context if certificates is not None else None,
            handshake_seconds=security.login_ms / 1000,
            network=network_of,
            own=self._descriptors,
        )
        try:
            self.port = await server.open(self.host, port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {self.host}:{port}: {error.strerror or error}") from error
        self._server = server
        if certificates is not None:
            watch = functools.partial(certificates.watch, security.reload_ms / 1000)
            self._watching = self._background.run(CERTIFICATES, watch, "gateway")

    def _connection(self, seat: Seat) -> Connection:
        return Connection(self._config, self._state, self._own, self._doorman, self._principal, seat)

    def _principal(self, certificate: dict[str, Any]) -> str:
        return principal_of(certificate, self._settings.security.http.principal_rules)

    async def close(self, seconds: float) -> None:
        """Take no new connections, let the requests under way finish for some time, then end the others."""
        if self._server is None:
            return
        if self._watching is not None:
            await self._watching.stop()
        self._server.close()
        await self._server.wait_closed()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(set(self._state.tasks), timeout=seconds)
        late = set(self._state.tasks)
        for connection in list(self._state.connections):
            cast(HttpToolsProtocol, connection).transport.abort()  # no answer is better than a wrong one
        for task in late:
            task.cancel()
        if late:
            log.warning("requests were cut off", extra={"requests": len(late)})
            await asyncio.wait(late)
        self._server = None
