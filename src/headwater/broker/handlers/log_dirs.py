"""DescribeLogDirs, versions 1 to 5, and AlterReplicaLogDirs, versions 1 and 2.

A broker has one log directory: the root of the object store. Partitions are told by the broker that clients should
use for them, so that the sizes of all brokers add up to what there is.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker, TopicView
from headwater.broker.faults import NotAuthorized, code_of
from headwater.broker.registry import Request, Values, api
from headwater.errors import HeadwaterError
from headwater.metadata.access import Operation, ResourceKind

UNKNOWN_BYTES = -1


def log_dir(broker: Broker) -> str:
    """The name of the one log directory."""
    return broker.settings.objects_url


def _room(url: str) -> tuple[int, int]:
    """Bytes in all and bytes free where the objects are a local directory; a cloud's store has no end."""
    if not url.startswith("file:"):
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    try:
        usage = shutil.disk_usage(Path(unquote(urlsplit(url).path)))
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return usage.total, usage.free


@api(35, 1, 5)
async def describe_log_dirs(broker: Broker, request: Request) -> Values:
    """How many bytes of each partition there are. Topics and partitions that do not exist are left out."""
    wanted = request.body.topics
    url = log_dir(broker)
    try:
        broker.check_cluster(request, Operation.DESCRIBE)
        broker.check_contact()
        await broker.cluster.barrier()
        for replica in broker.domains.values():
            await replica.barrier()
    except NotAuthorized as error:
        return {"error_code": code_of(error), "results": []}
    except HeadwaterError as error:
        return {"error_code": code_of(error), "results": [{"error_code": code_of(error), "log_dir": url}]}
    if wanted is None:
        asked = [(name, range(topic.ready)) for name, topic in sorted(broker.cluster.state.names.items())]
    else:
        asked = [(topic.topic, topic.partitions) for topic in wanted]
    topics = [_topic(broker, request, broker.by_name(name), partitions) for name, partitions in asked]
    total, free = _room(url)
    result = {
        "error_code": ErrorCode.none,
        "log_dir": url,
        "topics": [topic for topic in topics if topic is not None],
        "total_bytes": total,
        "usable_bytes": free,
    }
    return {"error_code": ErrorCode.none, "results": [result]}


def _topic(broker: Broker, request: Request, view: TopicView | None, partitions: Iterable[int]) -> Values | None:
    if view is None:
        return None
    found = []
    for index in partitions:
        stream = view.stream(index)
        if stream is not None and broker.leader(stream.id, request) == broker.node:
            size = stream.bytes_from(stream.log_start)
            found.append({"partition_index": index, "partition_size": size, "offset_lag": 0})
    return {"name": view.topic.name, "partitions": found} if found else None


@api(34, 1, 2)
async def alter_replica_log_dirs(broker: Broker, request: Request) -> Values:
    """A move to where everything lies already is done at once; there is no other place to move to."""
    await broker.cluster.barrier()
    allowed = broker.may(request, Operation.ALTER, ResourceKind.CLUSTER)
    results = []
    for wanted in request.body.dirs:
        here = wanted.path == log_dir(broker)
        for topic in wanted.topics:
            view = broker.by_name(topic.name)
            partitions = []
            for index in topic.partitions:
                known = view is not None and view.stream_id(index) is not None
                code = ErrorCode.none if known else ErrorCode.unknown_topic_or_partition
                if not here:
                    code = ErrorCode.log_dir_not_found
                if not allowed:
                    code = ErrorCode.cluster_authorization_failed
                partitions.append({"partition_index": index, "error_code": code})
            results.append({"topic_name": topic.name, "partitions": partitions})
    return {"results": results}
