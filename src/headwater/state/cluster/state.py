"""The state of domain 0: the list of its parts. A new capability is a module with a `PART`, and a line here."""

from __future__ import annotations

from typing import Any, ClassVar

from headwater.state.cluster import link_ends, linking, processes, quotas, registry, reports, topics, users
from headwater.state.cluster.domain import ClusterDomain
from headwater.state.machine import Part


class ClusterState(ClusterDomain):
    """The fold of domain 0."""

    PARTS: ClassVar[tuple[Part[Any, Any], ...]] = (
        reports.PART,  # before processes: its hook `fenced` runs first, so listeners see a fenced process in neither
        processes.PART,
        topics.PART,
        quotas.PART,
        users.PART,
        linking.PART,
        registry.PART,
        link_ends.PART,
    )
