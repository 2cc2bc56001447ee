"""Raising the feature level: domain 0 decides, the other domains follow.

`apply` of domain 0 refuses a level that a live process does not know. Housekeeping, or a process that starts, finishes
a raise that stopped half way. Nothing lowers a level.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headwater.replica.replica import Replica
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import SetLevel
from headwater.state.machine import LEVEL, LEVELS, UPGRADE
from headwater.state.results import Done, Refused, Result
from headwater.state.streams.state import StreamsState
from headwater.types import Domain

log = logging.getLogger("headwater.levels")


def lowest_level(cluster: ClusterState, domains: Mapping[Domain, Replica[StreamsState]]) -> int:
    """The lowest level of all domains. It is the level that clients see."""
    return min(cluster.level, *(replica.state.level for replica in domains.values()))


async def raise_level(
    cluster: Replica[ClusterState], domains: Mapping[Domain, Replica[StreamsState]], level: int
) -> Result:
    """Raise all domains to a level that this build knows. A refusal names a process that does not know the level."""
    [result] = await cluster.submit([SetLevel(level, LEVELS[level])])
    if isinstance(result, Done):
        for replica in domains.values():
            await follow_level(cluster.state, replica)
    return result


async def follow_level(cluster: ClusterState, replica: Replica[StreamsState]) -> None:
    """Bring a domain to the level of domain 0."""
    if replica.state.level < cluster.level:
        await replica.submit([SetLevel(cluster.level, cluster.build)])


async def settle_level(cluster: Replica[ClusterState], domains: Mapping[Domain, Replica[StreamsState]]) -> None:
    """Raise a cluster without streams to the newest level, when a process starts. Other clusters keep their level.

    The operator raises a cluster that has streams, when no older build is needed any more. A raise that stopped half
    way is finished first: clients would take the refusals of a domain below the cluster's level for final.
    """
    for replica in domains.values():
        await follow_level(cluster.state, replica)
    if cluster.state.level >= LEVEL:
        return
    refused: Result | None = None
    if cluster.state.unused:
        refused = await raise_level(cluster, domains, LEVEL)
    if cluster.state.level < LEVEL:
        log.warning(
            f"the cluster is below the newest level; {UPGRADE} when all processes run this build",
            extra={
                "level": cluster.state.level,
                "newest": LEVEL,
                "reason": refused.detail if isinstance(refused, Refused) else "",
            },
        )
