"""A broker put together from its parts, on whatever ledger, store, clock and chance it is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from headwater.broker.core import Broker
from headwater.broker.watching import Watch
from headwater.clock import Chance, Clock
from headwater.config import Settings
from headwater.log import wal
from headwater.log.housekeeping import Housekeeper
from headwater.log.reader import Reader
from headwater.log.segment_cache import SegmentCache
from headwater.log.wal_cache import WalCache
from headwater.log.writer import Writer, Writers
from headwater.log.zone_cache import PeerTransport, ZoneCache
from headwater.metadata.checkpoint import write_checkpoint
from headwater.metadata.cluster import ClusterState
from headwater.metadata.commands import Listener
from headwater.metadata.ledger import Ledger
from headwater.metadata.membership import Membership
from headwater.metadata.replica import Replica
from headwater.metadata.streams import StreamsState
from headwater.objects import ObjectMissing, ObjectStore
from headwater.threads import Offload, inline
from headwater.types import CLUSTER, Buffer, Domain, WalId

DOMAINS = (Domain(1),)


def new_state(domain: Domain) -> ClusterState | StreamsState:
    """The empty state of a domain."""
    return ClusterState() if domain == CLUSTER else StreamsState(domain)


class Node:
    """One broker without its sockets: everything that the simulation runs too."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        store: ObjectStore,
        clock: Clock,
        chance: Chance,
        *,
        listeners: tuple[Listener, ...],
        make_streams: Callable[[Domain], StreamsState] = StreamsState,
        make_writer: Callable[..., Writer] = Writer,
        checkpoint: Callable[[Domain], Awaitable[None]] | None = None,
        offload: Offload = inline,
        peers: PeerTransport | None = None,
    ) -> None:
        self.settings = settings
        self._ledger = ledger
        self._store = store
        self._make_streams = make_streams
        self.cluster = Replica(ledger, store, ClusterState(), clock, chance)
        self.domains = {domain: Replica(ledger, store, make_streams(domain), clock, chance) for domain in DOMAINS}
        self.membership = Membership(
            ledger,
            self.cluster,
            self.domains,
            clock,
            chance,
            node=settings.node,
            zone=settings.zone,
            listeners=listeners,
        )
        self.cache = WalCache(store, settings.cache.wal_bytes)
        self.zone_cache: ZoneCache | None = None
        if peers is not None:
            self.zone_cache = ZoneCache(self.cluster.state, peers, clock, node=settings.node, zone=settings.zone)
            self.cache.neighbours = self.zone_cache
        self.segments = SegmentCache(store, settings.cache.segment_bytes, offload)
        self.writers = Writers(
            self.domains,
            store,
            self.cache,
            {"cost": settings.wal.cost, "latency": settings.wal.latency},
            clock,
            zone=settings.zone,
            hold_ms=settings.wal.hold_ms,
            make=make_writer,
        )
        self.membership.on_epoch = self.writers.join
        self.broker = Broker(
            settings,
            self.cluster,
            self.domains,
            self.membership,
            self.writers,
            Reader(self.cache, self.segments, settings.limits.opened_batch_bytes),
            clock,
            chance,
            offload,
        )
        self.watch = Watch(
            self.cluster,
            self.membership,
            store,
            self.broker.pace,
            settings.brownout,
            clock,
            node=settings.node,
        )
        self.housekeeper = Housekeeper(
            self.cluster,
            self.domains,
            store,
            self.broker.topics,
            settings.housekeeping,
            clock,
            chance,
            checkpoint or self.checkpoint_here,
        )

    def __repr__(self) -> str:
        return f"<Node {self.settings.node}>"

    async def start(self) -> None:
        """Catch up, take an epoch, and begin to work."""
        await self.cluster.start()
        for replica in self.domains.values():
            await replica.start()
        self.writers.start()
        await self.membership.join()
        self.membership.start()
        self.broker.coordinator.start()
        self.housekeeper.start()
        self.watch.start()

    async def stop(self) -> None:
        """Finish what is under way and leave the cluster."""
        await self.watch.close()
        await self.housekeeper.close()
        await self.broker.coordinator.close()
        await self.writers.drain()
        await self.membership.leave()
        for replica in self.domains.values():
            await replica.close()
        await self.cluster.close()

    async def wal_object(self, domain: int, object_id: WalId) -> Sequence[Buffer] | None:
        """A WAL object that another broker asks for: from memory, or from the store, but from no third one."""
        replica = self.domains.get(Domain(domain))
        if replica is None:
            return None
        known = replica.state.objects.get(object_id)
        if known is None:
            await replica.barrier()
            known = replica.state.objects.get(object_id)
        if known is None:
            return None
        try:
            path = wal.path_of(known.zone, domain, known.created_ms, object_id)
            [cached] = await self.cache.load(domain, [(object_id, path)], alone=True)
        except ObjectMissing:
            return None
        return cached.pieces()

    async def checkpoint_here(self, domain: Domain) -> None:
        """Write a checkpoint in this process. A server leaves that to a child."""
        state = ClusterState() if domain == CLUSTER else self._make_streams(domain)
        await write_checkpoint(self._ledger, self._store, state)
