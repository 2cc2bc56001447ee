"""InitProducerId, versions 0 to 6, for idempotent producers, and DescribeProducers, version 0."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker, TopicView
from headwater.broker.errors import code_of
from headwater.broker.registry import api
from headwater.broker.request import Request, Values
from headwater.errors import HeadwaterError
from headwater.replica.topics import InvalidTopicName, check_name
from headwater.state.cluster.access import AclResource, Operation


@api(22, 0, 6)
async def init_producer_id(broker: Broker, request: Request) -> Values:
    """A fresh producer id."""
    nothing = {"producer_id": -1, "producer_epoch": -1}
    transactional_id = request.body.transactional_id
    if transactional_id is not None and not broker.may(
        request, Operation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id
    ):
        return {"error_code": ErrorCode.transactional_id_authorization_failed, **nothing}
    if transactional_id is None and not (
        broker.may(request, Operation.IDEMPOTENT_WRITE, AclResource.CLUSTER)
        or broker.may_any(request, Operation.WRITE, AclResource.TOPIC)
    ):
        return {"error_code": ErrorCode.cluster_authorization_failed, **nothing}
    if transactional_id is not None and broker.missing_transactions():
        # No time-out is allowed. Java's producer and librdkafka give up for good on this code; on most others one of
        # them goes on. The answer has no message, but that of FindCoordinator, which producers send first, has one.
        return {"error_code": ErrorCode.invalid_transaction_timeout, **nothing}
    known = (getattr(request.body, "producer_id", -1), getattr(request.body, "producer_epoch", -1))
    if known != (-1, -1) and -1 in known:
        return {"error_code": ErrorCode.invalid_request, **nothing}
    try:
        broker.check_contact()
        return {
            "error_code": ErrorCode.none,
            "producer_id": await broker.producer_id(),
            "producer_epoch": 0,
        }
    except HeadwaterError:
        return {"error_code": ErrorCode.coordinator_not_available, **nothing}


_UNREADABLE: Values = {"error_code": ErrorCode.topic_authorization_failed, "error_message": None}


@api(61, 0, 0)
async def describe_producers(broker: Broker, request: Request) -> Values:
    """The idempotent producers that a partition remembers."""
    topics, work = [], broker.turns.work()
    async for topic in work.over(request.body.topics):
        readable = broker.may(request, Operation.READ, AclResource.TOPIC, topic.name)
        partitions = [
            {
                "partition_index": index,
                **(await _producers(broker, topic.name, index) if readable else _UNREADABLE),
            }
            async for index in work.over(topic.partition_indexes)
        ]
        topics.append({"name": topic.name, "partitions": partitions})
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
            return {"error_code": ErrorCode.unknown_topic_or_partition, "error_message": None}
        await view.replica.barrier()
    except InvalidTopicName as error:
        return {"error_code": ErrorCode.invalid_topic_exception, "error_message": str(error)}
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    stream = view.stream(index)
    producers = stream.producers if stream is not None else None
    active = [
        {
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": producer.recent[-2],
            "last_timestamp": producer.last_ms,
            "coordinator_epoch": -1,
            "current_txn_start_offset": -1,
        }
        for producer_id, producer in (producers.items() if producers is not None else ())
    ]
    return {"error_code": ErrorCode.none, "error_message": None, "active_producers": active}
