"""The classic group protocol: JoinGroup, versions 0 to 9, SyncGroup, 0 to 5, Heartbeat, 0 to 4, LeaveGroup, 0 to 5."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.errors import coordinator_code_of
from headwater.broker.groups.held import Held
from headwater.broker.groups.shares import caller_of
from headwater.broker.registry import api
from headwater.broker.request import Request, Values
from headwater.coordination.classic.group import ClassicGroup
from headwater.coordination.classic.members import ClassicMember, Join, JoinAnswer, Sync, SyncAnswer, weight_of
from headwater.coordination.common import GroupError, Reply
from headwater.coordination.consumer.group import ConsumerGroup
from headwater.errors import HeadwaterError
from headwater.state.cluster.access import AclResource, Operation

_T = TypeVar("_T")
MILLISECOND = datetime.timedelta(milliseconds=1)


def code_of(error: GroupError | HeadwaterError) -> ErrorCode:
    """The error code of a refusal."""
    return ErrorCode[error.code] if isinstance(error, GroupError) else coordinator_code_of(error)


async def enter(broker: Broker, request: Request, operation: Operation, name: str, *, nameless: bool = False) -> None:
    """Check that the caller is allowed this operation, and make this broker the coordinator of the group."""
    if not broker.may(request, operation, AclResource.GROUP, name):
        raise GroupError("group_authorization_failed")
    await broker.coordinator.enter(name, nameless=nameless)


async def enter_at_end(
    broker: Broker, request: Request, operation: Operation, name: str, *, nameless: bool = False
) -> None:
    """The same, for an answer from the state at the ledger's end. The claim may be lost while the ledger is read."""
    await enter(broker, request, operation, name, nameless=nameless)
    await broker.coordinator.replica.barrier()
    await broker.coordinator.enter(name, nameless=nameless)


@api(11, 0, 9)
async def join_group(broker: Broker, request: Request) -> Values:
    """Answered when all members have joined."""
    body = request.body
    try:
        answer = await _join(broker, request)
    except (GroupError, HeadwaterError) as error:
        answer = JoinAnswer(code=code_of(error).name, member_id=body.member_id)
    return {
        "error_code": ErrorCode[answer.code],
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol if request.version >= 7 else answer.protocol or "",
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance, "metadata": metadata}
            for member_id, instance, metadata in answer.members
        ],
    }


async def _join(broker: Broker, request: Request) -> JoinAnswer:
    body, coordinator = request.body, broker.coordinator
    session = body.session_timeout // MILLISECOND
    await enter(broker, request, Operation.READ, body.group_id)
    settings = coordinator.settings
    if not settings.min_session_timeout_ms <= session <= settings.max_session_timeout_ms:
        raise GroupError("invalid_session_timeout")
    join = Join(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=request.client_id,
        client_host=f"/{request.connection.host}",
        session_timeout_ms=session,
        rebalance_timeout_ms=body.rebalance_timeout // MILLISECOND if request.version >= 1 else session,
        protocol_type=body.protocol_type,
        protocols=[(protocol.name, bytes(protocol.metadata)) for protocol in body.protocols],
        needs_id=request.version >= 4,
        may_skip_assignment=request.version >= 9,
    )
    caller = caller_of(request.connection.principal, request.connection.host)
    held = coordinator.find(body.group_id)
    known = held.group.members.get(join.member_id) if held is not None else None
    before = known.weight if isinstance(known, ClassicMember) else 0
    brought = weight_of(join.member_id, join.instance_id, join.client_id, join.protocols)
    coordinator.shares.check(body.group_id, caller, brought, before)
    if held is None or (held.group.is_empty and held.of_kind(ClassicGroup) is None):
        if join.member_id:
            raise GroupError("unknown_member_id")
        held = coordinator.hold(body.group_id, coordinator.new(ClassicGroup, body.group_id))
    group = _classic(held, "inconsistent_group_protocol")
    future: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
    group.join(join, future, coordinator.now_ms(), coordinator.wall_ms())
    coordinator.shares.note(held.name, group.weight, caller)
    coordinator.settle(held)
    return await future


def _classic(held: Held | None, code: str = "unknown_member_id") -> ClassicGroup:
    """The group, if it follows the classic protocol."""
    group = held.of_kind(ClassicGroup) if held is not None else None
    if group is None:
        raise GroupError(code)
    return group


@api(14, 0, 5)
async def sync_group(broker: Broker, request: Request) -> Values:
    """Answered when the leader has sent the assignments and they are stored."""
    body = request.body
    try:
        await enter(broker, request, Operation.READ, body.group_id)
        sync = Sync(
            member_id=body.member_id,
            instance_id=getattr(body, "group_instance_id", None),
            generation=body.generation_id,
            protocol_type=getattr(body, "protocol_type", None),
            protocol=getattr(body, "protocol_name", None),
            assignments={a.member_id: bytes(a.assignment) for a in body.assignments},
        )
        caller = caller_of(request.connection.principal, request.connection.host)
        answer = await _sync(broker, body.group_id, sync, caller, with_protocol=request.version >= 5)
    except (GroupError, HeadwaterError) as error:
        code = code_of(error)
        if code is ErrorCode.coordinator_load_in_progress:
            # As in Kafka: the Java client does not expect that here. With this code it joins again.
            code = ErrorCode.rebalance_in_progress
        answer = SyncAnswer(code=code.name)
    return {
        "error_code": ErrorCode[answer.code],
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }


async def _sync(broker: Broker, name: str, sync: Sync, caller: str, *, with_protocol: bool) -> SyncAnswer:
    if with_protocol and (sync.protocol_type is None or sync.protocol is None):
        raise GroupError("inconsistent_group_protocol")
    held = broker.coordinator.find(name)
    group = _classic(held)
    assert held is not None
    if sync.assignments:
        _check_assignments(broker, held.name, group, sync, caller)
    future: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
    group.sync(sync, future, broker.coordinator.now_ms(), broker.coordinator.wall_ms())
    broker.coordinator.settle(held)
    return await future


def _check_assignments(broker: Broker, name: str, group: ClassicGroup, sync: Sync, caller: str) -> None:
    """Refuse assignments of a leader that are too large: of one member, or of all together."""
    largest = max(map(len, sync.assignments.values()))
    broker.coordinator.shares.check(name, caller, largest, largest)
    before = sum([len(member.assignment) for member in group.members.values()])
    wanted = sum([len(sync.assignments.get(member_id, b"")) for member_id in group.members])
    broker.coordinator.shares.check_group(name, caller, wanted - before)


@api(12, 0, 4)
async def heartbeat(broker: Broker, request: Request) -> Values:
    """Answered from memory. The answer says whether the member continues or has to join again."""
    body, coordinator = request.body, broker.coordinator
    try:
        await enter(broker, request, Operation.READ, body.group_id)
        group = _classic(coordinator.find(body.group_id))
        instance = getattr(body, "group_instance_id", None)
        group.heartbeat(body.member_id, instance, body.generation_id, coordinator.now_ms())
    except GroupError as error:
        # While the coordinator is taking over, the member counts as alive.
        loading = error.code == "coordinator_load_in_progress"
        return {"error_code": ErrorCode.none if loading else code_of(error)}
    except HeadwaterError as error:
        return {"error_code": code_of(error)}
    return {"error_code": ErrorCode.none}


@api(13, 0, 5)
async def leave_group(broker: Broker, request: Request) -> Values:
    """Up to version 2 one member, from then on several, each with its own answer."""
    body = request.body
    if request.version < 3:
        leaving: list[tuple[str, str | None]] = [(body.member_id, None)]
    else:
        leaving = [(member.member_id, member.group_instance_id) for member in body.members]
    try:
        await enter(broker, request, Operation.READ, body.group_id)
        outcome = await _leave(broker, body.group_id, leaving)
    except (GroupError, HeadwaterError) as error:
        return {"error_code": code_of(error), "members": []}
    if request.version < 3:
        return {"error_code": ErrorCode[outcome[0][2]]}
    return {
        "error_code": ErrorCode.none,
        "members": [
            {"member_id": member_id, "group_instance_id": instance, "error_code": ErrorCode[code]}
            for member_id, instance, code in outcome
        ],
    }


async def _leave(broker: Broker, name: str, leaving: list[tuple[str, str | None]]) -> list[tuple[str, str | None, str]]:
    coordinator = broker.coordinator
    held = coordinator.find(name)
    if held is None:
        return [(member_id, instance, "unknown_member_id") for member_id, instance in leaving]
    consumers = held.of_kind(ConsumerGroup)
    if consumers is not None:
        return await stored(broker, held, consumers.leave(leaving))
    outcome: Any = _classic(held).leave(leaving, coordinator.now_ms(), coordinator.wall_ms())
    return await stored(broker, held, outcome)


async def stored(broker: Broker, held: Held, answer: _T) -> _T:
    """Return an answer once everything that it depends on is committed."""
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    broker.coordinator.settle(held, Reply(future, answer))
    return await future
