"""Answers with records, as ASGI applications: a page that is known as a whole, or a stream that follows the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from headwater.background import spawn
from headwater.errors import HeadwaterError
from headwater.gateway.asgi import Receive, Scope, Send
from headwater.gateway.problems import BAD_REQUEST, Refusal, document, refusal_of
from headwater.gateway.records import forms
from headwater.gateway.records.decoding import Decoding, View, decoding_of, view_of
from headwater.gateway.records.forms import Form
from headwater.gateway.records.positions import encoded
from headwater.gateway.records.scanning import Scan
from headwater.gateway.records.values import Format
from headwater.gateway.services import Call
from headwater.objects.reads import counted
from headwater.replica.watch import Watch
from headwater.threads import inline

CHUNK_RECORDS = 1_000
CHUNK_BYTES = 256 << 10
"""What a stream holds for its client at most, beside one record."""
FIRST_RECORDS = 50
FIRST_BYTES = 16 << 10
"""What the first chunk of a stream has at most. Each next one may have twice as much: a client that reads slowly costs
little more than what it reads."""
MANY = 100
"""Answers with more records are encoded in a thread."""
HEARTBEAT_SECONDS = 15.0
NEXT = "Headwater-Next"
"""The header with the position behind the records of an answer that has no other place for it."""
READ = "Headwater-Read"
"""The header that says what a page has read from the object store."""
FOLLOWING = (Form.EVENTS, Form.NDJSON)
"""Forms that can go on without end."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a caller wants to read, and how it wants to see it."""

    scan: Scan
    form: Form
    format: Format
    limit: int | None
    """The most records; None for a stream without a limit."""
    max_bytes: int
    follow: bool


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer that is known as a whole."""

    body: bytes
    media_type: str
    headers: tuple[tuple[str, str], ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = [("content-type", self.media_type), ("content-length", str(len(self.body))), *self.headers]
        await send({"type": "http.response.start", "status": 200, "headers": _raw(head)})
        await send({"type": "http.response.body", "body": self.body})


class Streamed:
    """An answer that goes on until the client leaves, the gateway stops, or its range or limit is reached.

    It holds one chunk at a time, and reads on only after the client has taken it.
    """

    def __init__(self, call: Call, reading: Reading, allowed: Callable[[], None]) -> None:
        self._call = call
        self._reading = reading
        self._allowed = allowed
        self._view: View = reading.format
        if reading.format.by_schema:
            self._view = decoding_of(call.services, reading.scan.topic)
            self._view.with_bytes = reading.format is Format.BOTH

    def __repr__(self) -> str:
        return f"<Streamed {self._reading.scan!r}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = [("content-type", self._reading.form.value), ("x-accel-buffering", "no")]
        await send({"type": "http.response.start", "status": 200, "headers": _raw(head)})
        gone = spawn(_left(receive), "client")
        try:
            async with contextlib.aclosing(self._chunks(gone)) as chunks:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    chunk = b""  # while the stream waits for its next turn, nothing is held
                    if gone.done():
                        return
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()

    async def _chunks(self, gone: asyncio.Task[None]) -> AsyncGenerator[bytes, None]:
        scan, own = self._reading.scan, self._call.services
        watch = Watch(own.clock)
        scan.replica.watch(scan.streams, watch)
        try:
            yield self._beat()  # the client knows at once that it is connected, and where
            left, grown, quiet = self._reading.limit, 1, True
            while not own.stopping.is_set() and not gone.done() and left != 0 and not scan.over:
                watch.changed.clear()
                scan.replica.watch(scan.grow(), watch)
                if quiet and not scan.readable:
                    await scan.look()  # whether the ledger still answers; what it gets is noticed without that
                async with own.chunks:
                    if gone.done():
                        return  # the client has left while the stream waited for its turn
                    found, chunk = await self._chunk(left, grown)
                if left is not None:
                    left -= found
                quiet = False
                if chunk:
                    yield chunk
                    chunk = b""
                    grown = 1 if self._call.usage.pause_before_sending else min(2 * grown, CHUNK_BYTES // FIRST_BYTES)
                elif not scan.readable and not await self._changed(watch, gone):
                    yield self._beat()
                    quiet = True
        except HeadwaterError as error:
            if self._reading.form is not Form.EVENTS:
                raise  # the front cuts the connection, so that the client does not take the answer for whole
            yield forms.problem_event(document(refusal_of(error)).data)
        finally:
            scan.replica.unwatch(scan.streams, watch)

    def _beat(self) -> bytes:
        """A sign of life. Events tell the position without a record, so that a client resumes where it was."""
        scan = self._reading.scan
        return forms.beat(scan.topic, scan.positions) if self._reading.form is Form.EVENTS else b"\n"

    async def _changed(self, watch: Watch, gone: asyncio.Task[None]) -> bool:
        own = self._call.services
        return bool(await watch.news(own.clock.monotonic() + HEARTBEAT_SECONDS, gone, own.until_stopping()))

    async def _chunk(self, left: int | None, grown: int) -> tuple[int, bytes]:
        """How many records there are in the next chunk, and its bytes; `grown` times what the first one may have."""
        reading = self._reading
        scan = reading.scan
        self._allowed()
        before = dict(scan.positions)
        most = min(grown * FIRST_RECORDS, CHUNK_RECORDS)
        step = await scan.step(most if left is None else min(left, most), grown * FIRST_BYTES, look=False)
        if isinstance(self._view, Decoding):
            await self._view.prepare(record for _, record in step.records)
        slow = len(step.records) > MANY or isinstance(self._view, Decoding)
        run = self._call.services.offload if slow else inline
        # Resets come behind the records that were read before they were noticed.
        if reading.form is Form.EVENTS:
            data = await run(forms.events, step.records, self._view, scan.topic, before)
            told = [forms.reset_event(reset, scan.topic, scan.positions) for reset in step.resets]
        else:
            data = await run(forms.lines, step.records, self._view)
            told = [forms.reset_line(reset) for reset in step.resets]
        return len(step.records), data + b"".join(told)


async def answer(call: Call, reading: Reading, allowed: Callable[[], None]) -> Whole | Streamed:
    """The answer to a call that reads. `allowed` raises when the caller may not read any more."""
    call.usage.reads()
    await reading.scan.check(lenient=reading.follow)  # a stream tells that records were removed, and goes on
    if reading.follow:
        if reading.form not in FOLLOWING:
            raise Refusal(BAD_REQUEST, f"`follow` needs {Form.EVENTS.value} or {Form.NDJSON.value}")
        call.as_stream()
        return Streamed(call, reading, allowed)
    scan = reading.scan
    before = dict(scan.positions)
    with counted() as read:
        step = await scan.step(reading.limit or CHUNK_RECORDS, reading.max_bytes, exact=True)
    for reset in step.resets:
        scan.positions[reset.partition] = reset.wanted
        await scan.check()  # says what is there
    following = None if scan.over else encoded(scan.topic, scan.positions)
    view = await view_of(call.services, scan.topic, reading.format, (record for _, record in step.records))
    run = call.services.offload if len(step.records) > MANY or isinstance(view, Decoding) else inline
    headers: tuple[tuple[str, str], ...] = ((READ, f"requests={read.requests}, bytes={read.bytes}"),)
    if following is not None:
        headers = ((NEXT, following), *headers)
    if reading.form is Form.JSON:
        body = await run(forms.page, step.records, view, following, not scan.readable)
    elif reading.form is Form.NDJSON:
        body = await run(forms.lines, step.records, view)
    elif reading.form is Form.EVENTS:
        body = await run(forms.events, step.records, view, scan.topic, before)
    else:
        body = await run(forms.arrow, step.records)
    return Whole(body, reading.form.value, headers)


async def _left(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _raw(headers: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
