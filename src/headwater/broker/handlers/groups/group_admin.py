"""Administration of groups: DescribeGroups, versions 0 to 6, ListGroups, 0 to 5, DeleteGroups, 0 to 2."""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from headwater.broker.broker import NO_OPERATIONS, Broker
from headwater.broker.handlers.groups.groups import code_of, enter, enter_at_end
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.coordination.classic.group import ClassicGroup
from headwater.coordination.classic.roster import EMPTY, STABLE
from headwater.coordination.common import GroupError
from headwater.errors import HeadwaterError
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.streams.stored.groups import StoredGroup

DEAD = "Dead"


@api(15, 0, 6, RequestKind.LOOKUP)
async def describe_groups(broker: Broker, request: Request) -> Values:
    """Groups of the classic protocol with their members."""
    names = broker.turns.work().over(dict.fromkeys(request.body.groups))
    return {"groups": [await _describe(broker, request, name) async for name in names]}


async def _classic(broker: Broker, request: Request, name: str) -> ClassicGroup | None:
    """A group of the classic protocol; None for a group that has only offsets."""
    await enter_at_end(broker, request, Operation.DESCRIBE, name, nameless=True)
    held, stored = broker.coordinator.find(name), broker.coordinator.stored(name)
    if held is None and stored is None:
        raise GroupError("group_id_not_found", f"Group {name} not found.")
    if held is None:
        return None
    group = held.of_kind(ClassicGroup)
    if group is None:
        raise GroupError("group_id_not_found", f"Group {name} is not a classic group.")
    return group


async def _describe(broker: Broker, request: Request, name: str) -> Values:
    operations = NO_OPERATIONS
    if request.version >= 3 and request.body.include_authorized_operations:
        operations = broker.operations(request, AclResource.GROUP, name)
    facts = {"group_id": name, "authorized_operations": operations}
    try:
        group = await _classic(broker, request, name)
    except (GroupError, HeadwaterError) as error:
        code = code_of(error)
        if code is ErrorCode.group_id_not_found and request.version < 6:
            code = ErrorCode.none  # older clients expect a dead group
        state = DEAD if isinstance(error, GroupError) and error.code == "group_id_not_found" else ""
        return {**facts, "error_code": code, "error_message": str(error), "group_state": state, "members": []}
    if group is None:
        return {**facts, "error_code": ErrorCode.none, "group_state": EMPTY, "members": []}
    stable = group.state == STABLE
    return {
        **facts,
        "error_code": ErrorCode.none,
        "group_state": group.state,
        "protocol_type": group.protocol_type or "",
        "protocol_data": group.protocol or "" if stable else "",
        "members": [
            {
                "member_id": member.id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.subscription(group.protocol) if stable else b"",
                "member_assignment": member.assignment,
            }
            for member in group.members.values()
        ],
    }


@api(16, 0, 5, RequestKind.LOOKUP)
async def list_groups(broker: Broker, request: Request) -> Values:
    """The groups that this broker coordinates. Clients ask every broker."""
    body = request.body
    states = {state.lower() for state in body.states_filter} if request.version >= 4 else set()
    types = {kind.lower() for kind in body.types_filter} if request.version >= 5 else set()
    try:
        broker.check_contact()
        known = {group.name: group for group in await broker.coordinator.listed()}
        shown: Iterable[str] = known
        if not broker.may(request, Operation.DESCRIBE, AclResource.CLUSTER):
            shown = broker.visible(request, Operation.DESCRIBE, AclResource.GROUP, known)
        groups = [_listed(broker, known[name]) async for name in broker.turns.work().over(shown)]
    except (GroupError, HeadwaterError) as error:
        return {"error_code": code_of(error), "groups": []}
    chosen = [
        group
        for group in groups
        if (not states or group["group_state"].lower() in states) and (not types or group["group_type"] in types)
    ]
    return {"error_code": ErrorCode.none, "groups": chosen}


def _listed(broker: Broker, stored: StoredGroup) -> Values:
    held = broker.coordinator.find(stored.name)
    if held is None:
        return {"group_id": stored.name, "protocol_type": "", "group_state": EMPTY, "group_type": ClassicGroup.kind}
    return {
        "group_id": stored.name,
        "protocol_type": held.group.protocol_type or "",
        "group_state": held.group.state,
        "group_type": held.group.kind,
    }


@api(42, 0, 2)
async def delete_groups(broker: Broker, request: Request) -> Values:
    """Delete groups without members, each on its own."""
    results = []
    async for name in broker.turns.work().over(dict.fromkeys(request.body.groups_names)):
        try:
            await enter(broker, request, Operation.DELETE, name, nameless=True)
            held = broker.coordinator.find(name)
            if held is None and broker.coordinator.stored(name) is None:
                await broker.coordinator.replica.barrier()
                raise GroupError("group_id_not_found")
            if held is not None:
                held.check_delete()
            await broker.coordinator.delete(name)
            code = ErrorCode.none
        except (GroupError, HeadwaterError) as error:
            code = code_of(error)
        results.append({"group_id": name, "error_code": code})
    return {"results": results}
