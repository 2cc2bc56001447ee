"""Producers of both generations: workers that take inputs and write outputs in transactions, and plain ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headwater.app.node import Node
from headwater.replica.replica import Replica
from headwater.state.commands.streams import Mode
from headwater.state.commands.transactions import EndTransaction, InitTransaction, JoinTransaction
from headwater.state.records import Command
from headwater.state.results import Judgement, Transacted, Verdict
from headwater.state.streams.state import StreamsState
from tests.simulation.clients import Violation
from tests.simulation.cluster import Disconnected
from tests.simulation.transacting import GROUP, ONE, TIMEOUT_SECONDS, Brokers, Key, Value, key_of, submits
from tests.simulation.transaction_readers import Rules, records_of, take

_T = TypeVar("_T")
RECENT = 8
"""Offsets before the end of a stream that a transaction reads."""


class Fenced(Exception):
    """The producer's epoch is no longer current."""


class Worker:
    """Takes inputs of a place, writes one output for each, and commits how far it got, in one transaction."""

    def __init__(self, brokers: Brokers, number: int, streams: list[int], *, second: bool, naive: bool = False) -> None:
        self.brokers = brokers
        self.rng = random.Random(brokers.rng.getrandbits(64))
        self.id = f"w{number}"
        self.streams = streams
        self.second = second
        self.naive = naive
        """A client of the first generation that sends requests again, and keeps its epoch. Requests that arrive later
        meet its next transaction."""
        self.who = (-1, -1)
        self.count = 0
        self.sequences: dict[tuple[int, int, int], int] = {}

    @property
    def _now(self) -> float:
        return self.brokers.cluster.world.loop.now

    @property
    def _mode(self) -> Mode:
        return Mode.JOINS if self.second else Mode.JOINED

    async def _ask(self, work: Callable[[Node], Awaitable[_T]]) -> _T:
        """A careful client of the first generation gives its transaction up if an answer is lost."""
        if self.second or self.naive:
            return await self.brokers.insist(work)
        try:
            return await self.brokers.ask(work)
        except Disconnected:
            self.brokers.truth.excuse(self.id, self._now)
            raise Fenced("an answer is lost") from None

    async def _told(self, command: Command) -> Judgement:
        result = await self._ask(submits(command))
        assert isinstance(result, Transacted), result
        if result.judgement is Judgement.DONE:
            self.who = result.producer, result.epoch
        return result.judgement

    async def init(self) -> None:
        """Start anew. If the answer is lost, the request may still be under way, and fence its own sender."""
        truth = self.brokers.truth
        if self.who[0] >= 0:
            truth.past[self.id] = self.who
        command = InitTransaction(self.id, int(TIMEOUT_SECONDS * 1_000), truth.fresh(), -1, -1)
        try:
            result = await self.brokers.ask(submits(command), late=False)
        except Disconnected:
            truth.excuse(self.id, self._now)
            result = await self.brokers.insist(submits(command), late=False)
        assert isinstance(result, Transacted) and result.judgement is Judgement.DONE, result
        self.who = result.producer, result.epoch

    async def round(self, place: int, free: Callable[[int], None]) -> None:
        """One transaction. `free` gives the place to the next worker, before the end is known."""
        truth = self.brokers.truth
        start = await self._position(place)
        if start is None:
            free(place)
            return
        self.count += 1
        key = self.id, self.count
        began = truth.began[self.id] = self._now
        truth.written[key] = {}
        try:
            await self._transact(key, place, start, free)
        except Fenced as fenced:
            free(place)
            excused = self._now <= truth.excused.get(self.id, -1.0) or self._now - began >= TIMEOUT_SECONDS
            if not excused and not self.naive:
                raise Violation(f"{key} is fenced by nobody: {fenced}") from None
            await self.init()

    async def _transact(self, key: Key, place: int, start: int, free: Callable[[int], None]) -> None:
        truth, rng = self.brokers.truth, self.rng
        streams = rng.sample(self.streams, rng.randint(1, len(self.streams)))
        number = start + rng.randint(1, 3)
        side = truth.side[-1] if truth.side and rng.random() < 0.3 else None
        if not self.second:
            side = await self._join(streams, side)
        if side is not None:
            await self._write(key, side, [("side", start, key)])
        for n in range(start, number):
            await self._write(key, rng.choice(streams), [(place, n, key)])
            if rng.random() < 0.05:
                await asyncio.sleep(rng.random() * 8)
        if rng.random() < 0.3:
            await self._read(key, rng.choice(streams))
        if rng.random() < 0.1:
            await self._give_up(key, streams[0], (place, number, key))
            free(place)
            return
        await self._stage(place, number)
        if rng.random() < 0.15:
            await asyncio.sleep(rng.random() * 3)  # checkpoints find staged offsets
        free(place)
        if not self.second and rng.random() < 0.2:
            until = truth.began[self.id] + TIMEOUT_SECONDS + rng.uniform(-1, 0.5)
            await asyncio.sleep(max(0.0, until - self._now))  # the end, and the next begin, meet a time-out
        await self._end(key, commit=rng.random() < 0.7)

    async def _join(self, streams: list[int], side: int | None) -> int | None:
        """What the first generation does before it writes. Returns the stream of the other topic, if it is there."""
        while True:
            wanted = tuple(streams) if side is None else (*streams, side)
            joined = await self._told(JoinTransaction(self.id, *self.who, wanted, (GROUP,)))
            if joined is Judgement.DONE:
                return side
            if joined is not Judgement.NO_STREAM:
                raise Fenced(joined.name)
            if side is None:
                await asyncio.sleep(0.05)
            side = None

    async def _write(self, key: Key, stream: int, values: list[Value]) -> None:
        self.brokers.truth.written[key].setdefault(stream, []).extend(values)
        place = (stream, *self.who)
        first = self.sequences.get(place, 0)
        work = self.brokers.append(stream, self._mode, (*self.who, first), values)
        while True:
            verdict, _ = await self._ask(work)
            if verdict in (Verdict.ACCEPTED, Verdict.DUPLICATE):
                self.sequences[place] = first + len(values)
                return
            if stream in self.brokers.truth.side and verdict in (Verdict.NO_STREAM, Verdict.NOT_JOINED):
                return  # the topic is gone
            if verdict is not Verdict.MOVED:
                raise Fenced(verdict.name)
            await asyncio.sleep(0.05)

    async def _read(self, key: Key, stream: int) -> None:
        """Read what others committed, inside the transaction."""

        async def work(node: Node) -> set[Key]:
            state = node.domains[ONE].state
            found = state.streams.get(stream)
            if found is None:
                return set()
            read = take(state, found, max(found.log_start, found.stable - RECENT), RECENT)
            await asyncio.sleep(self.brokers.cluster.world.delay())
            kept = records_of(self.brokers.truth, Rules.after_reading(read, state))
            return {other for _, value in kept if (other := key_of(value)) is not None}

        try:
            self.brokers.truth.reads[key] = await self.brokers.ask(work)
        except Disconnected:
            return

    async def _give_up(self, key: Key, stream: int, value: Value) -> None:
        """The client dies, or loses patience, while a batch is under way."""
        truth = self.brokers.truth
        truth.written[key].setdefault(stream, []).append(value)
        first = self.sequences.get((stream, *self.who), 0)
        self.brokers.throw(self.brokers.append(stream, self._mode, (*self.who, first), [value]))
        if not self.naive and (not self.second or self.rng.random() < 0.3):
            await self.init()
            return
        await self._end(key, commit=False)
        if self.rng.random() < 0.6:
            await asyncio.sleep(self.rng.random() * 6)  # the batch arrives when no transaction is open

    async def _end(self, key: Key, *, commit: bool) -> None:
        truth = self.brokers.truth
        ended = await self._told(EndTransaction(self.id, *self.who, commit, self.second, truth.fresh()))
        if ended is not Judgement.DONE:
            raise Fenced(ended.name)
        (truth.committed if commit else truth.aborted).add(key)

    async def _stage(self, place: int, number: int) -> None:
        work = self.brokers.stage(self.id, self.who, self.second, place, number)
        while True:
            judgement = (await self._ask(work)).judgement
            if judgement is Judgement.DONE:
                return
            if judgement is not Judgement.STALE_CLAIM:
                raise Fenced(judgement.name)
            await asyncio.sleep(0.05)

    async def _position(self, place: int) -> int | None:
        """From where to go on: after a look at the ledger's end, and only if the offset is stable."""

        async def work(node: Node) -> int | None:
            replica: Replica[StreamsState] = node.domains[ONE]
            await replica.barrier()
            return Rules.stable_offset(replica.state, self.brokers.truth.input, place)

        return await self.brokers.insist(work)


class Plain:
    """An idempotent producer without transactions."""

    def __init__(self, brokers: Brokers, stream: int) -> None:
        self.brokers = brokers
        self.stream = stream
        self.pid = brokers.truth.fresh()
        self.sequence = 0

    async def send(self) -> None:
        value = ("plain", self.pid, self.sequence)
        work = self.brokers.append(self.stream, Mode.PLAIN, (self.pid, 0, self.sequence), [value])
        while (await self.brokers.insist(work))[0] not in (Verdict.ACCEPTED, Verdict.DUPLICATE):
            await asyncio.sleep(0.05)
        self.brokers.truth.plain.add(value)
        self.sequence += 1
