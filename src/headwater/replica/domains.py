"""A cluster's metadata in one process: ledger, store, a replica of every domain, and the process's membership.

Brokers, compactors and commands all start with a `Domains`. It maps the domains that hold streams to their replicas.
Domain 0 is `cluster`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from headwater.background import Background
from headwater.clock import Chance, Clock, SystemChance, host_clock
from headwater.errors import StoreUnavailable
from headwater.ledger import open_ledger
from headwater.ledger.contract import Ledger
from headwater.objects import ObjectStore, open_store
from headwater.replica.clocks import clock_words
from headwater.replica.marking import Marks, Seen
from headwater.replica.membership import COMMAND, SESSION_SECONDS, Membership
from headwater.replica.replica import Replica
from headwater.replica.room import Room
from headwater.settings.settings import Settings
from headwater.state.cluster.domain import NO_NODE
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.cluster import Listener
from headwater.state.streams.state import StreamsState
from headwater.types import CLUSTER, STREAM_DOMAINS, Domain


def new_state(domain: Domain) -> ClusterState | StreamsState:
    """The empty state of a domain."""
    return ClusterState() if domain == CLUSTER else StreamsState(domain)


class Domains(Mapping[Domain, Replica[StreamsState]]):
    """All domains of one process. Nothing runs before `follow`."""

    def __init__(
        self,
        ledger: Ledger,
        store: ObjectStore,
        clock: Clock,
        chance: Chance,
        background: Background | None = None,
        *,
        node: int = NO_NODE,
        zone: str = "",
        listeners: tuple[Listener, ...] = (),
        session_seconds: float = SESSION_SECONDS,
        make_streams: Callable[[Domain], StreamsState] = StreamsState,
        role: str = COMMAND,
    ) -> None:
        self.ledger = ledger
        self.store = store
        self.clock = clock
        self.chance = chance
        self.background = background or Background(clock)
        self.room = Room(clock)
        self.cluster = Replica(ledger, store, ClusterState(), clock, chance, self.background, self.room)
        self._streams = {
            domain: Replica(ledger, store, make_streams(domain), clock, chance, self.background, self.room)
            for domain in STREAM_DOMAINS
        }
        self.marks = Marks(ledger, store, serves=role != COMMAND or node != NO_NODE)
        self.membership = Membership(
            ledger,
            self.cluster,
            self._streams,
            clock,
            chance,
            node=node,
            zone=zone,
            listeners=listeners,
            session_seconds=session_seconds,
            background=self.background,
            role=role,
        )

    @classmethod
    def open(
        cls,
        settings: Settings,
        background: Background | None = None,
        role: str = COMMAND,
        *,
        accepting: bool = False,
    ) -> Domains:
        """Open the ledger and the store that the settings name, for a process that serves no clients.

        With `accepting`, a ledger that has gone back is opened as far as it is sound.
        """
        clock = host_clock()
        background = background or Background(clock)
        ledger = open_ledger(settings.ledger_url, settings.object_store, background, accepting=accepting)
        store = open_store(settings.objects_url, settings.object_store)
        session = settings.process_session_ms / 1000
        chance = SystemChance()
        return cls(ledger, store, clock, chance, background, zone=settings.zone, session_seconds=session, role=role)

    def __repr__(self) -> str:
        return f"<Domains {[self.cluster, *self._streams.values()]}>"

    def clock_words(self) -> list[str]:
        """What is wrong with the wall clocks of the cluster's processes."""
        return clock_words(self.cluster.state, self.clock)

    def __getitem__(self, domain: Domain) -> Replica[StreamsState]:
        return self._streams[domain]

    def __iter__(self) -> Iterator[Domain]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    async def follow(self, *, accepting: bool = False) -> Seen:
        """Catch up with every domain, and follow them from then on.

        Raises if the ledger has gone back, unless the caller is about to accept that. Returns what told.
        """
        seen = await self.marks.look()
        await self.cluster.start()
        for replica in self._streams.values():
            await replica.start()
        if not accepting:
            seen.check(self.cluster.state, [replica.state for replica in self._streams.values()])
        return seen

    async def bad_checkpoints(self) -> list[str]:
        """Checkpoints that could not be read when this process was started, and that are not replaced yet."""
        found = []
        replicas: list[Replica[ClusterState] | Replica[StreamsState]] = [self.cluster, *self.values()]
        for replica in replicas:
            with contextlib.suppress(StoreUnavailable):
                await replica.look_at_checkpoints()
            found += [str(bad) for bad in replica.bad_checkpoints]
        return found

    async def join(self) -> None:
        """Take an epoch, so that the process can append, and keep it."""
        await self.membership.join()
        self.membership.start()
        self.marks.start(self.background, self.cluster, self._streams)

    async def leave(self) -> None:
        """Fence the process's own epoch and stop following."""
        await self.membership.leave()
        await self.marks.end(self.cluster, self._streams)
        for replica in self._streams.values():
            await replica.close()
        await self.cluster.close()

    async def close(self) -> None:
        """Leave, and close ledger and store."""
        await self.leave()
        await self.ledger.close()
        await self.store.close()
