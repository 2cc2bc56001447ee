"""The cluster: there is one."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get

from headwater.gateway.services import TheCall
from headwater.gateway.v3.brokers import leaders
from headwater.gateway.v3.frame import Frame, ListMetadata, ListOf, Metadata, Related, TheFrame, base_of


class ClusterData(msgspec.Struct, frozen=True):
    """A cluster."""

    kind: str
    """Always `KafkaCluster`."""
    metadata: Metadata
    """The links of the cluster."""
    cluster_id: str
    """The id of the cluster."""
    controller: Related | None
    """A broker that takes administrative requests. Every broker does; there is no controller."""
    acls: Related
    """The access rules."""
    brokers: Related
    """The brokers."""
    broker_configs: Related
    """The configs that are set for all brokers."""
    consumer_groups: Related
    """The consumer groups."""
    topics: Related
    """The topics."""
    partition_reassignments: Related
    """The reassignments of replicas that are under way. There are none, ever."""


@get("/clusters", operation_id="v3ListClusters", tags=["REST Proxy"])
async def list_clusters(request: Request[Any, Any, Any], call: TheCall) -> ListOf[ClusterData]:
    """The cluster of this gateway."""
    base = base_of(request, call.services)
    frame = Frame(call, base, call.services.state.cluster_id)
    return ListOf("KafkaClusterList", ListMetadata(base), [_cluster(frame)])


@get("/clusters/{cluster_id:str}", operation_id="v3GetCluster", tags=["REST Proxy"])
async def get_cluster(frame: TheFrame) -> ClusterData:
    """The cluster."""
    return _cluster(frame)


def _cluster(frame: Frame) -> ClusterData:
    controller = min(leaders(frame.services.state), default=None)
    return ClusterData(
        "KafkaCluster",
        frame.metadata(),
        frame.cluster_id,
        None if controller is None else frame.related("brokers", controller),
        frame.related("acls"),
        frame.related("brokers"),
        frame.related("broker-configs"),
        frame.related("consumer-groups"),
        frame.related("topics"),
        frame.related("topics", "-", "partitions", "-", "reassignment"),
    )


ROUTES = (list_clusters, get_cluster)
