"""One client's connection: it reads frames, begins requests as their kinds allow, and answers in order.

As in Apache Kafka, a request sees the effects of all requests that came before it on its connection, and of none that
came after it. Those that cannot tell the difference are under way side by side (`RequestKind` in `broker/registry.py`).
Frames behind a request that has to wait are kept as they are, and the connection is not read meanwhile.

A connection stops reading while it has too much under way, while its client does not read the answers, and while the
whole broker has too much under way.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Any, cast

from kio.schema.errors import ErrorCode

from headwater.background import launch
from headwater.broker.groups.shares import caller_of
from headwater.broker.handlers.session import api_versions
from headwater.broker.net.hosting import Host, Slot, address_of, not_served
from headwater.broker.net.throttling import metered, throttle
from headwater.broker.registry import APIS, WAITS_FOR, Api, RequestKind
from headwater.broker.request import Pending, Request, Values
from headwater.broker.turns import SLICE_ITEMS
from headwater.descriptors import Seat, uncounted
from headwater.errors import CorruptFrame, TooManyItems
from headwater.security.logins import Login
from headwater.security.quotas import Meter
from headwater.security.tls import principal_of
from headwater.state.cluster.access import ANONYMOUS
from headwater.threads import CALLER
from headwater.types import Buffer
from headwater.wire.frames import FrameReader
from headwater.wire.messages import (
    RequestStart,
    decode_request,
    encode_response,
    encode_response_in_slices,
    has_error,
    read_start,
    request_type,
    weight,
)
from headwater.wire.skim import skim

log = logging.getLogger("headwater.broker")
_WRITE_HIGH_WATER = 4 << 20
LARGE_FRAME_BYTES = 16 << 10
"""A larger request, Produce apart, waits for a turn of the event loop in which no other large one is decoded."""


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(self, host: Host[Connection], listener: str, seat: Seat | None = None) -> None:
        self._host, self._seat = host, seat or uncounted()
        self._broker = host.broker
        self._budget = host.broker.budget
        self._responses = host.broker.responses
        self.listener = listener
        self.peer = self.host = "?"
        self.software = ("", "")
        self.principal = ANONYMOUS
        self.login: Login | None = None
        self._login_timer: asyncio.TimerHandle | None = None
        self._ending = False
        self._frames = FrameReader(host.broker.settings.limits.frame_bytes, host.scratch)
        self._transport: asyncio.Transport | None = None
        self._slots: deque[Slot] = deque()
        self._inflight = 0
        self._loop = host.loop
        self._sending = False
        self._writing_paused = False
        self._reading_paused = False
        self._under_way = [0] * len(RequestKind)
        """Requests of each kind that were begun and whose answers are not passed to the transport."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._context: Context | None = None
        """That of the tasks, which names the caller. None until there is a task of the present caller."""
        self._muted: asyncio.TimerHandle | None = None
        self._taken = False
        self._active = self._loop.time()
        self._behind: deque[tuple[RequestStart, bytes]] = deque()
        """Frames that wait. All of them were in one receive buffer, because the connection is not read meanwhile."""

    def __repr__(self) -> str:
        return f"<Connection from {self.peer}, {len(self._slots)} requests under way>"

    # --- from the transport --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)
        self.host, self.peer = address_of(transport)
        self._seat.close = self._transport.abort
        admission = self._host.admit(self, self.host)
        self._taken = admission.taken
        if admission.wait:
            self._mute(admission.wait)
        elif not admission.taken:
            self._transport.abort()
            return
        self._identify()

    def _identify(self) -> None:
        """Start authentication, if the listener requires it.

        Until it is done, only small frames are accepted, and there is a time limit.
        """
        security = self._broker.settings.security
        own = security.listener(self.listener)
        if own.protocol.startswith("SASL"):
            self.login = self._broker.logins.begin(own, self.host)
            self._frames.limit = security.login_frame_bytes
            self._login_timer = self._loop.call_later(
                security.login_ms / 1000, self.drop, "login_time", "it did not log in in time"
            )
        elif own.protocol == "SSL" and self._transport is not None:
            subject = self._transport.get_extra_info("peercert")
            self.principal = principal_of(subject, own.principal_rules) if subject else ANONYMOUS

    def let_in(self, principal: str) -> None:
        """See `Peer`."""
        self.principal, self._context = principal, None
        self._frames.limit = self._broker.settings.limits.frame_bytes
        if self._login_timer is not None:
            self._login_timer.cancel()
        self._seat.known()

    def end(self) -> None:
        """See `Peer`."""
        self._ending = True

    def connection_lost(self, exc: Exception | None) -> None:
        for task in self._tasks:
            task.cancel()
        for timer in (self._muted, self._login_timer):
            if timer is not None:
                timer.cancel()
        self._host.released(self, self.host if self._taken else None)
        self._seat.release()
        self._transport = None
        for slot in self._slots:
            if slot.pending is not None:
                slot.pending.lost()
            self._budget.give(slot.charged)
        for _, frame in self._behind:
            self._budget.give(len(frame))
        self._inflight = 0
        self._slots.clear()
        self._behind.clear()
        self._responses.gone(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._active = self._loop.time()
        try:
            for frame in self._frames.received(nbytes):
                self._frame(frame)
                if self._transport is None or self._transport.is_closing():
                    return
        except CorruptFrame as error:
            self._refuse(error)

    def _refuse(self, error: CorruptFrame) -> None:
        self.drop("request_items" if isinstance(error, TooManyItems) else "malformed_frame", str(error))

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writing_paused = True
        self.consider_reading()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self.measure()
        self._send_ready()
        self.consider()

    # --- requests --------------------------------------------------------------------------------------

    def _frame(self, frame: memoryview) -> None:
        if self._ending:
            return
        start = read_start(frame)
        if self._behind or not self._may_begin(start):
            self._behind.append((start, bytes(frame)))
            self._inflight += len(frame)
            self._budget.take(len(frame))
            self.consider_reading()
        else:
            self._begin(start, frame)

    def _may_begin(self, start: RequestStart) -> bool:
        """Whether no request under way has to be answered before this one begins, and the client reads."""
        if self._writing_paused or self._responses.holds(self):
            return False
        if not self._slots:
            return True
        api, under_way = APIS.get(start.api_key), self._under_way
        return not any([under_way[kind] for kind in WAITS_FOR[RequestKind.LOOKUP if api is None else api.kind]])

    def _catch_up(self) -> None:
        """Begin what waited for requests that are answered now."""
        if self._slots and self._slots[0].later is not None:
            begin, self._slots[0].later = self._slots[0].later, None
            begin()
        try:
            while self._behind and not self._ended and self._may_begin(self._behind[0][0]):
                start, frame = self._behind.popleft()
                self._inflight -= len(frame)
                self._budget.give(len(frame))
                self._begin(start, memoryview(frame))
        except CorruptFrame as error:
            self._refuse(error)

    @property
    def _ended(self) -> bool:
        """Whether no more requests are begun."""
        return self._ending or self._transport is None or self._transport.is_closing()

    def _begin(self, start: RequestStart, frame: memoryview) -> None:
        if self.login is None:
            self._seat.known()
        elif not self.login.admits(start.api_key):
            raise CorruptFrame(f"API {start.api_key} without a log-in, or after it expired")
        api = APIS.get(start.api_key)
        if api is None or start.version not in api.versions:
            if start.api_key != api_versions.KEY:
                raise not_served(api, start)
            slot = self._open_slot(RequestStart(start.api_key, 0, start.correlation_id), len(frame))
            self._answered(slot, api_versions.unsupported_version())  # so that clients can use a lower one
            return
        read = api.read(start, frame) if api.read is not None else None
        if api.read is None and len(frame) > LARGE_FRAME_BYTES:
            slot = self._open_slot(start, len(frame), RequestKind.ALONE)  # until it is decoded, none behind it begins
            self._charge(slot)
            self._launch(self._decode_later(api, slot, bytes(frame)), functools.partial(self._checked, slot))
            return
        slot = self._open_slot(start, len(frame), api.kind)
        if read is None:
            self._decode(api, slot, frame)
        else:
            self._handle(api, slot, read)

    def _decode(self, api: Api, slot: Slot, frame: memoryview) -> None:
        start = slot.start
        try:
            clean = skim(request_type(api.key, start.version), frame, self._broker.settings.limits.request_items)
        except TooManyItems as error:
            if not has_error(api.key, start.version):
                raise
            self._broker.stats.refuse("request_items")
            self._answered(slot, {"error_code": ErrorCode.invalid_request, "error_message": str(error)})
            return
        header, body = decode_request(start, clean)
        self._handle(api, slot, (header.client_id or "", body))

    async def _decode_later(self, api: Api, slot: Slot, frame: bytes) -> None:
        await self._broker.turns.turn()
        try:
            self._decode(api, slot, memoryview(frame))
        except CorruptFrame as error:
            self._refuse(error)

    def _handle(self, api: Api, slot: Slot, read: tuple[str, Any]) -> None:
        request = Request(slot.start, *read, self)
        if api.changes is not None and api.changes(self._broker, request):
            self._under_way[slot.kind] -= 1
            slot.kind = RequestKind.ALONE
            self._under_way[slot.kind] += 1
            if slot is not self._slots[0]:
                self._charge(slot)
                slot.later = functools.partial(self._run, api, slot, request)
                return
        self._run(api, slot, request)

    def _run(self, api: Api, slot: Slot, request: Request) -> None:
        try:
            answer = api.handle(self._broker, request)
            if self._broker.quotas.active:
                answer = metered(self._broker.clock, slot, request, answer)
        except Exception as error:  # noqa: BLE001 - one request's failure must not take the broker down
            self._broken(slot, error)
            return
        if isinstance(answer, Pending):
            slot.pending = answer
            self._charge(slot, answer.moved)
            answer.then(functools.partial(self._told, slot))
            return
        self._charge(slot)
        if answer is None or not isinstance(answer, Awaitable):
            self._answered(slot, answer)
            return
        self._launch(answer, functools.partial(self._finished, slot))

    def _launch(self, work: Awaitable[Any], ended: Callable[[asyncio.Future[Any]], None]) -> None:
        """Work on a request in a task, which ends with the connection. In threads its jobs take turns by caller."""
        if self._context is None:
            self._context = copy_context()
            self._context.run(CALLER.set, caller_of(self.principal, self.host))
        task = self._context.run(launch, work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(ended)

    def _open_slot(self, start: RequestStart, size: int, kind: RequestKind = RequestKind.LOOKUP) -> Slot:
        slot = Slot(start, size, kind, self._broker.clock.monotonic())
        self._slots.append(slot)
        self._under_way[kind] += 1
        self._inflight += size
        self.consider_reading()
        return slot

    def _charge(self, slot: Slot, moved: int = 0) -> None:
        """Count a request, without the bytes that the write path counts already. Only the last call counts."""
        before, slot.charged = slot.charged, slot.size - moved
        self._budget.take(slot.charged)
        self._budget.give(before)

    def _told(self, slot: Slot, values: Values | None) -> None:
        """Take an answer from a `Pending`. An error must not reach its caller, which also works for other requests."""
        try:
            self._answered(slot, values)
        except Exception as error:  # noqa: BLE001 - as in `_frame`
            self._broken(slot, error)

    def _finished(self, slot: Slot, done: asyncio.Future[Values | None]) -> None:
        if done.cancelled():
            self._close()
            return
        self._checked(slot, done)
        if done.exception() is None:
            self._answered(slot, done.result())

    def _checked(self, slot: Slot, done: asyncio.Future[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._broken(slot, error)

    def _broken(self, slot: Slot, error: BaseException) -> None:
        api = APIS[slot.start.api_key].name
        log.error("a handler failed", exc_info=error, extra={"api": api, "correlation_id": slot.start.correlation_id})
        self._close()

    def _answered(self, slot: Slot, values: Values | None) -> None:
        slot.values = values if slot.meter is None else self._charged(slot, slot.meter, values)
        stats = self._broker.stats
        key = slot.start.api_key
        stats.requests[key] = stats.requests.get(key, 0) + 1
        stats.request_seconds[key] = stats.request_seconds.get(key, 0.0) + self._broker.clock.monotonic() - slot.began
        if slot.values is not None and weight(slot.values, SLICE_ITEMS) >= SLICE_ITEMS:
            self._launch(self._encode(slot, slot.values), functools.partial(self._checked, slot))
        else:
            self._ready(slot)

    async def _encode(self, slot: Slot, values: Values) -> None:
        """Encode a long answer in slices."""
        start, pause = slot.start, self._broker.turns.turn
        slot.pieces = await encode_response_in_slices(
            start.api_key, start.version, start.correlation_id, values, pause, SLICE_ITEMS
        )
        slot.values = None
        self._ready(slot)

    def _ready(self, slot: Slot) -> None:
        """Send an answer as soon as those before it are sent."""
        slot.done = True
        if not self._sending:
            self._sending = True
            self._loop.call_soon(self._send_soon)

    def _charged(self, slot: Slot, meter: Meter, values: Values | None) -> Values | None:
        """Charge the client for a request. A client over its quota is answered at once, then muted for a while."""
        milliseconds = throttle(self._broker, slot.start.api_key, slot.size, meter, values)
        if not milliseconds:
            return values
        self._mute(milliseconds / 1000)
        return None if values is None else {**values, "throttle_time": milliseconds}

    def _mute(self, seconds: float) -> None:
        """Read nothing for a while. A further call makes the pause longer, never shorter."""
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
        """Send all answers of one turn of the event loop with one call to the kernel."""
        self._sending = False
        self._send_ready()

    def _send_ready(self) -> None:
        """Send the answers that are ready and next in order."""
        transport = self._transport
        if transport is None:
            return
        pieces: list[Buffer] = []
        freed = charged = 0
        while self._slots and self._slots[0].done and not self._writing_paused:
            slot = self._slots.popleft()
            freed += slot.size
            charged += slot.charged
            self._under_way[slot.kind] -= 1
            if slot.pieces is not None:
                pieces += slot.pieces
            elif slot.values is not None:
                start = slot.start
                pieces += encode_response(start.api_key, start.version, start.correlation_id, slot.values)
        if pieces:
            transport.writelines(pieces)
            self.measure()
        if freed:
            self._inflight -= freed
            self._budget.give(charged)
            self.consider()
        if self._ending and not self._slots:
            transport.close()

    # --- back-pressure -----------------------------------------------------------------------------------

    def consider_reading(self) -> None:
        """Continue or stop reading, by the limits."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        limits = self._broker.settings.limits
        full = (
            self._writing_paused
            or self._responses.holds(self)
            or self._muted is not None
            or self._behind
            or self._inflight > limits.connection_inflight_bytes
            or len(self._slots) > limits.connection_inflight_requests
            or self._budget.exceeded
            or self._host.draining
        )
        if full and not self._reading_paused:
            self._reading_paused = True
            transport.pause_reading()
        elif not full and self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()

    def measure(self) -> None:
        """Count the bytes that the client has not read yet."""
        if self._transport is not None:
            unread, now = self._transport.get_write_buffer_size(), self._loop.time()
            if self._responses.queued(self, unread, now):
                self._active = now

    def consider(self) -> None:
        """Continue or stop with everything that depends on room for answers."""
        if self._slots or self._behind:
            self._catch_up()
        self.consider_reading()

    def idle_seconds(self) -> float:
        """How long nothing was sent or received, and no request was worked on."""
        self.measure()
        working = any(not slot.done for slot in self._slots)
        return 0.0 if working else self._loop.time() - self._active

    def drop(self, reason: str, said: str) -> None:
        """Close the connection, because of a limit."""
        self._broker.stats.refuse(reason)
        log.info("closing a connection", extra={"peer": self.peer, "reason": said})
        self._close()

    @property
    def muted(self) -> bool:
        """Whether the connection is paused because the client is over its quota."""
        return self._muted is not None

    @property
    def idle(self) -> bool:
        """Whether every request is answered."""
        return not self._slots and not self._behind

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection once everything written is sent."""
        if self._transport is not None:
            self._transport.close()
