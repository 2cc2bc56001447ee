"""Records: reading them by offset, range or time, once or as they come."""

from __future__ import annotations

from typing import Annotated, cast

from litestar import get
from litestar.di import NamedDependency, Provide
from litestar.params import PathParameter
from litestar.types import ASGIApp

from headwater.gateway.parameters import TopicName
from headwater.gateway.records.answers import Reading, answer
from headwater.gateway.records.asking import Asked, asked, scan_of
from headwater.gateway.services import Call, TheCall
from headwater.state.cluster.access import AclResource, Operation

TheAsked = NamedDependency[Asked]
Partition = Annotated[int, PathParameter(description="The number of the partition.")]
QUERY = {"asked": Provide(asked, sync_to_thread=False)}


@get("/v1/topics/{name:str}/records", operation_id="readTopic", tags=["records"], dependencies=QUERY)
async def read_topic(call: TheCall, name: TopicName, asked: TheAsked) -> ASGIApp:
    """Records of all partitions of a topic. The caller needs the right to READ it.

    `Accept` chooses the form: JSON, NDJSON, server-sent events or Arrow. `next` of an answer leads on. With `follow`
    the answer goes on with new records until the client leaves.
    """
    topic = await call.topic(name, Operation.READ)
    scan = await scan_of(call.services, topic, None, asked.range)
    reading = asked.reading(scan, call.services.own.records)
    return await _answer(call, reading, name)


@get(
    "/v1/topics/{name:str}/partitions/{partition:int}/records",
    operation_id="readPartition",
    tags=["records"],
    dependencies=QUERY,
)
async def read_partition(call: TheCall, name: TopicName, partition: Partition, asked: TheAsked) -> ASGIApp:
    """Records of one partition, from an offset on. The caller needs the right to READ the topic.

    An offset that the partition does not have is answered by 416, with the first one and the end.
    """
    topic = await call.topic(name, Operation.READ)
    scan = await scan_of(call.services, topic, partition, asked.range)
    reading = asked.reading(scan, call.services.own.records)
    return await _answer(call, reading, name)


async def _answer(call: Call, reading: Reading, name: str) -> ASGIApp:
    return cast(ASGIApp, await answer(call, reading, lambda: call.check(Operation.READ, AclResource.TOPIC, name)))


ROUTES = (read_topic, read_partition)
