"""Topics: which there are; creating, growing and deleting them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.params import JSONBody, QueryParameter

from headwater.gateway.admin import topics as admin
from headwater.gateway.v3.errors import kafka_errors, refused
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


class ConfigOfTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A config of a topic to create."""

    name: str
    """The name of the config."""
    value: str | None = None
    """The value. Null is refused."""


class NewTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic to create."""

    topic_name: str
    """The name of the topic."""
    partitions_count: int | None = None
    """The number of partitions; the default of the cluster if it is missing."""
    replication_factor: int | None = None
    """Accepted without effect: object storage replicates."""
    replicas_assignments: dict[int, list[int]] | None = None
    """Brokers by partition. Only the number of partitions has an effect: every broker serves every partition."""
    configs: list[ConfigOfTopic] = []
    """The configs of the topic."""
    validate_only: bool = False
    """Whether the request is only checked."""


class PartitionsCount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A larger number of partitions."""

    partitions_count: int
    """The number of partitions that the topic should have in all."""


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


@post("/clusters/{cluster_id:str}/topics", operation_id="v3CreateTopic", tags=["REST Proxy"], status_code=201)
async def create_topic(frame: TheFrame, data: JSONBody[NewTopic]) -> Response[TopicData]:
    """Create a topic. With `validate_only` the answer is 200, and nothing is created."""
    with kafka_errors():
        count = await admin.create(
            frame.call, data.topic_name, _count(data), _configs(data.configs), dry=data.validate_only
        )
    made = described(frame, data.topic_name, count)
    if data.validate_only:
        return Response(made, status_code=200)
    return Response(made, status_code=201, headers={"Location": made.metadata.link})


@patch("/clusters/{cluster_id:str}/topics/{topic_name:str}", operation_id="v3GrowTopic", tags=["REST Proxy"])
async def grow_topic(frame: TheFrame, topic_name: TopicName, data: JSONBody[PartitionsCount]) -> TopicData:
    """Add partitions to a topic. Their number never falls."""
    with kafka_errors():
        await admin.grow(frame.call, topic_name, data.partitions_count, dry=False)
    return described(frame, topic_name, data.partitions_count)


@delete("/clusters/{cluster_id:str}/topics/{topic_name:str}", operation_id="v3DeleteTopic", tags=["REST Proxy"])
async def delete_topic(frame: TheFrame, topic_name: TopicName) -> None:
    """Delete a topic with its records."""
    with kafka_errors():
        await admin.delete(frame.call, topic_name)


def _count(wanted: NewTopic) -> int | None:
    """The number of partitions of a topic to create; None for the default."""
    if wanted.replication_factor is not None and wanted.replication_factor < 1 and wanted.replication_factor != -1:
        raise refused("Replication factor must be larger than 0, or -1 to use the default value.")
    if not wanted.replicas_assignments:
        return None if wanted.partitions_count == -1 else wanted.partitions_count
    if wanted.partitions_count is not None or wanted.replication_factor is not None:
        raise refused("`replicas_assignments` excludes `partitions_count` and `replication_factor`.")
    count = len(wanted.replicas_assignments)
    if wanted.replicas_assignments.keys() != set(range(count)):
        raise refused("`replicas_assignments` must name the partitions from 0 on without a gap.")
    return count


def _configs(given: list[ConfigOfTopic]) -> dict[str, str]:
    found: dict[str, str] = {}
    for config in given:
        if config.value is None:
            raise refused(f"Null value not supported for topic configs: {config.name}")
        if config.name in found:
            raise refused(f"The config {config.name} is there more than once.")
        found[config.name] = config.value
    return found


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


ROUTES = (list_topics, get_topic, create_topic, grow_topic, delete_topic)
