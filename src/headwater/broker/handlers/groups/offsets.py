"""Offsets of groups: OffsetCommit, versions 2 to 10, TxnOffsetCommit, 0 to 5, OffsetFetch, 1 to 10, OffsetDelete, 0."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.handlers.groups.groups import code_of, enter, enter_at_end
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.broker.transactions import codes as txn_codes
from headwater.broker.turns import Work
from headwater.coordination.common import GroupError
from headwater.coordination.group import Commit
from headwater.errors import HeadwaterError
from headwater.replica.internal_topics import topic_by_id, topic_by_name
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.cluster.domain import Topic
from headwater.state.commands.groups import CommitOffsets, DropOffsets
from headwater.state.commands.transactions import StageOffsets
from headwater.state.streams.offsets import Offset
from headwater.state.streams.stored.groups import Committed, StoredGroup

BY_ID = 10
"""From this version on topics are named by their ids."""

JOINS = 5
"""From this version of TxnOffsetCommit on a group joins the transaction by it."""
KNOWS_ABORTABLE = 4
"""From this version of TxnOffsetCommit on clients know TRANSACTION_ABORTABLE."""
KNOWS_LOADING = 2
"""Clients that send older versions of TxnOffsetCommit fail for good at COORDINATOR_LOAD_IN_PROGRESS."""

_NONE = Committed(-1, -1, "", 0)


def _topic(broker: Broker, topic: Any, version: int) -> Topic | None:
    if version >= BY_ID:
        return topic_by_id(broker.cluster.state, topic.topic_id)
    return topic_by_name(broker.cluster.state, topic.name)


def _may(broker: Broker, request: Request, operation: Operation, topic: Any, found: Topic | None) -> bool:
    """Whether the caller is allowed an operation on a topic. An unknown id is let through; it reveals nothing."""
    name = found.name if found is not None else getattr(topic, "name", None)
    return name is None or broker.may(request, operation, AclResource.TOPIC, name)


def _named(topic: Any, version: int) -> Values:
    return {"topic_id": topic.topic_id} if version >= BY_ID else {"name": topic.name}


# --- commit ------------------------------------------------------------------------------------------


@api(8, 2, 10)
async def offset_commit(broker: Broker, request: Request) -> Values:
    """The group checks the request as a whole, then each partition is checked. One command stores the valid offsets."""
    unknown = ErrorCode.unknown_topic_id if request.version >= BY_ID else ErrorCode.unknown_topic_or_partition
    offsets, codes = await _checked(broker, request, unknown)
    try:
        await _commit(broker, request, offsets)
    except (GroupError, HeadwaterError) as error:
        codes = _refused(codes, code_of(error))
    return _told(request, codes)


@api(28, 0, 5)
async def txn_offset_commit(broker: Broker, request: Request) -> Values:
    """The same in a transaction: the offsets are staged, and committed with it."""
    offsets, codes = await _checked(broker, request, ErrorCode.unknown_topic_or_partition)
    id = request.body.transactional_id
    try:
        if not broker.may(request, Operation.WRITE, AclResource.TRANSACTIONAL_ID, id):
            raise GroupError("transactional_id_authorization_failed")
        refusal = await _stage(broker, request, offsets)
    except (GroupError, HeadwaterError) as error:
        refusal = _code_of_staging(error, request.version)
    return _told(request, codes if refusal is ErrorCode.none else _refused(codes, refusal))


async def _checked(broker: Broker, request: Request, unknown: ErrorCode) -> tuple[list[Offset], list[ErrorCode]]:
    """The offsets that can be committed, and the error code of each partition."""
    body, version = request.body, request.version
    topics = [_topic(broker, topic, version) for topic in body.topics]
    if any(not _has(found, p) for topic, found in zip(body.topics, topics, strict=True) for p in topic.partitions):
        try:
            await broker.cluster.barrier()
        except HeadwaterError:
            pass  # the topics stay unknown here, which is an error that clients retry
        topics = [_topic(broker, topic, version) for topic in body.topics]
    offsets, codes = [], []
    work = broker.turns.work()
    for topic, found in zip(body.topics, topics, strict=True):
        await work.did()
        async for partition in work.over(topic.partitions):
            code = unknown if found is None else _flaw(broker, found, partition)
            if not _may(broker, request, Operation.READ, topic, found):
                code = ErrorCode.topic_authorization_failed
            codes.append(code)
            if found is not None and code is ErrorCode.none:
                offsets.append(_offset(found.id, partition))
    return offsets, codes


def _refused(codes: list[ErrorCode], refusal: ErrorCode) -> list[ErrorCode]:
    """The error codes of partitions after the commit was refused. Who may not commit at all learns nothing else."""
    hidden = refusal in (ErrorCode.group_authorization_failed, ErrorCode.transactional_id_authorization_failed)
    return [refusal if hidden or code is ErrorCode.none else code for code in codes]


def _told(request: Request, codes: list[ErrorCode]) -> Values:
    told = iter(codes)
    return {
        "topics": [
            {
                **_named(topic, request.version),
                "partitions": [
                    {"partition_index": partition.partition_index, "error_code": next(told)}
                    for partition in topic.partitions
                ],
            }
            for topic in request.body.topics
            if topic.partitions
        ]
    }


def _has(topic: Topic | None, partition: Any) -> bool:
    return topic is not None and 0 <= partition.partition_index < topic.ready


def _flaw(broker: Broker, topic: Topic, partition: Any) -> ErrorCode:
    if not _has(topic, partition):
        return ErrorCode.unknown_topic_or_partition
    if len(partition.committed_metadata or "") > broker.coordinator.settings.offset_metadata_bytes:
        return ErrorCode.offset_metadata_too_large
    return ErrorCode.none


def _offset(topic: uuid.UUID, partition: Any) -> Offset:
    leader_epoch = getattr(partition, "committed_leader_epoch", -1)
    metadata = partition.committed_metadata or ""
    return topic.bytes, partition.partition_index, partition.committed_offset, leader_epoch, metadata


async def _commit(broker: Broker, request: Request, offsets: list[Offset]) -> None:
    body, coordinator = request.body, broker.coordinator
    name = body.group_id
    await _enter_to_commit(broker, request, body.generation_id_or_member_epoch)
    if offsets:
        await coordinator.submit(name, lambda claim: CommitOffsets(claim, name, offsets))
        coordinator.commits += len(offsets)


async def _stage(broker: Broker, request: Request, offsets: list[Offset]) -> ErrorCode:
    body, version = request.body, request.version
    name, id, producer, epoch = body.group_id, body.transactional_id, body.producer_id, body.producer_epoch
    generation = getattr(body, "generation_id", -1)
    await _enter_to_commit(broker, request, generation, is_transactional=True)
    # Nothing is awaited from here on: a member that leaves now could stage after the next one has fetched its offsets.
    if not offsets:
        return ErrorCode.none
    joins = version >= JOINS
    result = await broker.coordinator.stage(
        name, lambda claim: StageOffsets(claim, name, id, producer, epoch, joins, offsets)
    )
    return txn_codes.code_of(result.judgement, knows_fenced=False, knows_abortable=version >= KNOWS_ABORTABLE)


def _code_of_staging(error: GroupError | HeadwaterError, version: int) -> ErrorCode:
    """The error code of a refusal, in words that producers know."""
    code = code_of(error)
    if code is ErrorCode.stale_member_epoch:
        return ErrorCode.illegal_generation
    if code is ErrorCode.coordinator_load_in_progress and version < KNOWS_LOADING:
        return ErrorCode.coordinator_not_available
    return code


async def _enter_to_commit(
    broker: Broker, request: Request, generation: int, *, is_transactional: bool = False
) -> None:
    """Become the group's coordinator, and let the group check who commits."""
    body, coordinator = request.body, broker.coordinator
    name = body.group_id
    await enter(broker, request, Operation.READ, name, nameless=True)
    held = coordinator.find(name)
    if held is not None:
        commit = Commit(
            member_id=getattr(body, "member_id", ""),
            instance_id=getattr(body, "group_instance_id", None),
            epoch=generation,
            version=request.version,
            is_transactional=is_transactional,
        )
        held.group.check_commit(commit, coordinator.now_ms())
    elif generation >= 0:
        if coordinator.stored(name) is not None:  # the group has offsets, but never had members
            raise GroupError("unknown_member_id")
        newer = request.version >= 9 and not is_transactional
        raise GroupError("group_id_not_found" if newer else "illegal_generation")


# --- fetch -------------------------------------------------------------------------------------------


@api(9, 1, 10, RequestKind.LOOKUP)
async def offset_fetch(broker: Broker, request: Request) -> Values:
    """Up to version 7 one group, from then on several. No topics means all of the group's. Any broker answers."""
    body, version = request.body, request.version
    if version >= 8:
        return {"groups": [await _fetch_group(broker, request, group) for group in body.groups]}
    try:
        await _look(broker, request, body.group_id, body.topics)
    except GroupError as error:
        code = code_of(error)
        return {"error_code": code, "topics": _failed(body.topics or (), code) if version < 2 else []}
    return {"error_code": ErrorCode.none, "topics": await _answer(broker, request, body.group_id, body.topics)}


async def _look(broker: Broker, request: Request, name: str, topics: Any) -> None:
    """Check the caller's rights, and catch up with what was committed, and with topics that are not known here."""
    if not broker.may(request, Operation.DESCRIBE, AclResource.GROUP, name):
        raise GroupError("group_authorization_failed")
    await broker.coordinator.look(name)
    if topics is None:
        stored, known = broker.coordinator.stored(name), broker.cluster.state.topics
        is_behind = stored is not None and any(topic_id not in known for topic_id in stored.offsets)
    else:
        is_behind = any(_topic(broker, topic, request.version) is None for topic in topics)
    if is_behind:
        try:
            await broker.cluster.barrier()
        except HeadwaterError as error:
            raise GroupError("coordinator_load_in_progress", str(error)) from error


async def _fetch_group(broker: Broker, request: Request, group: Any) -> Values:
    name = group.group_id
    try:
        await _look(broker, request, name, group.topics)
        if request.version >= 9 and (group.member_id is not None or group.member_epoch >= 0):
            present = broker.coordinator.glance(name)
            if present is not None:
                present.check_fetch(group.member_id, group.member_epoch)
    except GroupError as error:
        return {"group_id": name, "error_code": code_of(error), "topics": []}
    topics = await _answer(broker, request, name, group.topics)
    return {"group_id": name, "error_code": ErrorCode.none, "topics": topics}


async def _answer(broker: Broker, request: Request, name: str, topics: Any) -> list[Values]:
    stored, version, work = broker.coordinator.stored(name), request.version, broker.turns.work()
    is_unstable = _unstable(broker, request, name)
    if topics is None:
        return await _all(broker, request, stored, is_unstable, work)
    answer: list[Values] = []
    failed: list[Values] = []
    async for topic in work.over(topics):
        found = _topic(broker, topic, version)
        if not _may(broker, request, Operation.DESCRIBE, topic, found):
            failed += _failed([topic], ErrorCode.topic_authorization_failed)
            continue
        if found is None and version >= BY_ID:
            failed += _failed([topic], ErrorCode.unknown_topic_id)
            continue
        offsets = stored.offsets.get(found.id, {}) if stored is not None and found is not None else {}
        topic_id = found.id if found is not None else None
        wanted = [(index, offsets.get(index, _NONE), is_unstable(topic_id, index)) for index in topic.partition_indexes]
        answer.append({**_named(topic, version), "partitions": await _partitions(wanted, work)})
    return answer + failed  # in the order of Apache Kafka


def _unstable(broker: Broker, request: Request, group: str) -> Callable[[uuid.UUID | None, int], bool]:
    """Whether the client asks for stable offsets, and an open transaction may still change that of a partition."""
    transactions = broker.coordinator.replica.state.transactions
    if not getattr(request.body, "require_stable", False) or not transactions.staging(group):
        return lambda topic, index: False
    return lambda topic, index: topic is not None and transactions.is_staged(group, topic, index)


async def _all(
    broker: Broker,
    request: Request,
    stored: StoredGroup | None,
    is_unstable: Callable[[uuid.UUID | None, int], bool],
    work: Work,
) -> list[Values]:
    found: list[Values] = []
    # Copies, because offsets may be committed between two slices.
    for topic_id, offsets in list(stored.offsets.items()) if stored is not None else ():
        topic = topic_by_id(broker.cluster.state, topic_id)
        if topic is None:
            continue
        if broker.may(request, Operation.DESCRIBE, AclResource.TOPIC, topic.name):
            wanted = [(index, committed, is_unstable(topic_id, index)) for index, committed in offsets.items()]
            partitions = await _partitions(wanted, work)
            found.append({"name": topic.name, "topic_id": topic_id, "partitions": partitions})
    return found


async def _partitions(offsets: Iterable[tuple[int, Committed, bool]], work: Work) -> list[Values]:
    """The answer for partitions: index, committed offset, and whether an open transaction may change it."""
    return [
        _partition(index, _NONE, ErrorCode.unstable_offset_commit)
        if unstable
        else _partition(index, committed, ErrorCode.none)
        async for index, committed, unstable in work.over(offsets)
    ]


def _partition(index: int, committed: Committed, code: ErrorCode) -> Values:
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": code,
    }


def _failed(topics: Iterable[Any], code: ErrorCode) -> list[Values]:
    return [
        {
            "name": getattr(topic, "name", ""),
            "topic_id": getattr(topic, "topic_id", None),
            "partitions": [
                {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": code}
                for index in topic.partition_indexes
            ],
        }
        for topic in topics
    ]


# --- delete ------------------------------------------------------------------------------------------


@api(47, 0, 0)
async def offset_delete(broker: Broker, request: Request) -> Values:
    """Delete offsets of topics that the members of the group do not read."""
    body, coordinator = request.body, broker.coordinator
    try:
        await enter_at_end(broker, request, Operation.DELETE, body.group_id)
        stored, held = coordinator.stored(body.group_id), coordinator.find(body.group_id)
        if stored is None and held is None:
            raise GroupError("group_id_not_found")
        if held is not None:
            held.check_delete_offsets()
        gone, topics = [], []
        work = broker.turns.work()
        async for topic in work.over(body.topics):
            found = topic_by_name(broker.cluster.state, topic.name)
            code = ErrorCode.none
            if not broker.may(request, Operation.READ, AclResource.TOPIC, topic.name):
                code = ErrorCode.topic_authorization_failed
            elif found is None:
                code = ErrorCode.unknown_topic_or_partition
            elif held is not None and held.group.is_subscribed(topic.name, coordinator.topics):
                code = ErrorCode.group_subscribed_to_topic
            partitions = []
            async for p in work.over(topic.partitions):
                there = code is not ErrorCode.none or _has(found, p)
                told = code if there else ErrorCode.unknown_topic_or_partition
                partitions.append({"partition_index": p.partition_index, "error_code": told})
                if found is not None and told is ErrorCode.none:
                    gone.append((found.id.bytes, p.partition_index))
            topics.append({"name": topic.name, "partitions": partitions})
        if gone:
            await coordinator.submit(body.group_id, lambda claim: DropOffsets(claim, body.group_id, gone))
    except (GroupError, HeadwaterError) as error:
        return {"error_code": code_of(error), "topics": []}
    return {"error_code": ErrorCode.none, "topics": topics}
