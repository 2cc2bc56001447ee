"""A broker assembled from its parts, on a given ledger, store, clock and source of randomness."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from headwater.background import Background
from headwater.broker.broker import Broker
from headwater.broker.rotation.reporter import PaceReporter
from headwater.clock import Chance, Clock
from headwater.ledger.contract import Ledger
from headwater.log.damage import Damage
from headwater.log.housekeeping import Housekeeper
from headwater.log.reader import Reader
from headwater.log.segment.cache import SegmentCache
from headwater.log.wal import format as wal
from headwater.log.wal.cache import WalCache
from headwater.log.wal.zone_cache import PeerTransport, ZoneCache
from headwater.log.write.budget import Budget
from headwater.log.write.writer import Writer
from headwater.log.write.writers import Writers
from headwater.objects import ObjectStore
from headwater.replica.checkpoint import write_checkpoint
from headwater.replica.domains import Domains
from headwater.replica.levels import settle_level
from headwater.settings.settings import Settings
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.cluster import Listener
from headwater.state.streams.state import StreamsState
from headwater.threads import Offload, inline
from headwater.types import CLUSTER, Buffer, Domain, WalId


class Node:
    """One broker without its sockets. The simulation runs the same."""

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
        openers: tuple[Offload, Offload] = (inline, inline),
        peers: PeerTransport | None = None,
        background: Background | None = None,
    ) -> None:
        self.settings = settings
        self._make_streams = make_streams
        self.domains = Domains(
            ledger,
            store,
            clock,
            chance,
            background,
            node=settings.node,
            zone=settings.zone,
            listeners=listeners,
            session_seconds=settings.process_session_ms / 1000,
            make_streams=make_streams,
        )
        self.cluster = self.domains.cluster
        self.membership = self.domains.membership
        self.background = self.domains.background
        self.cache = WalCache(store, settings.cache.wal_bytes)
        self.zone_cache: ZoneCache | None = None
        if peers is not None:
            self.zone_cache = ZoneCache(self.cluster.state, peers, clock, node=settings.node, zone=settings.zone)
            self.cache.neighbours = self.zone_cache
        self.segments = SegmentCache(store, settings.cache.segment_bytes, offload)
        self.writers = Writers(
            self.domains,
            self.cache,
            {"cost": settings.wal.cost, "latency": settings.wal.latency},
            zone=settings.zone,
            hold_ms=settings.wal.hold_ms,
            budget=Budget(settings.limits.broker_inflight_bytes),
            make=make_writer,
        )
        self.membership.on_epoch = self.writers.join
        self.damage = Damage(self.domains)
        reader = Reader(self.cache, self.segments, settings.limits.opened_batch_bytes, self.damage, openers[1])
        self.broker = Broker(settings, self.domains, self.writers, reader, openers)
        self.reporter = PaceReporter(self.domains, self.broker.pace, settings.brownout, node=settings.node)
        self.housekeeper = Housekeeper(
            self.domains,
            self.broker.topics,
            settings.housekeeping,
            checkpoint or self.checkpoint_here,
            settings.transactions.id_expiry_ms,
        )

    def __repr__(self) -> str:
        return f"<Node {self.settings.node}>"

    async def start(self) -> None:
        """Catch up with the ledger, take an epoch, and start the duties."""
        await self.domains.follow()
        self.writers.start()
        await self.domains.join()
        await settle_level(self.cluster, self.domains)
        self.broker.coordinator.start()
        self.broker.transactions.start()
        self.housekeeper.start()
        self.reporter.start()

    async def stop(self) -> None:
        """Finish the work under way and leave the cluster."""
        await self.reporter.close()
        await self.housekeeper.close()
        await self.broker.transactions.close()
        await self.broker.coordinator.close()
        await self.writers.drain()
        await self.domains.leave()

    async def wal_object(self, domain: int, object_id: WalId) -> Sequence[Buffer] | None:
        """A WAL object that another broker asks for, from memory or the store. No third broker is asked.

        None if the object is unknown, missing or damaged: the other broker then reads the store itself.
        """
        replica = self.domains.get(Domain(domain))
        if replica is None:
            return None
        known = replica.state.objects.get(object_id)
        if known is None:
            await replica.barrier()
            known = replica.state.objects.get(object_id)
        if known is None:
            return None
        path = wal.path_of(known.zone, domain, known.created_ms, object_id)
        [cached] = await self.cache.load(domain, [(object_id, path)], alone=True)
        return cached.pieces() if cached.is_whole() else None

    async def checkpoint_here(self, domain: Domain) -> None:
        """Write a checkpoint in this process. Server processes use a child process instead."""
        state = ClusterState() if domain == CLUSTER else self._make_streams(domain)
        await write_checkpoint(self.domains.ledger, self.domains.store, state)
