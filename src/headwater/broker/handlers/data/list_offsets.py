"""ListOffsets, versions 1 to 11, and OffsetForLeaderEpoch, versions 2 to 4.

The end of the log must include all records that any broker has acknowledged, so every answer reads the ledger first.
For readers of committed records the log ends at the stable offset, and a record at or behind it is not found.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker, TopicView
from headwater.broker.errors import code_of
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.errors import HeadwaterError
from headwater.log.looking import bound_of
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.streams.stream import Stream

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The versions since which special timestamps have a meaning."""
LEADER_EPOCH = 0
READ_COMMITTED = 1


async def _up_to_date(broker: Broker, names: list[str]) -> dict[str, TopicView | None]:
    """Views of topics after a read of the ledger."""
    broker.check_contact()
    views = {name: broker.by_name(name) for name in names}
    if not all(views.values()):
        await broker.cluster.barrier()
        views = {name: broker.by_name(name) for name in names}
    for domain in {view.replica.domain for view in views.values() if view is not None}:
        await broker.domains[domain].barrier()
    return views


def _allowed(broker: Broker, request: Request, names: list[str]) -> list[str]:
    """The topics that the client may describe. For the others the handler does not even check that they exist."""
    return broker.visible(request, Operation.DESCRIBE, AclResource.TOPIC, names)


@api(2, 1, 11, RequestKind.READ)
async def list_offsets(broker: Broker, request: Request) -> Values:
    """Offsets: earliest, latest, by timestamp, and that of the record with the largest timestamp."""
    topics = []
    failure: HeadwaterError | None = None
    views: dict[str, TopicView | None] = {}
    try:
        views = await _up_to_date(broker, _allowed(broker, request, [topic.name for topic in request.body.topics]))
    except HeadwaterError as error:
        failure = error
    work = broker.turns.work()
    for topic in request.body.topics:
        await work.did()
        partitions = []
        asked = Counter(p.partition_index for p in topic.partitions)
        async for p in work.over({p.partition_index: p for p in topic.partitions}.values()):
            if failure is not None:
                answer: Values = {"error_code": code_of(failure)}
            elif topic.name not in views:
                answer = {"error_code": ErrorCode.topic_authorization_failed}
            elif asked[p.partition_index] > 1:
                answer = {"error_code": ErrorCode.invalid_request}
            else:
                answer = await _offset(broker, request, views[topic.name], p)
            partitions.append({"partition_index": p.partition_index, **answer})
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


async def _offset(broker: Broker, request: Request, view: TopicView | None, wanted: Any) -> Values:
    version = request.version
    if wanted.timestamp < EARLIEST and version < SINCE.get(wanted.timestamp, version + 1):
        return {"error_code": ErrorCode.unsupported_version}
    stream = view.stream(wanted.partition_index) if view is not None else None
    if view is None or stream is None:
        return {"error_code": ErrorCode.unknown_topic_or_partition}
    if broker.turns_away(request, stream.id):
        return {"error_code": ErrorCode.not_leader_or_follower}
    if version >= 4 and wanted.current_leader_epoch > LEADER_EPOCH:
        return {"error_code": ErrorCode.unknown_leader_epoch}
    committed = getattr(request.body, "isolation_level", 0) == READ_COMMITTED
    if wanted.timestamp == LATEST:
        return _found(stream, bound_of(stream, committed), -1)
    if wanted.timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _found(stream, stream.log_start, -1)
    if wanted.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return {"error_code": ErrorCode.none, "offset": -1, "timestamp": -1, "leader_epoch": -1}
    try:
        if not len(stream.index):
            timed = None
        elif wanted.timestamp == MAX_TIMESTAMP:
            timed = await broker.reader.find_max_timestamp(view.replica, stream.id, committed=committed)
        else:
            timed = await broker.reader.find_time(view.replica, stream.id, wanted.timestamp, committed=committed)
    except HeadwaterError as error:
        return {"error_code": code_of(error)}
    if timed is None:
        return {"error_code": ErrorCode.none, "offset": -1, "timestamp": -1, "leader_epoch": -1}
    return _found(stream, timed.offset, timed.timestamp)


def _found(stream: Stream, offset: int, timestamp: int) -> Values:
    return {
        "error_code": ErrorCode.none,
        "offset": offset,
        "timestamp": timestamp,
        "leader_epoch": stream.leader_epoch,
    }


@api(23, 2, 4, RequestKind.READ)
async def offset_for_leader_epoch(broker: Broker, request: Request) -> Values:
    """There is one leader epoch, 0, and it ends where the log ends."""
    try:
        views = await _up_to_date(broker, _allowed(broker, request, [topic.topic for topic in request.body.topics]))
    except HeadwaterError as error:
        code = code_of(error)
        return await _epochs(broker, request, lambda name, p: {"error_code": code})

    def answer(name: str, p: Any) -> Values:
        if name not in views:
            return {"error_code": ErrorCode.topic_authorization_failed}
        view = views[name]
        stream: Stream | None = view.stream(p.partition) if view is not None else None
        if stream is None:
            return {"error_code": ErrorCode.unknown_topic_or_partition}
        if p.current_leader_epoch > LEADER_EPOCH:
            return {"error_code": ErrorCode.unknown_leader_epoch}
        if p.leader_epoch != LEADER_EPOCH:
            return {"error_code": ErrorCode.none, "leader_epoch": -1, "end_offset": -1}
        return {"error_code": ErrorCode.none, "leader_epoch": LEADER_EPOCH, "end_offset": stream.end}

    return await _epochs(broker, request, answer)


async def _epochs(broker: Broker, request: Request, answer: Any) -> Values:
    topics, work = [], broker.turns.work()
    for t in request.body.topics:
        await work.did()
        partitions = [{"partition": p.partition, **answer(t.topic, p)} async for p in work.over(t.partitions)]
        topics.append({"topic": t.topic, "partitions": partitions})
    return {"topics": topics}
