"""`headwater cluster describe`: the parts of a cluster, read from its ledger. Nothing is changed."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import msgspec

from headwater.app.directories import begin
from headwater.ledger.contract import Ledger
from headwater.replica.checkpoint import load_state, replay
from headwater.replica.domains import Domains, new_state
from headwater.replica.membership import BEAT_SECONDS, SESSION_SECONDS
from headwater.settings.settings import Settings
from headwater.state.cluster.domain import NO_NODE, Process
from headwater.state.cluster.state import ClusterState
from headwater.state.machine import State
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.state import StreamsState
from headwater.types import CLUSTER


class MemberLine(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the cluster. Facts that only the ledger has are missing if the brokers were asked."""

    node: int | None
    """None for a process that serves no clients."""
    role: str = "broker"
    zone: str
    addresses: dict[str, str]
    """By the names of listeners. `INTERNAL` is for brokers only."""
    epoch: int | None = None
    version: str | None = None
    level: int | None = None
    """The highest feature level that the process knows."""
    beating: bool | None = None
    """Whether the process showed a sign of life during this command."""
    degraded: bool | None = None
    """Whether the broker is out of rotation because it is slow."""
    publish_us: int | None = None
    fetch_us: int | None = None
    """The times in the broker's last report. A broker does not report while all brokers are fast."""


class DomainLine(msgspec.Struct, frozen=True, kw_only=True):
    """A domain's ledger."""

    domain: int
    position: int
    checkpoint: int | None
    older_checkpoint: int | None
    clock_ms: int
    level: int


class LeaseLine(msgspec.Struct, frozen=True, kw_only=True):
    """A job that one process does at a time."""

    domain: int
    name: str
    holder: int
    """The epoch of the process that holds the lease."""
    node: int | None
    runs_out_in_ms: int


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `cluster describe`."""

    cluster_id: str
    controller: int | None
    brokers: list[MemberLine]
    processes: list[MemberLine]
    """Compactors and other processes that serve no clients."""
    topics: int
    partitions: int
    groups: int
    level: int | None = None
    """The cluster's feature level: the lowest of its domains."""
    known_level: int | None = None
    """The highest level that every process knows."""
    ledger: str | None = None
    objects: str | None = None
    domains: list[DomainLine] = []
    leases: list[LeaseLine] = []


async def describe(settings: Settings) -> ClusterFacts:
    """Read a cluster's ledger, and wait for a sign of life from each of its processes."""
    begin(settings, writing=False)
    domains = Domains.open(settings)
    ledger = domains.ledger
    try:
        cluster = ClusterState()
        states: list[State] = [cluster, *(new_state(domain) for domain in domains)]
        lines: list[DomainLine] = []
        for state in states:
            await load_state(ledger, domains.store, state)
            await replay(ledger, state)
            lines.append(await _domain(ledger, state))
        beating = await _beating(ledger, [p.name for p in cluster.processes.values()])
    finally:
        await domains.close()
    members = [_member(cluster, states, member, beating) for member in cluster.processes.values()]
    return ClusterFacts(
        cluster_id=cluster.cluster_id,
        controller=min((m.node for m in cluster.serving() if cluster.in_rotation(m)), default=None),
        brokers=sorted((m for m in members if m.node is not None), key=lambda m: m.node or 0),
        processes=sorted((m for m in members if m.node is None), key=lambda m: m.epoch or 0),
        topics=len(cluster.names),
        partitions=sum(topic.ready for topic in cluster.names.values()),
        groups=sum(len(state.groups) for state in states if isinstance(state, StreamsState)),
        level=min(state.level for state in states),
        known_level=min((process.level for process in cluster.processes.values()), default=None),
        ledger=without_secrets(settings.ledger_url),
        objects=without_secrets(settings.objects_url),
        domains=lines,
        leases=_leases(cluster, states),
    )


def without_secrets(url: str) -> str:
    """A URL without the parts that may hold a password: the user, and everything after a question mark."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.scheme else url


async def _domain(ledger: Ledger, state: State) -> DomainLine:
    pointer = await ledger.pointer(state.domain)
    return DomainLine(
        domain=state.domain,
        position=state.position,
        checkpoint=pointer.position if pointer else None,
        older_checkpoint=pointer.older[0] if pointer and pointer.older else None,
        clock_ms=state.clock_ms,
        level=state.level,
    )


async def _beating(ledger: Ledger, processes: list[str]) -> set[str]:
    """The processes whose beats change. Waits for them as long as a peer waits before it fences a process."""
    first = {beat.process: beat.count for beat in await ledger.beats()}
    moved: set[str] = set()
    for _ in range(round(SESSION_SECONDS / BEAT_SECONDS) + 1):
        if moved >= set(processes):
            break
        await asyncio.sleep(BEAT_SECONDS)
        moved |= {beat.process for beat in await ledger.beats() if beat.count != first.get(beat.process)}
    return moved


def _member(cluster: ClusterState, states: list[State], member: Process, beating: set[str]) -> MemberLine:
    compaction = [state.lease(COMPACTION) for state in states if state.domain != CLUSTER]
    compacts = any(lease is not None and lease.holder == member.epoch for lease in compaction)
    health = cluster.rotation.reports.get(member.epoch)
    serves = member.node != NO_NODE
    return MemberLine(
        node=member.node if serves else None,
        role="broker" if serves else "compactor" if compacts else "other",
        zone=member.zone,
        epoch=member.epoch,
        version=member.build,
        level=member.level,
        addresses={x.name: f"{_shown(x.host)}:{x.port}" for x in member.listeners},
        beating=member.name in beating,
        degraded=not cluster.in_rotation(member),
        publish_us=health.publish_us if health is not None and health.publish_us >= 0 else None,
        fetch_us=health.fetch_us if health is not None and health.fetch_us >= 0 else None,
    )


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _leases(cluster: ClusterState, states: list[State]) -> list[LeaseLine]:
    found = []
    for state in states:
        for name, lease in sorted(state.leases().items()):
            holder = cluster.processes.get(lease.holder)
            found.append(
                LeaseLine(
                    domain=state.domain,
                    name=name,
                    holder=lease.holder,
                    node=holder.node if holder is not None and holder.node != NO_NODE else None,
                    runs_out_in_ms=lease.expires_ms - state.clock_ms,
                )
            )
    return found
