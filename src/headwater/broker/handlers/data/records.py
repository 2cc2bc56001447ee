"""DeleteRecords, versions 0 to 2: move a log's start forward."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.errors import code_of
from headwater.broker.registry import api
from headwater.broker.request import Request, Values
from headwater.errors import HeadwaterError
from headwater.replica.trimming import start_of
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.commands.streams import TrimStreams

TO_THE_END = -1
_FORBIDDEN: Values = {"error_code": ErrorCode.topic_authorization_failed, "low_watermark": -1}


@api(21, 0, 2)
async def delete_records(broker: Broker, request: Request) -> Values:
    """Every partition is answered with its new log start."""
    topics, work = [], broker.turns.work()
    async for topic in work.over(request.body.topics):
        allowed = broker.may(request, Operation.DELETE, AclResource.TOPIC, topic.name)
        answers = [
            {
                "partition_index": p.partition_index,
                **(await _trim(broker, topic.name, p.partition_index, p.offset) if allowed else _FORBIDDEN),
            }
            async for p in work.over(topic.partitions)
        ]
        topics.append({"name": topic.name, "partitions": answers})
    return {"topics": topics}


async def _trim(broker: Broker, name: str, partition: int, offset: int) -> Values:
    try:
        broker.check_contact()
        await broker.cluster.barrier()
        view = broker.by_name(name)
        stream = None
        if view is not None:
            await view.replica.barrier()
            stream = view.stream(partition)
        if view is None or stream is None:
            return {"error_code": ErrorCode.unknown_topic_or_partition, "low_watermark": -1}
        start = start_of(view.config, stream, None if offset == TO_THE_END else offset)
        await view.replica.submit([TrimStreams([(stream.id, start)])])
        return {"error_code": ErrorCode.none, "low_watermark": stream.log_start}
    except HeadwaterError as error:
        return {"error_code": code_of(error), "low_watermark": -1}
