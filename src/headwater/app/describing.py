"""`headwater cluster describe`: the parts of a cluster, read from its ledger. Nothing is changed."""

from __future__ import annotations

import asyncio

import msgspec

from headwater.app.absence import no_cluster
from headwater.app.directories import begin
from headwater.ledger.contract import Ledger
from headwater.replica.checkpoint import load_state, replay
from headwater.replica.clocks import ClockLine, TimesLine, clock_lines, times_lines
from headwater.replica.described import HoldLine, LeaseLine, MemberLine, hold_lines, lease_lines, member_lines
from headwater.replica.domains import Domains, new_state
from headwater.replica.membership import BEAT_SECONDS, SESSION_SECONDS
from headwater.settings.addresses import without_secrets
from headwater.settings.settings import Settings
from headwater.state.cluster.state import ClusterState
from headwater.state.machine import State
from headwater.state.streams.state import StreamsState


class DomainLine(msgspec.Struct, frozen=True, kw_only=True):
    """A domain's ledger."""

    domain: int
    position: int
    checkpoint: int | None
    older_checkpoint: int | None
    clock_ms: int
    level: int


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
    times: list[TimesLine] = []
    clocks: list[ClockLine] = []
    leases: list[LeaseLine] = []
    holds: list[HoldLine] = []


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
        if not cluster.position:
            raise no_cluster(settings)
        beating = await _beating(ledger, [p.name for p in cluster.processes.values()])
    finally:
        await domains.close()
    brokers, processes = member_lines(cluster, states, beating)
    return ClusterFacts(
        cluster_id=cluster.cluster_id,
        controller=min((m.node for m in cluster.serving() if cluster.in_rotation(m)), default=None),
        brokers=brokers,
        processes=processes,
        topics=len(cluster.names),
        partitions=sum(topic.ready for topic in cluster.names.values()),
        groups=sum(len(state.groups) for state in states if isinstance(state, StreamsState)),
        level=min(state.level for state in states),
        known_level=min((process.level for process in cluster.processes.values()), default=None),
        ledger=without_secrets(settings.ledger_url),
        objects=without_secrets(settings.objects_url),
        domains=lines,
        times=times_lines(states),
        clocks=clock_lines(cluster),
        leases=lease_lines(cluster, states),
        holds=hold_lines(states),
    )


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
