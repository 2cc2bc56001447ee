"""The cluster as a whole: what it is, and whether this gateway serves."""

from __future__ import annotations

import msgspec
from litestar import Response, get

from headwater.gateway.services import TheCall
from headwater.replica.levels import lowest_level
from headwater.version import __version__


class ClusterLine(msgspec.Struct, frozen=True):
    """A cluster, as every caller may see it."""

    product: str
    """Always `headwater`."""
    version: str
    """The build of the gateway that answers."""
    cluster_id: str
    """The id of the cluster, as Kafka's clients see it."""
    level: int
    """The feature level of the cluster."""


class HealthLine(msgspec.Struct, frozen=True):
    """Whether a gateway serves."""

    status: str
    """`healthy` or `unhealthy`."""


@get("/v1", operation_id="describeCluster", tags=["cluster"])
async def describe_cluster(call: TheCall) -> ClusterLine:
    """The version of the gateway, and the id and the feature level of the cluster."""
    own = call.services
    return ClusterLine("headwater", __version__, own.state.cluster_id, lowest_level(own.state, own.domains))


@get("/v1/health", operation_id="health", tags=["cluster"])
async def health(call: TheCall) -> Response[HealthLine]:
    """Whether this gateway reaches the cluster: 200 or 503. It needs no authentication and tells nothing else."""
    well = not await call.services.trouble() and call.services.background.status != "unhealthy"
    return Response(HealthLine("healthy" if well else "unhealthy"), status_code=200 if well else 503)


ROUTES = (describe_cluster, health)
