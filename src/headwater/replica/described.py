"""Processes, leases and holds of a cluster as the state has them: for the command line and the HTTP API alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from headwater.state.cluster.domain import NO_NODE, Process
from headwater.state.cluster.state import ClusterState
from headwater.state.machine import State
from headwater.state.streams.state import StreamsState


class MemberLine(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the cluster. Facts that only the ledger has are missing if the brokers were asked."""

    node: int | None
    """None for a process that serves no clients."""
    role: str = "broker"
    """`broker`, `compactor`, `gateway`, `link`, `command`, or `other`."""
    zone: str
    """The zone that the process is in."""
    addresses: dict[str, str]
    """By the names of listeners. `INTERNAL` is for brokers only."""
    epoch: int | None = None
    """The number by which the ledger knows the process."""
    version: str | None = None
    """The version of the process's code."""
    level: int | None = None
    """The highest feature level that the process knows."""
    beating: bool | None = None
    """Whether the process showed a sign of life while it was looked for; None if it was not."""
    degraded: bool | None = None
    """Whether the broker is out of rotation because it is slow."""
    publish_us: int | None = None
    """Microseconds of an append in the broker's last report."""
    fetch_us: int | None = None
    """Microseconds of a read in the broker's last report. A broker does not report while all brokers are fast."""


class LeaseLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job that one process does at a time."""

    domain: int
    """The domain that the job is for."""
    name: str
    """The name of the job."""
    holder: int
    """The epoch of the process that holds the lease."""
    node: int | None
    """The node of that process; None if it serves no clients."""
    runs_out_in_ms: int
    """How long the lease lasts unless it is renewed."""


class HoldLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a process that reads for others keeps from deletion."""

    domain: int
    """The domain in which files and objects are kept."""
    epoch: int
    """The epoch of the process."""
    age_ms: int
    """What was removed in this time is kept. A hold that keeps nothing is not moved, and grows old."""
    keeps: bool
    """Whether something was removed in that time."""
    versions: int
    """How many versions of tables are kept by name."""


def member_line(
    cluster: ClusterState, states: Sequence[State], member: Process, beating: Collection[str] | None = None
) -> MemberLine:
    """A process. `beating` has the names of those that showed a sign of life, if the caller has looked."""
    health = cluster.rotation.reports.get(member.epoch)
    serves = member.node != NO_NODE
    return MemberLine(
        node=member.node if serves else None,
        role="broker" if serves else role_of(member.name),
        zone=member.zone,
        epoch=member.epoch,
        version=member.build,
        level=member.level,
        addresses={x.name: f"{_shown(x.host)}:{x.port}" for x in member.listeners},
        beating=None if beating is None else member.name in beating,
        degraded=not cluster.in_rotation(member),
        publish_us=health.publish_us if health is not None and health.publish_us >= 0 else None,
        fetch_us=health.fetch_us if health is not None and health.fetch_us >= 0 else None,
    )


def role_of(process: str) -> str:
    """What a process without a node is, by its name."""
    role = process.partition("/")[0]
    return role if role.isalpha() else "other"


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def member_lines(
    cluster: ClusterState, states: Sequence[State], beating: Collection[str] | None = None
) -> tuple[list[MemberLine], list[MemberLine]]:
    """The brokers by node, and the other processes by epoch."""
    members = [member_line(cluster, states, member, beating) for member in cluster.processes.values()]
    brokers = sorted((m for m in members if m.node is not None), key=lambda m: m.node or 0)
    return brokers, sorted((m for m in members if m.node is None), key=lambda m: m.epoch or 0)


def lease_lines(cluster: ClusterState, states: Sequence[State]) -> list[LeaseLine]:
    """The leases of all domains that a process holds. One that has run out, or whose process is gone, is free."""
    found = []
    for state in states:
        for name, lease in sorted(state.leases().items()):
            holder = cluster.processes.get(lease.holder)
            if holder is None or lease.expires_ms <= state.clock_ms:
                continue
            found.append(
                LeaseLine(
                    domain=state.domain,
                    name=name,
                    holder=lease.holder,
                    node=holder.node if holder.node != NO_NODE else None,
                    runs_out_in_ms=lease.expires_ms - state.clock_ms,
                )
            )
    return found


def hold_lines(states: Sequence[State]) -> list[HoldLine]:
    """The holds of all domains, the oldest first."""
    found = [
        HoldLine(
            domain=state.domain,
            epoch=epoch,
            age_ms=state.clock_ms - hold.since_ms,
            keeps=state.removed_between(hold.since_ms, state.clock_ms + 1),
            versions=len(hold.versions),
        )
        for state in states
        if isinstance(state, StreamsState)
        for epoch, hold in state.held
    ]
    return sorted(found, key=lambda line: (-line.age_ms, line.epoch))


def oldest_seconds(states: Iterable[StreamsState]) -> float:
    """The age of the oldest hold that keeps something from deletion; 0 if there is none."""
    return max((line.age_ms for line in hold_lines(list(states)) if line.keeps or line.versions), default=0) / 1000
