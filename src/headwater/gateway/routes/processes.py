"""The processes of a cluster, its ledger and its feature level; raising the level."""

from __future__ import annotations

import msgspec
from litestar import get, post
from litestar.params import JSONBody

from headwater.errors import BadInput, NotReady
from headwater.gateway.parameters import ValidateOnly
from headwater.gateway.problems import CONFLICT, Refusal
from headwater.gateway.services import Services, TheCall
from headwater.replica.described import HoldLine, LeaseLine, MemberLine, hold_lines, lease_lines, member_lines
from headwater.replica.levels import lowest_level, raise_level
from headwater.settings.addresses import without_secrets
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.machine import LEVEL, State
from headwater.state.results import Done, Reason, Refused


class DomainLine(msgspec.Struct, frozen=True):
    """A part of the metadata with a ledger of its own."""

    domain: int
    """The number of the domain; 0 is the cluster itself."""
    position: int
    """The position of the last record that this gateway has read."""
    clock_ms: int
    """The time of the ledger, in milliseconds since 1970."""
    level: int
    """The feature level of the domain."""


class ClusterDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with its processes."""

    cluster_id: str
    """The id of the cluster, as Kafka's clients see it."""
    level: int
    """The cluster's feature level: the lowest of its domains."""
    known_level: int
    """The highest level that every process knows. The cluster can be raised to it."""
    topics: int
    """How many topics there are."""
    partitions: int
    """How many partitions they have."""
    groups: int
    """How many groups there are."""
    ledger: str
    """The URL of the ledger, without secrets."""
    objects: str
    """The URL of the object store, without secrets."""
    brokers: list[MemberLine]
    """The brokers by node."""
    processes: list[MemberLine]
    """Compactors, gateways and commands, by epoch."""
    domains: list[DomainLine]
    """The parts of the metadata."""
    leases: list[LeaseLine]
    """Jobs that one process does at a time."""
    holds: list[HoldLine]
    """What processes that read for others keep from deletion, the oldest first."""
    health: str
    """Whether this gateway reaches the cluster: `healthy` or `unhealthy`."""


class Upgrade(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A feature level."""

    level: int | None = None
    """The level to raise the cluster to; the highest that this gateway knows if it is missing."""


class LevelLine(msgspec.Struct, frozen=True):
    """The feature level of a cluster."""

    level: int
    """The level; with `validate_only`, what it would be."""


@get("/v1/cluster", operation_id="describeProcesses", tags=["cluster"])
async def describe_processes(call: TheCall) -> ClusterDetails:
    """The processes, the ledger and the level of the cluster. The caller needs the right to DESCRIBE the cluster."""
    own = call.services
    call.check(Operation.DESCRIBE, AclResource.CLUSTER)
    await own.catch_up(*own.domains)
    state, states = own.state, _states(own)
    brokers, processes = member_lines(state, states)
    return ClusterDetails(
        cluster_id=state.cluster_id,
        level=lowest_level(state, own.domains),
        known_level=min((process.level for process in state.processes.values()), default=LEVEL),
        topics=len(state.names),
        partitions=sum(topic.ready for topic in state.names.values()),
        groups=sum(len(replica.state.groups) for replica in own.domains.values()),
        ledger=without_secrets(own.settings.ledger_url),
        objects=without_secrets(own.settings.objects_url),
        brokers=brokers,
        processes=processes,
        domains=[DomainLine(one.domain, one.position, one.clock_ms, one.level) for one in states],
        leases=lease_lines(state, states),
        holds=hold_lines(states),
        health="healthy" if not await own.trouble() and own.background.status != "unhealthy" else "unhealthy",
    )


@post("/v1/cluster/upgrade", operation_id="upgradeCluster", tags=["cluster"], status_code=200)
async def upgrade_cluster(call: TheCall, data: JSONBody[Upgrade], validate_only: ValidateOnly = False) -> LevelLine:
    """Raise the feature level of the cluster. There is no way back. The caller needs the right to ALTER the cluster.

    It is refused with 409 while a process runs that does not know the level.
    """
    own = call.services
    call.check(Operation.ALTER, AclResource.CLUSTER)
    own.check_contact()
    await own.catch_up(*own.domains)
    level = LEVEL if data.level is None else data.level
    if not own.state.level <= level <= LEVEL:
        raise BadInput(f"the level can be raised from {own.state.level} up to {LEVEL}, which this gateway knows")
    if validate_only:
        return LevelLine(level)
    result = await raise_level(own.cluster, own.domains, level)
    if isinstance(result, Refused) and result.reason is not Reason.FENCED:
        raise Refusal(CONFLICT, result.detail)
    if not isinstance(result, Done):
        raise NotReady(f"not carried out: {result}")
    return LevelLine(lowest_level(own.state, own.domains))


def _states(own: Services) -> list[State]:
    return [own.state, *(replica.state for replica in own.domains.values())]


ROUTES = (describe_processes, upgrade_cluster)
