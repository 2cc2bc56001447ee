"""Transactions of both generations beside plain producers, while brokers die, pause and lose their way.

The rules follow Jepsen's Kafka workload: no record of an aborted transaction is read, a transaction is read as a whole
or not at all, nothing that was committed is lost or doubled, no poll skips a record or goes back, no stable offset
falls, every input has one output, and all comes to an end.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

from headwater.app.node import Node
from headwater.replica.checkpoint import load_state, replay
from headwater.state.commands.base import TakeLease
from headwater.state.commands.streams import ExpireProducers, TrimStreams
from headwater.state.commands.tables import NewFile, Release, Reserve, SegmentRun, SettleRuns
from headwater.state.commands.transactions import AbortTransaction, InitTransaction
from headwater.state.results import Done, Judgement, Transacted
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.state import StreamsState
from tests.simulation.clients import Client, History, Violation, create_topic
from tests.simulation.cluster import EPOCH_MS, Disconnected, SimCluster
from tests.simulation.run import Scene, heal, until_done
from tests.simulation.stores import World
from tests.simulation.transacting import (
    ONE,
    Brokers,
    Looks,
    Plain,
    Reader,
    Truth,
    Worker,
    end_of,
    records_of,
    submits,
)

BUSY_SECONDS = 25.0
TIMEOUT_SECONDS = 5.0
EXPIRY_MS = 20_000
"""Longer than a batch is under way. A producer that is forgotten earlier could be doubled, in Kafka too."""
QUIET_SECONDS = 12.0


class Setting:
    """One seed's cluster, clients and what they know."""

    def __init__(self, world: World, cluster: SimCluster, rng: random.Random, state: StreamsState) -> None:
        self.world = world
        self.cluster = cluster
        self.rng = rng
        self.streams = list(state.streams)
        self.truth = Truth(next(stream.topic for stream in state.streams.values()))
        self.brokers = Brokers(cluster, random.Random(rng.getrandbits(64)), self.truth)
        self.brokers.late = rng.choice([0.0, 0.05, 0.15])
        self.second = rng.random() < 0.7
        self.free: list[int] = [0, 1]
        self.busy = True
        self.reading = True
        self.readers = [Reader(self.brokers, stream, self._rng()) for stream in self.streams]

    def _rng(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    # --- those who write -------------------------------------------------------------------------------

    async def work(self, number: int) -> None:
        worker = Worker(self.brokers, number, self.streams, self.second)
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

    # --- duties ----------------------------------------------------------------------------------------

    async def time_out(self) -> None:
        """What the placed broker does. It knows a transaction by its number, and begins anew after a move."""
        watched: dict[tuple[int, str, int], float] = {}
        late: list[AbortTransaction] = []
        rng = self._rng()
        while self.reading:
            await asyncio.sleep(0.5)

            async def work(node: Node) -> None:
                replica = node.domains[ONE]
                for found in replica.state.transactions.opened():
                    began = watched.setdefault((id(node), found.id, found.number), self.world.loop.now)
                    if self.world.loop.now - began > TIMEOUT_SECONDS:
                        fresh = self.truth.fresh()
                        command = AbortTransaction(found.id, found.number, found.producer, found.epoch, fresh)
                        late.append(command)
                        await self._time_out(node, command)

            try:
                await self.brokers.ask(work)
                if late and rng.random() < 0.3:
                    await self.brokers.ask(partial(self._time_out, command=rng.choice(late)))
            except Disconnected:
                continue

    async def _time_out(self, node: Node, command: AbortTransaction) -> None:
        lasted = self.world.loop.now - self.truth.began.get(command.id, 0.0)
        self.truth.excuse(command.id, self.world.loop.now)
        [result] = await node.domains[ONE].submit([command])
        assert isinstance(result, Transacted), result
        if result.judgement is Judgement.DONE and lasted < TIMEOUT_SECONDS:
            raise Violation(f"a transaction of {command.id} timed out after {lasted:.1f} s")

    async def settle(self) -> None:
        """A compactor in the loop: it takes what lies below the stable offset and leaves out what was aborted."""
        rng, jobs = self._rng(), 0
        while self.reading:
            await asyncio.sleep(rng.random() * 3)
            jobs += 1
            job, stream = jobs, rng.choice(self.streams)

            async def work(node: Node, job: int = job, stream: int = stream) -> None:
                replica = node.domains[ONE]
                [lease] = await replica.submit([TakeLease(COMPACTION, 2_000)])
                if isinstance(lease, Done):
                    await self._settle(node, lease.value, job, stream)

            try:
                await self.brokers.ask(work)
            except Disconnected:
                continue

    async def _settle(self, node: Node, lease: int, job: int, name: int) -> None:
        replica = node.domains[ONE]
        stream = replica.state.streams.get(name)
        if stream is None:
            return
        look = Looks.look(replica.state, stream, stream.settled, 20, Looks.settling_bound(stream))
        look = dataclasses.replace(look, aborted=Looks.settling_aborted(look))
        entries = []
        for entry in look.entries:
            if not entry.unsettled or entry.end > look.bound:
                break
            entries.append(entry)
        if not entries:
            return
        start, end = stream.settled, entries[-1].end
        rows = {at: value for at, value in records_of(self.truth, look) if at < end}
        file = f"{node.domains[ONE].epoch}-{job}-{name}"
        self.truth.files[file] = rows
        await asyncio.sleep(self.world.delay())  # the file is written
        newest = max((entry.max_timestamp for entry in entries if entry.in_wal), default=-1) if rows else -1
        files = [NewFile(file, 10, len(rows), 1, 0, 0, start, end, 0, newest, 0, 7)] if rows else []
        run = SegmentRun(name, start, end, 0 if rows else -1, 0, 1 if rows else 0)
        command = SettleRuns(lease, stream.topic, f"root-{stream.topic}", files, [run], [newest])
        await replica.submit([command])

    async def misfortunes(self) -> None:
        rng = self._rng()
        while True:
            await asyncio.sleep(rng.expovariate(1 / 2.0))
            node, what = rng.choice(list(self.cluster.brokers)), rng.random()
            if what < 0.25:
                life = self.cluster.brokers[node].life
                life.crash_at_step = life.steps + rng.randint(1, 400)
                asyncio.get_running_loop().call_later(1 + rng.random() * 5, self.cluster.restart, node)
            elif what < 0.45:
                self.cluster.pause(node, rng.random() * 10)
            elif what < 0.6:
                asyncio.get_running_loop().create_task(self._trim(rng))
            elif what < 0.75:
                asyncio.get_running_loop().create_task(self._reserve(rng))
            elif what < 0.8 and self.truth.past:
                id, (producer, epoch) = rng.choice(list(self.truth.past.items()))
                zombie = InitTransaction(id, 5_000, self.truth.fresh(), producer, epoch)
                asyncio.get_running_loop().create_task(self._once(submits(zombie)))
            elif what < 0.88:
                expire = ExpireProducers(EPOCH_MS + int(self.world.loop.now * 1_000) - EXPIRY_MS)
                asyncio.get_running_loop().create_task(self._once(submits(expire)))
            else:
                for other in self.cluster.brokers:
                    self.cluster.restart(other)

    async def _once(self, work: Callable[[Node], object]) -> None:
        try:
            await self.brokers.ask(work)  # type: ignore[arg-type]
        except Disconnected:
            return

    async def _trim(self, rng: random.Random) -> None:
        """Delete records that a reader has read, so that all records are known in the end."""
        reader = rng.choice(self.readers)
        start = rng.randint(0, max(0, reader.position // 2))
        await self._once(submits(TrimStreams([(reader.stream, start)])))

    async def _reserve(self, rng: random.Random) -> None:
        """Offsets that are reserved and given up a moment later. Nobody's broker may die in between for long."""
        stream, wait = rng.choice(self.streams), rng.random()

        async def work(node: Node) -> None:
            replica = node.domains[ONE]
            found = replica.state.streams.get(stream)
            if found is None:
                return
            [taken] = await replica.submit([Reserve(found.topic, [(stream, rng.randint(1, 3))], 3_000)])
            if isinstance(taken, Done):
                await asyncio.sleep(wait)
                await replica.submit([Release(taken.value)])

        await self._once(work)

    # --- the verdict -----------------------------------------------------------------------------------

    async def give_up_reservations(self) -> None:
        """What housekeeping does with reservations whose owners are gone."""

        async def work(node: Node) -> None:
            replica = node.domains[ONE]
            await replica.barrier()
            for number in list(replica.state.reservations):
                await replica.submit([Release(number)])

        await self.brokers.insist(work, late=False)

    async def verdict(self) -> int:
        if self.cluster.failures:
            raise Violation(self.cluster.failures[0])
        state = self.cluster.make_streams(ONE)
        await load_state(self.world.verdict_ledger, self.world.store, state)
        await replay(self.world.verdict_ledger, state)
        if state.transactions.opened():
            raise Violation(f"{state.transactions.opened()} never ended")
        finals = {stream: self._final(state, stream) for stream in self.streams}
        for reader in self.readers:
            self._check_reader(state, reader, finals[reader.stream])
        found = Counter(value for final in finals.values() for value in final.values())
        doubled = [value for value, count in found.items() if count > 1]
        if doubled:
            raise Violation(f"{doubled[0]} is there {found[doubled[0]]} times")
        everything = set(found) | {value for reader in self.readers for value in reader.seen.values()}
        self._check_transactions(everything)
        self._check_outputs(state, everything)
        return len(everything)

    def _final(self, state: StreamsState, name: int) -> dict[int, tuple[object, ...]]:
        """The committed records of a stream as a reader that begins now gets them."""
        stream = state.streams[name]
        found: dict[int, tuple[object, ...]] = {}
        at = stream.log_start
        if stream.stable != stream.next_offset:
            raise Violation(f"{stream} is stable up to {stream.stable} only")
        while at < stream.stable:
            look = Looks.after_reading(Looks.look(state, stream, at, 50, Looks.bound(stream)), state, name)
            found.update(records_of(self.truth, look))
            if end_of(look) == at:
                raise Violation(f"stream {name}: no reader gets past {at}")
            at = end_of(look)
        return found

    def _check_reader(self, state: StreamsState, reader: Reader, final: dict[int, tuple[object, ...]]) -> None:
        start = state.streams[reader.stream].log_start
        for first, last in reader.polled:
            for at in range(max(first, start), last):
                got, there = reader.seen.get(at), final.get(at)
                if got != there:
                    raise Violation(f"stream {reader.stream} offset {at}: a reader got {got}, {there} is there")
        if reader.position < state.streams[reader.stream].stable:
            raise Violation(f"the reader of stream {reader.stream} sticks at {reader.position}")

    def _check_transactions(self, everything: set[tuple[object, ...]]) -> None:
        for key, streams in self.truth.written.items():
            written = {value for values in streams.values() for value in values}
            there = written & everything
            if key in self.truth.aborted and there:
                raise Violation(f"{key} was aborted, and {min(there)} was read")
            if key in self.truth.committed and there != written:
                raise Violation(f"{key} was committed, and {written - there} is lost")
            if key not in self.truth.committed and there and there != written:
                raise Violation(f"{key} is torn: {there} of {written}")
        lost = [v for v in self.truth.plain if v not in everything]
        if lost:
            raise Violation(f"{lost[0]} was acknowledged and is lost")

    def _check_outputs(self, state: StreamsState, everything: set[tuple[object, ...]]) -> None:
        """Every input up to the committed offset has one output."""
        for place in (0, 1):
            done = Looks.stable_offset(state, self.truth.input, place)
            outputs = Counter(value[1] for value in everything if value[0] == place)
            twice = [n for n, count in outputs.items() if count > 1]
            if twice:
                raise Violation(f"input {twice[0]} of place {place} was worked on {outputs[twice[0]]} times")
            wanted = set(range(done or 0))
            if outputs.keys() != wanted:
                raise Violation(f"place {place} is at {done}, without or beyond it: {sorted(outputs.keys() ^ wanted)}")


async def _story(world: World, cluster: SimCluster, history: History, rng: random.Random) -> None:
    cluster.reply_lost = rng.choice([0.0, 0.02, 0.1])
    cluster.start()
    await create_topic(Client(cluster, random.Random(rng.getrandbits(64)), history), 2)
    states: list[StreamsState] = []
    while not states:
        await asyncio.sleep(0.05)
        states = [b.node.domains[ONE].state for b in cluster.brokers.values() if b.node is not None]
        states = [state for state in states if len(state.streams) == 2]
    setting = Setting(world, cluster, rng, states[0])
    start = asyncio.create_task
    chaos = start(setting.misfortunes())
    duties = [start(setting.time_out()), start(setting.settle()), *(start(setting.read(r)) for r in setting.readers)]
    writing = [start(setting.work(n)) for n in range(rng.randint(2, 3))]
    writing += [start(setting.write_plainly(stream)) for stream in setting.streams]
    await until_done([start(asyncio.sleep(BUSY_SECONDS))], [*writing, *duties, chaos])
    chaos.cancel()
    heal(world, cluster)
    setting.brokers.late = 0.0
    setting.busy = False
    await until_done(writing, duties)
    await until_done([start(asyncio.sleep(QUIET_SECONDS))], duties)
    await until_done([start(setting.give_up_reservations())], duties)
    await until_done([start(asyncio.sleep(QUIET_SECONDS))], duties)
    setting.reading = False
    await until_done(duties, [])
    count = await setting.verdict()
    history.ack(0, 0, [b""] * count)


TRANSACTIONS = Scene(_story, brokers=(1, 2, 3, 3))
