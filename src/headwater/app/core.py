"""What every process that reads and writes the log is made of: a broker and a gateway are both built on a `Core`."""

from __future__ import annotations

from collections.abc import Callable

from headwater.background import Background
from headwater.clock import Chance, Clock
from headwater.ledger.contract import Ledger
from headwater.log.damage import Damage
from headwater.log.reader import Reader
from headwater.log.segment.cache import SegmentCache
from headwater.log.wal.cache import WalCache
from headwater.log.wal.zone_cache import PeerTransport, ZoneCache
from headwater.log.write.budget import Budget
from headwater.log.write.writer import Writer
from headwater.log.write.writers import Writers
from headwater.objects import ObjectStore
from headwater.replica.domains import Domains
from headwater.replica.levels import settle_level
from headwater.replica.membership import COMMAND
from headwater.settings.settings import Settings
from headwater.state.cluster.domain import NO_NODE
from headwater.state.commands.cluster import Listener
from headwater.state.streams.state import StreamsState
from headwater.threads import Offload, inline
from headwater.types import Domain


class Core:
    """Replicas, an epoch, writers, caches and a reader, on a given ledger, store, clock and source of randomness.

    With a node id the process is a broker: clients are sent to it, and it coordinates groups. Without one it has an
    epoch like all processes, and its writes are fenced with it, but it appears in no answer to Kafka's clients.
    """

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        store: ObjectStore,
        clock: Clock,
        chance: Chance,
        *,
        node: int = NO_NODE,
        listeners: tuple[Listener, ...] = (),
        make_streams: Callable[[Domain], StreamsState] = StreamsState,
        make_writer: Callable[..., Writer] = Writer,
        offload: Offload = inline,
        openers: tuple[Offload, Offload] = (inline, inline),
        peers: PeerTransport | None = None,
        background: Background | None = None,
        role: str = COMMAND,
    ) -> None:
        self.settings = settings
        self.openers = openers
        self.domains = Domains(
            ledger,
            store,
            clock,
            chance,
            background,
            node=node,
            zone=settings.zone,
            listeners=listeners,
            session_seconds=settings.process_session_ms / 1000,
            make_streams=make_streams,
            role=role,
        )
        self.cluster = self.domains.cluster
        self.membership = self.domains.membership
        self.background = self.domains.background
        self.cache = WalCache(store, settings.cache.wal_bytes)
        self.zone_cache: ZoneCache | None = None
        if peers is not None:
            self.zone_cache = ZoneCache(self.cluster.state, peers, clock, node=node, zone=settings.zone)
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
        self.reader = Reader(self.cache, self.segments, settings.limits.opened_batch_bytes, self.damage, openers[1])

    def __repr__(self) -> str:
        return f"<Core, epoch {self.membership.epoch}>"

    async def start(self) -> None:
        """Catch up with the ledger, take an epoch, and start to write."""
        await self.domains.follow()
        self.writers.start()
        await self.domains.join()
        await settle_level(self.cluster, self.domains)

    async def stop(self) -> None:
        """Finish the writes under way and leave the cluster."""
        await self.writers.drain()
        await self.domains.leave()
