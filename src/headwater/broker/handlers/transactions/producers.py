"""InitProducerId, versions 0 to 6, and DescribeProducers, version 0."""

from __future__ import annotations

import datetime

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker, TopicView
from headwater.broker.errors import code_of, coordinator_code_of
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.broker.transactions import codes
from headwater.errors import HeadwaterError
from headwater.replica.topics import check_name
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.results import Judgement, Transacted
from headwater.state.streams.stored.transactions import NOBODY

MILLISECOND = datetime.timedelta(milliseconds=1)
KNOWS_FENCED = 4
"""From this version on clients know PRODUCER_FENCED."""


@api(22, 0, 6)
async def init_producer_id(broker: Broker, request: Request) -> Values:
    """A fresh producer id, or the next epoch of a transactional id."""
    body = request.body
    code = _forbidden(broker, request)
    given = Transacted(Judgement.FENCED)
    expected = (getattr(body, "producer_id", NOBODY), getattr(body, "producer_epoch", NOBODY))
    if code is None and expected != (NOBODY, NOBODY) and NOBODY in expected:
        code = ErrorCode.invalid_request
    try:
        if code is None:
            broker.check_contact()
            if body.transactional_id is None:
                given = Transacted(Judgement.DONE, await broker.transactions.producer_ids.take(), 0)
            else:
                code = _flaw(broker, request)
                if code is None:
                    timeout_ms = body.transaction_timeout // MILLISECOND
                    given = await broker.transactions.init(body.transactional_id, timeout_ms, expected)
    except HeadwaterError as error:
        code = coordinator_code_of(error)
    return {
        "error_code": code or codes.code_of(given.judgement, knows_fenced=request.version >= KNOWS_FENCED),
        "producer_id": given.producer,
        "producer_epoch": given.epoch,
        "ongoing_txn_producer_id": NOBODY,
        "ongoing_txn_producer_epoch": NOBODY,
    }


def _forbidden(broker: Broker, request: Request) -> ErrorCode | None:
    id = request.body.transactional_id
    if id is not None and not broker.may(request, Operation.WRITE, AclResource.TRANSACTIONAL_ID, id):
        return ErrorCode.transactional_id_authorization_failed
    if id is None and not (
        broker.may(request, Operation.IDEMPOTENT_WRITE, AclResource.CLUSTER)
        or broker.may_any(request, Operation.WRITE, AclResource.TOPIC)
    ):
        return ErrorCode.cluster_authorization_failed
    return None


def _flaw(broker: Broker, request: Request) -> ErrorCode | None:
    """Why no producer can start under a transactional id; None if it can."""
    body = request.body
    if not body.transactional_id:
        return ErrorCode.invalid_request
    if getattr(body, "enable2_pc", False):
        return ErrorCode.transactional_id_authorization_failed  # as Kafka, where two-phase commit is switched off
    if getattr(body, "keep_prepared_txn", False):
        return ErrorCode.unsupported_version
    if not 0 < body.transaction_timeout // MILLISECOND <= broker.settings.transactions.max_timeout_ms:
        return ErrorCode.invalid_transaction_timeout
    return None


_UNREADABLE: Values = {
    "error_code": ErrorCode.topic_authorization_failed,
    "error_message": "Topic authorization failed.",
}


@api(61, 0, 0, RequestKind.READ)
async def describe_producers(broker: Broker, request: Request) -> Values:
    """The producers that a partition remembers, with the first offsets of their open transactions."""
    topics, work = [], broker.turns.work()
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.body.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    async for name in work.over(wanted):
        readable = broker.may(request, Operation.READ, AclResource.TOPIC, name)
        partitions = [
            {"partition_index": index, **(await _producers(broker, name, index) if readable else _UNREADABLE)}
            async for index in work.over(wanted[name])
        ]
        topics.append({"name": name, "partitions": partitions})
    return {"topics": topics}


async def _producers(broker: Broker, name: str, index: int) -> Values:
    try:
        broker.check_contact()
        check_name(name)
        view: TopicView | None = broker.by_name(name)
        if view is None:
            await broker.cluster.barrier()
            view = broker.by_name(name)
        if view is None or view.stream_id(index) is None:
            message = f"there is no partition {index} of a topic {name!r}"
            return {"error_code": ErrorCode.unknown_topic_or_partition, "error_message": message}
        await view.replica.barrier()
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    stream = view.stream(index)
    producers, running = (stream.producers, stream.running) if stream is not None else (None, {})
    active = [
        {
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": producer.recent[-2],
            "last_timestamp": producer.last_ms,
            "coordinator_epoch": -1,
            "current_txn_start_offset": running.get(producer_id, -1),
        }
        for producer_id, producer in (producers.items() if producers is not None else ())
    ]
    return {"error_code": ErrorCode.none, "error_message": None, "active_producers": active}
