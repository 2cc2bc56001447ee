"""Queries that take their time, while what they read is settled, merged, trimmed, deleted and collected.

Every node is a gateway, too: it has holds, and queries run on it. Nodes die, pause and lose their epochs. A compactor
and the housekeeping of the nodes delete what they may, with the product's own code; no follower keeps anything. A query
looks at the store until it ends: a file or object of its snapshot that is gone is a violation, unless its process was
fenced. In the end nothing may be left that only a hold could have kept.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Sequence

from harness.loop import run_as
from headwater.app.node import Node
from headwater.errors import HeadwaterError
from headwater.lake.compactor import Compactor
from headwater.lake.spark.executor import perform
from headwater.lake.tasks import Task, TaskFacts
from headwater.log.batch import check_batch
from headwater.log.write.part import Part
from headwater.query.holding import Holding
from headwater.query.snapshot import Snapshot, take
from headwater.query.wanted import Wanted
from headwater.replica.checkpoint import load_state, replay
from headwater.settings.settings import Lake
from headwater.state.commands.base import Tick
from headwater.state.commands.streams import TrimStreams
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.simulation.clients import Client, History, Violation, create_topic, delete_topic
from tests.simulation.cluster import EPOCH_MS, SimBroker, SimCluster
from tests.simulation.run import Scene as Played
from tests.simulation.run import check_metadata, heal, until_done
from tests.simulation.stores import World
from tests.support.batches import Rec, batch
from tests.support.virtual_nodes import LAX, One

ONE = Domain(1)
BUSY_SECONDS = 14.0
QUIET_SECONDS = 10.0
"""Time for fences, the last queries and settling."""
LAST_SECONDS = 6.0
"""Time to let go and to delete."""
LONGEST_SECONDS = 6.0
"""No query takes longer, unless its node pauses."""
SIDE = "side"
"""A topic that is deleted and created again."""
LAKE = Lake(freshness_ms=1, merge_files=3, lease_ms=2_000, orphan_interval_ms=1_000)


class Gateway:
    """What one life of a node has besides the broker: holds, queries, and a compactor."""

    def __init__(self, setting: Setting, broker: SimBroker, node: Node, rng: random.Random) -> None:
        self._setting = setting
        self._rng = rng
        self._node = node
        self._replica = node.domains[ONE]
        self._holding = Holding(node.domains)
        self._compactor = Compactor(node.domains, self._run_job, LAKE, slots=1)
        for work in (self._renew(), self._compact(), *(self._ask() for _ in range(2))):
            run_as(broker.life, self._watched(work))

    async def _watched(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the verdict
            self._setting.cluster.failures.append(f"{type(error).__name__}: {error}")

    async def _run_job(self, tag: str, tasks: Sequence[Task]) -> list[TaskFacts]:
        return [await perform(self._node.domains.store, task) for task in tasks]

    async def _renew(self) -> None:
        while self._setting.acting:
            await asyncio.sleep(self._rng.random())
            await self._holding.renew()

    async def _compact(self) -> None:
        while self._setting.acting:
            await asyncio.sleep(self._rng.random() * 0.8)
            await self._compactor.round()

    async def _ask(self) -> None:
        while self._setting.asking:
            await asyncio.sleep(self._rng.random())
            try:
                await self._query()
            except HeadwaterError:
                continue

    async def _query(self) -> None:
        replica = self._replica
        await replica.barrier()
        tables = [table for table in replica.state.tables.values() if not table.dropped]
        topics = list(dict.fromkeys(stream.topic for stream in replica.state.streams.values()))
        if not topics:
            return
        topic, version = self._rng.choice(topics), None
        if tables and self._rng.random() < 0.4:
            table = self._rng.choice(tables)
            topic, version = table.topic, max(0, table.last_sequence - self._rng.randint(0, 4))
        async with self._holding.query() as held:
            if version is not None:
                await held.pin(topic, version)
            if held.lost or topic not in self._node.domains.cluster.state.topics:
                return
            snapshot = self._take(topic, version)
            epoch = held.begun[ONE][0]
            await self._read(snapshot, epoch)

    def _take(self, topic: uuid.UUID, version: int | None) -> Snapshot:
        state = self._replica.state
        streams = [stream for stream in state.streams.values() if stream.topic == topic]
        return take(state, topic, streams, Wanted(version=version))

    async def _read(self, snapshot: Snapshot, epoch: int) -> None:
        """Look for all that the snapshot names, again and again."""
        paths = [file.path for file in snapshot.files] + [run.path for part in snapshot.hot for run in part.runs]
        now = self._setting.world.loop
        until = now.now + self._rng.random() ** 2 * LONGEST_SECONDS
        while True:
            await self._setting.check(paths, epoch, f"version {snapshot.version} of {snapshot.topic}")
            if now.now >= until:
                break
            await asyncio.sleep(self._rng.random() * 0.5)
        self._setting.queries += 1


class Setting:
    """One seed's cluster, and who acts in it."""

    def __init__(self, world: World, cluster: SimCluster, rng: random.Random, admin: Client) -> None:
        self.world = world
        self.cluster = cluster
        self.rng = rng
        self.admin = admin
        self.busy = self.asking = self.acting = True
        self.queries = 0
        self._known: set[Node] = set()

    def chance(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    async def state(self) -> StreamsState:
        """The state at the end of the ledger."""
        state = self.cluster.make_streams(ONE)
        await load_state(self.world.verdict_ledger, self.world.store, state)
        await replay(self.world.verdict_ledger, state)
        return state

    async def check(self, paths: Sequence[str], epoch: int, what: str) -> None:
        gone = [path for path in paths if path not in self.world.store.objects]
        if gone and not (await self.state()).is_fenced(epoch):
            self.cluster.failures.append(f"{gone[0]} is gone, which a query reads: {what}, held by epoch {epoch}")

    async def look_on(self) -> None:
        """Make gateways of nodes that have started, and let failures through."""
        while self.acting:
            await asyncio.sleep(0.05)
            for broker in self.cluster.brokers.values():
                if broker.node is not None and broker.node not in self._known:
                    self._known.add(broker.node)
                    Gateway(self, broker, broker.node, self.chance())
            if self.cluster.failures:
                raise Violation(self.cluster.failures[0])

    # --- who acts --------------------------------------------------------------------------------------

    async def write(self) -> None:
        rng = self.chance()
        while self.busy:
            await asyncio.sleep(rng.random() * 0.3)
            serving = self.cluster.serving()
            if not serving:
                continue
            broker = self.cluster.brokers[rng.choice(serving)]
            if broker.node is not None:
                run_as(broker.life, self._append(broker.node, rng))

    async def _append(self, node: Node, rng: random.Random) -> None:
        streams = list(node.domains[ONE].state.streams)
        if not streams:
            return
        stamp = EPOCH_MS + int(self.world.loop.now * 1_000)
        data = check_batch(batch([Rec(b"value", timestamp=stamp)] * rng.randint(1, 3)), LAX, stamp)
        caller = One()
        node.writers.of(ONE, "latency").append(Part(rng.choice(streams), data, caller, 0))
        await caller.done

    async def delete_and_create(self) -> None:
        rng = self.chance()
        while self.busy:
            await create_topic(self.admin, 1, SIDE)
            await asyncio.sleep(1 + rng.random() * 4)
            await delete_topic(self.admin, SIDE)

    async def misfortunes(self) -> None:
        rng = self.chance()
        while True:
            await asyncio.sleep(rng.expovariate(1 / 1.5))
            node, what = rng.choice(list(self.cluster.brokers)), rng.random()
            if self.cluster.befall(node, what, rng):
                continue
            if what < 0.8:
                broker = self.cluster.brokers[node]
                if broker.node is not None and broker.serves:
                    run_as(broker.life, self._trim(broker.node, rng))
            else:
                for other in self.cluster.brokers:
                    self.cluster.restart(other)

    async def _trim(self, node: Node, rng: random.Random) -> None:
        replica = node.domains[ONE]
        starts = [(int(stream.id), rng.randint(0, stream.end)) for stream in replica.state.streams.values()]
        try:
            if starts:
                await replica.submit([TrimStreams([rng.choice(starts)])])
        except HeadwaterError:
            return

    # --- the end ---------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Move the time of the ledger, as every process does now and then."""
        for broker in self.cluster.brokers.values():
            if broker.node is not None:
                run_as(broker.life, self._tick(broker.node))

    async def _tick(self, node: Node) -> None:
        await node.domains[ONE].submit([Tick()])

    async def verdict(self) -> None:
        state = await self.state()
        check_metadata(self.world, self.cluster, state)
        for table in state.tables.values():
            left = [file.name for file in table.files.values() if file.removed and not file.references]
            if left or table.dropped:
                raise Violation(f"{table.root}: {left or 'the table'} is kept, though no query runs: {state.held}")
        dead = [name for name, _ in state.objects.dead()]
        if dead:
            raise Violation(f"{dead[0]} is kept, though no query runs: {state.held}")
        live = {epoch for epoch, _ in state.held if not state.is_fenced(epoch)}
        if len(live) != len(state.held):
            raise Violation(f"fenced epochs have holds: {state.held}")
        self.cluster.note(f"{self.queries} queries")


async def _story(world: World, cluster: SimCluster, history: History, rng: random.Random) -> None:
    cluster.reply_lost = rng.choice([0.0, 0.02])
    cluster.skew_ms = rng.choice([50, 5_000])  # the more they differ, the more often times tie
    cluster.start()
    admin = Client(cluster, random.Random(rng.getrandbits(64)), history)
    await create_topic(admin, 2)
    setting = Setting(world, cluster, rng, admin)
    start = asyncio.create_task
    chaos, watching = start(setting.misfortunes()), start(setting.look_on())
    writing = [start(setting.write()), start(setting.delete_and_create())]
    await until_done([start(asyncio.sleep(BUSY_SECONDS))], [*writing, watching, chaos])
    chaos.cancel()
    heal(world, cluster)
    setting.busy = False
    await until_done(writing, [watching])
    setting.asking = False
    await until_done([start(asyncio.sleep(QUIET_SECONDS))], [watching])
    setting.tick()
    await until_done([start(asyncio.sleep(LAST_SECONDS))], [watching])
    setting.acting = False
    await until_done([watching], [])
    await asyncio.sleep(2)  # until the last rounds are over
    await setting.verdict()
    history.ack(0, 0, [b""] * setting.queries)


HOLDS = Played(_story, brokers=(1, 2, 3, 3))
