"""The answer to a query, as an ASGI application: it asks, and sends the result while the engine makes it.

One batch at a time is held, and the engine waits while the client does not read. The head of the answer is sent late,
when there are rows enough to fill a chunk or the result is whole, so that most failures are still problem documents. A
client that leaves cancels its query.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from headwater.background import spawn
from headwater.errors import HeadwaterError
from headwater.gateway.asgi import Receive, Scope, Send
from headwater.gateway.problems import document, refusal_of
from headwater.gateway.queries.bodies import about_of
from headwater.gateway.results.forms import MAX_HEADER, MEDIA, NOTES, Form, Writer, header_text, writer_of
from headwater.gateway.services import Call, Left
from headwater.query.asking import Asking, Query, Question
from headwater.threads import inline

if TYPE_CHECKING:
    import pyarrow as pa

QUERY, ENGINE, REASON, VERSIONS = "Headwater-Query", "Headwater-Engine", "Headwater-Reason", "Headwater-Versions"
"""Headers of the answer, and `NOTES`."""
HELD_BYTES = 64 << 10
"""What is gathered before the head of the answer is sent."""
MANY = 1_000
"""Batches with more rows are written in a thread."""


class Answer:
    """The result of a question, in one form."""

    def __init__(self, call: Call, asking: Asking, question: Question, form: Form) -> None:
        self._call = call
        self._asking = asking
        self._question = question
        self._form = form

    def __repr__(self) -> str:
        return f"<Answer as {self._form} for {self._question.asker}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = spawn(_left(receive), "client")
        try:
            query = await self._call.services.unless_over(self._asking.ask(self._question), gone)
            try:
                await self._send(query, _Body(send, self._form, query), gone)
            except BaseException as error:
                await query.cancel(_reason(error))
                raise
        except Left:
            return
        finally:
            gone.cancel()

    async def _send(self, query: Query, body: _Body, gone: asyncio.Task[None]) -> None:
        writer = writer_of(self._form, query.schema, about_of(query))
        await body.put(writer.begin())
        batches = query.batches()
        try:
            while True:
                try:
                    batch = await self._call.services.unless_over(anext(batches, None), gone)
                except Left:
                    raise
                except HeadwaterError as error:
                    await self._break_off(writer, body, error)
                    return
                if batch is None:
                    break
                for part in writer.parts(batch):
                    await body.put(await self._written(writer, part))
        finally:
            await _close(batches)
        await body.end(writer.end())

    async def _written(self, writer: Writer, part: pa.RecordBatch) -> bytes:
        own = self._call.services
        async with own.chunks:
            return await (own.offload if part.num_rows > MANY else inline)(writer.rows, part)

    async def _break_off(self, writer: Writer, body: _Body, error: HeadwaterError) -> None:
        """End an answer that is not whole so that nobody takes it for one. Raises unless the form can say it."""
        last = writer.failed(document(refusal_of(error)).data) if body.started else b""
        if not last:
            raise error  # the front answers with a problem document, or cuts the connection
        if self._form is Form.JSON:
            await body.end(last)
        else:
            await body.put(last)  # and no end: the connection is closed behind it


class _Body:
    """The body of an answer. Its head is sent with the first chunk."""

    def __init__(self, send: Send, form: Form, query: Query) -> None:
        self._send = send
        self._head = [("content-type", MEDIA[form]), ("x-accel-buffering", "no"), *headers_of(query)]
        self._held: list[bytes] = []
        self._size = 0
        self.started = False

    async def put(self, data: bytes) -> None:
        """Add bytes. They are sent if they fill a chunk, or if chunks were sent before."""
        self._held.append(data)
        self._size += len(data)
        if self._size >= HELD_BYTES or (self.started and self._size):
            await self._chunk(more=True)

    async def end(self, data: bytes) -> None:
        """Send what is left."""
        self._held.append(data)
        await self._chunk(more=False)

    async def _chunk(self, *, more: bool) -> None:
        if not self.started:
            self.started = True
            raw = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in self._head]
            await self._send({"type": "http.response.start", "status": 200, "headers": raw})
        data = b"".join(self._held)
        self._held, self._size = [], 0
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


def headers_of(query: Query) -> list[tuple[str, str]]:
    """What the headers of an answer say about its query."""
    told = [(QUERY, query.id), (ENGINE, str(query.engine)), (REASON, header_text(query.reason))]
    if query.notes:
        told.append((NOTES, header_text(" ".join(query.notes))))
    versions = ",".join(f"{topic}={version}" for topic, version in sorted(query.versions.items()))
    return [*told, (VERSIONS, versions)] if len(versions) <= MAX_HEADER else told


def _reason(error: BaseException) -> str:
    if isinstance(error, Left | asyncio.CancelledError):
        return "the client has left"
    return f"the answer was broken off: {error}"


async def _close(batches: AsyncIterator[Any]) -> None:
    close = getattr(batches, "aclose", None)
    if close is not None:
        await close()


async def _left(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
