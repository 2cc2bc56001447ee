"""Topics."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from litestar.params import QueryParameter

from headwater.gateway.v3.frame import (
    MOST_ITEMS,
    Frame,
    ListOf,
    Metadata,
    PageSize,
    PageToken,
    Related,
    TheFrame,
    TopicName,
)
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.cluster.domain import Topic

WithOperations = Annotated[
    bool, QueryParameter(description="Whether the answer has the operations that the caller is allowed.")
]


class TopicData(msgspec.Struct, frozen=True, omit_defaults=True):
    """A topic."""

    kind: str
    """Always `KafkaTopic`."""
    metadata: Metadata
    """The links of the topic."""
    cluster_id: str
    """The id of the cluster."""
    topic_name: str
    """The name of the topic."""
    is_internal: bool
    """Always false: Kafka's internal topics are not listed."""
    replication_factor: int
    """Always 1: object storage replicates."""
    partitions_count: int
    """The number of partitions."""
    partitions: Related
    """The partitions."""
    configs: Related
    """The configs."""
    partition_reassignments: Related
    """The reassignments of replicas that are under way. There are none, ever."""
    authorized_operations: list[str] | None = None
    """The operations that the caller is allowed, if the request asks for them."""


@get("/clusters/{cluster_id:str}/topics", operation_id="v3ListTopics", tags=["REST Proxy"])
async def list_topics(
    frame: TheFrame,
    page_size: PageSize = MOST_ITEMS,
    page_token: PageToken = "",
    include_authorized_operations: WithOperations = False,
) -> ListOf[TopicData]:
    """The topics that the caller may describe, by name."""
    own = frame.services
    await own.catch_up()
    names = sorted(
        name
        for name, topic in own.state.names.items()
        if topic.ready and frame.call.may(Operation.DESCRIBE, AclResource.TOPIC, name)
    )
    return frame.listed(
        "KafkaTopicList",
        ["topics"],
        names,
        str,
        lambda name: topic_data(frame, own.state.names[name], include_authorized_operations),
        (page_size, page_token),
    )


@get("/clusters/{cluster_id:str}/topics/{topic_name:str}", operation_id="v3GetTopic", tags=["REST Proxy"])
async def get_topic(
    frame: TheFrame, topic_name: TopicName, include_authorized_operations: WithOperations = False
) -> TopicData:
    """A topic."""
    return topic_data(frame, await frame.topic(topic_name), include_authorized_operations)


def topic_data(frame: Frame, topic: Topic, with_operations: bool = False) -> TopicData:
    """A topic that can be used, in the form of the REST Proxy."""
    return described(frame, topic.name, topic.ready, _operations(frame, topic.name) if with_operations else None)


def described(frame: Frame, name: str, partitions: int, operations: list[str] | None = None) -> TopicData:
    """A topic, which need not exist, in the form of the REST Proxy."""
    return TopicData(
        "KafkaTopic",
        frame.metadata("topics", name),
        frame.cluster_id,
        name,
        False,
        1,
        partitions,
        frame.related("topics", name, "partitions"),
        frame.related("topics", name, "configs"),
        frame.related("topics", name, "partitions", "-", "reassignment"),
        operations,
    )


def _operations(frame: Frame, name: str) -> list[str]:
    caller = frame.call.caller
    found = frame.services.guard.operations(caller.principal, caller.host, AclResource.TOPIC, name)
    return [operation.name for operation in Operation if operation and found >> operation & 1]


ROUTES = (list_topics, get_topic)
