"""Listening sockets that count their connections, and that outlive a time without free descriptors.

A connection is counted from its acceptance on, so also while it negotiates TLS. When the system has no descriptor for
it, the listener pauses and goes on.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

from headwater import descriptors
from headwater.background import Tasks
from headwater.descriptors import Descriptors, Seat
from headwater.ops.metrics import Metric

log = logging.getLogger("headwater.listener")
BACKLOG = 1_024
AT_ONCE = 32
"""Connections that are accepted before other work of the event loop gets its turn."""
PAUSE_SECONDS = 0.2
"""How long nothing is accepted after the system had no descriptor."""
LOG_SECONDS = 10.0

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Accepting:
    """Accepts connections at one address until it is closed."""

    def __init__(
        self,
        protocol: Callable[[Seat], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
        handshake_seconds: float | None = None,
        network: Callable[[str], str] = str,
        extra: int = 0,
        own: Descriptors | None = None,
    ) -> None:
        """`protocol` makes the protocol of a connection, which releases the seat when the connection is lost.

        `network` says which addresses count as one. `extra`: see `Descriptors.enter`.
        """
        self._protocol = protocol
        self._tls = tls
        self._handshake_seconds = handshake_seconds if tls is not None else None
        self._network = network
        self._extra = extra
        self._own = own or descriptors.of_process()
        self._tasks = Tasks()
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._logged = float("-inf")
        self.sockets: list[socket.socket] = []

    def __repr__(self) -> str:
        return f"<Accepting on {len(self.sockets)} sockets, {len(self._tasks)} handshakes>"

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, number, _, address in dict.fromkeys(found):
                self.sockets.append(_listening(family, kind, number, address))
        except OSError:
            self.close()
            raise
        for listening in self.sockets:
            loop.add_reader(listening, self._accept, listening)
        bound: int = self.sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        """Accept no more. Connections that are open stay."""
        loop = asyncio.get_running_loop()
        for timer in self._paused.values():
            timer.cancel()
        self._paused.clear()
        for listening in self.sockets:
            loop.remove_reader(listening)
            listening.close()
        self.sockets.clear()

    async def wait_closed(self) -> None:
        """End the handshakes under way."""
        await self._tasks.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listening, error)
                return
            accepted.setblocking(False)
            address = self._network(str(peer[0])) if isinstance(peer, tuple) else ""
            seat = self._own.enter(address, functools.partial(_cut, accepted), self._extra)
            if seat is None:
                accepted.close()
            else:
                self._tasks.spawn(self._connect(accepted, seat), "accept")

    async def _connect(self, accepted: socket.socket, seat: Seat) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: self._protocol(seat),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_seconds,
            )
        except OSError:  # the client has left, or does not negotiate TLS
            seat.release()
            accepted.close()
        except BaseException:
            seat.release()
            accepted.close()
            raise

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Accept nothing for a moment: the system has no descriptor, or no memory, for another connection."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._paused[listening] = loop.call_later(PAUSE_SECONDS, self._go_on, listening)
        if error.errno in descriptors.SPENT:
            self._own.exhausted()
        if loop.time() >= self._logged + LOG_SECONDS:
            self._logged = loop.time()
            log.warning("no connections are accepted for a moment", extra={"reason": str(error)})

    def _go_on(self, listening: socket.socket) -> None:
        del self._paused[listening]
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)


class Streams(asyncio.StreamReaderProtocol):
    """A connection that is served by a function of its reader and its writer."""

    def __init__(self, seat: Seat, serve: Callable[..., Awaitable[None]], limit: int = 1 << 16) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(asyncio.StreamReader(limit=limit, loop=loop), serve, loop=loop)
        self._seat = seat

    def connection_lost(self, exc: Exception | None) -> None:
        self._seat.release()
        super().connection_lost(exc)


def _listening(family: int, kind: int, number: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, kind, number)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _cut(accepted: socket.socket) -> None:
    """End a connection through its socket: its transport finds the end and closes."""
    try:
        accepted.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already


def described() -> dict[str, int]:
    """This process's descriptors, for its health page."""
    own = descriptors.of_process()
    return {"open": descriptors.opened(), "limit": own.limit, "connections": own.count, "room": own.room}


def collect() -> list[Metric]:
    """The metrics of this process's descriptors."""
    own = descriptors.of_process()
    left = [({"how": "silent"}, float(own.closed)), ({"how": "refused"}, float(own.refused))]
    return [
        Metric("headwater_descriptors", "gauge", "Open file descriptors.", [({}, float(descriptors.opened()))]),
        Metric("headwater_descriptors_limit", "gauge", "File descriptors at most.", [({}, float(own.limit))]),
        Metric(
            "headwater_descriptors_connections",
            "gauge",
            "Connections of all listeners, those that negotiate TLS included.",
            [({}, float(own.count))],
        ),
        Metric("headwater_descriptors_room", "gauge", "Connections at most.", [({}, float(own.room))]),
        Metric(
            "headwater_descriptors_turned_away_total", "counter", "Connections that were closed for want of room.", left
        ),
        Metric(
            "headwater_descriptors_spent_total", "counter", "Times that the system had no descriptor.",
            [({}, float(own.spent))],
        ),
    ]  # fmt: skip
