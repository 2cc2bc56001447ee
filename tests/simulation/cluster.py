"""Brokers in a simulated world, and the connections that clients have to them."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.loop import CURRENT, Life, run_as
from headwater.app.node import Node
from headwater.broker import handlers as _registered  # noqa: F401 - fills the registry
from headwater.broker.registry import APIS
from headwater.broker.request import Request
from headwater.clock import WaryClock
from headwater.errors import DutyFailed, HeadwaterError
from headwater.log.write.writer import Writer
from headwater.settings.settings import Brownout, Groups, Housekeeping, Profile, Settings, Wal
from headwater.state.cluster.domain import Process
from headwater.state.commands.cluster import Listener
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from headwater.wire.build import build
from headwater.wire.messages import RequestStart, request_type
from tests.simulation.stores import SimStore, World

EPOCH_MS = 1_700_000_000_000


RIGHT: Mapping[int, int] = {}
"""Clocks of no node are wrong by far."""


class Disconnected(Exception):
    """The connection broke; what was under way on it may or may not have been done."""


class SimClock:
    """The clocks of a node's host: virtual, and off by a little. The wall clock may be wrong by far."""

    def __init__(self, world: World, skew_ms: int, wrong_ms: Mapping[int, int] = RIGHT, node: int = 0) -> None:
        self._world = world
        self._skew_ms = skew_ms
        self._wrong_ms = wrong_ms
        self._node = node

    def wall_ms(self) -> int:
        wrong = self._wrong_ms.get(self._node, 0) if self._wrong_ms else 0
        return EPOCH_MS + int(self._world.loop.now * 1000) + self._skew_ms + wrong

    def monotonic(self) -> float:
        return self._world.loop.now


class SimChance:
    """A node's randomness."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def fraction(self) -> float:
        return self._rng.random()

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._rng.getrandbits(128), version=4)


SETTINGS = Settings(
    default_partitions=2,
    wal=Wal(latency=Profile(object_bytes=1 << 20, min_interval_ms=0, gather_ms=1, flushes=2), hold_ms=300),
    objects="memory://",
    brownout=Brownout(interval_ms=200, floor_ms=10, factor=1, after_ms=200, back_ms=600, groups_after_ms=8_000),
    groups=Groups(
        initial_rebalance_delay_ms=0,
        consumer_session_timeout_ms=6_000,
        consumer_heartbeat_interval_ms=500,
        check_interval_ms=1_000,
    ),
    housekeeping=Housekeeping(
        interval_ms=400,
        lease_ms=3_000,
        dead_object_grace_ms=300,
        orphan_interval_ms=1_000,
        checkpoint_bytes=3_000,
    ),
)


WRONGLY_REFUSED = 0.05
"""Of connections to brokers that live, but show no signs of it."""


class SimBroker:
    """One life of one broker."""

    def __init__(self, cluster: SimCluster, node_id: int) -> None:
        self.life = Life(f"broker-{node_id}")
        self.node: Node | None = None
        self._cluster = cluster
        self._node_id = node_id
        self._connections: dict[Connection, None] = {}
        self.life.on_crash.append(self._reset)

    @property
    def serves(self) -> bool:
        return self.node is not None and not self.life.dead

    def boot(self) -> None:
        run_as(self.life, self._boot())

    async def _boot(self) -> None:
        cluster = self._cluster
        rng = random.Random(cluster.world.rng.getrandbits(64))
        chance = SimChance(rng)
        node = Node(
            msgspec.structs.replace(cluster.settings, node=self._node_id),
            cluster.world.open_ledger(chance),
            SimStore(cluster.world),
            WaryClock(
                SimClock(cluster.world, rng.randint(-cluster.skew_ms, cluster.skew_ms), cluster.wrong_ms, self._node_id)
            ),
            chance,
            listeners=(Listener("PLAINTEXT", f"host{self._node_id}", 9092),),
            make_streams=cluster.make_streams,
            make_writer=cluster.make_writer,
        )
        node.background.on_failed = self._failed
        node.membership.on_replaced = self._exit
        node.membership.gone = cluster.nobody_serves
        try:
            await node.start()
        except HeadwaterError as error:
            self._exit(error)
            return
        self.node = node

    def _failed(self, failure: DutyFailed) -> None:
        """Nothing in the simulation may kill a duty."""
        self._cluster.failures.append(f"{self.life.name}: {failure}")
        self._exit(failure)

    def _exit(self, error: HeadwaterError) -> None:
        """The process ends by itself; a supervisor starts it again."""
        self._cluster.note(f"{self.life.name} exits: {error!r}")
        self.life.crash()
        self._cluster.world.loop.outside(0.5, self._cluster.restart, self._node_id)

    def _reset(self) -> None:
        for connection in self._connections:
            self._cluster.world.loop.outside(self._cluster.world.delay(), connection.broken, connection.generation)
        self._cluster.note(f"{self.life.name} crashed")

    def receive(self, key: int, version: int, body: Any, reply: _Reply, connection: Connection) -> None:
        """A request arrives."""
        if not self.serves:
            connection.broken(connection.generation)
            return
        self._connections[connection] = None
        run_as(self.life, self._handle(key, version, body, reply, connection))

    async def _handle(self, key: int, version: int, body: Any, reply: _Reply, connection: Connection) -> None:
        assert self.node is not None
        world, generation = self._cluster.world, connection.generation
        request = Request(RequestStart(key, version, 0), "sim", body, self)  # type: ignore[arg-type]
        answer = APIS[key].handle(self.node.broker, request)
        if isinstance(answer, Awaitable):
            answer = await answer
        if world.chance(self._cluster.reply_lost):
            world.loop.outside(world.delay(), connection.broken, generation)
        else:
            world.loop.outside(world.delay(), connection.answered, reply, answer)

    listener = "PLAINTEXT"
    peer = "127.0.0.1:5555"
    software = ("", "")
    principal = "User:ANONYMOUS"
    host = "127.0.0.1"
    login = None


@dataclass(eq=False, slots=True)
class _Reply:
    future: asyncio.Future[Any]
    answered: bool = False
    answer: Any = None


class Connection:
    """One client's connection to one broker: requests arrive in the order they were sent, answers come in that order.

    When it breaks, everything under way on it fails, and the next request opens it anew.
    """

    def __init__(self, cluster: SimCluster, node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._arrival = 0.0
        self._waiting: deque[_Reply] = deque()
        self.generation = 0

    def send(self, key: int, version: int, **fields: Any) -> asyncio.Future[Any]:
        world = self._cluster.world
        future: asyncio.Future[Any] = world.loop.create_future()
        future.add_done_callback(_looked_at)
        reply = _Reply(future)
        self._waiting.append(reply)
        # Never two at one time: timers of one time fire in any order.
        self._arrival = max(self._arrival + 1e-6, world.loop.now + world.delay())
        body = build(request_type(key, version), **fields)
        world.loop.outside(self._arrival - world.loop.now, self._arrive, key, version, body, reply)
        return future

    def _arrive(self, key: int, version: int, body: Any, reply: _Reply) -> None:
        if not reply.future.done():
            self._cluster.brokers[self._node_id].receive(key, version, body, reply, self)

    def answered(self, reply: _Reply, answer: Any) -> None:
        """An answer is there; it is told when those before it are."""
        reply.answered, reply.answer = True, answer
        while self._waiting and self._waiting[0].answered:
            first = self._waiting.popleft()
            if not first.future.done():
                first.future.set_result(first.answer)

    def broken(self, generation: int) -> None:
        """The connection broke."""
        if generation != self.generation:
            return
        self.generation += 1
        waiting, self._waiting = self._waiting, deque()
        for reply in waiting:
            if not reply.future.done():
                reply.future.set_exception(Disconnected())


def _looked_at(reply: asyncio.Future[Any]) -> None:
    if not reply.cancelled():
        reply.exception()


class SimCluster:
    """Several brokers on one ledger and one store."""

    def __init__(
        self,
        world: World,
        count: int,
        *,
        make_streams: Callable[[Domain], StreamsState] = StreamsState,
        make_writer: Callable[..., Writer] = Writer,
        settings: Settings = SETTINGS,
    ) -> None:
        self.world = world
        self.settings = settings
        self.make_streams = make_streams
        self.make_writer = make_writer
        self.reply_lost = 0.0
        self.skew_ms = 50
        """How far the clocks of brokers are off at most."""
        self.wrong_ms: dict[int, int] = {}
        """How far the wall clocks of some nodes are off beyond that."""
        self.log: list[str] = []
        self.failures: list[str] = []
        """Duties that failed, of any broker."""
        self.brokers = {i: SimBroker(self, i) for i in range(1, count + 1)}

    def note(self, what: str) -> None:
        self.log.append(f"{self.world.loop.now:8.3f} {what}")

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.boot()

    def crash(self, node_id: int) -> None:
        self.brokers[node_id].life.crash()

    def restart(self, node_id: int) -> None:
        """Start a new life of a node that has crashed."""
        if self.brokers[node_id].life.dead:
            self.note(f"broker-{node_id} restarts")
            self.brokers[node_id] = SimBroker(self, node_id)
            self.brokers[node_id].boot()

    def befall(self, node_id: int, what: float, rng: random.Random) -> bool:
        """Hurt a broker; returns whether `what`, a random number, is one of its misfortunes: those are below 0.45."""
        if what < 0.2:
            life = self.brokers[node_id].life
            life.crash_at_step = life.steps + rng.randint(1, 400)
            self.world.loop.call_later(1 + rng.random() * 5, self.restart, node_id)
        elif what < 0.3:
            self.crash(node_id)  # and it begins with the newest checkpoint
            self.restart(node_id)
        elif what < 0.45:
            self.pause(node_id, rng.random() * 10)
        return what < 0.45

    def pause(self, node_id: int, seconds: float) -> None:
        self.note(f"broker-{node_id} pauses for {seconds:.2f} s")
        self.brokers[node_id].life.paused_until = self.world.loop.now + seconds

    async def nobody_serves(self, member: Process) -> bool:
        """What a connection to a member tells; now and then it is refused though the member lives."""
        await asyncio.sleep(self.world.delay())
        return not self.brokers[member.node].serves or self.world.chance(WRONGLY_REFUSED)

    def serving(self) -> list[int]:
        return [i for i, broker in self.brokers.items() if broker.serves]


assert CURRENT.get() is None
