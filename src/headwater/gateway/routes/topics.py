"""Topics: which there are, what each looks like; creating, growing and deleting them; deleting records."""

from __future__ import annotations

import msgspec
from litestar import Response, delete, get, post
from litestar.params import JSONBody

from headwater.errors import BadInput
from headwater.gateway.admin import topics as admin
from headwater.gateway.paging import DEFAULT_ITEMS, Limit, Listing, Next, paged
from headwater.gateway.parameters import TopicName, ValidateOnly
from headwater.gateway.services import Call, Services, TheCall
from headwater.log.retention import spared_words
from headwater.replica.topic_rights import shown
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
    bytes: int
    """The stored bytes of the records that can be read."""


class TopicLink(msgspec.Struct, frozen=True):
    """The link that copies a topic from another Kafka."""

    link: str
    """The name of the link."""
    source: str
    """The name of the topic there."""
    phase: str
    """`copying`, `paused`, `stopped` or `promoted`. Only a promoted topic takes records of others."""
    reason: str
    """Why the link stopped or paused the topic. Empty if nobody said why."""


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
    configs: dict[str, str] | None
    """The configs that are set for this topic. All others have their defaults. Null if the caller may not
    DESCRIBE_CONFIGS."""
    link: TopicLink | None = None
    """The link that copies the topic, or has copied it. Null if there is none."""
    retention_notice: str = ""
    """What retention does with records that were older than `retention.ms` when they arrived; empty if there are
    none."""


class NewTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic to create."""

    name: str
    """The name of the topic: letters, digits, `.`, `_` and `-`."""
    partitions: int | None = None
    """The number of partitions; `default_partitions` of the settings if it is missing."""
    configs: dict[str, str] = {}
    """The configs of the topic."""


class CreatedTopic(msgspec.Struct, frozen=True, omit_defaults=True):
    """A topic that was created, or that could be created."""

    name: str
    """The name of the topic."""
    partitions: int
    """The number of partitions."""
    id: str | None = None
    """The id of the topic. Missing with `validate_only`."""


class Growth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A larger number of partitions."""

    partitions: int
    """The number of partitions that the topic should have in all."""


class Trim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records of a partition to delete."""

    partition: int
    """The number of the partition."""
    before: int | None = None
    """Records before this offset are deleted. Missing: all records."""


class Trims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records to delete. The request is carried out as a whole or not at all."""

    partitions: list[Trim]
    """Each partition at most once."""


class TrimmedLine(msgspec.Struct, frozen=True):
    """A partition after records were deleted."""

    partition: int
    """The number of the partition."""
    start: int
    """The first offset that can be read."""


class Trimmed(msgspec.Struct, frozen=True):
    """Partitions after records were deleted."""

    partitions: list[TrimmedLine]
    """The partitions of the request, in its order."""


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
    await call.services.catch_up(Domain(topic.domain))
    lines = [_partition(call.services, topic, partition) for partition in range(topic.ready)]
    configs, link = _configs(call, topic), _link(call, topic)
    notice = _retention_notice(call.services, topic)
    return TopicDetails(topic.name, str(topic.id), topic.created_ms, lines, configs, link, notice)


@post("/v1/topics", operation_id="createTopic", tags=["topics"], status_code=201)
async def create_topic(
    call: TheCall, data: JSONBody[NewTopic], validate_only: ValidateOnly = False
) -> Response[CreatedTopic]:
    """Create a topic. The caller needs the right to CREATE it, or to CREATE on the cluster.

    With `validate_only` the answer is 200, and has the number of partitions that the topic would have.
    """
    count = await admin.create(call, data.name, data.partitions, data.configs, dry=validate_only)
    if validate_only:
        return Response(CreatedTopic(data.name, count), status_code=200)
    topic = call.services.state.names.get(data.name)
    made = CreatedTopic(data.name, count, str(topic.id) if topic is not None else None)
    return Response(made, status_code=201, headers={"Location": f"/v1/topics/{data.name}"})


@delete("/v1/topics/{name:str}", operation_id="deleteTopic", tags=["topics"])
async def delete_topic(call: TheCall, name: TopicName) -> None:
    """Delete a topic with its records. The caller needs the right to DELETE it, or to DELETE on the cluster."""
    await admin.delete(call, name)


@post("/v1/topics/{name:str}/partitions", operation_id="addPartitions", tags=["topics"], status_code=200)
async def add_partitions(
    call: TheCall, name: TopicName, data: JSONBody[Growth], validate_only: ValidateOnly = False
) -> CreatedTopic:
    """Add partitions to a topic. Their number never falls. The caller needs the right to ALTER the topic."""
    topic = await admin.grow(call, name, data.partitions, dry=validate_only)
    return CreatedTopic(name, data.partitions, str(topic.id))


@post("/v1/topics/{name:str}/trim", operation_id="deleteRecords", tags=["topics"], status_code=200)
async def delete_records(call: TheCall, name: TopicName, data: JSONBody[Trims]) -> Trimmed:
    """Delete the records of partitions before an offset. The caller needs the right to DELETE the topic.

    Rows of the table stay: `headwater.table.retention.ms` says how long.
    """
    wanted = {trim.partition: trim.before for trim in data.partitions}
    if len(wanted) < len(data.partitions):
        raise BadInput("the request names a partition more than once")
    streams = await admin.trim(call, name, wanted)
    return Trimmed([TrimmedLine(stream.partition, stream.log_start) for stream in streams])


def _configs(call: Call, topic: Topic) -> dict[str, str] | None:
    """The configs of a topic, as far as the caller may know them."""
    if not call.may(Operation.DESCRIBE_CONFIGS, AclResource.TOPIC, topic.name):
        return None
    return shown(topic.configs)


def _link(call: Call, topic: Topic) -> TopicLink | None:
    linked = call.services.state.links.topics.get(topic.id)
    if linked is None:
        return None
    return TopicLink(linked.link, linked.source, linked.phase.name.lower(), linked.reason)


def _retention_notice(own: Services, topic: Topic) -> str:
    state = own.domains[Domain(topic.domain)].state
    return spared_words(state, topic, own.state.resources.common, own.clock.wall_ms(), own.settings.housekeeping)


def _line(topic: Topic) -> TopicLine:
    return TopicLine(topic.name, str(topic.id), topic.ready)


def _partition(own: Services, topic: Topic, partition: int) -> PartitionLine:
    stream = own.domains[Domain(topic.domain)].state.streams[topic.streams[partition]]
    stored = stream.bytes_from(stream.log_start)
    return PartitionLine(partition, stream.log_start, stream.end, stream.stable, stream.settled, stored)


ROUTES = (list_topics, describe_topic, create_topic, delete_topic, add_partitions, delete_records)
