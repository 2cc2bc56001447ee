"""What clients of transactions do, by commands to the replicas of simulated brokers, and what they were told.

A request reaches its broker, or the connection breaks: then it never arrives, or arrives much later. Records have no
bytes here. `Truth` keeps the values of every WAL object and every segment, so a reader finds them by the index.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness.loop import run_as
from headwater.app.node import Node
from headwater.errors import HeadwaterError
from headwater.replica.replica import Replica
from headwater.state.commands.groups import ClaimShard
from headwater.state.commands.streams import AppendUnits, Mode, Unit, UnitChunk
from headwater.state.commands.transactions import EndTransaction, InitTransaction, JoinTransaction, StageOffsets
from headwater.state.records import Command
from headwater.state.results import Appended, Done, Judgement, Result, Transacted, Verdict
from headwater.state.streams.aborted import AbortedTransaction
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored_groups import shard_of
from headwater.state.streams.stream import Stream
from headwater.types import Domain, WalId
from tests.simulation.clients import Violation
from tests.simulation.cluster import EPOCH_MS, Disconnected, SimCluster

_T = TypeVar("_T")
ONE = Domain(1)
GROUP = "g"
PATIENCE = 4.0
"""Seconds until a client takes a request for lost."""
LATE_SECONDS = 6.0
EXCUSED_SECONDS = 30.0
"""No request is under way for longer."""
BATCH_BYTES = 50
FIRST_BYTE = 93
CHUNK_BYTES = FIRST_BYTE + BATCH_BYTES + 4

Value = tuple[Any, ...]


@dataclass
class Truth:
    """What is in the store, and what clients know."""

    input: uuid.UUID
    """The topic whose committed offsets count. Brokers remove offsets of topics that do not exist."""
    objects: dict[WalId, tuple[int, list[Value]]] = field(default_factory=dict)
    """The producer id and the values of each WAL object."""
    files: dict[str, dict[int, Value]] = field(default_factory=dict)
    """The values of each segment by offset."""
    committed: set[tuple[str, int]] = field(default_factory=set)
    """Transactions whose clients were told that they are committed."""
    aborted: set[tuple[str, int]] = field(default_factory=set)
    written: dict[tuple[str, int], dict[int, list[Value]]] = field(default_factory=dict)
    """What each transaction wrote, by stream."""
    plain: set[Value] = field(default_factory=set)
    """What plain producers were told is written."""
    producers: int = 1_000
    began: dict[str, float] = field(default_factory=dict)
    """When the last transaction of each id began."""
    excused: dict[str, float] = field(default_factory=dict)
    """Until when an id's producer may be fenced: a broker ended a transaction, or an init may arrive once more."""
    past: dict[str, tuple[int, int]] = field(default_factory=dict)
    """A producer id and epoch that each id had before."""
    stable: dict[tuple[str, int], int] = field(default_factory=dict)

    def excuse(self, id: str, now: float) -> None:
        self.excused[id] = now + EXCUSED_SECONDS

    def fresh(self) -> int:
        self.producers += 1
        return self.producers


class Brokers:
    """Ways to the brokers."""

    def __init__(self, cluster: SimCluster, rng: random.Random, truth: Truth) -> None:
        self.cluster = cluster
        self.rng = rng
        self.truth = truth
        self.late = 0.0
        """The chance that a connection breaks and its request arrives later."""
        self._sequences: dict[int, int] = {}

    async def ask(self, work: Callable[[Node], Awaitable[_T]], *, late: bool = True) -> _T:
        """Have one broker do something. Raises `Disconnected` if that is not known."""
        world = self.cluster.world
        node = self.rng.choice(list(self.cluster.brokers))
        reply: asyncio.Future[_T] = world.loop.create_future()
        delay = world.delay()
        if late and world.chance(self.late):
            world.loop.outside(delay, _broken, reply)
            delay += self.rng.random() * LATE_SECONDS
        world.loop.outside(delay, self._arrive, node, work, reply)
        try:
            async with asyncio.timeout(PATIENCE):
                return await reply
        except TimeoutError:
            raise Disconnected from None

    def throw(self, work: Callable[[Node], Awaitable[Any]]) -> None:
        """A request of a client that does not wait for its answer: it arrives, sooner or later."""
        world = self.cluster.world
        reply: asyncio.Future[Any] = world.loop.create_future()
        reply.add_done_callback(lambda done: done.exception())
        node = self.rng.choice(list(self.cluster.brokers))
        world.loop.outside(self.rng.random() * LATE_SECONDS, self._arrive, node, work, reply)

    def _arrive(self, node: int, work: Callable[[Node], Awaitable[_T]], reply: asyncio.Future[_T]) -> None:
        broker = self.cluster.brokers[node]
        if not broker.serves or broker.node is None:
            _broken(reply)
        else:
            run_as(broker.life, self._serve(broker.node, work, reply))

    async def _serve(self, node: Node, work: Callable[[Node], Awaitable[_T]], reply: asyncio.Future[_T]) -> None:
        world = self.cluster.world
        try:
            answer = await work(node)
        except HeadwaterError:
            world.loop.outside(world.delay(), _broken, reply)
            return
        if world.chance(self.cluster.reply_lost):
            world.loop.outside(world.delay(), _broken, reply)
        else:
            world.loop.outside(world.delay(), _answered, reply, answer)

    async def insist(self, work: Callable[[Node], Awaitable[_T]], *, late: bool = True) -> _T:
        """Ask one broker after the other until one answers."""
        while True:
            try:
                return await self.ask(work, late=late)
            except Disconnected:
                await asyncio.sleep(0.05 + 0.1 * self.rng.random())

    # --- what brokers do -------------------------------------------------------------------------------

    def append(self, stream: int, mode: Mode, who: tuple[int, int, int], values: list[Value]) -> Any:
        """Work that stores an object, and appends it when it is stored."""

        async def work(node: Node) -> tuple[Verdict, int]:
            replica = node.domains[ONE]
            await asyncio.sleep(self.cluster.world.delay())  # the upload
            stamp = EPOCH_MS + int(self.cluster.world.loop.now * 1_000)  # older records would fall to retention
            epoch = replica.epoch
            sequence = self._sequences[epoch] = self._sequences.get(epoch, 0) + 1
            self.truth.objects[WalId(epoch, sequence)] = who[0], values
            chunk = UnitChunk(stream, FIRST_BYTE, [(BATCH_BYTES, len(values), stamp)], [who], bytes([mode]))
            command = AppendUnits(sequence, CHUNK_BYTES, 0, "z", [Unit([], [chunk])])
            [result] = await replica.submit([command])
            assert isinstance(result, Appended), result
            [found] = result.chunks
            return found.verdicts[0] if found.verdicts else (Verdict.ACCEPTED, found.first_offset)

        return work

    def stage(self, id: str, who: tuple[int, int], joins: bool, place: int, offset: int) -> Any:
        """Work of a group's coordinator."""

        async def work(node: Node) -> Transacted:
            replica = node.domains[ONE]
            claim = replica.state.groups.claims.get(shard_of(GROUP))
            if claim is None or claim.holder != replica.epoch:
                [taken] = await replica.submit([ClaimShard(shard_of(GROUP))])
                assert isinstance(taken, Done), taken
                number = taken.value
            else:
                number = claim.number
            entered = [(self.truth.input.bytes, place, offset, -1, "")]
            [result] = await replica.submit([StageOffsets(number, GROUP, id, *who, joins, entered)])
            assert isinstance(result, Transacted), result
            return result

        return work


def _broken(reply: asyncio.Future[Any]) -> None:
    if not reply.done():
        reply.set_exception(Disconnected())


def _answered(reply: asyncio.Future[Any], answer: Any) -> None:
    if not reply.done():
        reply.set_result(answer)


def submits(command: Command) -> Callable[[Node], Awaitable[Result]]:
    """Work that is one command."""

    async def work(node: Node) -> Result:
        [result] = await node.domains[ONE].submit([command])
        return result

    return work


# --- looks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """What a fetch takes in one synchronous step."""

    offset: int
    bound: int
    entries: list[IndexEntry]
    aborted: list[AbortedTransaction]
    names: dict[int, str]
    """The names of segments by number."""


class Looks:
    """The rules of reading. A planted defect replaces one of them."""

    @staticmethod
    def bound(stream: Stream) -> int:
        return stream.stable

    @staticmethod
    def aborted(stream: Stream, offset: int, bound: int) -> list[AbortedTransaction]:
        return stream.aborted.between(offset, bound)

    @staticmethod
    def look(state: StreamsState, stream: Stream, offset: int, limit: int, bound: int) -> Look:
        first = stream.index.find(offset)
        entries = []
        for i in range(first, min(len(stream.index), first + limit)):
            if stream.index[i].start < bound:
                entries.append(stream.index[i])
        table = state.tables.get(stream.topic)
        names = {e.file: table.files[e.file].name for e in entries if e.file and table is not None}
        return Look(offset, bound, entries, Looks.aborted(stream, offset, bound), names)

    @staticmethod
    def after_reading(look: Look, state: StreamsState, stream: int) -> Look:
        """What a reader has when the objects are read."""
        return look

    @staticmethod
    def settling_bound(stream: Stream) -> int:
        return stream.stable

    @staticmethod
    def settling_aborted(look: Look) -> list[AbortedTransaction]:
        return look.aborted

    @staticmethod
    def stable_offset(state: StreamsState, topic: uuid.UUID, place: int) -> int | None:
        """A committed offset, if no open transaction may still change it."""
        if state.transactions.is_staged(GROUP, topic, place):
            return None
        group = state.groups.get(GROUP)
        found = group.offsets.get(topic, {}).get(place) if group is not None else None
        return found.offset if found is not None else 0


def records_of(truth: Truth, look: Look) -> list[tuple[int, Value]]:
    """The records of a look that a reader of committed records keeps."""
    kept = []
    for entry in look.entries:
        if entry.marker:
            continue
        if entry.file:
            rows = truth.files[look.names[entry.file]]
            kept += [(at, rows[at]) for at in range(entry.start, entry.end) if at in rows]
        elif entry.in_wal:
            producer, values = truth.objects[entry.object]
            if any(a.producer == producer and a.first <= entry.start < a.marker for a in look.aborted):
                continue
            kept += list(enumerate(values, entry.start))
    return [(at, value) for at, value in kept if look.offset <= at < look.bound]


def end_of(look: Look) -> int:
    """Where a reader goes on."""
    return max(look.offset, min(look.bound, look.entries[-1].end)) if look.entries else look.offset


# --- producers -----------------------------------------------------------------------------------------


class Fenced(Exception):
    """The producer's epoch is no longer current."""


class Worker:
    """Takes inputs of a place, writes one output for each, and commits how far it got, in one transaction."""

    def __init__(self, brokers: Brokers, number: int, streams: list[int], second: bool) -> None:
        self.brokers = brokers
        self.rng = random.Random(brokers.rng.getrandbits(64))
        self.id = f"w{number}"
        self.streams = streams
        self.second = second
        self.naive = False
        """A client of the first generation that sends requests again. Those that arrive later meet the next one."""
        self.who = (-1, -1)
        self.count = 0
        self.sequences: dict[tuple[int, int, int], int] = {}

    async def _ask(self, work: Callable[[Node], Awaitable[_T]]) -> _T:
        """A careful client of the first generation gives its transaction up if an answer is lost."""
        if self.second or self.naive:
            return await self.brokers.insist(work)
        try:
            return await self.brokers.ask(work)
        except Disconnected:
            self.brokers.truth.excuse(self.id, self.brokers.cluster.world.loop.now)
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
        command = InitTransaction(self.id, 5_000, truth.fresh(), -1, -1)
        try:
            result = await self.brokers.ask(submits(command), late=False)
        except Disconnected:
            truth.excuse(self.id, self.brokers.cluster.world.loop.now)
            result = await self.brokers.insist(submits(command), late=False)
        assert isinstance(result, Transacted) and result.judgement is Judgement.DONE, result
        self.who = result.producer, result.epoch

    async def write(self, key: tuple[str, int], stream: int, values: list[Value]) -> None:
        self.brokers.truth.written[key].setdefault(stream, []).extend(values)
        place = (stream, *self.who)
        first = self.sequences.get(place, 0)
        mode = Mode.JOINS if self.second else Mode.JOINED
        work = self.brokers.append(stream, mode, (*self.who, first), values)
        while True:
            verdict, _ = await self._ask(work)
            if verdict in (Verdict.ACCEPTED, Verdict.DUPLICATE):
                self.sequences[place] = first + len(values)
                return
            if verdict is not Verdict.MOVED:
                raise Fenced(verdict.name)
            await asyncio.sleep(0.05)

    async def round(self, place: int, free: Callable[[int], None]) -> None:
        """One transaction. `free` gives the place to the next worker, before the end is known."""
        truth = self.brokers.truth
        start = await self._position(place)
        if start is None:
            free(place)
            return
        self.count += 1
        key = self.id, self.count
        truth.began[self.id] = self.brokers.cluster.world.loop.now
        truth.written[key] = {}
        streams = self.rng.sample(self.streams, self.rng.randint(1, len(self.streams)))
        number = start + self.rng.randint(1, 3)
        try:
            if not self.second:
                joined = await self._told(JoinTransaction(self.id, *self.who, tuple(streams), (GROUP,)))
                if joined is not Judgement.DONE:
                    raise Fenced(joined.name)
            for n in range(start, number):
                await self.write(key, self.rng.choice(streams), [(place, n, key)])
                if self.rng.random() < 0.05:
                    await asyncio.sleep(self.rng.random() * 8)
            if self.rng.random() < 0.1:
                await self._give_up(key, streams[0], (place, number, key))
                free(place)
                return
            await self._stage(place, number)
            free(place)
            commit = self.rng.random() < 0.7
            ended = await self._told(EndTransaction(self.id, *self.who, commit, self.second, truth.fresh()))
            if ended is not Judgement.DONE:
                raise Fenced(ended.name)
            (truth.committed if commit else truth.aborted).add(key)
        except Fenced as fenced:
            free(place)
            if self.brokers.cluster.world.loop.now > truth.excused.get(self.id, -1.0):
                raise Violation(f"{key} is fenced by nobody: {fenced}") from None
            await self.init()

    async def _give_up(self, key: tuple[str, int], stream: int, value: Value) -> None:
        """The client dies, or loses patience, while a batch is under way."""
        truth = self.brokers.truth
        truth.written[key].setdefault(stream, []).append(value)
        first = self.sequences.get((stream, *self.who), 0)
        mode = Mode.JOINS if self.second else Mode.JOINED
        self.brokers.throw(self.brokers.append(stream, mode, (*self.who, first), [value]))
        if not self.second or self.rng.random() < 0.5:
            await self.init()
            return
        ended = await self._told(EndTransaction(self.id, *self.who, False, True, truth.fresh()))
        if ended is not Judgement.DONE:
            raise Fenced(ended.name)
        truth.aborted.add(key)

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
            return Looks.stable_offset(replica.state, self.brokers.truth.input, place)

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


class Reader:
    """Reads the committed records of one stream, from any broker."""

    def __init__(self, brokers: Brokers, stream: int, rng: random.Random) -> None:
        self.brokers = brokers
        self.rng = rng
        self.stream = stream
        self.position = 0
        self.seen: dict[int, Value] = {}
        self.polled: list[tuple[int, int]] = []
        """The ranges of offsets that it read."""

    async def poll(self) -> None:
        asked = self.position
        limit = self.rng.choice([1, 3, 50])

        async def work(node: Node) -> tuple[Look, int] | None:
            state = node.domains[ONE].state
            stream = state.streams.get(self.stream)
            if stream is None or asked > stream.stable:
                return None
            if asked < stream.log_start:
                return Look(asked, asked, [], [], {}), stream.log_start
            look = Looks.look(state, stream, asked, limit, Looks.bound(stream))
            self._watch(node, stream)
            await asyncio.sleep(self.brokers.cluster.world.delay())
            return Looks.after_reading(look, state, self.stream), -1

        try:
            found = await self.brokers.ask(work)
        except Disconnected:
            return
        if found is None:
            return
        look, start = found
        if start >= 0:
            self.position = start
            return
        for at, value in records_of(self.brokers.truth, look):
            if self.seen.setdefault(at, value) != value:
                raise Violation(f"stream {self.stream} offset {at} was {self.seen[at]}, now {value}")
        self.position = end_of(look)
        self.polled.append((asked, self.position))

    def _watch(self, node: Node, stream: Stream) -> None:
        key = f"{id(node)}", self.stream
        known = self.brokers.truth.stable.get(key, 0)
        if stream.stable < known:
            raise Violation(f"stream {self.stream}: the stable offset fell from {known} to {stream.stable}")
        self.brokers.truth.stable[key] = stream.stable
