"""Topics: which there are, and what each looks like."""

from __future__ import annotations

import msgspec
from litestar import get

from headwater.gateway.paging import DEFAULT_ITEMS, Limit, Listing, Next, paged
from headwater.gateway.parameters import TopicName
from headwater.gateway.services import Services, TheCall
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.cluster.domain import Topic
from headwater.types import Domain


class TopicLine(msgspec.Struct, frozen=True):
    """A topic in a listing."""

    name: str
    """The name of the topic."""
    id: str
    """The id of the topic. A topic that is deleted and created again has another one."""
    partitions: int
    """The number of partitions."""


class PartitionLine(msgspec.Struct, frozen=True):
    """A partition of a topic."""

    partition: int
    """The number of the partition, from 0."""
    start: int
    """The first offset that can be read."""
    end: int
    """The offset after the last record that can be read."""
    stable: int
    """The offset up to which all transactions have ended. Readers of committed records get records below it."""
    settled: int
    """The offset up to which records are in the table."""


class TopicDetails(msgspec.Struct, frozen=True):
    """A topic with its partitions and the configs that are set for it."""

    name: str
    """The name of the topic."""
    id: str
    """The id of the topic. A topic that is deleted and created again has another one."""
    created_ms: int
    """When the topic was created, in milliseconds since 1970."""
    partitions: list[PartitionLine]
    """The partitions, by number."""
    configs: dict[str, str]
    """The configs that are set for this topic. All others have their defaults."""


@get("/v1/topics", operation_id="listTopics", tags=["topics"])
async def list_topics(call: TheCall, limit: Limit = DEFAULT_ITEMS, cursor: Next = "") -> Listing[TopicLine]:
    """The topics that the caller may describe, by name."""
    own = call.services
    await own.catch_up()
    names = sorted(
        name
        for name, topic in own.state.names.items()
        if topic.ready and call.may(Operation.DESCRIBE, AclResource.TOPIC, name)
    )
    page, then = paged("topics", names, str, limit=limit, cursor=cursor, most=own.own.page_items)
    return Listing([_line(own.state.names[name]) for name in page], then)


@get("/v1/topics/{name:str}", operation_id="describeTopic", tags=["topics"])
async def describe_topic(call: TheCall, name: TopicName) -> TopicDetails:
    """A topic with the offsets of its partitions. The caller needs the right to DESCRIBE it."""
    topic = await call.topic(name)
    await call.services.domains[Domain(topic.domain)].barrier()
    lines = [_partition(call.services, topic, partition) for partition in range(topic.ready)]
    return TopicDetails(topic.name, str(topic.id), topic.created_ms, lines, dict(topic.configs))


def _line(topic: Topic) -> TopicLine:
    return TopicLine(topic.name, str(topic.id), topic.ready)


def _partition(own: Services, topic: Topic, partition: int) -> PartitionLine:
    stream = own.domains[Domain(topic.domain)].state.streams[topic.streams[partition]]
    return PartitionLine(partition, stream.log_start, stream.end, stream.stable, stream.settled)


ROUTES = (list_topics, describe_topic)
