"""Listeners, and what the connections of a broker share: admission, a limit on bytes under way, draining."""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import Callable

from headwater.background import Supervised
from headwater.broker.broker import Broker
from headwater.broker.net.admission import Admission, Admissions
from headwater.broker.net.connection import Connection
from headwater.descriptors import Descriptors
from headwater.ops.accepting import Accepting
from headwater.security.logins import network_of
from headwater.security.tls import CERTIFICATES, Certificates
from headwater.wire.frames import SCRATCH_BYTES

log = logging.getLogger("headwater.broker")
MAX_PAUSE_SECONDS = 30.0
"""Time between two looks for idle connections, at most."""
SLOW_PAUSE_SECONDS = 0.1
"""Time between two looks for slow readers, while answers take too much memory."""


class Server:
    """All listeners and connections of one broker."""

    def __init__(self, broker: Broker, descriptors: Descriptors | None = None) -> None:
        self.broker = broker
        self._descriptors = descriptors
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.loop = asyncio.get_running_loop()
        self.draining = False
        broker.budget.on_change = self._consider_reading
        self._connections: set[Connection] = set()
        self._refused: set[Connection] = set()
        """Refused connections. They are closed after a while, so that their clients do not reconnect at once."""
        self._admissions = Admissions(broker.settings, broker.quotas, broker.clock)
        self._servers: list[Accepting] = []
        self._timers: dict[str, asyncio.TimerHandle] = {}
        broker.responses.on_change = self._room_changed
        self._watching: list[Supervised] = []

    @property
    def connections(self) -> list[Connection]:
        """The accepted connections."""
        return list(self._connections)

    def __repr__(self) -> str:
        return f"<Server with {len(self._connections)} connections, {self.broker.budget}>"

    async def listen(self, listener: str, host: str, port: int) -> int:
        """Open a listener; returns its port."""
        security = self.broker.settings.security
        tls = None
        if security.listener(listener).protocol.endswith("SSL"):
            certificates = Certificates(listener, security.listener(listener))
            tls = certificates.context
            watch = functools.partial(certificates.watch, security.reload_ms / 1000)
            self._watching.append(self.broker.background.run(CERTIFICATES, watch, listener))
        server = Accepting(
            lambda seat: Connection(self, listener, seat),
            tls=tls,
            handshake_seconds=security.login_ms / 1000,
            network=network_of,
            own=self._descriptors,
        )
        bound = await server.open(host, port)
        self._servers.append(server)
        for listening in server.sockets:
            # Connections inherit it. It ends those whose other end is gone without a word.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not self._timers:
            self._later("idle", self._idle_pause, self._close_idle)
        return bound

    def admit(self, connection: Connection, address: str) -> Admission:
        """Decide whether to accept one more connection. The number of refused ones that wait is bounded, too."""
        stats = self.broker.stats
        stats.connections_total += 1
        admission = self._admissions.knock(address, self.broker.cluster.state.resources)
        if not admission.taken:
            stats.refuse(admission.reason)
            if not admission.wait or len(self._refused) >= self.broker.settings.limits.connections:
                return Admission(False)
            self._refused.add(connection)
            return admission
        self._connections.add(connection)
        stats.connections = len(self._connections)
        return admission

    def released(self, connection: Connection, address: str | None) -> None:
        """Note that a connection is closed. `address` is None if it was not accepted."""
        if address is not None:
            self._admissions.release(address)
        self._connections.discard(connection)
        self._refused.discard(connection)
        self.broker.stats.connections = len(self._connections)

    def _consider_reading(self) -> None:
        for connection in list(self._connections):
            connection.consider_reading()

    # --- connections that are closed because of limits ---------------------------------------------------

    @property
    def _idle_pause(self) -> float:
        return min(self.broker.settings.limits.idle_ms / 10_000, MAX_PAUSE_SECONDS)

    def _later(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        self._timers[name] = self.loop.call_later(seconds, call)

    def _close_idle(self) -> None:
        limit = self.broker.settings.limits.idle_ms / 1000
        for connection in self.connections:
            if connection.idle_seconds() >= limit:
                connection.drop("idle", f"nothing was sent or received for {limit:g} s")
        self._later("idle", self._idle_pause, self._close_idle)

    def _room_changed(self) -> None:
        if "room" not in self._timers:
            self._later("room", 0, self._look_for_room)

    def _look_for_room(self) -> None:
        """Answers take more or less than the limit. While they take more, slow readers are looked for."""
        del self._timers["room"]
        responses = self.broker.responses
        self._measure()
        if responses.level and "slow" not in self._timers:
            log.warning("clients do not read their answers", extra={"bytes": responses.bytes})
            self._later("slow", SLOW_PAUSE_SECONDS, self._close_slow)
        for connection in self.connections:
            connection.consider()

    def _close_slow(self) -> None:
        del self._timers["slow"]
        responses = self.broker.responses
        waiting = self._measure()
        slow = set(responses.stalled(self.loop.time()))
        for connection in waiting:
            if connection in slow:
                connection.drop("response_bytes", "it does not read its answers, and the broker has no room for more")
            else:
                connection.consider()
        if responses.level:
            self._later("slow", SLOW_PAUSE_SECONDS, self._close_slow)

    def _measure(self) -> list[Connection]:
        """Measure the connections whose clients have answers to read, and return them."""
        unread = set(self.broker.responses.owners())
        waiting = [connection for connection in self.connections if connection in unread]
        for connection in waiting:
            connection.measure()
        return waiting

    async def drain(self, seconds: float) -> None:
        """Accept no new connections, let requests under way finish, then close."""
        self.draining = True
        for timer in self._timers.values():
            timer.cancel()
        for duty in self._watching:
            await duty.stop()
        for server in self._servers:
            server.close()
        self._consider_reading()
        now = self.broker.clock.monotonic
        deadline = now() + seconds
        while now() < deadline and not all(c.idle for c in self._connections):
            await asyncio.sleep(0.01)
        for connection in [*self._connections, *self._refused]:
            connection.close()
        for server in self._servers:
            await server.wait_closed()
