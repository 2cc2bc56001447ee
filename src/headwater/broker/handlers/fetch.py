"""Fetch, versions 4 to 18: sessions, topic ids, size limits, long poll.

Data is answered from the local replica at once. An empty or negative answer first joins a look at the ledger that
began after the request came, so that no reader misses what another broker has acknowledged.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker, TopicView
from headwater.broker.faults import code_of
from headwater.broker.fetch_sessions import FULL, SESSIONLESS, FetchSession, Key, Wanted, next_epoch
from headwater.broker.quotas import CONSUMER
from headwater.broker.registry import Request, Values, api
from headwater.errors import HeadwaterError
from headwater.metadata.access import Operation, ResourceKind
from headwater.metadata.streams import Stream
from headwater.types import Buffer

KEY = 1
LEADER_EPOCH = 0
MAX_WAIT_SECONDS = 3600
TAIL_SECONDS = 0.02
"""How long a fetch at the end waits before it looks at the ledger: where somebody writes, records come first."""
READ_COMMITTED = 1
_NOT_LOOKED_AT = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.topic_authorization_failed,
)
"""Partitions whose log is not read; these say that there are no aborted transactions, others say nothing of them."""


@dataclass(slots=True)
class _Found:
    """A partition's part of the answer."""

    wanted: Wanted
    error: ErrorCode = ErrorCode.none
    records: Buffer = b""
    high_watermark: int = -1
    log_start: int = -1


@api(KEY, 4, 18, serial=True)
async def fetch(broker: Broker, request: Request) -> Values:
    """See the module's note."""
    body = request.body
    session, wanted, error = _resolve(broker, request)
    if error is not ErrorCode.none:
        return {"error_code": error, "session_id": 0, "responses": []}
    owed = broker.quotas.owed(CONSUMER, request) if broker.quotas.active else 0.0
    if owed:
        return _silence(broker, session, body.session_epoch, owed)
    allowed, denied = _split(broker, request, wanted)
    try:
        broker.check_contact()
        found = await _collect(broker, request, allowed)
    except HeadwaterError as failure:
        found = [_Found(w, code_of(failure)) for w in allowed]
    found += [_Found(w, ErrorCode.topic_authorization_failed) for w in denied]
    incremental = session is not None and body.session_epoch > 0
    if session is not None:
        session.epoch = next_epoch(session.epoch) if incremental else 1
    answered = [f for f in found if _worth_telling(f, incremental)]
    broker.stats.fetched_bytes += sum(len(f.records) for f in answered)
    return {
        "error_code": ErrorCode.none,
        "session_id": session.id if session is not None else 0,
        "responses": _by_topic(answered, committed=body.isolation_level == READ_COMMITTED),
    }


def _silence(broker: Broker, session: FetchSession | None, epoch: int, seconds: float) -> Values:
    """The empty answer to a client that read too much by another connection. A session that it only just began ends."""
    going_on = 0
    if session is not None and epoch > 0:
        session.epoch = next_epoch(session.epoch)
        going_on = session.id
    elif session is not None:
        broker.sessions.close(session.id)
    told = {"throttle_time": max(round(seconds * 1000), 1), "error_code": ErrorCode.none}
    return {**told, "session_id": going_on, "responses": []}


def _split(broker: Broker, request: Request, wanted: list[Wanted]) -> tuple[list[Wanted], list[Wanted]]:
    """Those partitions that may be read, and those that may not."""
    if not broker.guard.enforced:
        return wanted, []
    readable = {name: _may_read(broker, request, name) for name in {w.topic for w in wanted}}
    return [w for w in wanted if readable[w.topic]], [w for w in wanted if not readable[w.topic]]


def _may_read(broker: Broker, request: Request, name: str | uuid.UUID) -> bool:
    """Whether a topic may be read. An id that is not known here tells nothing, so it is looked for first."""
    if isinstance(name, str):
        return broker.may(request, Operation.READ, ResourceKind.TOPIC, name)
    view = broker.by_id(name)
    return view is None or broker.may(request, Operation.READ, ResourceKind.TOPIC, view.topic.name)


# --- sessions ------------------------------------------------------------------------------------------


def _resolve(broker: Broker, request: Request) -> tuple[FetchSession | None, list[Wanted], ErrorCode]:
    """The session, if there is one, and the partitions that are asked for."""
    body = request.body
    if request.version < 7:
        return None, list(_wanted(request).values()), ErrorCode.none
    session_id, epoch = body.session_id, body.session_epoch
    if epoch in (FULL, SESSIONLESS):
        if session_id:
            broker.sessions.close(session_id)
        wanted = _wanted(request)
        if epoch == SESSIONLESS or not wanted:
            return None, list(wanted.values()), ErrorCode.none
        session = broker.sessions.create(wanted)
        return session, list(wanted.values()), ErrorCode.none
    existing = broker.sessions.get(session_id)
    if existing is None:
        return None, [], ErrorCode.fetch_session_id_not_found
    if existing.epoch != epoch:
        return None, [], ErrorCode.invalid_fetch_session_epoch
    for key, want in _wanted(request).items():
        before = existing.wanted.pop(key, None)
        want.told = before.told if before is not None else None
        existing.wanted[key] = want
    for topic in body.forgotten_topics_data:
        name = topic.topic_id if request.version >= 13 else topic.topic
        for partition in topic.partitions:
            existing.wanted.pop((name, partition), None)
    return existing, list(existing.wanted.values()), ErrorCode.none


def _wanted(request: Request) -> dict[Key, Wanted]:
    by_id = request.version >= 13
    found: dict[Key, Wanted] = {}
    for topic in request.body.topics:
        name: str | uuid.UUID = (topic.topic_id or uuid.UUID(int=0)) if by_id else topic.topic
        for p in topic.partitions:
            epoch = p.current_leader_epoch if request.version >= 9 else -1
            found[(name, p.partition)] = Wanted(name, p.partition, p.fetch_offset, p.partition_max_bytes, epoch)
    return found


def _worth_telling(found: _Found, incremental: bool) -> bool:
    """Whether a partition belongs into the answer of an incremental fetch; notes what was told."""
    borders = (found.high_watermark, found.log_start)
    news = (
        not incremental or found.error is not ErrorCode.none or len(found.records) > 0 or found.wanted.told != borders
    )
    found.wanted.told = borders if found.error is ErrorCode.none else None
    return news


# --- reading ---------------------------------------------------------------------------------------------


async def _collect(broker: Broker, request: Request, wanted: list[Wanted]) -> list[_Found]:
    """Read until there is enough, something is wrong, or the time is over."""
    body = request.body
    began = asyncio.get_running_loop().time()
    deadline = began + min(max(body.max_wait.total_seconds(), 0), MAX_WAIT_SECONDS)
    limit = min(max(body.max_bytes, 0), broker.settings.limits.fetch_response_bytes)
    views = _views(broker, wanted)
    looked = False
    while True:
        waiting = _waiting_streams(views, wanted)
        futures = {domain: broker.domains[domain].wait_for(ids) for domain, ids in waiting.items()}
        try:
            if looked or _available(views, wanted) >= max(body.min_bytes, 1):
                number = broker.pace.fetch.begin(broker.clock.monotonic())
                try:
                    found = await _read_all(broker, request, views, wanted, limit)
                finally:
                    broker.pace.fetch.end(number, broker.clock.monotonic())
                size = sum(len(f.records) for f in found)
                failed = any(f.error is not ErrorCode.none for f in found)
                if not failed and looked and size < body.min_bytes and futures:
                    if await _news(futures.values(), deadline):
                        continue
                    return await _read_all(broker, request, views, wanted, limit)
                if looked or (size and not failed):
                    return found
            elif _at_the_end(views, wanted) and await _news(futures.values(), min(began + TAIL_SECONDS, deadline)):
                continue
        finally:
            for domain, future in futures.items():
                broker.domains[domain].stop_waiting(waiting[domain], future)
        # Empty, short or negative so far: only a look at the ledger makes that an answer.
        # The cluster's first: a topic that was unknown here until now has a domain to look at too.
        looked = True
        if any(view is None or view.stream(w.partition) is None for w, view in _pairs(views, wanted)):
            await broker.cluster.barrier()
            views = _views(broker, wanted)
        for domain in {broker.domains[v.replica.domain].domain for v in views.values() if v is not None}:
            await broker.domains[domain].barrier()


async def _news(futures: Iterable[asyncio.Future[None]], deadline: float) -> bool:
    """Wait until one of them is done; answers whether that was in time."""
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0:
        return False
    done, _ = await asyncio.wait(futures, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    return bool(done)


def _at_the_end(views: dict[str | uuid.UUID, TopicView | None], wanted: list[Wanted]) -> bool:
    """Whether all that is asked for begins where the next records will be, as far as the local replica knows."""
    ends = [view.stream(w.partition) if view is not None else None for w, view in _pairs(views, wanted)]
    return bool(ends) and all(s is not None and w.offset == s.end for w, s in zip(wanted, ends, strict=True))


def _views(broker: Broker, wanted: list[Wanted]) -> dict[str | uuid.UUID, TopicView | None]:
    return {
        topic: broker.by_name(topic) if isinstance(topic, str) else broker.by_id(topic)
        for topic in dict.fromkeys(w.topic for w in wanted)
    }


def _pairs(
    views: dict[str | uuid.UUID, TopicView | None], wanted: list[Wanted]
) -> list[tuple[Wanted, TopicView | None]]:
    return [(w, views[w.topic]) for w in wanted]


def _waiting_streams(views: dict[str | uuid.UUID, TopicView | None], wanted: list[Wanted]) -> dict[Any, list[int]]:
    streams: dict[Any, list[int]] = {}
    for w, view in _pairs(views, wanted):
        stream_id = view.stream_id(w.partition) if view is not None else None
        if view is not None and stream_id is not None:
            streams.setdefault(view.replica.domain, []).append(stream_id)
    return streams


def _available(views: dict[str | uuid.UUID, TopicView | None], wanted: list[Wanted]) -> int:
    """How many bytes there are to read, as far as the local replica knows."""
    size = 0
    for w, view in _pairs(views, wanted):
        stream = view.stream(w.partition) if view is not None else None
        if stream is not None and stream.log_start <= w.offset < stream.end:
            size += stream.bytes_from(w.offset)
    return size


async def _read_all(
    broker: Broker,
    request: Request,
    views: dict[str | uuid.UUID, TopicView | None],
    wanted: list[Wanted],
    limit: int,
) -> list[_Found]:
    found: list[_Found] = []
    empty = True
    for w, view in _pairs(views, wanted):
        one = _Found(w)
        found.append(one)
        stream = view.stream(w.partition) if view is not None else None
        if view is None or stream is None:
            by_id = isinstance(w.topic, uuid.UUID) and view is None
            one.error = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
            continue
        if not broker.may(request, Operation.READ, ResourceKind.TOPIC, view.topic.name):
            one.error = ErrorCode.topic_authorization_failed
            continue
        one.error = ErrorCode.not_leader_or_follower if broker.turns_away(request, stream.id) else _objection(w, stream)
        if one.error is not ErrorCode.none:
            continue
        one.high_watermark, one.log_start = stream.end, stream.log_start
        if w.offset == stream.end or (limit <= 0 and not empty):
            continue
        try:
            result = await broker.reader.read(
                view.replica, stream.id, w.offset, min(max(w.max_bytes, 0), limit), first_whole=empty
            )
        except HeadwaterError as error:
            one.error, one.high_watermark, one.log_start = code_of(error), -1, -1
            continue
        one.records = result.records
        one.high_watermark, one.log_start = result.high_watermark, result.log_start
        limit -= len(result.records)
        empty = empty and not result.records
    return found


def _objection(wanted: Wanted, stream: Stream) -> ErrorCode:
    if wanted.leader_epoch > LEADER_EPOCH:
        return ErrorCode.unknown_leader_epoch
    if not stream.log_start <= wanted.offset <= stream.end:
        return ErrorCode.offset_out_of_range
    return ErrorCode.none


def size_of(values: Values) -> int:
    """How many bytes of records an answer holds."""
    return sum(len(p["records"] or b"") for topic in values["responses"] for p in topic["partitions"])


def _by_topic(found: list[_Found], committed: bool) -> list[Values]:
    topics: dict[str | uuid.UUID, list[Values]] = {}
    for f in found:
        topics.setdefault(f.wanted.topic, []).append(
            {
                "partition_index": f.wanted.partition,
                "error_code": f.error,
                "high_watermark": f.high_watermark,
                "last_stable_offset": f.high_watermark,
                "log_start_offset": f.log_start,
                "aborted_transactions": [] if committed or f.error in _NOT_LOOKED_AT else None,
                "records": f.records,
            }
        )
    return [
        {
            "topic": topic if isinstance(topic, str) else "",
            "topic_id": topic if isinstance(topic, uuid.UUID) else None,
            "partitions": partitions,
        }
        for topic, partitions in topics.items()
    ]
