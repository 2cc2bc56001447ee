"""Transactions of both generations beside plain producers, while brokers die, pause and lose their way.

Requests of broken connections arrive later, a compactor settles, records are deleted, offsets are reserved, producers
expire, and a topic that takes part in transactions is deleted and created again. `transaction_rules` has the rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec

from headwater.app.doctor import transactions as doctor_transactions
from headwater.app.node import Node
from headwater.broker.transactions import watcher
from headwater.replica.checkpoint import load_state, replay
from headwater.settings.settings import Transactions
from headwater.state.commands.streams import ExpireProducers, TrimStreams
from headwater.state.commands.transactions import AbortTransaction, InitTransaction
from headwater.state.results import Judgement, Transacted
from headwater.state.streams import transactions
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored import transactions as stored_transactions
from headwater.state.streams.stored.transactions import LAST_EPOCH
from tests.simulation.clients import Client, History, Violation, create_topic, delete_topic
from tests.simulation.cluster import EPOCH_MS, SETTINGS, Disconnected, SimCluster
from tests.simulation.run import Scene, check_metadata, heal, until_done
from tests.simulation.stores import World
from tests.simulation.transacting import ONE, TIMEOUT_SECONDS, Brokers, Truth, release_all, reserves, submits
from tests.simulation.transaction_readers import Compactor, Reader
from tests.simulation.transaction_rules import PLACES, Verdict, check_moment
from tests.simulation.transaction_workers import Plain, Worker

BUSY_SECONDS = 20.0
QUIET_SECONDS = 10.0
"""Time for fences, time-outs and everybody's return."""
LAST_SECONDS = 4.0
"""Time to read to the end."""
EXPIRY_MS = 20_000
"""Longer than a batch is under way. A producer that is forgotten earlier could be doubled, in Kafka too."""
OWN_PRODUCERS = 1_000_000
"""Producer ids from here on are not those that the cluster hands out."""
SIDE = "side"
"""A topic that is deleted and created again."""


@dataclass(frozen=True, slots=True)
class Cast:
    """Which producers there are."""

    second: float
    """The share of workers of the second generation."""
    naive: bool = False
    late: float | None = None
    """The chance that a request arrives late. By default it depends on the seed."""
    last_epoch: int = LAST_EPOCH
    """The epoch after which a fresh producer id is taken."""


class Setting:
    """One seed's cluster, clients and what they know."""

    def __init__(
        self, world: World, cluster: SimCluster, rng: random.Random, state: StreamsState, cast: Cast, admin: Client
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.rng = rng
        self.cast = cast
        self.admin = admin
        self.streams = list(state.streams)
        self.truth = Truth(next(stream.topic for stream in state.streams.values()))
        if cast.last_epoch < LAST_EPOCH:
            self.truth.producers = OWN_PRODUCERS  # brokers take fresh ones too
        self.brokers = Brokers(cluster, random.Random(rng.getrandbits(64)), self.truth)
        late = rng.choice([0.0, 0.08, 0.2])
        self.brokers.late = late if cast.late is None else cast.late
        self.free: list[int] = list(PLACES)
        self.busy = True
        self.reading = True
        self.readers = [
            Reader(self.brokers, stream, self._rng(), committed=committed)
            for stream in self.streams
            for committed in (True, False)
        ]
        self.asides: list[Reader] = []
        """Readers of the topic that is deleted and created again."""

    def _rng(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    # --- clients ---------------------------------------------------------------------------------------

    async def work(self, number: int) -> None:
        second = not self.cast.naive and self.rng.random() < self.cast.second
        worker = Worker(self.brokers, number, self.streams, second=second, naive=self.cast.naive)
        await worker.init()
        while self.busy:
            if not self.free:
                await asyncio.sleep(0.05)
                continue
            place = self.free.pop(worker.rng.randrange(len(self.free)))
            await worker.round(place, self._give_once())
            if worker.rng.random() < 0.1:
                await worker.init()

    def _give_once(self) -> Callable[[int], None]:
        """Gives a place back. A second call does nothing: somebody else may have the place by then."""
        given: list[int] = []

        def give(place: int) -> None:
            if not given:
                given.append(place)
                self.free.append(place)

        return give

    async def write_plainly(self, stream: int) -> None:
        rng, plain = self._rng(), Plain(self.brokers, stream)
        while self.busy:
            await plain.send()
            await asyncio.sleep(rng.random() * 2)

    async def read(self, reader: Reader) -> None:
        rng = self._rng()
        while self.reading:
            await reader.poll()
            await asyncio.sleep(rng.random() * 0.5)

    async def read_aside(self) -> None:
        rng = self._rng()
        while self.reading:
            await asyncio.sleep(rng.random())
            if self.asides:
                await self.asides[-1].poll()

    async def delete_and_create(self) -> None:
        """A topic comes and goes, also while transactions have joined it."""
        rng = self._rng()
        while self.busy:
            await create_topic(self.admin, 1, SIDE)
            known = {*self.streams, *self.truth.side}
            new: list[int] = []
            while not new and self.busy:
                await asyncio.sleep(0.1)
                new = [stream for state in self._states() for stream in state.streams if stream not in known]
            if new:
                self.truth.side.append(new[0])
                self.asides.append(Reader(self.brokers, new[0], self._rng()))
            await asyncio.sleep(rng.random() * 6)
            if self.busy:
                await delete_topic(self.admin, SIDE)

    # --- duties ----------------------------------------------------------------------------------------

    def _states(self) -> list[StreamsState]:
        return [broker.node.domains[ONE].state for broker in self.cluster.brokers.values() if broker.node is not None]

    async def time_out_late(self) -> None:
        """Brokers decide to end transactions, and stop for a moment before they do.

        Each decides before the time is over, and acts after it. The brokers' own watchers end all others.
        """
        rng = self._rng()
        while self.reading:
            await asyncio.sleep(0.3)
            for state in self._states():
                for found in state.transactions.opened():
                    lasted = self.world.loop.now - self.truth.began.get(found.id, self.world.loop.now)
                    if lasted > TIMEOUT_SECONDS - 1 and rng.random() < 0.5:
                        fresh = self.truth.fresh()
                        command = AbortTransaction(found.id, found.number, found.producer, found.epoch, fresh)
                        self.world.loop.call_later(1 + rng.random() * 2, self._abort_now, command)

    def _abort_now(self, command: AbortTransaction) -> None:
        self._start(self._once(partial(self._abort, command)))

    async def _abort(self, command: AbortTransaction, node: Node) -> None:
        lasted = self.world.loop.now - self.truth.began.get(command.id, 0.0)
        [result] = await node.domains[ONE].submit([command])
        assert isinstance(result, Transacted), result
        if result.judgement is Judgement.DONE and lasted < TIMEOUT_SECONDS:
            raise Violation(f"a transaction of {command.id} timed out after {lasted:.1f} s")

    async def settle(self) -> None:
        rng = self._rng()
        compactor = Compactor(self.brokers, self._rng())
        while self.reading:
            await asyncio.sleep(rng.random() * 1.5)
            await compactor.round()

    async def look_on(self) -> None:
        """Look at the state of brokers between their steps, and at what a broker that starts now would have."""
        rng = self._rng()
        while self.reading:
            await asyncio.sleep(rng.random())
            states = self._states()
            if states:
                check_moment(self.truth, rng.choice(states))
            if rng.random() < 0.3:
                await self.compare()
            if self.cluster.failures:
                raise Violation(self.cluster.failures[0])

    async def compare(self) -> StreamsState:
        """The state by the newest checkpoint and what follows. Brokers at the same position must have the same."""
        state = self.cluster.make_streams(ONE)
        await load_state(self.world.verdict_ledger, self.world.store, state)
        await replay(self.world.verdict_ledger, state)
        image = state.image()
        for other in self._states():
            if other.position == state.position and other.image() != image:
                raise Violation(f"a checkpoint and the ledger disagree at {state.position}")
        return state

    # --- misfortunes -----------------------------------------------------------------------------------

    def _start(self, work: Awaitable[Any]) -> None:
        self.world.loop.create_task(work)

    async def misfortunes(self) -> None:
        rng = self._rng()
        while True:
            await asyncio.sleep(rng.expovariate(1 / 2.0))
            node, what = rng.choice(list(self.cluster.brokers)), rng.random()
            if self.cluster.befall(node, what, rng):
                continue
            if what < 0.6:
                self._start(self._trim(rng))
            elif what < 0.75:
                self._start(self._reserve(rng))
            elif what < 0.8 and self.truth.past:
                id, (producer, epoch) = rng.choice(list(self.truth.past.items()))
                zombie = InitTransaction(id, 5_000, self.truth.fresh(), producer, epoch)
                self._start(self._once(submits(zombie)))
            elif what < 0.88:
                expire = ExpireProducers(EPOCH_MS + int(self.world.loop.now * 1_000) - EXPIRY_MS)
                self._start(self._once(submits(expire)))
            else:
                for other in self.cluster.brokers:
                    self.cluster.restart(other)

    async def _once(self, work: Callable[[Node], Awaitable[Any]]) -> None:
        try:
            await self.brokers.ask(work)
        except Disconnected:
            return

    async def _trim(self, rng: random.Random) -> None:
        """Delete records that all have read, so that all records are known in the end.

        Of the topic that comes and goes all records are deleted, also those of open transactions.
        """
        if self.truth.side and rng.random() < 0.4:
            name = self.truth.side[-1]
            ends = [state.streams[name].end for state in self._states() if name in state.streams]
            if ends:
                await self._once(submits(TrimStreams([(name, max(ends))])))
            return
        stream = rng.choice(self.streams)
        position = min(reader.position for reader in self.readers if reader.stream == stream)
        await self._once(submits(TrimStreams([(stream, rng.randint(0, position // 2))])))

    async def _reserve(self, rng: random.Random) -> None:
        """Offsets that are reserved and given up a moment later. Nobody's broker may die in between for long."""
        stream, wait = rng.choice([*self.streams, *self.truth.side[-1:]]), rng.random()
        await self._once(reserves(stream, rng, wait))

    # --- the end ---------------------------------------------------------------------------------------

    async def give_up_reservations(self) -> None:
        """What housekeeping does with reservations whose owners are gone."""
        await self.brokers.insist(release_all, late=False)

    async def verdict(self) -> int:
        state = await self.compare()
        check_metadata(self.world, self.cluster, state)
        return Verdict(self.truth, state, self.streams).check(self.readers, self.asides)


async def _story(world: World, cluster: SimCluster, history: History, rng: random.Random, *, cast: Cast) -> None:
    with contextlib.ExitStack() as stack:
        for module in (stored_transactions, transactions, watcher, doctor_transactions):
            stack.enter_context(patch.object(module, "LAST_EPOCH", cast.last_epoch))
        await _act(world, cluster, history, rng, cast)


async def _act(world: World, cluster: SimCluster, history: History, rng: random.Random, cast: Cast) -> None:
    cluster.reply_lost = rng.choice([0.0, 0.02, 0.1])
    cluster.start()
    admin = Client(cluster, random.Random(rng.getrandbits(64)), history)
    await create_topic(admin, 2)
    states: list[StreamsState] = []
    while not states:
        await asyncio.sleep(0.05)
        states = [b.node.domains[ONE].state for b in cluster.brokers.values() if b.node is not None]
        states = [state for state in states if len(state.streams) == 2]
    setting = Setting(world, cluster, rng, states[0], cast, admin)
    start = asyncio.create_task
    chaos = start(setting.misfortunes())
    duties = [start(setting.read(reader)) for reader in setting.readers]
    duties += [start(duty()) for duty in (setting.time_out_late, setting.settle, setting.look_on, setting.read_aside)]
    writing = [start(setting.work(n)) for n in range(rng.randint(2, 3))]
    writing += [start(setting.write_plainly(stream)) for stream in setting.streams]
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
    count = await setting.verdict()
    history.ack(0, 0, [b""] * count)


_SETTINGS = msgspec.structs.replace(SETTINGS, transactions=Transactions(check_interval_ms=500))


def _scene(cast: Cast) -> Scene:
    return Scene(partial(_story, cast=cast), brokers=(1, 2, 3, 3), settings=_SETTINGS)


TRANSACTIONS = _scene(Cast(second=0.65))
NAIVE = _scene(Cast(second=0.0, naive=True, late=0.2))
"""Clients of the first generation that trust in their epoch. Here the protocol's own hole shows."""
SECOND = _scene(Cast(second=1.0, late=0.2))
"""The same with clients of the second generation, which are as careless. Nothing shows."""
ROLLING = _scene(Cast(second=0.65, last_epoch=3))
"""Producer ids are used up after four epochs: ends, inits and time-outs all roll over."""
