"""Partitions, their offsets and replicas. Object storage replicates, so a partition has one replica: the broker that
clients should use for it. Nothing is ever reassigned."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from litestar.params import QueryParameter

from headwater.gateway.problems import NOT_FOUND, Refusal
from headwater.gateway.v3.brokers import leaders
from headwater.gateway.v3.frame import (
    MOST_ITEMS,
    BrokerId,
    Frame,
    ListOf,
    Metadata,
    PageSize,
    PageToken,
    PartitionId,
    Related,
    TheFrame,
    TopicName,
)
from headwater.replica.placement import choose
from headwater.state.cluster.domain import Topic

OffsetType = Annotated[
    str, QueryParameter(description="Accepted and not looked at: the answer always has both offsets.", max_length=64)
]


class PartitionData(msgspec.Struct, frozen=True):
    """A partition."""

    kind: str
    """Always `KafkaPartition`."""
    metadata: Metadata
    """The links of the partition."""
    cluster_id: str
    """The id of the cluster."""
    topic_name: str
    """The name of the topic."""
    partition_id: int
    """The number of the partition."""
    leader: Related | None
    """The replica that clients use."""
    replicas: Related
    """The replicas."""
    reassignment: Related
    """The reassignment that is under way. There is none, ever."""


class PartitionOffsets(msgspec.Struct, frozen=True):
    """A partition with its offsets."""

    kind: str
    """Always `KafkaPartitionWithOffsets`."""
    metadata: Metadata
    """The links of the answer."""
    cluster_id: str
    """The id of the cluster."""
    topic_name: str
    """The name of the topic."""
    partition_id: int
    """The number of the partition."""
    earliest_offset: int
    """The first offset that can be read."""
    latest_offset: int
    """The offset after the last record that can be read."""


class ReplicaData(msgspec.Struct, frozen=True):
    """A replica."""

    kind: str
    """Always `KafkaReplica`."""
    metadata: Metadata
    """The links of the replica."""
    cluster_id: str
    """The id of the cluster."""
    topic_name: str
    """The name of the topic."""
    partition_id: int
    """The number of the partition."""
    broker_id: int
    """The number of the broker."""
    is_leader: bool
    """Always true."""
    is_in_sync: bool
    """Always true."""
    broker: Related
    """The broker."""


_OF_TOPIC = "/clusters/{cluster_id:str}/topics/{topic_name:str}"
_PARTITION = _OF_TOPIC + "/partitions/{partition_id:int}"


@get(f"{_OF_TOPIC}/partitions", operation_id="v3ListPartitions", tags=["REST Proxy"])
async def list_partitions(
    frame: TheFrame, topic_name: TopicName, page_size: PageSize = MOST_ITEMS, page_token: PageToken = ""
) -> ListOf[PartitionData]:
    """The partitions of a topic."""
    topic = await frame.topic(topic_name)
    nodes = leaders(frame.services.state)
    return frame.listed(
        "KafkaPartitionList",
        ["topics", topic_name, "partitions"],
        range(topic.ready),
        int,
        lambda partition: _partition(frame, topic, partition, nodes),
        (page_size, page_token),
    )


@get(_PARTITION, operation_id="v3GetPartition", tags=["REST Proxy"])
async def get_partition(frame: TheFrame, topic_name: TopicName, partition_id: PartitionId) -> PartitionData:
    """A partition of a topic."""
    topic, _ = await frame.partition(topic_name, partition_id)
    return _partition(frame, topic, partition_id, leaders(frame.services.state))


@get(f"{_PARTITION}/offset", operation_id="v3GetPartitionOffsets", tags=["REST Proxy"])
async def get_offsets(
    frame: TheFrame, topic_name: TopicName, partition_id: PartitionId, offset_type: OffsetType = ""
) -> PartitionOffsets:
    """The first and the next offset of a partition."""
    _, stream = await frame.partition(topic_name, partition_id)
    return PartitionOffsets(
        "KafkaPartitionWithOffsets",
        frame.metadata("topics", topic_name, "partitions", partition_id, "offset"),
        frame.cluster_id,
        topic_name,
        partition_id,
        stream.log_start,
        stream.end,
    )


@get(f"{_PARTITION}/replicas", operation_id="v3ListReplicas", tags=["REST Proxy"])
async def list_replicas(frame: TheFrame, topic_name: TopicName, partition_id: PartitionId) -> ListOf[ReplicaData]:
    """The replica of a partition: the broker that clients should use for it."""
    leader = await _leader(frame, topic_name, partition_id)
    return frame.listed(
        "KafkaReplicaList",
        ["topics", topic_name, "partitions", partition_id, "replicas"],
        [] if leader is None else [leader],
        int,
        lambda broker: _replica(frame, topic_name, partition_id, broker),
    )


@get(f"{_PARTITION}/replicas/{{broker_id:int}}", operation_id="v3GetReplica", tags=["REST Proxy"])
async def get_replica(
    frame: TheFrame, topic_name: TopicName, partition_id: PartitionId, broker_id: BrokerId
) -> ReplicaData:
    """The replica of a partition on a broker."""
    if await _leader(frame, topic_name, partition_id) != broker_id:
        raise Refusal(NOT_FOUND, f"Broker {broker_id} has no replica of partition {partition_id}.")
    return _replica(frame, topic_name, partition_id, broker_id)


@get(
    "/clusters/{cluster_id:str}/topics/-/partitions/-/reassignment",
    operation_id="v3ListReassignments",
    tags=["REST Proxy"],
)
async def list_reassignments(frame: TheFrame) -> ListOf[None]:
    """The reassignments of replicas that are under way: none."""
    return _nothing_moves(frame, "-")


@get(f"{_OF_TOPIC}/partitions/-/reassignment", operation_id="v3ListTopicReassignments", tags=["REST Proxy"])
async def list_topic_reassignments(frame: TheFrame, topic_name: TopicName) -> ListOf[None]:
    """The reassignments of a topic's replicas that are under way: none."""
    await frame.topic(topic_name)
    return _nothing_moves(frame, topic_name)


@get(f"{_PARTITION}/reassignment", operation_id="v3GetReassignment", tags=["REST Proxy"], raises=[])
async def get_reassignment(frame: TheFrame, topic_name: TopicName, partition_id: PartitionId) -> None:
    """The reassignment of a partition that is under way: always 404."""
    await frame.partition(topic_name, partition_id)
    raise Refusal(NOT_FOUND, f"Partition {partition_id} of the topic is not being reassigned.")


def _nothing_moves(frame: Frame, topic: str) -> ListOf[None]:
    path = ["topics", topic, "partitions", "-", "reassignment"]
    return frame.listed("KafkaReassignmentList", path, [], int, lambda _: None)


async def _leader(frame: Frame, topic_name: str, partition_id: int) -> int | None:
    topic, _ = await frame.partition(topic_name, partition_id)
    return _chosen(topic, partition_id, leaders(frame.services.state))


def _chosen(topic: Topic, partition: int, nodes: list[int]) -> int | None:
    return choose(topic.streams[partition], nodes) if nodes else None


def _partition(frame: Frame, topic: Topic, partition: int, nodes: list[int]) -> PartitionData:
    path = ("topics", topic.name, "partitions", partition)
    leader = _chosen(topic, partition, nodes)
    return PartitionData(
        "KafkaPartition",
        frame.metadata(*path),
        frame.cluster_id,
        topic.name,
        partition,
        None if leader is None else frame.related(*path, "replicas", leader),
        frame.related(*path, "replicas"),
        frame.related(*path, "reassignment"),
    )


def _replica(frame: Frame, topic_name: str, partition_id: int, broker: int) -> ReplicaData:
    return ReplicaData(
        "KafkaReplica",
        frame.metadata("topics", topic_name, "partitions", partition_id, "replicas", broker),
        frame.cluster_id,
        topic_name,
        partition_id,
        broker,
        True,
        True,
        frame.related("brokers", broker),
    )


ROUTES = (
    list_partitions,
    get_partition,
    get_offsets,
    list_replicas,
    get_replica,
    list_reassignments,
    list_topic_reassignments,
    get_reassignment,
)
