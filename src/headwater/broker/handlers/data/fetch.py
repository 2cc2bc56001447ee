"""Fetch, versions 4 to 18: sessions, topic ids, size limits, long poll.

Records are answered from the local replica at once. Before an empty answer or an error, the handler waits for a read of
the ledger that began after the request arrived, so that no reader misses records that another broker has acknowledged.

Readers of committed records stop at the stable offset. Their answers name the aborted transactions among the records.

A fetch that begins in a damaged range is answered with an error that clients retry, and noted (`log/damage.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker, TopicView
from headwater.broker.clients.fetch_sessions import FULL, SESSIONLESS, FetchSession, Key, Wanted, next_epoch
from headwater.broker.errors import code_of
from headwater.broker.registry import api
from headwater.broker.request import Request, Values
from headwater.broker.turns import SLICE_ITEMS
from headwater.errors import HeadwaterError
from headwater.log.looking import bound_of
from headwater.log.reader import Want
from headwater.replica.watch import Watch
from headwater.security.quotas import CONSUMER
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.streams.aborted import AbortedTransaction
from headwater.state.streams.stream import Stream
from headwater.types import Buffer, Domain

KEY = 1
LEADER_EPOCH = 0
MAX_WAIT_SECONDS = 3600
TAIL_SECONDS = 0.02
"""How long a fetch at the end of the log waits before it reads the ledger. New records usually come before that."""
BYTES_PER_ITEM = 4096
"""So many bytes of records count as an item of work. A slice is a megabyte."""
READ_COMMITTED = 1
_NOT_LOOKED_AT = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.topic_authorization_failed,
)
"""Errors of partitions whose log is not read. With them the list of aborted transactions is empty, never null."""


@dataclass(slots=True)
class _Found:
    """A partition's part of the answer."""

    wanted: Wanted
    error: ErrorCode = ErrorCode.none
    records: Buffer = b""
    high_watermark: int = -1
    stable: int = -1
    log_start: int = -1
    aborted: Sequence[AbortedTransaction] = ()


@api(KEY, 4, 18)
async def fetch(broker: Broker, request: Request) -> Values:
    """See the docstring of the module."""
    body = request.body
    session, wanted, error = _resolve(broker, request)
    if error is not ErrorCode.none:
        return {"error_code": error, "session_id": 0, "responses": []}
    owed = broker.quotas.owed(CONSUMER, request.user, request.client_id)
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
        "responses": _by_topic(answered, _is_committed(request)),
    }


def _is_committed(request: Request) -> bool:
    """Whether the client reads committed records only."""
    committed: bool = request.body.isolation_level == READ_COMMITTED
    return committed


def _silence(broker: Broker, session: FetchSession | None, epoch: int, seconds: float) -> Values:
    """The empty answer to a client that is over its quota through another connection. A new session is closed again."""
    going_on = 0
    if session is not None and epoch > 0:
        session.epoch = next_epoch(session.epoch)
        going_on = session.id
    elif session is not None:
        broker.sessions.close(session.id)
    told = {"throttle_time": max(round(seconds * 1000), 1), "error_code": ErrorCode.none}
    return {**told, "session_id": going_on, "responses": []}


def _split(broker: Broker, request: Request, wanted: list[Wanted]) -> tuple[list[Wanted], list[Wanted]]:
    """The partitions that the client may read, and those that it may not."""
    if not broker.guard.enforced:
        return wanted, []
    readable = {name: _may_read(broker, request, name) for name in {w.topic for w in wanted}}
    return [w for w in wanted if readable[w.topic]], [w for w in wanted if not readable[w.topic]]


def _may_read(broker: Broker, request: Request, name: str | uuid.UUID) -> bool:
    """Whether the client may read a topic. An unknown id is let through, because it reveals nothing."""
    if isinstance(name, str):
        return broker.may(request, Operation.READ, AclResource.TOPIC, name)
    view = broker.by_id(name)
    return view is None or broker.may(request, Operation.READ, AclResource.TOPIC, view.topic.name)


# --- sessions ------------------------------------------------------------------------------------------


def _resolve(broker: Broker, request: Request) -> tuple[FetchSession | None, list[Wanted], ErrorCode]:
    """The session, if there is one, and the requested partitions."""
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
    if len(existing.wanted) > broker.settings.limits.request_items:
        broker.stats.refuse("fetch_session")
        broker.sessions.close(session_id)
        return None, [], ErrorCode.fetch_session_id_not_found
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
    """Whether a partition belongs in the answer of an incremental fetch. Notes what the answer says of it."""
    borders = (found.high_watermark, found.stable, found.log_start)
    news = (
        not incremental or found.error is not ErrorCode.none or len(found.records) > 0 or found.wanted.told != borders
    )
    found.wanted.told = borders if found.error is ErrorCode.none else None
    return news


# --- reading ---------------------------------------------------------------------------------------------


async def _collect(broker: Broker, request: Request, wanted: list[Wanted]) -> list[_Found]:
    """Read until there are enough bytes, there is an error, or the time is over."""
    body = request.body
    began = broker.clock.monotonic()
    deadline = began + min(max(body.max_wait.total_seconds(), 0), MAX_WAIT_SECONDS)
    limit = min(max(body.max_bytes, 0), broker.settings.limits.fetch_response_bytes)
    views, committed = _views(broker, wanted), _is_committed(request)
    with _Arrivals(broker, views, wanted, committed) as arrivals:
        enough = arrivals.bytes >= max(body.min_bytes, 1)
        if not enough and arrivals.at_the_end:
            enough = await arrivals.reach(max(body.min_bytes, 1), min(began + TAIL_SECONDS, deadline))
        if enough:
            found = await _read_timed(broker, request, views, wanted, limit, arrivals.bytes)
            if _size(found) and not _failed(found):
                return found
    # Empty, too short or an error so far. Only a read of the ledger confirms that.
    # Domain 0 comes first: a topic that was unknown until now has a domain to read, too.
    if any(view is None or view.stream(w.partition) is None for w, view in _pairs(views, wanted)):
        await broker.cluster.barrier()
        views = _views(broker, wanted)
    for domain in {view.replica.domain for view in views.values() if view is not None}:
        await broker.domains[domain].barrier()
    with _Arrivals(broker, views, wanted, committed) as arrivals:
        in_time = bool(arrivals.partitions)
        while True:
            arrivals.any = False
            found = await _read_timed(broker, request, views, wanted, limit, arrivals.bytes)
            missing = body.min_bytes - _size(found)
            if _failed(found) or missing <= 0 or not in_time:
                return found
            in_time = await arrivals.reach(arrivals.bytes + missing, deadline)
            if not in_time and not arrivals.any:
                return found


class _Arrivals:
    """Counts the bytes that requested partitions have, and those that arrive. It looks at changed partitions only.

    For a reader of committed records, bytes arrive when transactions end.
    """

    def __init__(
        self,
        broker: Broker,
        views: dict[str | uuid.UUID, TopicView | None],
        wanted: list[Wanted],
        committed: bool,
    ) -> None:
        self._domains = broker.domains
        self._committed = committed
        self._watch = Watch(broker.clock)
        self.partitions: dict[tuple[int, int], tuple[TopicView, Wanted]] = {}
        """By domain and stream."""
        self.at_the_end = bool(wanted)
        """Whether all partitions begin where the reader has to stop, as far as the local replica knows."""
        self.any = False
        """Whether a partition has changed since this was set."""
        self.bytes = 0
        self._bytes: dict[tuple[int, int], int] = {}
        for w, view in _pairs(views, wanted):
            stream = view.stream(w.partition) if view is not None else None
            if view is None or stream is None or not bound_of(stream, committed) <= w.offset <= stream.end:
                self.at_the_end = False
            stream_id = view.stream_id(w.partition) if view is not None else None
            if view is not None and stream_id is not None:
                key = (view.replica.domain, stream_id)
                self.partitions[key] = (view, w)
                self._bytes[key] = 0 if self.at_the_end else _available(view, w, committed)
                self.bytes += self._bytes[key]

    def __enter__(self) -> Self:
        for domain, streams in self._by_domain().items():
            self._domains[domain].watch(streams, self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        for domain, streams in self._by_domain().items():
            self._domains[domain].unwatch(streams, self._watch)

    def _by_domain(self) -> dict[Domain, list[int]]:
        found: dict[Domain, list[int]] = {}
        for domain, stream in self.partitions:
            found.setdefault(Domain(domain), []).append(stream)
        return found

    async def reach(self, size: int, deadline: float) -> bool:
        """Wait until there are so many bytes, or a partition cannot be read; returns whether that was in time."""
        while self.bytes < size:
            changed = await self._watch.news(deadline)
            if not changed:
                return False
            self.any = True
            for key in changed:
                view, w = self.partitions[key]
                stream = view.stream(w.partition)
                if stream is None or _objection(w, stream) is not ErrorCode.none:
                    return True
                now = _available(view, w, self._committed)
                self.bytes += now - self._bytes[key]
                self._bytes[key] = now
        return True


def _available(view: TopicView, wanted: Wanted, committed: bool) -> int:
    """How many bytes there are to read, as far as the local replica knows."""
    stream = view.stream(wanted.partition)
    if stream is None or not stream.log_start <= wanted.offset < bound_of(stream, committed):
        return 0
    return stream.bytes_from(wanted.offset, committed=committed)


def _size(found: list[_Found]) -> int:
    return sum(len(one.records) for one in found)


def _failed(found: list[_Found]) -> bool:
    return any(one.error is not ErrorCode.none for one in found)


def _views(broker: Broker, wanted: list[Wanted]) -> dict[str | uuid.UUID, TopicView | None]:
    return {
        topic: broker.by_name(topic) if isinstance(topic, str) else broker.by_id(topic)
        for topic in dict.fromkeys(w.topic for w in wanted)
    }


def _pairs(
    views: dict[str | uuid.UUID, TopicView | None], wanted: list[Wanted]
) -> list[tuple[Wanted, TopicView | None]]:
    return [(w, views[w.topic]) for w in wanted]


async def _read_timed(
    broker: Broker,
    request: Request,
    views: dict[str | uuid.UUID, TopicView | None],
    wanted: list[Wanted],
    limit: int,
    expected: int,
) -> list[_Found]:
    """Read, measure the time, and count the expected bytes meanwhile as those of an answer."""
    if min(limit, expected) > SLICE_ITEMS * BYTES_PER_ITEM:
        await broker.turns.turn()
    limit = broker.responses.fetch_limit(limit)
    size = min(limit, expected)
    number = broker.pace.fetch.begin(broker.clock.monotonic())
    broker.responses.begin_reading(size)
    try:
        return await _read_all(broker, request, views, wanted, limit)
    finally:
        broker.responses.end_reading(size)
        broker.pace.fetch.end(number, broker.clock.monotonic())


async def _read_all(
    broker: Broker,
    request: Request,
    views: dict[str | uuid.UUID, TopicView | None],
    wanted: list[Wanted],
    limit: int,
) -> list[_Found]:
    """Read all partitions in one call of the reader, which gets each object that several of them need once."""
    found: list[_Found] = []
    reading: list[tuple[_Found, Want]] = []
    work, committed = broker.turns.work(), _is_committed(request)
    async for w, view in work.over(_pairs(views, wanted)):
        one = _Found(w)
        found.append(one)
        stream = view.stream(w.partition) if view is not None else None
        if view is None or stream is None:
            by_id = isinstance(w.topic, uuid.UUID) and view is None
            one.error = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
            continue
        if not broker.may(request, Operation.READ, AclResource.TOPIC, view.topic.name):
            one.error = ErrorCode.topic_authorization_failed
            continue
        one.error = ErrorCode.not_leader_or_follower if broker.turns_away(request, stream.id) else _objection(w, stream)
        if one.error is not ErrorCode.none:
            continue
        one.high_watermark, one.stable, one.log_start = stream.end, stream.stable, stream.log_start
        if w.offset < bound_of(stream, committed):
            reading.append((one, Want(view.replica, stream.id, w.offset, w.max_bytes, committed)))
    results = await broker.reader.read_many(
        [want for _, want in reading], limit, did=lambda size: work.did(size // BYTES_PER_ITEM)
    )
    for (one, _), result in zip(reading, results, strict=True):
        if isinstance(result, HeadwaterError):
            one.error, one.high_watermark, one.stable, one.log_start = code_of(result), -1, -1, -1
            broker.reader.damage.met(result, f"{request.client_id} at {request.connection.host}")
        else:
            one.records, one.aborted = result.records, result.aborted
            one.high_watermark, one.stable, one.log_start = result.high_watermark, result.stable, result.log_start
    return found


def _objection(wanted: Wanted, stream: Stream) -> ErrorCode:
    if wanted.leader_epoch > LEADER_EPOCH:
        return ErrorCode.unknown_leader_epoch
    if not stream.log_start <= wanted.offset <= stream.end:
        return ErrorCode.offset_out_of_range
    return ErrorCode.none


def size_of(values: Values) -> int:
    """The bytes of records in an answer."""
    return sum(len(p["records"] or b"") for topic in values["responses"] for p in topic["partitions"])


def _aborted(found: _Found, committed: bool) -> list[Values] | None:
    if found.error is not ErrorCode.none or not committed:
        return [] if found.error in _NOT_LOOKED_AT else None
    return [{"producer_id": one.producer, "first_offset": one.first} for one in found.aborted]


def _by_topic(found: list[_Found], committed: bool) -> list[Values]:
    topics: dict[str | uuid.UUID, list[Values]] = {}
    for f in found:
        topics.setdefault(f.wanted.topic, []).append(
            {
                "partition_index": f.wanted.partition,
                "error_code": f.error,
                "high_watermark": f.high_watermark,
                "last_stable_offset": f.stable,
                "log_start_offset": f.log_start,
                "aborted_transactions": _aborted(f, committed),
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
