"""Units with conditions and keys beside plain producers and transactions, while nodes die, pause and lose their way.

Requests of broken connections arrive later, a compactor settles, records are deleted, offsets are reserved, and a topic
that takes part in units is deleted and created again. In the end the ledger is copied. Keys are kept for seconds, not
for a day. `auditor` judges every unit a second time; `verdict` has the rules for the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from unittest.mock import patch

import msgspec

from headwater.app.node import Node
from headwater.configs.topics import TopicConfig
from headwater.log.retention import cut_of
from headwater.replica.checkpoint import load_state, replay
from headwater.settings.settings import Transactions
from headwater.state.commands.streams import TrimStreams
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored import keys as stored_keys
from tests.simulation.clients import Client, History, Violation, create_topic, delete_topic
from tests.simulation.cluster import SETTINGS, Disconnected, SimCluster
from tests.simulation.run import Scene as Played
from tests.simulation.run import check_metadata, heal, until_done
from tests.simulation.stores import World
from tests.simulation.transacting import Brokers, Truth, release_all, reserves, submits
from tests.simulation.units.appenders import Appender, Keyed, Plain, Scene, Transactor
from tests.simulation.units.auditor import KEPT_MS, MAX_OWNED, ONE, Auditor
from tests.simulation.units.readers import Compactor, Reader
from tests.simulation.units.verdict import check_copy, check_end

BUSY_SECONDS = 16.0
QUIET_SECONDS = 10.0
"""Time for fences, time-outs and everybody's return."""
LAST_SECONDS = 6.0
"""Time to read and to settle to the end."""
SIDE = "side"
"""A topic that is deleted and created again."""


class _Worker(Protocol):
    async def step(self) -> None: ...


class Setting:
    """One seed's cluster, and who acts in it."""

    def __init__(self, world: World, cluster: SimCluster, rng: random.Random, auditor: Auditor, admin: Client) -> None:
        self.world = world
        self.cluster = cluster
        self.rng = rng
        self.auditor = auditor
        self.admin = admin
        streams = list(auditor.state.streams)
        topic = auditor.state.streams[streams[0]].topic
        self.brokers = Brokers(cluster, self.chance(), Truth(topic))
        self.brokers.late = rng.choice([0.0, 0.08, 0.2])
        self.scene = Scene(self.brokers, auditor, topic, streams)
        self.busy = True
        self.reading = True
        self.readers = [Reader(self.scene, stream, self.chance()) for stream in streams]

    def chance(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    # --- who acts --------------------------------------------------------------------------------------

    def workers(self) -> list[tuple[_Worker, float]]:
        """All who write, each with the longest pause between two steps."""
        scene, rng = self.scene, self.rng
        found: list[tuple[_Worker, float]] = [
            (Appender(scene, n, self.chance()), rng.choice([0.3, 1.0])) for n in range(rng.randint(3, 5))
        ]
        found += [(Keyed(scene, n, self.chance()), 1.2) for n in range(rng.randint(1, 3))]
        found += [(Plain(scene, stream, self.chance()), 2.0) for stream in scene.streams]
        found += [(Transactor(scene, n, self.chance()), 1.5) for n in range(rng.randint(1, 2))]
        return found

    async def work(self, worker: _Worker, pause: float) -> None:
        rng = self.chance()
        while self.busy:
            await worker.step()
            await asyncio.sleep(rng.random() * pause)

    async def read(self, reader: Reader) -> None:
        rng = self.chance()
        while self.reading:
            await reader.poll()
            await asyncio.sleep(rng.random() * 0.4)

    async def delete_and_create(self) -> None:
        """A topic comes and goes, also while units for it are under way."""
        rng = self.chance()
        while self.busy:
            await create_topic(self.admin, 1, SIDE)
            known = {*self.scene.streams, *self.scene.side}
            new: list[int] = []
            while not new and self.busy:
                await asyncio.sleep(0.1)
                new = [stream for state in self._states() for stream in state.streams if stream not in known]
            self.scene.side += new[:1]
            await asyncio.sleep(rng.random() * 6)
            if self.busy:
                await delete_topic(self.admin, SIDE)

    async def settle(self) -> None:
        rng, compactor = self.chance(), Compactor(self.scene, self.chance())
        while self.reading:
            await asyncio.sleep(rng.random() * (1.5 if self.busy else 0.4))
            await compactor.round()

    async def look_on(self) -> None:
        """Fold the ledger before it is truncated, and compare checkpoints with it."""
        rng = self.chance()
        while self.reading:
            await asyncio.sleep(0.1)
            await self.auditor.fold()
            if rng.random() < 0.03:
                await self.compare()
            if self.cluster.failures:
                raise Violation(self.cluster.failures[0])

    def _states(self) -> list[StreamsState]:
        return [broker.node.domains[ONE].state for broker in self.cluster.brokers.values() if broker.node is not None]

    async def compare(self) -> StreamsState:
        """The state by the newest checkpoint and what follows. It must be that of the auditor, who used none."""
        state = self.cluster.make_streams(ONE)
        await load_state(self.world.verdict_ledger, self.world.store, state)
        await replay(self.world.verdict_ledger, state)
        await self.auditor.fold()
        if self.auditor.state.position == state.position and self.auditor.state.image() != state.image():
            raise Violation(f"a checkpoint and the ledger disagree at {state.position}")
        return state

    # --- misfortunes -----------------------------------------------------------------------------------

    def _start(self, work: Awaitable[Any]) -> None:
        self.world.loop.create_task(work)

    async def misfortunes(self) -> None:
        rng = self.chance()
        while True:
            await asyncio.sleep(rng.expovariate(1 / 1.5))
            node, what = rng.choice(list(self.cluster.brokers)), rng.random()
            if self.cluster.befall(node, what, rng):
                continue
            if what < 0.6:
                self._start(self._trim(rng))
            elif what < 0.67:
                self._start(self._retain(rng))
            elif what < 0.87:
                self._start(self._reserve(rng))
            else:
                for other in self.cluster.brokers:
                    self.cluster.restart(other)

    async def _once(self, work: Callable[[Node], Awaitable[Any]]) -> None:
        with contextlib.suppress(Disconnected):
            await self.brokers.ask(work)

    async def _trim(self, rng: random.Random) -> None:
        """Delete records up to anywhere, also into a gap."""
        stream = rng.choice([*self.scene.streams, *self.scene.side[-1:]])
        end = max((state.streams[stream].end for state in self._states() if stream in state.streams), default=0)
        start = rng.randint(0, end // 2)
        gaps = [gap for gap in self.auditor.gaps.get(stream, [])[-5:] if gap[0] + 1 < gap[1] <= end]
        if gaps and rng.random() < 0.7:
            first, last = rng.choice(gaps)
            start = rng.randint(first + 1, last - 1)
        await self._once(submits(TrimStreams([(stream, start)])))

    async def _retain(self, rng: random.Random) -> None:
        """What retention by size does."""
        stream, share = rng.choice(self.scene.streams), rng.random()

        async def work(node: Node) -> None:
            replica = node.domains[ONE]
            found = replica.state.streams.get(stream)
            if found is not None:
                limits = {"retention.ms": "-1", "retention.bytes": str(int(found.size * share))}
                config = TopicConfig.of(limits, {})
                await replica.submit([TrimStreams([(stream, cut_of(replica.state, found, config, 0, 0).start)])])

        await self._once(work)

    async def _reserve(self, rng: random.Random) -> None:
        """Offsets that are reserved and given up a moment later."""
        stream, wait = rng.choice(self.scene.streams), rng.random() * 2
        await self._once(reserves(stream, rng, wait))

    # --- the end ---------------------------------------------------------------------------------------

    async def give_up_reservations(self) -> None:
        """What housekeeping does with reservations whose owners are gone."""
        await self.brokers.insist(release_all, late=False)

    async def verdict(self) -> int:
        state = await self.compare()
        check_metadata(self.world, self.cluster, state)
        for reader in self.readers:
            if reader.position < state.streams[reader.stream].end:
                raise Violation(f"the reader of stream {reader.stream} sticks at {reader.position}")
        count = await check_end(self.world, self.auditor, state, self.scene.streams)
        for node in self.cluster.brokers:
            self.cluster.crash(node)
        await check_copy(self.world, self.auditor, state, self.chance())
        gaps = sum(map(len, self.auditor.gaps.values()))
        self.cluster.note(f"units: {dict(sorted(self.auditor.verdicts.items()))}, {gaps} gaps")
        return count


async def _story(world: World, cluster: SimCluster, history: History, rng: random.Random) -> None:
    with patch.object(stored_keys, "KEPT_MS", KEPT_MS), patch.object(stored_keys, "MAX_OWNED", MAX_OWNED):
        await _act(world, cluster, history, rng)


async def _act(world: World, cluster: SimCluster, history: History, rng: random.Random) -> None:
    cluster.reply_lost = rng.choice([0.0, 0.02, 0.1])
    auditor = Auditor(world)
    cluster.start()
    admin = Client(cluster, random.Random(rng.getrandbits(64)), history)
    await create_topic(admin, 2)
    while len(auditor.state.streams) < 2:
        await asyncio.sleep(0.05)
        await auditor.fold()
    setting = Setting(world, cluster, rng, auditor, admin)
    start = asyncio.create_task
    chaos = start(setting.misfortunes())
    duties = [start(setting.read(reader)) for reader in setting.readers]
    duties += [start(duty()) for duty in (setting.settle, setting.look_on)]
    writing = [start(setting.work(worker, pause)) for worker, pause in setting.workers()]
    writing.append(start(setting.delete_and_create()))
    await until_done([start(asyncio.sleep(BUSY_SECONDS))], [*writing, *duties, chaos])
    chaos.cancel()
    heal(world, cluster)
    setting.brokers.late = 0.0
    setting.busy = False
    await until_done(writing, duties)
    await until_done([start(asyncio.sleep(QUIET_SECONDS))], duties)
    await until_done([start(setting.give_up_reservations())], duties)
    await until_done([start(asyncio.sleep(LAST_SECONDS))], duties)
    setting.reading = False
    await until_done(duties, [])
    history.ack(0, 0, [b""] * await setting.verdict())


_SETTINGS = msgspec.structs.replace(SETTINGS, transactions=Transactions(check_interval_ms=500))
UNITS = Played(_story, brokers=(1, 2, 3, 3), settings=_SETTINGS)
