"""Those who write: units under conditions, units with keys, plain producers, and transactions.

All of them go through the writers of the nodes, as a gateway's and a broker's requests do.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from headwater.app.node import Node
from headwater.errors import HeadwaterError, NotReady
from headwater.log.batch import NO_PRODUCER, TRANSACTIONAL_BIT, Batch
from headwater.log.write.part import Outcome, Part, Together
from headwater.state.commands.streams import AnyCondition, EndIs, Once, Present, StartAt, VersionIs
from headwater.state.commands.transactions import EndTransaction, InitTransaction
from headwater.state.results import Judgement, Transacted, UnitResult, Verdict
from tests.simulation.clients import Violation
from tests.simulation.cluster import Disconnected
from tests.simulation.transacting import TIMEOUT_SECONDS, Brokers, submits
from tests.simulation.units.auditor import ONE, Attempt, Auditor
from tests.support.batches import Rec, batch

PROFILE = "latency"
HUGE = (1 << 32) + 7
"""A gap that does not fit into one index entry."""
OWNERS = (b"ann", b"bob")
BODIES = ("one", "two")

_Made = Callable[[Node], tuple[dict[int, list[bytes]], list[AnyCondition]]]


def batch_of(attempt: Attempt, stream: int, producer: tuple[int, int, int] = (NO_PRODUCER, -1, -1)) -> Batch:
    """The batch of an attempt for one stream, as if it had passed its checks."""
    values, stamp = attempt.values[stream], attempt.stamp
    bits = TRANSACTIONAL_BIT if attempt.transactional else 0
    data = batch([Rec(value, timestamp=stamp) for value in values], producer=producer, attributes=bits)
    return Batch(data, len(values), stamp, stamp, *producer, attempt.transactional)


class Scene:
    """What all who write know."""

    def __init__(self, brokers: Brokers, auditor: Auditor, topic: uuid.UUID, streams: list[int]) -> None:
        self.brokers = brokers
        self.auditor = auditor
        self.topic = topic
        self.streams = streams
        self.side: list[int] = []
        """The streams of a topic that comes and goes. The last one may exist."""
        self._numbers = itertools.count()

    def values(self, who: str, count: int) -> list[bytes]:
        """Values that nobody has written before."""
        return [f"{who}-{next(self._numbers)}".encode() for _ in range(count)]

    def unit(self, made: _Made, patience: float | None = None) -> Callable[[Node], Awaitable[UnitResult]]:
        """Work that appends a unit. With `patience` the process takes it back if it is still queued then."""

        async def work(node: Node) -> UnitResult:
            attempt = self.auditor.attempt(*made(node))
            outcome: asyncio.Future[UnitResult | HeadwaterError] = asyncio.get_running_loop().create_future()

            def decided(told: UnitResult | HeadwaterError) -> None:
                if attempt.told is not None or attempt.withdrawn:
                    self.brokers.cluster.failures.append(f"a unit was decided twice: {attempt.told}, {told}")
                attempt.told = told
                outcome.set_result(told)

            batches = [(stream, batch_of(attempt, stream)) for stream in attempt.values]
            together, writer = Together(batches, attempt.conditions, decided), node.writers.of(ONE, PROFILE)
            writer.append_unit(together)
            if patience is not None:
                await asyncio.sleep(patience)
                if writer.withdraw_unit(together):
                    attempt.withdrawn = True
                    raise NotReady("taken back")
            told = await outcome
            if isinstance(told, HeadwaterError):
                raise told
            return told

        return work

    def batch(
        self, stream: int, attempt: Attempt, producer: tuple[int, int, int]
    ) -> Callable[[Node], Awaitable[Outcome]]:
        """Work that appends one batch."""

        async def work(node: Node) -> Outcome:
            waiting = _Waiting(asyncio.get_running_loop().create_future())
            part = Part(stream, batch_of(attempt, stream, producer), waiting, 0, joins=attempt.transactional)
            node.writers.of(ONE, PROFILE).append(part)
            return await waiting.future

        return work


class _Waiting:
    """See `Caller`."""

    def __init__(self, future: asyncio.Future[Outcome]) -> None:
        self.future = future

    def accepted(self, number: int, offset: int, log_start: int, append_ms: int) -> None:
        self.future.set_result(Outcome(Verdict.ACCEPTED, offset, log_start, append_ms))

    def decided(self, number: int, outcome: Outcome | HeadwaterError) -> None:
        if isinstance(outcome, HeadwaterError):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class Appender:
    """Appends units under conditions that may hold, by what it was told last or by what a node knows."""

    def __init__(self, scene: Scene, number: int, rng: random.Random) -> None:
        self.scene = scene
        self.rng = rng
        self.name = f"a{number}"
        self.version = 0
        self.ends: dict[int, int] = dict.fromkeys(scene.streams, 0)
        self.huge = rng.random() < 0.15

    async def step(self) -> None:
        """Append one unit. If the answer is lost, nothing is repeated: without a key it could be doubled."""
        rng = self.rng
        fresh, patience = rng.random() < 0.7, rng.choice([None, None, None, 0.0, 0.01])
        try:
            told = await self.scene.brokers.ask(self.scene.unit(lambda node: self._made(node, fresh), patience))
        except Disconnected:
            return
        for placed in told.placed:
            if placed.stream in self.ends:
                self.ends[placed.stream] = placed.first_offset + placed.offsets

    def _made(self, node: Node, fresh: bool) -> tuple[dict[int, list[bytes]], list[AnyCondition]]:
        scene, rng, state = self.scene, self.rng, node.domains[ONE].state
        if fresh:
            self.ends = {name: state.streams[name].next_offset for name in scene.streams if name in state.streams}
            table = state.tables.get(scene.topic)
            self.version = table.last_sequence if table is not None else 0
        known = list(self.ends) or scene.streams
        streams = rng.sample(known, rng.randint(1, len(known)))
        if scene.side and rng.random() < 0.15:
            streams.append(scene.side[-1])
        values = {stream: scene.values(self.name, rng.randint(1, 3)) for stream in streams}
        conditions: list[AnyCondition] = []
        for stream in streams:
            end, what = self.ends.get(stream, 0), rng.random()
            if what < 0.5:
                conditions.append(EndIs(stream, end))
            elif what < 0.7 and stream in self.ends:
                conditions.append(StartAt(stream, end + rng.choice([0, 1, rng.randint(2, 9), self._huge()])))
            elif what < 0.75:
                conditions.append(EndIs(stream, end + rng.randint(1, 3)))
        if rng.random() < 0.25:
            conditions.append(VersionIs(scene.topic, self.version))
        if not conditions or rng.random() < 0.1:
            conditions.append(Present())
        rng.shuffle(conditions)
        return values, conditions

    def _huge(self) -> int:
        """A gap of several index entries, rarely."""
        huge, self.huge = self.huge, False
        return HUGE if huge else 3


class Keyed:
    """Appends units under keys, and repeats them until there is an answer, and later once more."""

    def __init__(self, scene: Scene, number: int, rng: random.Random) -> None:
        self.scene = scene
        self.rng = rng
        self.owner = OWNERS[number % len(OWNERS)]
        self.count = 0

    async def step(self) -> None:
        rng = self.rng
        again = self.count and rng.random() < 0.6
        if not again:
            self.count += 1
        number = max(1, self.count - rng.choice([0, 0, 1, 3])) if again else self.count
        body = BODIES[rng.random() < 0.2]
        streams = rng.sample(self.scene.streams, rng.randint(1, len(self.scene.streams)))
        work = self.scene.unit(lambda node: self._made(node, number, body, streams))
        for _ in range(rng.choice([1, 2])):
            await self.scene.brokers.insist(work)
        if rng.random() < 0.3:
            self.scene.brokers.throw(work)

    def _made(
        self, node: Node, number: int, body: str, streams: list[int]
    ) -> tuple[dict[int, list[bytes]], list[AnyCondition]]:
        key = b"%s/%d" % (self.owner, number)
        conditions: list[AnyCondition] = [Once(key, body.encode(), self.owner, b"%d" % number)]
        state = node.domains[ONE].state
        if self.rng.random() < 0.2 and streams[0] in state.streams:
            conditions.append(EndIs(streams[0], state.streams[streams[0]].next_offset))
        who = f"{key.decode()}-{body}"
        return {stream: self.scene.values(who, 1) for stream in streams}, conditions


class Plain:
    """An idempotent producer without transactions."""

    def __init__(self, scene: Scene, stream: int, rng: random.Random) -> None:
        self.scene = scene
        self.stream = stream
        self.rng = rng
        self.pid = scene.brokers.truth.fresh()
        self.sequence = 0

    async def step(self) -> None:
        count = self.rng.randint(1, 2)
        attempt = self.scene.auditor.attempt({self.stream: self.scene.values("plain", count)})
        work = self.scene.batch(self.stream, attempt, (self.pid, 0, self.sequence))
        while True:
            told = await self.scene.brokers.insist(work)
            if told.verdict in (Verdict.ACCEPTED, Verdict.DUPLICATE):
                break
            await asyncio.sleep(0.05)
        self.sequence += count
        await self.scene.auditor.fold()
        there = self.scene.auditor.log[self.stream]
        for at, value in enumerate(attempt.values[self.stream], told.offset):
            if there.get(at) != value:
                raise Violation(f"{value!r} was acknowledged at {at}, where {there.get(at)!r} is")


class Transactor:
    """A producer whose batches are parts of transactions. It starts anew whenever anything goes wrong."""

    def __init__(self, scene: Scene, number: int, rng: random.Random) -> None:
        self.scene = scene
        self.rng = rng
        self.id = f"t{number}"

    async def step(self) -> None:
        try:
            await self._transact()
        except Disconnected:
            return

    async def _transact(self) -> None:
        scene, rng, brokers = self.scene, self.rng, self.scene.brokers
        fresh = brokers.truth.fresh()
        begun = await self._told(InitTransaction(self.id, int(TIMEOUT_SECONDS * 1_000), fresh, -1, -1))
        if begun.judgement is not Judgement.DONE:
            return
        who, sequences = (begun.producer, begun.epoch), dict.fromkeys(scene.streams, 0)
        written: list[bytes] = []
        for _ in range(rng.randint(1, 3)):
            stream = rng.choice(scene.streams)
            attempt = scene.auditor.attempt({stream: scene.values(self.id, 1)}, transactional=True)
            outcome = await brokers.ask(scene.batch(stream, attempt, (*who, sequences[stream])), late=False)
            if outcome.verdict is not Verdict.ACCEPTED:
                return
            sequences[stream] += 1
            written += attempt.values[stream]
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 3)
        commit = rng.random() < 0.7
        ended = await self._told(EndTransaction(self.id, *who, commit, True, brokers.truth.fresh()))
        if commit and ended.judgement is Judgement.DONE:
            scene.auditor.loose.difference_update(written)

    async def _told(self, command: Any) -> Transacted:
        result = await self.scene.brokers.ask(submits(command), late=False)
        assert isinstance(result, Transacted), result
        return result
