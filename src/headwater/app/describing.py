"""`headwater cluster describe`: what a cluster consists of, read from its ledger. Nothing is changed."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import msgspec

from headwater.app.node import DOMAINS, new_state
from headwater.config import Settings
from headwater.metadata import open_ledger
from headwater.metadata.base import State
from headwater.metadata.checkpoint import load_state, replay
from headwater.metadata.cluster import NO_NODE, ClusterState, Member
from headwater.metadata.ledger import Ledger
from headwater.metadata.membership import BEAT_SECONDS, SESSION_SECONDS
from headwater.metadata.settling import COMPACTION
from headwater.metadata.streams import StreamsState
from headwater.objects import open_store
from headwater.types import CLUSTER


class MemberLine(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the cluster. What the ledger alone knows is missing where brokers were asked."""

    node: int | None
    """Nothing for one that serves no clients."""
    role: str = "broker"
    zone: str
    addresses: dict[str, str]
    """By the listeners' names; `INTERNAL` is for brokers only."""
    epoch: int | None = None
    version: str | None = None
    beating: bool | None = None
    """Whether it showed a sign of life while this was made."""
    degraded: bool | None = None
    """Whether clients are not sent to it, because it is slow."""
    publish_us: int | None = None
    fetch_us: int | None = None
    """How slow it said it is. A broker says nothing while all is quick."""


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
    """An epoch."""
    node: int | None
    runs_out_in_ms: int


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `cluster describe` tells."""

    cluster_id: str
    controller: int | None
    brokers: list[MemberLine]
    processes: list[MemberLine]
    """Compactors and others that serve no clients."""
    topics: int
    partitions: int
    groups: int
    ledger: str | None = None
    objects: str | None = None
    domains: list[DomainLine] = []
    leases: list[LeaseLine] = []


async def describe(settings: Settings) -> ClusterFacts:
    """Look at a cluster's ledger, and wait for a sign of life of each of its processes."""
    ledger = open_ledger(settings.ledger_url, settings.object_store)
    store = open_store(settings.objects_url, settings.object_store)
    try:
        cluster = ClusterState()
        states: list[State] = [cluster, *(new_state(domain) for domain in DOMAINS)]
        lines: list[DomainLine] = []
        for state in states:
            await load_state(ledger, store, state)
            await replay(ledger, state)
            lines.append(await _domain(ledger, state))
        beating = await _beating(ledger, [m.process for m in cluster.members.values()])
    finally:
        await ledger.close()
        await store.close()
    members = [_member(cluster, states, member, beating) for member in cluster.members.values()]
    return ClusterFacts(
        cluster_id=cluster.cluster_id,
        controller=min((m.node for m in cluster.serving() if cluster.in_rotation(m)), default=None),
        brokers=sorted((m for m in members if m.node is not None), key=lambda m: m.node or 0),
        processes=sorted((m for m in members if m.node is None), key=lambda m: m.epoch or 0),
        topics=len(cluster.names),
        partitions=sum(topic.ready for topic in cluster.names.values()),
        groups=sum(len(state.groups) for state in states if isinstance(state, StreamsState)),
        ledger=without_secrets(settings.ledger_url),
        objects=without_secrets(settings.objects_url),
        domains=lines,
        leases=_leases(cluster, states),
    )


def without_secrets(url: str) -> str:
    """A URL without what may be a password: the user's part, and what comes behind a question mark."""
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
    """Those processes whose beats move while we look; as long as a peer would look before it fences them."""
    first = {beat.process: beat.count for beat in await ledger.beats()}
    moved: set[str] = set()
    for _ in range(round(SESSION_SECONDS / BEAT_SECONDS) + 1):
        if moved >= set(processes):
            break
        await asyncio.sleep(BEAT_SECONDS)
        moved |= {beat.process for beat in await ledger.beats() if beat.count != first.get(beat.process)}
    return moved


def _member(cluster: ClusterState, states: list[State], member: Member, beating: set[str]) -> MemberLine:
    compaction = [state.lease(COMPACTION) for state in states if state.domain != CLUSTER]
    compacts = any(lease is not None and lease.holder == member.epoch for lease in compaction)
    health = cluster.rotation.reports.get(member.epoch)
    serves = member.node != NO_NODE
    return MemberLine(
        node=member.node if serves else None,
        role="broker" if serves else "compactor" if compacts else "other",
        zone=member.zone,
        epoch=member.epoch,
        version=version_of(member.process),
        addresses={x.name: f"{_shown(x.host)}:{x.port}" for x in member.listeners},
        beating=member.process in beating,
        degraded=not cluster.in_rotation(member),
        publish_us=health.publish_us if health is not None and health.publish_us >= 0 else None,
        fetch_us=health.fetch_us if health is not None and health.fetch_us >= 0 else None,
    )


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def version_of(process: str) -> str:
    """The version that a process's name tells; empty where it tells none."""
    parts = process.split("/")
    return parts[1] if len(parts) == 4 else ""


def _leases(cluster: ClusterState, states: list[State]) -> list[LeaseLine]:
    found = []
    for state in states:
        for name, lease in sorted(state.leases().items()):
            holder = cluster.members.get(lease.holder)
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
