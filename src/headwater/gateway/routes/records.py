"""Records: appending them, as one unit."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qsl

import msgspec
from litestar import Request, Response, post
from litestar.params import HeaderParameter, QueryParameter

from headwater.errors import HeadwaterError, Overloaded
from headwater.gateway.parameters import TopicName
from headwater.gateway.problems import NOT_FOUND, Refusal
from headwater.gateway.records.appending import LARGE, Appended, Appending
from headwater.gateway.records.bodies import FromQuery, Wish, parsed
from headwater.gateway.records.encoding import Encoding
from headwater.gateway.records.once import hashed, once
from headwater.gateway.services import Call, Services, TheCall
from headwater.state.cluster.access import Operation
from headwater.state.cluster.domain import Topic
from headwater.threads import inline

MINIMAL = "return=minimal"
REPLAYED = "Idempotency-Replayed"
MAX_OFFSET = (1 << 63) - 1
Partition = Annotated[int | None, QueryParameter(ge=0, description="The partition of a record that is the body.")]
KeyText = Annotated[str | None, QueryParameter(description="The key of a record that is the body, as text.")]
KeyBase64 = Annotated[str | None, QueryParameter(description="The key of a record that is the body, in base64.")]
Timestamp = Annotated[
    str | None,
    QueryParameter(description="The time of a record that is the body: milliseconds since 1970, or RFC 3339."),
]
ExpectedOffset = Annotated[
    int | None,
    QueryParameter(ge=0, le=MAX_OFFSET, description="The offset that the first record must get, else 409."),
]
ExpectedVersion = Annotated[
    int | None, QueryParameter(ge=0, le=MAX_OFFSET, description="The version that the table must have, else 409.")
]
KeySchema = Annotated[
    str | None,
    QueryParameter(description="The schema by which keys are encoded: a subject, or `id:N`. For JSON and NDJSON."),
]
ValueSchema = Annotated[
    str | None,
    QueryParameter(description="The schema by which values are encoded: a subject, or `id:N`. For JSON and NDJSON."),
]
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="A key of the caller's choice. A request that is repeated with it within 24 hours gets the first "
        "answer, and nothing is appended again.",
    ),
]
Prefer = Annotated[
    str | None,
    HeaderParameter(name="Prefer", description="`return=minimal` leaves the places of single records out."),
]


@post("/v1/topics/{name:str}/records", operation_id="appendRecords", tags=["records"], status_code=200)
async def append_records(
    call: TheCall,
    request: Request[Any, Any, Any],
    name: TopicName,
    partition: Partition = None,
    key: KeyText = None,
    key_base64: KeyBase64 = None,
    timestamp: Timestamp = None,
    expected_offset: ExpectedOffset = None,
    expected_version: ExpectedVersion = None,
    key_schema: KeySchema = None,
    value_schema: ValueSchema = None,
    idempotency_key: IdempotencyKey = None,
    prefer: Prefer = None,
) -> Response[Appended]:
    """Append records: all of them or none. The caller needs the right to WRITE to the topic.

    The body is JSON, NDJSON (a record a line), or the value of one record as it is (`application/octet-stream`,
    `text/plain`). The answer has the partition and the offset of each record. A condition that does not hold is
    answered by 409, with the present values. Keys and values for which a schema is named are encoded by it, with its id
    in front; one that does not fit is answered by 422, with the place of the flaw, and nothing is appended.
    """
    found = await _topic(call, name)
    appending = Appending(call.services, found)
    await appending.check()
    call.usage.appends()
    query = FromQuery(
        partition, key, key_base64, timestamp, expected_offset, expected_version, key_schema, value_schema
    )
    kind = request.headers.get("content-type", "")
    budget = call.services.writers.budget
    taken = 0
    try:
        pieces = []
        async for piece in request.stream():
            budget.take(len(piece))
            taken += len(piece)
            if budget.exceeded:
                raise Overloaded("the gateway has too many bytes under way (limits.broker_inflight_bytes)")
            pieces.append(piece)
        body = b"".join(pieces)
        del pieces
        condition = None
        if idempotency_key is not None:
            content = await _run(call.services, len(body))(_content, body, kind, request.scope["query_string"])
            own = call.caller
            condition = once(own.principal, found.id, idempotency_key, content, appending.partitions, own.account)
        wish: Wish = await _run(call.services, len(body))(parsed, body, kind, query, call.services.own.records)
        del body
        brief = MINIMAL in (prefer or "").replace(" ", "").lower().split(",")
        try:
            wish = msgspec.structs.replace(wish, entries=await Encoding(call, found).encoded(wish.entries))
        except HeadwaterError:
            # A schema may have gone since the key was used. The first answer stays true.
            kept = await appending.repeated(condition) if condition is not None else None
            if kept is None:
                raise
            outcome = kept
        else:
            outcome = await appending.append(wish, condition, brief=brief, gone=request.receive)
    finally:
        budget.give(taken)
    headers = {"Preference-Applied": MINIMAL} if brief else {}
    if outcome.repeated:
        headers[REPLAYED] = "true"
    return Response(outcome.answer, headers=headers)


async def _topic(call: Call, name: str) -> Topic:
    try:
        return await call.topic(name, Operation.WRITE)
    except Refusal as refusal:
        if refusal.kind is not NOT_FOUND:
            raise
        told = f"{refusal.detail}; an append creates none: create it first, for example with `headwater topic create`"
        raise Refusal(NOT_FOUND, told) from None


def _run(own: Services, size: int) -> Any:
    return own.offload if size > LARGE else inline


def _content(body: bytes, kind: str, query: bytes) -> bytes:
    """A hash of all that matters in a request. The order of parameters does not."""
    parameters = msgspec.json.encode(sorted(parse_qsl(query.decode("latin-1"), keep_blank_values=True)))
    return hashed(kind.strip().lower().encode(), parameters, body)


ROUTES = (append_records,)
