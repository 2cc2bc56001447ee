"""Sockets: connections that take frames in, run handlers concurrently, and answer in order.

Back-pressure is by bytes: a connection that has too much under way, or whose client does not read its answers, is not
read from; nor is any connection while the whole broker has too much under way.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import deque
from collections.abc import Awaitable
from typing import Any, cast

from headwater.broker.admission import Admission, Admissions
from headwater.broker.core import Broker
from headwater.broker.handlers import api_versions
from headwater.broker.logins import Login
from headwater.broker.quotas import Meter, Timed, user_of
from headwater.broker.registry import APIS, Answer, Api, Pending, Request, Values
from headwater.broker.throttling import throttle
from headwater.broker.tls import Certificates, principal_of
from headwater.errors import CorruptFrame
from headwater.metadata.access import ANONYMOUS
from headwater.types import Buffer
from headwater.wire.frames import SCRATCH_BYTES, FrameReader
from headwater.wire.messages import (
    RequestStart,
    decode_request,
    encode_response,
    known_versions,
    read_start,
    request_type,
)
from headwater.wire.skim import skim

log = logging.getLogger("headwater.broker")
_WRITE_HIGH_WATER = 4 << 20


class _Slot:
    """One request of a connection, in the order they came."""

    __slots__ = ("began", "done", "meter", "serial", "size", "start", "values")

    def __init__(self, start: RequestStart, size: int, serial: bool) -> None:
        self.start = start
        self.size = size
        self.serial = serial
        self.began = time.perf_counter()
        self.done = False
        self.meter: Meter | None = None
        self.values: Values | None = None


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(self, server: Server, listener: str) -> None:
        self._server = server
        self._broker = server.broker
        self.listener = listener
        self.peer = self.host = "?"
        self.software = ("", "")
        self.principal = ANONYMOUS
        self.login: Login | None = None
        self._login_timer: asyncio.TimerHandle | None = None
        self._ending = False
        self._frames = FrameReader(server.broker.settings.limits.frame_bytes, server.scratch)
        self._transport: asyncio.Transport | None = None
        self._slots: deque[_Slot] = deque()
        self._inflight = 0
        self._loop = server.loop
        self._sending = False
        self._writing_paused = False
        self._reading_paused = False
        self._serial: asyncio.Lock | None = None
        self._kept = 0
        """Answers of serial APIs that are done and not handed to the transport yet."""
        self._room: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._muted: asyncio.TimerHandle | None = None
        self._taken = False

    def __repr__(self) -> str:
        return f"<Connection from {self.peer}, {len(self._slots)} requests under way>"

    # --- from the transport --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if isinstance(peer, tuple) else str(peer)
        self.peer = f"{self.host}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        admission = self._server.admit(self, self.host)
        self._taken = admission.taken
        if admission.wait:
            self._mute(admission.wait)
        elif not admission.taken:
            self._transport.abort()
            return
        self._identify()

    def _identify(self) -> None:
        """Ask who it is where the listener wants to know. Until then only small frames are taken, and not for long."""
        security = self._broker.settings.security
        own = security.listener(self.listener)
        if own.protocol.startswith("SASL"):
            self.login = self._broker.logins.begin(own, self.host)
            self._frames.limit = security.login_frame_bytes
            self._login_timer = self._loop.call_later(security.login_ms / 1000, self._overdue)
        elif own.protocol == "SSL" and self._transport is not None:
            subject = self._transport.get_extra_info("peercert")
            self.principal = principal_of(subject, own.principal_rules) if subject else ANONYMOUS

    def _overdue(self) -> None:
        log.info("closing a connection", extra={"peer": self.peer, "reason": "it did not log in in time"})
        self._close()

    def let_in(self, principal: str) -> None:
        """See `Peer`."""
        self.principal = principal
        self._frames.limit = self._broker.settings.limits.frame_bytes
        if self._login_timer is not None:
            self._login_timer.cancel()

    def end(self) -> None:
        """See `Peer`."""
        self._ending = True

    def connection_lost(self, exc: Exception | None) -> None:
        for task in self._tasks:
            task.cancel()
        if self._muted is not None:
            self._muted.cancel()
        if self._login_timer is not None:
            self._login_timer.cancel()
        self._server.released(self, self._inflight, self.host if self._taken else None)
        self._inflight = 0
        self._slots.clear()
        self._transport = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._frame(frame)
                if self._transport is None or self._transport.is_closing():
                    return
        except CorruptFrame as error:
            self._broker.stats.refused_frames += 1
            log.info("closing a connection", extra={"peer": self.peer, "reason": str(error)})
            self._close()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._consider_serial()
        self.consider_reading()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._send_ready()
        self.consider_reading()

    # --- requests --------------------------------------------------------------------------------------

    def _frame(self, frame: memoryview) -> None:
        start = read_start(frame)
        if self._ending:
            return
        if self.login is not None and not self.login.admits(start.api_key):
            raise CorruptFrame(f"API {start.api_key} without a log-in, or after its time")
        api = APIS.get(start.api_key)
        if api is None or start.version not in api.versions:
            self._unsupported(api, start, len(frame))
            return
        read = api.read(start, frame) if api.read is not None else None
        if read is None:
            header, body = decode_request(start, skim(request_type(start.api_key, start.version), frame))
            read = header.client_id or "", body
        slot = self._open_slot(start, len(frame), api.serial)
        request = Request(start, *read, self)
        try:
            answer = self._one_at_a_time(api, request) if api.serial else api.handle(self._broker, request)
            if self._broker.quotas.active:
                answer = self._metered(slot, request, answer)
        except Exception as error:  # noqa: BLE001 - one request's failure must not take the broker down
            self._broken(slot, error)
            return
        if isinstance(answer, Pending):
            answer.then(functools.partial(self._told, slot))
            return
        if answer is None or not isinstance(answer, Awaitable):
            self._answered(slot, answer)
            return
        task = asyncio.ensure_future(answer)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: self._finished(slot, done))

    def _metered(self, slot: _Slot, request: Request, answer: Answer) -> Answer:
        """Measure what a request uses from here on; what it has used so far is known."""
        meter = slot.meter = Meter(user_of(self), request.client_id, time.perf_counter() - slot.began)
        if isinstance(answer, Awaitable) and not isinstance(answer, Pending):
            return Timed(answer, meter, self._broker.clock)
        return answer

    async def _one_at_a_time(self, api: Api, request: Request) -> Values | None:
        if self._serial is None or self._room is None:
            self._serial, self._room = asyncio.Lock(), asyncio.Event()
            self._consider_serial()
        async with self._serial:
            await self._room.wait()
            values = await cast(Awaitable[Values | None], api.handle(self._broker, request))
            self._kept += 1  # here and not later: the next one may run in this same turn of the event loop
            self._consider_serial()
            return values

    def _consider_serial(self) -> None:
        """A large answer is made only when the one before it is on its way to a client that reads."""
        if self._room is None:
            return
        if self._kept or self._writing_paused:
            self._room.clear()
        else:
            self._room.set()

    def _open_slot(self, start: RequestStart, size: int, serial: bool = False) -> _Slot:
        slot = _Slot(start, size, serial)
        self._slots.append(slot)
        self._inflight += size
        self._server.took(size)
        self.consider_reading()
        return slot

    def _unsupported(self, api: Api | None, start: RequestStart, size: int) -> None:
        """ApiVersions of any version is answered, so that clients can step down; all else ends the connection."""
        if start.api_key == api_versions.KEY:
            self._answered(
                self._open_slot(RequestStart(start.api_key, 0, start.correlation_id), size),
                api_versions.unsupported_version(),
            )
            return
        known = f"versions {api.versions[0]} to {api.versions[-1]}" if api is not None else "no version"
        if known_versions(start.api_key) or api is not None:
            raise CorruptFrame(f"API {start.api_key} v{start.version} is not served here, but {known}")
        raise CorruptFrame(f"API {start.api_key} does not exist")

    def _told(self, slot: _Slot, values: Values | None) -> None:
        """An answer that comes out of the middle of others' work, which must go on whatever happens here."""
        try:
            self._answered(slot, values)
        except Exception as error:  # noqa: BLE001 - as in `_frame`
            self._broken(slot, error)

    def _finished(self, slot: _Slot, done: asyncio.Future[Values | None]) -> None:
        if done.cancelled():
            self._close()
            return
        error = done.exception()
        if error is not None:
            self._broken(slot, error)
        else:
            self._answered(slot, done.result())

    def _broken(self, slot: _Slot, error: BaseException) -> None:
        log.error(
            "a handler failed",
            exc_info=error,
            extra={"api": APIS[slot.start.api_key].name, "correlation_id": slot.start.correlation_id},
        )
        self._close()

    def _answered(self, slot: _Slot, values: Values | None) -> None:
        slot.values = values if slot.meter is None else self._charged(slot, slot.meter, values)
        slot.done = True
        stats = self._broker.stats
        key = slot.start.api_key
        stats.requests[key] = stats.requests.get(key, 0) + 1
        stats.request_seconds[key] = stats.request_seconds.get(key, 0.0) + time.perf_counter() - slot.began
        if not self._sending:
            self._sending = True
            self._loop.call_soon(self._send_soon)

    def _charged(self, slot: _Slot, meter: Meter, values: Values | None) -> Values | None:
        """Charge the client for a request. If it has used too much it is told so at once, and then not heard."""
        milliseconds = throttle(self._broker, slot.start.api_key, slot.size, meter, values)
        if not milliseconds:
            return values
        self._mute(milliseconds / 1000)
        return None if values is None else {**values, "throttle_time": milliseconds}

    def _mute(self, seconds: float) -> None:
        """Read nothing for a while. A silence under way becomes longer, never shorter."""
        until = self._loop.time() + seconds
        if self._muted is not None:
            if self._muted.when() >= until:
                return
            self._muted.cancel()
        self._muted = self._loop.call_at(until, self._unmute)
        self.consider_reading()

    def _unmute(self) -> None:
        self._muted = None
        if self._taken:
            self.consider_reading()
        else:
            self._close()

    def _send_soon(self) -> None:
        """What was answered in one turn of the event loop goes out in one call to the kernel."""
        self._sending = False
        self._send_ready()

    def _send_ready(self) -> None:
        """Send the answers at the head of the line."""
        transport = self._transport
        if transport is None:
            return
        pieces: list[Buffer] = []
        freed = 0
        while self._slots and self._slots[0].done and not self._writing_paused:
            slot = self._slots.popleft()
            freed += slot.size
            self._kept -= slot.serial
            if slot.values is not None:
                start = slot.start
                pieces += encode_response(start.api_key, start.version, start.correlation_id, slot.values)
        if pieces:
            transport.writelines(pieces)
        self._consider_serial()
        if freed:
            self._inflight -= freed
            self._server.gave_back(freed)
            self.consider_reading()
        if self._ending and not self._slots:
            transport.close()

    # --- back-pressure -----------------------------------------------------------------------------------

    def consider_reading(self) -> None:
        """Read on, or stop reading, as the limits say."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        limits = self._broker.settings.limits
        full = (
            self._writing_paused
            or self._muted is not None
            or self._inflight > limits.connection_inflight_bytes
            or len(self._slots) > limits.connection_inflight_requests
            or self._server.overloaded
            or self._server.draining
        )
        if full and not self._reading_paused:
            self._reading_paused = True
            transport.pause_reading()
        elif not full and self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()

    @property
    def muted(self) -> bool:
        """Whether the client is not heard at present, because it has used more than it may."""
        return self._muted is not None

    @property
    def idle(self) -> bool:
        """Whether every request is answered."""
        return not self._slots

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End the connection once what was written is sent."""
        if self._transport is not None:
            self._transport.close()


class Server:
    """All listeners and connections of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.loop = asyncio.get_running_loop()
        self.overloaded = False
        self.draining = False
        self._inflight = 0
        self._connections: set[Connection] = set()
        self._refused: set[Connection] = set()
        """Connections that are ended after a while, so that their clients do not come back at once."""
        self._admissions = Admissions(broker.settings, broker.quotas, broker.clock)
        self._servers: list[asyncio.Server] = []
        self._watching: list[asyncio.Task[None]] = []

    @property
    def connections(self) -> list[Connection]:
        """Those that are served."""
        return list(self._connections)

    def __repr__(self) -> str:
        return f"<Server with {len(self._connections)} connections, {self._inflight} bytes under way>"

    async def listen(self, listener: str, host: str, port: int) -> int:
        """Open a listener and answer the port it got."""
        loop = asyncio.get_running_loop()
        security = self.broker.settings.security
        tls: dict[str, Any] = {}
        if security.listener(listener).protocol.endswith("SSL"):
            certificates = Certificates(listener, security.listener(listener))
            tls = {"ssl": certificates.context, "ssl_handshake_timeout": security.login_ms / 1000}
            self._watching.append(loop.create_task(certificates.watch(security.reload_ms / 1000)))
        server = await loop.create_server(lambda: Connection(self, listener), host, port, backlog=1024, **tls)
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    def admit(self, connection: Connection, address: str) -> Admission:
        """Whether one more connection is taken. Those that are kept waiting before they are ended are bounded, too."""
        stats = self.broker.stats
        stats.connections_total += 1
        admission = self._admissions.knock(address, self.broker.cluster.state.resources)
        if not admission.taken:
            stats.refused_connections += 1
            if not admission.wait or len(self._refused) >= self.broker.settings.limits.connections:
                return Admission(False)
            self._refused.add(connection)
            return admission
        self._connections.add(connection)
        stats.connections = len(self._connections)
        return admission

    def released(self, connection: Connection, inflight: int, address: str | None) -> None:
        """A connection is gone; it has an address if it was taken."""
        if address is not None:
            self._admissions.release(address)
        self._connections.discard(connection)
        self._refused.discard(connection)
        self.broker.stats.connections = len(self._connections)
        self.gave_back(inflight)

    def took(self, size: int) -> None:
        """A request of this size came in."""
        self._inflight += size
        if self._inflight > self.broker.settings.limits.broker_inflight_bytes:
            self._set_overloaded(True)

    def gave_back(self, size: int) -> None:
        """Requests of this size are answered."""
        self._inflight -= size
        if self.overloaded and self._inflight < self.broker.settings.limits.broker_inflight_bytes // 2:
            self._set_overloaded(False)

    def _set_overloaded(self, overloaded: bool) -> None:
        if self.overloaded != overloaded:
            self.overloaded = overloaded
            for connection in list(self._connections):
                connection.consider_reading()

    async def drain(self, seconds: float) -> None:
        """Take no new connections, let what is under way finish, then close."""
        self.draining = True
        for task in self._watching:
            task.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.consider_reading()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not all(c.idle for c in self._connections):
            await asyncio.sleep(0.01)
        for connection in [*self._connections, *self._refused]:
            connection.close()
        for server in self._servers:
            await server.wait_closed()
