"""Groups for a caller of the HTTP API: what their coordinators stored, lag, and offsets of groups without members.

A gateway coordinates no group. It shows groups as they are in the ledger, and commits offsets only for groups without
members; `apply` decides whether a group has any.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from headwater.coordination.classic.group import ClassicGroup
from headwater.coordination.classic.members import CONSUMER_PROTOCOL, ClassicMember, partitions_of
from headwater.coordination.consumer.group import ConsumerGroup
from headwater.coordination.consumer.members import ConsumerMember
from headwater.coordination.group import Group, GroupContext
from headwater.coordination.kinds import kind_of
from headwater.errors import BadInput
from headwater.gateway.admin.changing import took
from headwater.gateway.services import Call, Services, missing
from headwater.log.damage import way_on
from headwater.replica.replica import Replica
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.resources import ConfigResource
from headwater.state.commands.groups import CommitAlone, DropAlone
from headwater.state.streams.domain import I64_MAX
from headwater.state.streams.offsets import Offset
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.groups import Committed, StoredGroup
from headwater.state.streams.stream import Stream

MAX_OFFSETS = 5_000
"""Offsets of one request."""
MAX_METADATA = 256 << 10
"""Characters of the metadata of one request."""
NO_EPOCH = -1
EMPTY = "Empty"


class Owned(msgspec.Struct, frozen=True):
    """Partitions of a topic that a member reads."""

    topic: str
    """The name of the topic."""
    partitions: list[int]
    """The numbers of the partitions."""


class GroupMemberLine(msgspec.Struct, frozen=True):
    """A member of a group."""

    id: str
    """The id of the member."""
    instance: str | None
    """The fixed name of a static member."""
    client: str
    """The name that the client gave itself."""
    host: str
    """The address of the client."""
    assigned: list[Owned]
    """The partitions that the member reads, of topics that the caller may describe."""


class Place(msgspec.Struct, frozen=True):
    """An offset of a partition."""

    topic: Topic
    partition: int
    offset: int
    metadata: str = ""


def replica_of(own: Services) -> Replica[StreamsState]:
    """The replica of the domain that holds groups."""
    return own.domains[min(own.domains)]


async def listed(call: Call) -> list[StoredGroup]:
    """The groups that the caller may describe."""
    replica = replica_of(call.services)
    await call.services.catch_up(replica.domain)
    every = call.may(Operation.DESCRIBE, AclResource.CLUSTER)
    return [g for g in replica.state.groups if every or call.may(Operation.DESCRIBE, AclResource.GROUP, g.name)]


async def find(call: Call, name: str) -> StoredGroup:
    """A group that the caller may describe."""
    call.check(Operation.DESCRIBE, AclResource.GROUP, name)
    replica = replica_of(call.services)
    await call.services.catch_up(replica.domain)
    group = replica.state.groups.get(name)
    if group is None:
        raise missing("group", name)
    return group


def restored(own: Services, stored: StoredGroup) -> Group | None:
    """A group with its members, as its coordinator stored it last; None for a group that has only offsets."""
    if not stored.head:
        return None
    configs = own.state.resources
    context = GroupContext(
        own.settings.groups, lambda: own.chance.uuid().hex, lambda name: configs.of(ConfigResource.GROUP, name)
    )
    kind = kind_of(stored.kind)
    return kind.restore(stored.name, context, stored.head, stored.members, 0)


def members_of(call: Call, group: Group | None) -> list[GroupMemberLine]:
    """The members of a group, by id."""
    lines: list[GroupMemberLine] = []
    if isinstance(group, ClassicGroup):
        reads = group.protocol_type == CONSUMER_PROTOCOL
        lines = [_classic(call, member, reads) for member in group.members.values()]
    elif isinstance(group, ConsumerGroup):
        lines = [_consumer(call, member) for member in group.members.values()]
    return sorted(lines, key=lambda line: line.id)


def _classic(call: Call, member: ClassicMember, reads: bool) -> GroupMemberLine:
    found = partitions_of(member.assignment) if reads else None
    assigned = _owned(call, (found or {}).items())
    return GroupMemberLine(member.id, member.instance_id, member.client_id, member.client_host.lstrip("/"), assigned)


def _consumer(call: Call, member: ConsumerMember) -> GroupMemberLine:
    topics = call.services.state.topics
    named = [(topics[topic].name, partitions) for topic, partitions in member.held.items() if topic in topics]
    host = member.client_host.lstrip("/")
    return GroupMemberLine(member.member_id, member.instance_id, member.client_id, host, _owned(call, named))


def _owned(call: Call, found: Iterable[tuple[str, Iterable[int]]]) -> list[Owned]:
    shown = [(name, parts) for name, parts in found if call.may(Operation.DESCRIBE, AclResource.TOPIC, name)]
    return [Owned(name, sorted(partitions)) for name, partitions in sorted(shown)]


def committed(call: Call, group: StoredGroup) -> list[tuple[str, int, Committed, Stream]]:
    """The committed offsets of topics that exist and that the caller may describe, by topic and partition."""
    own = call.services
    streams = replica_of(own).state.streams
    found = []
    for topic_id, offsets in group.offsets.items():
        topic = own.state.topics.get(topic_id)
        if topic is None or topic.deleting or not call.may(Operation.DESCRIBE, AclResource.TOPIC, topic.name):
            continue
        for partition, offset in offsets.items():
            stream = streams.get(topic.streams[partition]) if partition < topic.ready else None
            if stream is not None:
                found.append((topic.name, partition, offset, stream))
    return sorted(found, key=lambda line: line[:2])


def waits_at(call: Call, group: str, stream: Stream, offset: int) -> str:
    """Why a group gets no records at its offset, and what to do; empty if this gateway knows of no damage there."""
    own = call.services
    line = own.reader.damage.at(replica_of(own).domain, stream.id, offset)
    if line is None:
        return ""
    to_do = way_on(line.topic, line.partition, line.last_offset, group)
    return f"the records up to {line.last_offset} cannot be read ({line.object}: {line.reason}); {to_do}"


async def check_commit(call: Call, group: str, names: Iterable[str]) -> Mapping[str, Topic]:
    """The topics of a commit, if the caller may commit offsets of them for a group."""
    own = call.services
    call.check(Operation.READ, AclResource.GROUP, group)
    for name in dict.fromkeys(names):
        call.check(Operation.READ, AclResource.TOPIC, name)
    own.check_contact()
    await own.catch_up(replica_of(own).domain)
    found = {}
    for name in dict.fromkeys(names):
        topic = await own.find_topic(name)
        if topic is None:
            raise missing("topic", name)
        found[name] = topic
    return found


async def commit(call: Call, group: str, places: Sequence[Place]) -> None:
    """Commit offsets of a group without members, all or none."""
    own = call.services
    replica = replica_of(own)
    _check(own, places)
    offsets: list[Offset] = [(p.topic.id.bytes, p.partition, p.offset, NO_EPOCH, p.metadata) for p in places]
    [result] = await replica.submit([CommitAlone(group, offsets)])
    took(result, leased="stop its members first")


def _check(own: Services, places: Sequence[Place]) -> None:
    if len(places) > MAX_OFFSETS:
        raise BadInput(f"a request has at most {MAX_OFFSETS} offsets")
    if sum(len(place.metadata) for place in places) > MAX_METADATA:
        raise BadInput(f"a request has at most {MAX_METADATA} characters of metadata")
    most, seen = own.settings.groups.offset_metadata_bytes, set[tuple[uuid.UUID, int]]()
    for place in places:
        what = f"partition {place.partition} of topic {place.topic.name!r}"
        if not 0 <= place.partition < place.topic.ready:
            raise BadInput(f"there is no {what}")
        if not 0 <= place.offset <= I64_MAX:
            raise BadInput(f"the offset of {what} is not valid")
        if len(place.metadata) > most:
            raise BadInput(f"the metadata of {what} has more than {most} characters (groups.offset_metadata_bytes)")
        if (place.topic.id, place.partition) in seen:
            raise BadInput(f"the request names {what} more than once")
        seen.add((place.topic.id, place.partition))


async def place_at(call: Call, topic: Topic, partition: int, to: str, offset: int | None, time_ms: int | None) -> Place:
    """Where a partition is read from after a reset. The offset is inside the log."""
    replica = replica_of(call.services)
    if not 0 <= partition < topic.ready:
        raise BadInput(f"there is no partition {partition} of topic {topic.name!r}")
    stream = replica.state.streams[topic.streams[partition]]
    at = stream.end
    if to == "earliest":
        at = stream.log_start
    elif to == "offset":
        at = min(max(offset or 0, stream.log_start), stream.end)
    elif to == "time" and len(stream.index):
        timed = await call.services.reader.find_time(replica, stream.id, time_ms or 0)
        at = stream.end if timed is None else timed.offset
    return Place(topic, partition, at)


async def delete(call: Call, name: str) -> None:
    """Delete a group that has nothing but offsets."""
    own = call.services
    replica = replica_of(own)
    call.check(Operation.DELETE, AclResource.GROUP, name)
    own.check_contact()
    await own.catch_up(replica.domain)
    if replica.state.groups.get(name) is None:
        raise missing("group", name)
    [result] = await replica.submit([DropAlone(name)])
    took(result, leased=f"stop its members and run `headwater group delete {name}`")
