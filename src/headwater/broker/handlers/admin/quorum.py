"""DescribeQuorum, versions 0 to 2: the ledger of domain 0 as Kafka's metadata log.

Nobody votes here: the ledger's store replicates, and every process reads the same log. So the high watermark is the
ledger's head, the leader is the broker that Metadata names as controller, and the voters are the live brokers. All of
them have the same log end. The times of a broker are those of its last record in the ledger. There are no observers,
because processes that serve no clients have no node id.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.errors import code_of
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.broker.rotation.routing import zone_of
from headwater.errors import HeadwaterError
from headwater.settings.settings import INTERNAL
from headwater.state.cluster.access import Operation
from headwater.state.cluster.domain import Process

METADATA_TOPIC, METADATA_PARTITION = "__cluster_metadata", 0


@api(55, 0, 2, RequestKind.READ)
async def describe_quorum(broker: Broker, request: Request) -> Values:
    """The leader, the voters and the end of the metadata log. There is no other log with a quorum."""
    asked = request.body.topics
    try:
        broker.check_cluster(request, Operation.DESCRIBE)
        broker.check_contact()
        await broker.cluster.barrier()
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": str(error), "topics": [], "nodes": []}
    named = [(t.topic_name, [p.partition_index for p in t.partitions]) for t in asked]
    if named != [(METADATA_TOPIC, [METADATA_PARTITION])]:
        topics = [{"topic_name": t.topic_name, "partitions": [_unknown(p) for p in t.partitions]} for t in asked]
        return {"error_code": ErrorCode.none, "error_message": None, "topics": topics, "nodes": []}
    topics = [{"topic_name": METADATA_TOPIC, "partitions": [_quorum(broker, request)]}]
    nodes = [{"node_id": member.node, "listeners": _addresses(member)} for member in broker.nodes()]
    return {"error_code": ErrorCode.none, "error_message": None, "topics": topics, "nodes": nodes}


def _addresses(member: Process) -> list[Values]:
    return [{"name": x.name, "host": x.host, "port": x.port} for x in member.listeners if x.name != INTERNAL]


def _quorum(broker: Broker, request: Request) -> Values:
    state = broker.cluster.state
    leader = broker.routing.controller(zone_of(request.client_id))
    head = state.position
    voters, epoch = [], 0
    for member in sorted(broker.nodes(), key=lambda member: member.node):
        heard = broker.clock.wall_ms() if member.node == leader else state.heard_ms(member.epoch)
        times = {"last_fetch_timestamp": heard, "last_caught_up_timestamp": heard}
        voters.append({"replica_id": member.node, "replica_directory_id": None, "log_end_offset": head, **times})
        if member.node == leader:
            epoch = member.epoch
    return {
        "partition_index": METADATA_PARTITION,
        "error_code": ErrorCode.none if epoch else ErrorCode.leader_not_available,
        "error_message": None,
        "leader_id": leader,
        "leader_epoch": epoch,
        "high_watermark": head,
        "current_voters": voters,
        "observers": [],
    }


def _unknown(asked: Any) -> Values:
    return {
        "partition_index": asked.partition_index,
        "error_code": ErrorCode.unknown_topic_or_partition,
        "error_message": "This server does not host this topic-partition.",
        "leader_id": 0,
        "leader_epoch": 0,
        "high_watermark": 0,
        "current_voters": [],
        "observers": [],
    }
