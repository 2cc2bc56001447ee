"""DescribeLogDirs, versions 1 to 5, and AlterReplicaLogDirs, versions 1 and 2.

A broker has one log directory: the root of the object store. A partition is listed by the broker that clients should
use for it, so that the sizes over all brokers add up to the total.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker, TopicView
from headwater.broker.errors import code_of
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.broker.turns import Work
from headwater.errors import HeadwaterError
from headwater.state.cluster.access import AclResource, Operation

UNKNOWN_BYTES = -1


def log_dir(broker: Broker) -> str:
    """The name of the one log directory."""
    return broker.settings.objects_url


def _room(url: str) -> tuple[int, int]:
    """Total and free bytes of a local directory. A cloud's store has no limit."""
    if not url.startswith("file:"):
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    try:
        usage = shutil.disk_usage(Path(unquote(urlsplit(url).path)))
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return usage.total, usage.free


@api(35, 1, 5, RequestKind.READ)
async def describe_log_dirs(broker: Broker, request: Request) -> Values:
    """The size of each partition in bytes. Topics and partitions that are not stored are left out."""
    wanted = request.body.topics
    url = log_dir(broker)
    try:
        broker.check_cluster(request, Operation.DESCRIBE)
        broker.check_contact()
        await broker.cluster.barrier()
        for replica in broker.domains.values():
            await replica.barrier()
    except HeadwaterError as error:
        code = code_of(error)
        unseen = code is ErrorCode.cluster_authorization_failed
        return {"error_code": code, "results": [] if unseen else [{"error_code": code, "log_dir": url}]}
    if wanted is None:
        asked = [(name, range(topic.ready)) for name, topic in sorted(broker.cluster.state.names.items())]
    else:
        asked = [(topic.topic, topic.partitions) for topic in wanted]
    work = broker.turns.work()
    topics = [await _topic(broker, request, broker.by_name(name), partitions, work) for name, partitions in asked]
    total, free = _room(url)
    result = {
        "error_code": ErrorCode.none,
        "log_dir": url,
        "topics": [topic for topic in topics if topic is not None],
        "total_bytes": total,
        "usable_bytes": free,
    }
    return {"error_code": ErrorCode.none, "results": [result]}


async def _topic(
    broker: Broker, request: Request, view: TopicView | None, partitions: Iterable[int], work: Work
) -> Values | None:
    await work.did()
    if view is None or view.empty:
        return None
    found = []
    async for index in work.over(partitions):
        stream = view.stream(index)
        if stream is not None and broker.leader(stream.id, request) == broker.node:
            size = stream.bytes_from(stream.log_start)
            found.append({"partition_index": index, "partition_size": size, "offset_lag": 0})
    return {"name": view.topic.name, "partitions": found} if found else None


@api(34, 1, 2)
async def alter_replica_log_dirs(broker: Broker, request: Request) -> Values:
    """A move to the one log directory is done already. There is no other directory to move to."""
    await broker.cluster.barrier()
    allowed = broker.may(request, Operation.ALTER, AclResource.CLUSTER)
    results, work = [], broker.turns.work()
    for wanted in request.body.dirs:
        here = wanted.path == log_dir(broker)
        async for topic in work.over(wanted.topics):
            view = broker.by_name(topic.name)
            partitions = []
            async for index in work.over(topic.partitions):
                known = view is not None and view.stream_id(index) is not None
                code = ErrorCode.none if known else ErrorCode.unknown_topic_or_partition
                if not here:
                    code = ErrorCode.log_dir_not_found
                if not allowed:
                    code = ErrorCode.cluster_authorization_failed
                partitions.append({"partition_index": index, "error_code": code})
            results.append({"topic_name": topic.name, "partitions": partitions})
    return {"results": results}
