"""Readers with a group: reading on from committed offsets, and committing where an answer ended."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from litestar import get, put
from litestar.di import NamedDependency, Provide
from litestar.params import JSONBody, PathParameter
from litestar.types import ASGIApp

from headwater.gateway.admin import groups
from headwater.gateway.parameters import TopicName
from headwater.gateway.records.answers import answer
from headwater.gateway.records.asking import Asked, asked, scan_of
from headwater.gateway.records.positions import MAX_CURSOR, decoded
from headwater.gateway.services import Call, TheCall
from headwater.state.cluster.access import AclResource, Operation

TheAsked = NamedDependency[Asked]
GroupName = Annotated[str, PathParameter(description="The name of the group.")]


class Reached(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a group has read to."""

    next: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CURSOR)]
    """The `next` of an answer of all partitions of the topic, or the id of an event."""


class CommittedLine(msgspec.Struct, frozen=True):
    """The committed offset of a partition."""

    partition: int
    """The number of the partition."""
    offset: int
    """The next offset that the group reads."""


class CommittedPosition(msgspec.Struct, frozen=True):
    """The committed offsets of a topic."""

    partitions: list[CommittedLine]
    """By number."""


@get(
    "/v1/groups/{group:str}/topics/{name:str}/records",
    operation_id="readAsGroup",
    tags=["records"],
    dependencies={"asked": Provide(asked, sync_to_thread=False)},
)
async def read_as_group(call: TheCall, group: GroupName, name: TopicName, asked: TheAsked) -> ASGIApp:
    """Records of a topic from the committed offsets of a group on; from the beginning where it has none.

    The caller needs the right to READ the group and the topic. Reading commits nothing. `offset`, `from` and `next`
    come before what is committed.
    """
    call.check(Operation.READ, AclResource.GROUP, group)
    topic = await call.topic(name, Operation.READ)
    replica = groups.replica_of(call.services)
    await call.services.catch_up(replica.domain)
    stored = replica.state.groups.get(group)
    found = stored.offsets.get(topic.id, {}) if stored is not None else {}
    starts = {partition: committed.offset for partition, committed in found.items()}
    scan = await scan_of(call.services, topic, None, asked.range, starts)
    reading = asked.reading(scan, call.services.own.records)
    return cast(ASGIApp, await answer(call, reading, lambda: _check(call, group, name)))


@put("/v1/groups/{group:str}/topics/{name:str}/position", operation_id="commitPosition", tags=["records"])
async def commit_position(
    call: TheCall, group: GroupName, name: TopicName, data: JSONBody[Reached]
) -> CommittedPosition:
    """Commit where an answer ended, for all partitions of a topic.

    The caller needs the right to READ the group and the topic. A group with members is refused with 409: its members
    commit through their coordinator.
    """
    topics = await groups.check_commit(call, group, [name])
    positions = decoded(topics[name], data.next, None)
    await groups.commit(call, group, [groups.Place(topics[name], p, offset) for p, offset in positions.items()])
    return CommittedPosition([CommittedLine(p, offset) for p, offset in sorted(positions.items())])


def _check(call: Call, group: str, name: str) -> None:
    call.check(Operation.READ, AclResource.GROUP, group)
    call.check(Operation.READ, AclResource.TOPIC, name)


ROUTES = (read_as_group, commit_position)
