"""A broker assembled from its parts, on a given ledger, store, clock and source of randomness."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from headwater.app.core import Core
from headwater.background import Background
from headwater.broker.broker import Broker
from headwater.broker.rotation.reporter import PaceReporter
from headwater.clock import Chance, Clock
from headwater.ledger.contract import Ledger
from headwater.log.housekeeping import Housekeeper
from headwater.log.wal import format as wal
from headwater.log.wal.zone_cache import PeerTransport
from headwater.log.write.writer import Writer
from headwater.objects import ObjectStore
from headwater.replica.checkpoint import write_checkpoint
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
        self.core = Core(
            settings,
            ledger,
            store,
            clock,
            chance,
            node=settings.node,
            listeners=listeners,
            make_streams=make_streams,
            make_writer=make_writer,
            offload=offload,
            openers=openers,
            peers=peers,
            background=background,
        )
        self.domains = self.core.domains
        self.cluster = self.core.cluster
        self.membership = self.core.membership
        self.background = self.core.background
        self.cache = self.core.cache
        self.zone_cache = self.core.zone_cache
        self.segments = self.core.segments
        self.writers = self.core.writers
        self.damage = self.core.damage
        self.broker = Broker(settings, self.domains, self.writers, self.core.reader, openers)
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
        await self.core.start()
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
        await self.core.stop()

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
        """Write a checkpoint in this process. Server processes use a child process for large ones."""
        state = ClusterState() if domain == CLUSTER else self._make_streams(domain)
        await write_checkpoint(self.domains.ledger, self.domains.store, state)
