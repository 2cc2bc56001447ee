"""ElectLeaders, versions 0 to 2, AlterPartitionReassignments, versions 0 and 1, ListPartitionReassignments, version 0.

Every broker serves every partition, and a hash chooses the one that clients should use. So there is nothing to elect
and nothing to move: a request that asks for the current assignment succeeds, any other is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.errors import Coded, code_of
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.errors import HeadwaterError
from headwater.state.cluster.access import AclResource, Operation

ELECTION_TYPES = (0, 1)


def check_replicas(broker: Broker, replicas: Sequence[int]) -> None:
    """Raise unless a manual assignment names live brokers, each once."""
    if not replicas:
        raise Coded(
            ErrorCode.invalid_replica_assignment, "The manual partition assignment includes an empty replica list."
        )
    alive = {member.node for member in broker.nodes()}
    for node in sorted(replicas):
        if node not in alive:
            raise Coded(
                ErrorCode.invalid_replica_assignment,
                f"The manual partition assignment includes broker {node}, but no such broker is registered.",
            )
        if replicas.count(node) > 1:
            raise Coded(
                ErrorCode.invalid_replica_assignment,
                f"The manual partition assignment includes the broker {node} more than once.",
            )


@api(43, 0, 2)
async def elect_leaders(broker: Broker, request: Request) -> Values:
    """No partition ever needs an election."""
    body = request.body
    wanted = body.topic_partitions
    kind = body.election_type if request.version >= 1 else 0
    if kind not in ELECTION_TYPES:
        refusal = {"error_code": ErrorCode.invalid_request, "error_message": f"Unknown election type {kind}"}
        return {**refusal, "replica_election_results": [_each(t, t.partitions, refusal) for t in wanted or ()]}
    try:
        broker.check_cluster(request, Operation.ALTER)
        broker.check_contact()
        await broker.cluster.barrier()
    except HeadwaterError as error:
        return {"error_code": code_of(error)}
    if wanted is None:
        return {"replica_election_results": [{"topic": name} for name in sorted(broker.cluster.state.names)]}
    results, work = [], broker.turns.work()
    async for topic in work.over(wanted):
        view = broker.by_name(topic.topic)
        partitions = []
        async for index in work.over(topic.partitions):
            if view is None:
                code, text = ErrorCode.unknown_topic_or_partition, f"No such topic as {topic.topic}"
            elif view.stream_id(index) is None:
                code, text = ErrorCode.unknown_topic_or_partition, f"No such partition as {topic.topic}-{index}"
            else:
                code, text = ErrorCode.election_not_needed, "Leader election not needed for topic partition."
            partitions.append({"partition_id": index, "error_code": code, "error_message": text})
        results.append({"topic": topic.topic, "partition_result": partitions})
    return {"error_code": ErrorCode.none, "replica_election_results": results}


def _each(topic: Any, partitions: Sequence[int], answer: Values) -> Values:
    return {"topic": topic.topic, "partition_result": [{"partition_id": index, **answer} for index in partitions]}


@api(45, 0, 1)
async def alter_partition_reassignments(broker: Broker, request: Request) -> Values:
    """Accept the current assignment. There are no other moves, and none to cancel."""
    body = request.body
    allowed = request.version < 1 or body.allow_replication_factor_change
    try:
        broker.check_cluster(request, Operation.ALTER)
        broker.check_contact()
        await broker.cluster.barrier()
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    responses, work = [], broker.turns.work()
    async for topic in work.over(body.topics):
        partitions = [
            {"partition_index": p.partition_index, **_reassign(broker, request, topic.name, p, allowed)}
            async for p in work.over(topic.partitions)
        ]
        responses.append({"name": topic.name, "partitions": partitions})
    return {"allow_replication_factor_change": allowed, "error_message": None, "responses": responses}


def _reassign(broker: Broker, request: Request, name: str, wanted: Any, factor_may_change: bool) -> Values:
    view = broker.by_name(name)
    if view is None:
        return _refusal(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}.")
    stream = view.stream_id(wanted.partition_index)
    if stream is None:
        text = f"Unable to find partition {name}:{wanted.partition_index}."
        return _refusal(ErrorCode.unknown_topic_or_partition, text)
    if wanted.replicas is None:
        return _refusal(ErrorCode.no_reassignment_in_progress, None)
    try:
        check_replicas(broker, wanted.replicas)
    except Coded as error:
        return _refusal(error.code, str(error))
    if len(wanted.replicas) > 1 and not factor_may_change:
        text = f"The replication factor is changed from 1 to {len(wanted.replicas)}"
        return _refusal(ErrorCode.invalid_replication_factor, text)
    if list(wanted.replicas) != [broker.leader(stream, request)]:
        text = "Every broker serves every partition, and object storage replicates: partitions cannot be moved."
        return _refusal(ErrorCode.invalid_replica_assignment, text)
    return {"error_code": ErrorCode.none, "error_message": None}


def _refusal(code: ErrorCode, text: str | None) -> Values:
    return {"error_code": code, "error_message": text}


@api(46, 0, 0, RequestKind.LOOKUP)
def list_partition_reassignments(broker: Broker, request: Request) -> Values:
    """An empty list: no partition ever moves."""
    if not broker.may(request, Operation.DESCRIBE, AclResource.CLUSTER):
        return {"error_code": ErrorCode.cluster_authorization_failed, "error_message": None, "topics": []}
    return {"error_code": ErrorCode.none, "error_message": None, "topics": []}
