"""Consumer groups as their coordinators stored them: members, assignments and lag."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from litestar import get
from litestar.params import PathParameter

from headwater.coordination.classic.group import ClassicGroup
from headwater.coordination.consumer.group import ConsumerGroup
from headwater.coordination.group import Group
from headwater.gateway.admin import groups as admin
from headwater.gateway.admin.groups import GroupMemberLine
from headwater.gateway.paging import bounded
from headwater.gateway.problems import NOT_FOUND, Refusal
from headwater.gateway.v3.frame import (
    MOST_ITEMS,
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
from headwater.state.streams.stored.groups import StoredGroup, shard_of

GroupId = Annotated[str, PathParameter(description="The name of the group.")]
ConsumerId = Annotated[str, PathParameter(description="The id of the member.")]
GROUPS_OF_A_PART = 1_000
"""Groups of one answer: each has to be decoded."""
_GROUPS = "/clusters/{cluster_id:str}/consumer-groups"
_GROUP = _GROUPS + "/{consumer_group_id:str}"
_CONSUMER = _GROUP + "/consumers/{consumer_id:str}"
_PLACE = "{topic_name:str}/partitions/{partition_id:int}"
_NEXT_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


class GroupData(msgspec.Struct, frozen=True):
    """A consumer group."""

    kind: str
    """Always `KafkaConsumerGroup`."""
    metadata: Metadata
    """The links of the group."""
    cluster_id: str
    """The id of the cluster."""
    consumer_group_id: str
    """The name of the group."""
    is_simple: bool
    """Whether the group has only offsets, and never had members."""
    partition_assignor: str
    """How partitions are assigned to members. Empty if there are none."""
    state: str
    """The state. A rebalance of a classic group is known to its coordinator only."""
    type: str
    """`CLASSIC` or `CONSUMER` (KIP-848)."""
    is_mixed_consumer_group: bool
    """Always false."""
    coordinator: Related | None
    """The broker that coordinates the group; null if no broker does at present."""
    consumers: Related
    """The members."""
    lag_summary: Related
    """The lag of the group."""


class ConsumerData(msgspec.Struct, frozen=True):
    """A member of a group."""

    kind: str
    """Always `KafkaConsumer`."""
    metadata: Metadata
    """The links of the member."""
    cluster_id: str
    """The id of the cluster."""
    consumer_group_id: str
    """The name of the group."""
    consumer_id: str
    """The id of the member."""
    instance_id: str | None
    """The fixed name of a static member."""
    client_id: str
    """The name that the client gave itself."""
    assignments: Related
    """The partitions that the member reads."""


class AssignmentData(msgspec.Struct, frozen=True):
    """A partition that a member reads."""

    kind: str
    """Always `KafkaConsumerAssignment`."""
    metadata: Metadata
    """The links of the assignment."""
    cluster_id: str
    """The id of the cluster."""
    consumer_group_id: str
    """The name of the group."""
    consumer_id: str
    """The id of the member."""
    topic_name: str
    """The name of the topic."""
    partition_id: int
    """The number of the partition."""
    partition: Related
    """The partition."""
    lag: Related
    """The lag of the group there."""


class LagData(msgspec.Struct, frozen=True):
    """The lag of a group in a partition."""

    kind: str
    """Always `KafkaConsumerLag`."""
    metadata: Metadata
    """The links of the lag."""
    cluster_id: str
    """The id of the cluster."""
    consumer_group_id: str
    """The name of the group."""
    topic_name: str
    """The name of the topic."""
    partition_id: int
    """The number of the partition."""
    consumer_id: str
    """The id of the member that reads the partition; empty if none does."""
    instance_id: str | None
    """The fixed name of a static member."""
    client_id: str
    """The name that the client gave itself; empty if no member reads the partition."""
    current_offset: int
    """The committed offset."""
    log_end_offset: int
    """The offset after the last record that can be read."""
    lag: int
    """The offsets between the two."""


class LagSummary(msgspec.Struct, frozen=True):
    """The lag of a group, and the partition where it is largest."""

    kind: str
    """Always `KafkaConsumerGroupLagSummary`."""
    metadata: Metadata
    """The links of the summary."""
    cluster_id: str
    """The id of the cluster."""
    consumer_group_id: str
    """The name of the group."""
    max_lag_consumer_id: str
    """The id of the member with the largest lag; empty if none reads that partition."""
    max_lag_instance_id: str | None
    """The fixed name of that member, if it is static."""
    max_lag_client_id: str
    """The name that the client gave itself."""
    max_lag_topic_name: str
    """The topic with the largest lag."""
    max_lag_partition_id: int
    """The partition with the largest lag."""
    max_lag: int
    """The largest lag."""
    total_lag: int
    """The lag of all partitions."""
    max_lag_consumer: Related
    """The member with the largest lag."""
    max_lag_partition: Related
    """The partition with the largest lag."""


@get(_GROUPS, operation_id="v3ListConsumerGroups", tags=["REST Proxy"])
async def list_groups(
    frame: TheFrame, page_size: PageSize = GROUPS_OF_A_PART, page_token: PageToken = ""
) -> ListOf[GroupData]:
    """The consumer groups that the caller may describe, by name."""
    return frame.listed(
        "KafkaConsumerGroupList",
        ["consumer-groups"],
        sorted(await admin.listed(frame.call), key=_name),
        _name,
        lambda group: _group(frame, group),
        (min(page_size, GROUPS_OF_A_PART), page_token),
    )


@get(_GROUP, operation_id="v3GetConsumerGroup", tags=["REST Proxy"])
async def get_group(frame: TheFrame, consumer_group_id: GroupId) -> GroupData:
    """A consumer group."""
    return _group(frame, await admin.find(frame.call, consumer_group_id))


@get(f"{_GROUP}/consumers", operation_id="v3ListConsumers", tags=["REST Proxy"])
async def list_consumers(frame: TheFrame, consumer_group_id: GroupId) -> ListOf[ConsumerData]:
    """The members of a group, by id."""
    return frame.listed(
        "KafkaConsumerList",
        ["consumer-groups", consumer_group_id, "consumers"],
        sorted(_members(frame, await admin.find(frame.call, consumer_group_id)), key=lambda m: bounded(m.id)),
        lambda member: bounded(member.id),
        lambda member: _consumer(frame, consumer_group_id, member),
    )


@get(_CONSUMER, operation_id="v3GetConsumer", tags=["REST Proxy"])
async def get_consumer(frame: TheFrame, consumer_group_id: GroupId, consumer_id: ConsumerId) -> ConsumerData:
    """A member of a group."""
    return _consumer(frame, consumer_group_id, await _member(frame, consumer_group_id, consumer_id))


@get(f"{_CONSUMER}/assignments", operation_id="v3ListConsumerAssignments", tags=["REST Proxy"])
async def list_assignments(
    frame: TheFrame,
    consumer_group_id: GroupId,
    consumer_id: ConsumerId,
    page_size: PageSize = MOST_ITEMS,
    page_token: PageToken = "",
) -> ListOf[AssignmentData]:
    """The partitions that a member reads."""
    member = await _member(frame, consumer_group_id, consumer_id)
    return frame.listed(
        "KafkaConsumerAssignmentList",
        ["consumer-groups", consumer_group_id, "consumers", consumer_id, "assignments"],
        [(owned.topic, partition) for owned in member.assigned for partition in owned.partitions],
        lambda place: _key(*place),
        lambda place: _assignment(frame, consumer_group_id, consumer_id, *place),
        (page_size, page_token),
    )


@get(f"{_CONSUMER}/assignments/{_PLACE}", operation_id="v3GetConsumerAssignment", tags=["REST Proxy"])
async def get_assignment(
    frame: TheFrame,
    consumer_group_id: GroupId,
    consumer_id: ConsumerId,
    topic_name: TopicName,
    partition_id: PartitionId,
) -> AssignmentData:
    """A partition that a member reads."""
    member = await _member(frame, consumer_group_id, consumer_id)
    if not any(owned.topic == topic_name and partition_id in owned.partitions for owned in member.assigned):
        raise Refusal(NOT_FOUND, f"The consumer {consumer_id} does not read partition {partition_id} of {topic_name}.")
    return _assignment(frame, consumer_group_id, consumer_id, topic_name, partition_id)


@get(f"{_GROUP}/lags", operation_id="v3ListConsumerLags", tags=["REST Proxy"])
async def list_lags(
    frame: TheFrame, consumer_group_id: GroupId, page_size: PageSize = MOST_ITEMS, page_token: PageToken = ""
) -> ListOf[LagData]:
    """The lag of a group in each partition that it has an offset of."""
    return frame.listed(
        "KafkaConsumerLagList",
        ["consumer-groups", consumer_group_id, "lags"],
        await _lags(frame, consumer_group_id),
        lambda lag: _key(lag.topic_name, lag.partition_id),
        lambda lag: lag,
        (page_size, page_token),
    )


@get(f"{_GROUP}/lags/{_PLACE}", operation_id="v3GetConsumerLag", tags=["REST Proxy"])
async def get_lag(
    frame: TheFrame, consumer_group_id: GroupId, topic_name: TopicName, partition_id: PartitionId
) -> LagData:
    """The lag of a group in a partition."""
    for lag in await _lags(frame, consumer_group_id):
        if (lag.topic_name, lag.partition_id) == (topic_name, partition_id):
            return lag
    raise Refusal(NOT_FOUND, f"The group has no offset of partition {partition_id} of {topic_name}.")


@get(f"{_GROUP}/lag-summary", operation_id="v3GetConsumerGroupLagSummary", tags=["REST Proxy"])
async def get_lag_summary(frame: TheFrame, consumer_group_id: GroupId) -> LagSummary:
    """The lag of a group, and the partition where it is largest. 404 if the group has no offsets."""
    lags = await _lags(frame, consumer_group_id)
    if not lags:
        raise Refusal(NOT_FOUND, f"The group {consumer_group_id} has no offsets.")
    most = max(lags, key=lambda lag: lag.lag)
    group = ("consumer-groups", consumer_group_id)
    return LagSummary(
        "KafkaConsumerGroupLagSummary",
        frame.metadata(*group, "lag-summary"),
        frame.cluster_id,
        consumer_group_id,
        most.consumer_id,
        most.instance_id,
        most.client_id,
        most.topic_name,
        most.partition_id,
        most.lag,
        sum(lag.lag for lag in lags),
        frame.related(*group, "consumers", most.consumer_id),
        frame.related("topics", most.topic_name, "partitions", most.partition_id),
    )


def _name(group: StoredGroup) -> str:
    return bounded(group.name)


def _key(topic: str, partition: int) -> str:
    """The key of a partition in a listing. Topics' names have no space."""
    return f"{topic} {partition:010}"


def _members(frame: Frame, group: StoredGroup) -> list[GroupMemberLine]:
    return admin.members_of(frame.call, admin.restored(frame.services, group))


async def _member(frame: Frame, group: str, consumer: str) -> GroupMemberLine:
    for member in _members(frame, await admin.find(frame.call, group)):
        if member.id == consumer:
            return member
    raise Refusal(NOT_FOUND, f"The group {group} has no consumer {consumer}.")


async def _lags(frame: Frame, name: str) -> list[LagData]:
    """The lags of a group, by topic and partition."""
    group = await admin.find(frame.call, name)
    readers = {
        (owned.topic, partition): member
        for member in _members(frame, group)
        for owned in member.assigned
        for partition in owned.partitions
    }
    return [
        _lag(frame, name, topic, partition, (committed.offset, stream.end), readers.get((topic, partition)))
        for topic, partition, committed, stream in admin.committed(frame.call, group)
    ]


def _lag(
    frame: Frame, group: str, topic: str, partition: int, place: tuple[int, int], reader: GroupMemberLine | None
) -> LagData:
    current, end = place
    return LagData(
        "KafkaConsumerLag",
        frame.metadata("consumer-groups", group, "lags", topic, "partitions", partition),
        frame.cluster_id,
        group,
        topic,
        partition,
        reader.id if reader else "",
        reader.instance if reader else None,
        reader.client if reader else "",
        current,
        end,
        max(0, end - current),
    )


def _group(frame: Frame, stored: StoredGroup) -> GroupData:
    found = admin.restored(frame.services, stored)
    path = ("consumer-groups", stored.name)
    state = found.state if found is not None else admin.EMPTY
    return GroupData(
        "KafkaConsumerGroup",
        frame.metadata(*path),
        frame.cluster_id,
        stored.name,
        found is None,
        _assignor(found),
        _NEXT_WORD.sub("_", state).upper(),
        (found.kind if found is not None else ClassicGroup.kind).upper(),
        False,
        _coordinator(frame, stored.name),
        frame.related(*path, "consumers"),
        frame.related(*path, "lag-summary"),
    )


def _assignor(group: Group | None) -> str:
    if isinstance(group, ClassicGroup):
        return group.protocol or ""
    return group.assignor if isinstance(group, ConsumerGroup) and not group.is_empty else ""


def _coordinator(frame: Frame, group: str) -> Related | None:
    claim = admin.replica_of(frame.services).state.groups.claims.get(shard_of(group))
    process = frame.services.state.processes.get(claim.holder) if claim is not None else None
    return frame.related("brokers", process.node) if process is not None else None


def _consumer(frame: Frame, group: str, member: GroupMemberLine) -> ConsumerData:
    path = ("consumer-groups", group, "consumers", member.id)
    return ConsumerData(
        "KafkaConsumer",
        frame.metadata(*path),
        frame.cluster_id,
        group,
        member.id,
        member.instance,
        member.client,
        frame.related(*path, "assignments"),
    )


def _assignment(frame: Frame, group: str, consumer: str, topic: str, partition: int) -> AssignmentData:
    place = (topic, "partitions", partition)
    return AssignmentData(
        "KafkaConsumerAssignment",
        frame.metadata("consumer-groups", group, "consumers", consumer, "assignments", *place),
        frame.cluster_id,
        group,
        consumer,
        topic,
        partition,
        frame.related("topics", *place),
        frame.related("consumer-groups", group, "lags", *place),
    )


ROUTES = (
    list_groups,
    get_group,
    list_consumers,
    get_consumer,
    list_assignments,
    get_assignment,
    list_lags,
    get_lag,
    get_lag_summary,
)
