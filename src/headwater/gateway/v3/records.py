"""Producing records: as a stream of JSON objects with a stream of receipts, or as a batch.

A stream goes on for as long as the client sends. Its receipts come as soon as records are in the log, while the client
goes on sending. Records that arrive while others are being appended are appended together then, and the client is not
read meanwhile: so the stream needs no queue.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from litestar import Request, post
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from headwater.background import spawn
from headwater.errors import BadInput, HeadwaterError, NotReady, Overloaded
from headwater.gateway.problems import MEDIA, TOO_LARGE, UNPROCESSABLE, Refusal
from headwater.gateway.records.appending import LARGE
from headwater.gateway.services import Call, TheCall
from headwater.gateway.v3.errors import Told, told_of
from headwater.gateway.v3.frame import ClusterId, TopicName
from headwater.gateway.v3.producing import Producing
from headwater.gateway.v3.record_forms import (
    BatchEntry,
    EntryId,
    Form,
    Malformed,
    Receipt,
    flawed,
    form_of,
    forms_of,
    wrong,
)
from headwater.gateway.v3.splitting import Splitter
from headwater.threads import inline

END = b"\r\n"
"""What comes after every receipt."""
_EMPTY = "Payload error. Request body is empty. Data is required."
_RECORDS = "/clusters/{cluster_id:str}/topics/{topic_name:str}/records"


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records to append. Each counts for itself."""

    entries: list[msgspec.Raw]
    """The records, each with an `id` of its own."""


class Failure(msgspec.Struct, frozen=True):
    """A record of a batch that was not appended."""

    id: str
    """The name of the record."""
    error_code: int
    """The status, or a number of five digits whose first three are the status."""
    message: str
    """What is wrong."""


class BatchAnswer(msgspec.Struct, frozen=True):
    """What became of the records of a batch."""

    successes: list[Receipt]
    """The records that were appended."""
    failures: list[Failure]
    """The others."""


class Receipts(ASGIResponse):
    """Reads records and answers with receipts, both at the same time."""

    def __init__(self, call: Call, producing: Producing) -> None:
        super().__init__(status_code=200, media_type="application/json")
        self._call = call
        self._producing = producing
        self._splitter = Splitter(call.services.own.body_bytes)
        self._held = 0
        """The bytes that count as under way."""
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stopping = spawn(_until(self._call.services.stopping), "stopping")
        try:
            more = True
            while more:
                more = await self._go_on(receive, send, stopping)
            if not self._started:
                raise Refusal(UNPROCESSABLE, _EMPTY)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            stopping.cancel()
            self._hold(0)

    async def _go_on(self, receive: Receive, send: Send, stopping: asyncio.Task[None]) -> bool:
        """Take what the client has sent, append it and send the receipts; false if nothing more will come."""
        splitter = self._splitter
        try:
            data, more = await self._next(receive, stopping)
            self._hold(self._held + len(data))
        except HeadwaterError as error:
            if not self._started:
                raise
            await self._say(send, [told_of(error)])
            return False
        documents = splitter.feed(data)
        if not more:
            splitter.end()
        most = self._call.services.own.records
        for first in range(0, len(documents), most):
            answers, sound = await self._answers(documents[first : first + most])
            await self._say(send, answers)
            if not sound:
                return False
        if splitter.flaw is not None:
            await self._say(send, [_told(splitter.flaw)])
            return False
        self._hold(splitter.size)
        return more

    async def _next(self, receive: Receive, stopping: asyncio.Task[None]) -> tuple[bytes, bool]:
        """What the client sends next, and whether it sends more."""
        reading = spawn(_received(receive), "body")
        try:
            await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise NotReady("the gateway is about to stop")
            return reading.result()
        finally:
            reading.cancel()

    async def _answers(self, documents: list[bytes]) -> tuple[list[Receipt | Told], bool]:
        """The answers to records, and whether more can follow."""
        own = self._call.services
        run = own.offload if sum(map(len, documents)) > LARGE else inline
        found = await run(forms_of, documents, own.clock.wall_ms())
        forms = [form for form in found if isinstance(form, Form)]
        appended = iter(await self._producing.append(forms) if forms else [])
        answers = [
            next(appended) if isinstance(one, Form) else one if isinstance(one, Told) else wrong(str(one))
            for one in found
        ]
        return answers, not isinstance(found[-1], Malformed)

    async def _say(self, send: Send, answers: list[Receipt | Told]) -> None:
        if not self._started:
            self._started = True
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = b"".join([msgspec.json.encode(answer) + END for answer in answers])
        await send({"type": "http.response.body", "body": body, "more_body": True})

    def _hold(self, size: int) -> None:
        """Count the bytes that the stream keeps. Raises `Overloaded` if the gateway has too many."""
        budget = self._call.services.writers.budget
        if size < self._held:
            budget.give(self._held - size)
            self._held = size
        elif size > self._held:
            budget.take(size - self._held)
            self._held = size
            if budget.exceeded:
                raise Overloaded("the gateway has too many bytes under way (limits.broker_inflight_bytes)")


@post(_RECORDS, operation_id="v3ProduceRecords", tags=["REST Proxy"], status_code=200)
async def produce_records(
    request: Request[Any, Any, Any], call: TheCall, cluster_id: ClusterId, topic_name: TopicName
) -> ASGIResponse:
    """Append records: one, or a stream of them, one JSON object after another.

    The answer has a receipt for every record, in the same order, as soon as it is in the log. Its `error_code` is 200,
    or says why the record was not appended; the others are not affected. As in the REST Proxy, the id of the cluster
    is not looked at.
    """
    _check_media(request)
    producing = Producing(call, cluster_id, topic_name)
    await producing.check()
    if "content-length" not in request.headers:
        call.as_stream()
    return Receipts(call, producing)


@post(f"{_RECORDS}:batch", operation_id="v3ProduceBatch", tags=["REST Proxy"], status_code=207)
async def produce_batch(
    request: Request[Any, Any, Any], call: TheCall, cluster_id: ClusterId, topic_name: TopicName
) -> BatchAnswer:
    """Append records that have names. Each counts for itself: one that is refused does not stop the others."""
    _check_media(request)
    producing = Producing(call, cluster_id, topic_name)
    await producing.check()
    body = await request.body()
    own = call.services
    run = own.offload if len(body) > LARGE else inline
    found = await run(_named, body, own.own.records, own.clock.wall_ms())
    forms = [form for _, form in found if isinstance(form, Form)]
    appended = iter(await producing.append(forms) if forms else [])
    successes, failures = [], []
    for id, form in found:
        answer = next(appended) if isinstance(form, Form) else form
        if isinstance(answer, Receipt):
            successes.append(msgspec.structs.replace(answer, id=id, error_code=msgspec.UNSET))
        else:
            failures.append(Failure(id, answer.error_code, answer.message))
    return BatchAnswer(successes, failures)


_batch = msgspec.json.Decoder(Batch)
_entry = msgspec.json.Decoder(BatchEntry)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_id = msgspec.json.Decoder(EntryId)


def _named(body: bytes, most: int, now_ms: int) -> list[tuple[str, Form | Told]]:
    """The records of a batch by name, or what is wrong with them. Raises a refusal if a name is missing or taken."""
    try:
        body.decode()
        entries = _batch.decode(body).entries
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise flawed(str(error)) from None
    if not entries:
        raise Refusal(UNPROCESSABLE, "Empty batch.")
    if len(entries) > most:
        raise Refusal(TOO_LARGE, f"Too many entries in batch: {len(entries)}; the limit is {most}.")
    found: list[tuple[str, Form | Told]] = []
    names: set[str] = set()
    for raw in entries:
        id = _id_of(bytes(raw))
        if id in names:
            raise Refusal(UNPROCESSABLE, "Batch entry IDs are not distinct.")
        names.add(id)
        try:
            found.append((id, form_of(_entry.decode(bytes(raw)), now_ms)))
        except (msgspec.DecodeError, RecursionError) as error:
            found.append((id, wrong(str(error))))
        except HeadwaterError as error:
            found.append((id, told_of(error)))
    return found


def _id_of(raw: bytes) -> str:
    try:
        return _id.decode(_fields.decode(raw)["id"])
    except (msgspec.DecodeError, KeyError, RecursionError):
        raise Refusal(UNPROCESSABLE, "Batch entry identifier is not a valid string.") from None


def _check_media(request: Request[Any, Any, Any]) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(MEDIA, "HTTP 415 Unsupported Media Type: records are application/json")


def _told(error: HeadwaterError) -> Told:
    return wrong(str(error)) if isinstance(error, BadInput) else told_of(error)


async def _received(receive: Receive) -> tuple[bytes, bool]:
    """The next part of the body, and whether there is more. A client that leaves sends no more."""
    message: Any = await receive()
    if message["type"] != "http.request":
        return b"", False
    return message.get("body", b""), message.get("more_body", False)


async def _until(event: asyncio.Event) -> None:
    await event.wait()


ROUTES = (produce_records, produce_batch)
