"""Groups: which there are, their members, committed offsets and lag; setting and resetting offsets; deleting groups."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from litestar import delete, get, post, put
from litestar.params import JSONBody, PathParameter

from headwater.errors import BadInput
from headwater.gateway.admin import groups as admin
from headwater.gateway.admin.groups import GroupMemberLine, Place
from headwater.gateway.paging import DEFAULT_ITEMS, Limit, Listing, Next, bounded, paged
from headwater.gateway.parameters import ValidateOnly
from headwater.gateway.services import TheCall
from headwater.state.streams.stored.groups import StoredGroup

GroupName = Annotated[str, PathParameter(description="The name of the group.")]
Int64 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
ONLY_OFFSETS = "none"


class GroupLine(msgspec.Struct, frozen=True):
    """A group in a listing."""

    name: str
    """The name of the group."""
    kind: str
    """`classic` or `consumer` (KIP-848); `none` for a group that has offsets and never had members."""
    members: int
    """The number of members."""


class GroupDetails(msgspec.Struct, frozen=True):
    """A group, as its coordinator stored it last."""

    name: str
    """The name of the group."""
    kind: str
    """`classic` or `consumer` (KIP-848); `none` for a group that has offsets and never had members."""
    state: str
    """The state by Kafka's name. A rebalance of a classic group is known to its coordinator only."""
    protocol_type: str
    """The kind of clients of the members, such as `consumer`. Empty if there are none."""
    offsets: int
    """The number of committed offsets that the caller may see."""
    lag: int
    """The records behind these offsets, in all."""
    members: list[GroupMemberLine]
    """The members, by id."""


class OffsetLine(msgspec.Struct, frozen=True):
    """A committed offset."""

    topic: str
    """The name of the topic."""
    partition: int
    """The number of the partition."""
    offset: int
    """The offset at which the group continues."""
    metadata: str
    """What the group kept with the offset."""
    committed_ms: int
    """When the offset was committed, in milliseconds since 1970."""
    start: int
    """The first offset of the partition that can be read."""
    end: int
    """The offset after the last record that can be read."""
    lag: int
    """The offsets from the committed one to the end."""
    damage: str
    """Why the group gets no records at this offset, and what to do. Empty if this gateway found no damage there."""


class NewOffset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An offset to commit."""

    topic: str
    """The name of the topic."""
    partition: int
    """The number of the partition."""
    offset: Int64
    """The offset at which the group continues. It may be outside the log."""
    metadata: str = ""
    """Kept with the offset."""


class NewOffsets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Offsets to commit, all or none."""

    offsets: list[NewOffset]
    """Each partition at most once."""


class Reset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a group should continue."""

    topic: str
    """The name of the topic."""
    to: Literal["earliest", "latest", "offset", "time"]
    """The place: the start or the end of the log, an offset, or the first record that is not older than a time."""
    partitions: list[int] | None = None
    """The partitions; all of the topic if this is missing."""
    offset: Int64 | None = None
    """With `offset`: the offset. It is moved into the log if it is outside."""
    time_ms: Int64 | None = None
    """With `time`: the time, in milliseconds since 1970. Without a record at or after it: the end."""


class PlaceLine(msgspec.Struct, frozen=True):
    """An offset that was committed, or would be."""

    topic: str
    """The name of the topic."""
    partition: int
    """The number of the partition."""
    offset: int
    """The offset at which the group continues."""


class Places(msgspec.Struct, frozen=True):
    """Offsets that were committed, or would be."""

    offsets: list[PlaceLine]
    """In the order of the request."""


@get("/v1/groups", operation_id="listGroups", tags=["groups"])
async def list_groups(call: TheCall, limit: Limit = DEFAULT_ITEMS, cursor: Next = "") -> Listing[GroupLine]:
    """The groups that the caller may describe, by name."""
    found = sorted(await admin.listed(call), key=_name)
    page, then = paged("groups", found, _name, limit=limit, cursor=cursor, most=call.services.own.page_items)
    return Listing([GroupLine(group.name, _kind(group), len(group.members)) for group in page], then)


@get("/v1/groups/{group:str}", operation_id="describeGroup", tags=["groups"])
async def describe_group(call: TheCall, group: GroupName) -> GroupDetails:
    """A group with its members and their partitions. The caller needs the right to DESCRIBE it."""
    stored = await admin.find(call, group)
    found = admin.restored(call.services, stored)
    offsets = admin.committed(call, stored)
    return GroupDetails(
        name=stored.name,
        kind=_kind(stored),
        state=found.state if found is not None else admin.EMPTY,
        protocol_type=(found.protocol_type or "") if found is not None else "",
        offsets=len(offsets),
        lag=sum(max(0, stream.end - offset.offset) for _, _, offset, stream in offsets),
        members=admin.members_of(call, found),
    )


@get("/v1/groups/{group:str}/offsets", operation_id="listGroupOffsets", tags=["groups"])
async def list_group_offsets(
    call: TheCall, group: GroupName, limit: Limit = DEFAULT_ITEMS, cursor: Next = ""
) -> Listing[OffsetLine]:
    """The committed offsets of a group with the lag of each partition, by topic and partition.

    The caller needs the right to DESCRIBE the group. Offsets of topics that the caller may not DESCRIBE are left out.
    """
    stored = await admin.find(call, group)
    lines = [
        OffsetLine(
            topic=topic,
            partition=partition,
            offset=offset.offset,
            metadata=offset.metadata,
            committed_ms=offset.committed_ms,
            start=stream.log_start,
            end=stream.end,
            lag=max(0, stream.end - offset.offset),
            damage=admin.waits_at(call, group, stream, offset.offset),
        )
        for topic, partition, offset, stream in admin.committed(call, stored)
    ]
    page, then = paged("offsets", lines, _place, limit=limit, cursor=cursor, most=call.services.own.page_items)
    return Listing(page, then)


@put("/v1/groups/{group:str}/offsets", operation_id="commitGroupOffsets", tags=["groups"])
async def commit_group_offsets(call: TheCall, group: GroupName, data: JSONBody[NewOffsets]) -> Places:
    """Set committed offsets of a group without members, all or none. A group that does not exist is created.

    The caller needs the right to READ the group and the topics. A group with members is refused with 409.
    """
    topics = await admin.check_commit(call, group, [line.topic for line in data.offsets])
    places = [Place(topics[line.topic], line.partition, line.offset, line.metadata) for line in data.offsets]
    await admin.commit(call, group, places)
    return _places(places)


@post("/v1/groups/{group:str}/reset", operation_id="resetGroupOffsets", tags=["groups"], status_code=200)
async def reset_group_offsets(
    call: TheCall, group: GroupName, data: JSONBody[Reset], validate_only: ValidateOnly = False
) -> Places:
    """Move a group without members to a place in a topic's log: its start, its end, an offset or a time.

    The caller needs the right to READ the group and the topic. With `validate_only` the answer has the offsets that
    would be committed.
    """
    topic = (await admin.check_commit(call, group, [data.topic]))[data.topic]
    _check(data)
    wanted = range(topic.ready) if data.partitions is None else data.partitions
    if len(wanted) > admin.MAX_OFFSETS:
        raise BadInput(f"a request has at most {admin.MAX_OFFSETS} offsets: name the partitions")
    places = [await admin.place_at(call, topic, p, data.to, data.offset, data.time_ms) for p in wanted]
    if not validate_only:
        await admin.commit(call, group, places)
    return _places(places)


@delete("/v1/groups/{group:str}", operation_id="deleteGroup", tags=["groups"])
async def delete_group(call: TheCall, group: GroupName) -> None:
    """Delete a group that has offsets and never had members. The caller needs the right to DELETE it.

    Other groups have a coordinator, which alone may delete them: the answer is 409, and says what to do.
    """
    await admin.delete(call, group)


def _check(wanted: Reset) -> None:
    if (wanted.to == "offset") != (wanted.offset is not None):
        raise BadInput("`offset` belongs to a reset with `to` of `offset`")
    if (wanted.to == "time") != (wanted.time_ms is not None):
        raise BadInput("`time_ms` belongs to a reset with `to` of `time`")


def _places(places: list[Place]) -> Places:
    return Places([PlaceLine(place.topic.name, place.partition, place.offset) for place in places])


def _name(group: StoredGroup) -> str:
    return bounded(group.name)


def _kind(group: StoredGroup) -> str:
    return group.kind or ONLY_OFFSETS


def _place(line: OffsetLine) -> str:
    return f"{line.topic}\0{line.partition:010}"


ROUTES = (
    list_groups,
    describe_group,
    list_group_offsets,
    commit_group_offsets,
    reset_group_offsets,
    delete_group,
)
