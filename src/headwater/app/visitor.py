"""A process that comes by to look at the metadata, or to ask for something, and leaves again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from headwater.app.node import DOMAINS
from headwater.clock import SystemChance, SystemClock
from headwater.config import Settings
from headwater.errors import NotFound
from headwater.metadata import open_ledger
from headwater.metadata.cluster import ClusterState, Topic
from headwater.metadata.membership import Membership
from headwater.metadata.replica import Replica
from headwater.metadata.streams import StreamsState
from headwater.objects import ObjectStore, open_store
from headwater.types import Domain


@dataclass(frozen=True, slots=True)
class Visit:
    """All domains, caught up."""

    cluster: Replica[ClusterState]
    domains: dict[Domain, Replica[StreamsState]]
    store: ObjectStore
    settings: Settings

    def topic(self, name: str) -> Topic:
        """A topic by its name."""
        topic = self.cluster.state.names.get(name)
        if topic is None:
            raise NotFound(f"there is no topic {name!r}")
        return topic


@contextlib.asynccontextmanager
async def visit(settings: Settings, *, member: bool = False) -> AsyncIterator[Visit]:
    """Follow a cluster's ledger for a while; as a member one may also append to it."""
    clock, chance = SystemClock(), SystemChance()
    ledger, store = (
        open_ledger(settings.ledger_url, settings.object_store),
        open_store(settings.objects_url, settings.object_store),
    )
    cluster = Replica(ledger, store, ClusterState(), clock, chance)
    domains = {domain: Replica(ledger, store, StreamsState(domain), clock, chance) for domain in DOMAINS}
    membership = Membership(ledger, cluster, domains, clock, chance, zone=settings.zone)
    try:
        await cluster.start()
        for replica in domains.values():
            await replica.start()
        if member:
            await membership.join()
            membership.start()
        yield Visit(cluster, domains, store, settings)
    finally:
        await membership.leave()
        for replica in domains.values():
            await replica.close()
        await cluster.close()
        await ledger.close()
        await store.close()
