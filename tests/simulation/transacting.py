"""What clients of transactions do, by commands to the replicas of simulated brokers, and what they were told.

A request reaches its broker, or the connection breaks: then it never arrives, or arrives much later. Records have no
bytes here. `Truth` keeps the values of every WAL object and every segment, so a reader finds them by the index.
Writers gather batches of several producers into one object.
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
from headwater.state.commands.groups import ClaimShard
from headwater.state.commands.streams import AppendUnits, Mode, Unit, UnitChunk
from headwater.state.commands.tables import Release, Reserve
from headwater.state.commands.transactions import StageOffsets
from headwater.state.records import Command
from headwater.state.results import Appended, Done, Result, Transacted, Verdict
from headwater.state.streams.append import PREFIX_BYTES
from headwater.state.streams.stored.groups import shard_of
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
TIMEOUT_SECONDS = 5.0
"""The time-out of every transaction."""
GATHER_SECONDS = (0.0, 0.0, 0.02, 0.2)
"""How long a writer waits for further batches."""
BATCH_BYTES = 50
FIRST_BYTE = 93

Value = tuple[Any, ...]


Key = tuple[str, int]
"""A transaction: the id and how many transactions of it came before."""


@dataclass(frozen=True)
class Batch:
    """A batch inside a WAL object."""

    position: int
    producer: int
    values: list[Value]
    stamp: int


@dataclass(frozen=True)
class _Pending:
    """A batch that a broker's writer has."""

    stream: int
    mode: Mode
    who: tuple[int, int, int]
    values: list[Value]
    verdict: asyncio.Future[tuple[Verdict, int]]


def key_of(value: Value) -> Key | None:
    """The transaction that wrote a value."""
    return value[2] if isinstance(value[2], tuple) else None


@dataclass
class Truth:
    """What is in the store, and what clients know."""

    input: uuid.UUID
    """The topic whose committed offsets count. Brokers remove offsets of topics that do not exist."""
    objects: dict[WalId, list[Batch]] = field(default_factory=dict)
    """The batches of each WAL object, by position."""
    files: dict[str, dict[tuple[int, int], Value]] = field(default_factory=dict)
    """The values of each segment by stream and offset."""
    committed: set[Key] = field(default_factory=set)
    """Transactions whose clients were told that they are committed."""
    aborted: set[Key] = field(default_factory=set)
    written: dict[Key, dict[int, list[Value]]] = field(default_factory=dict)
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
    stable: dict[tuple[Node, int], int] = field(default_factory=dict)
    """The largest stable offset that a broker showed, by stream."""
    reads: dict[Key, set[Key]] = field(default_factory=dict)
    """Whose records each transaction read."""
    side: list[int] = field(default_factory=list)
    """The streams of the topic that is deleted and created again. The last one may exist."""

    def excuse(self, id: str, now: float) -> None:
        self.excused[id] = now + EXCUSED_SECONDS

    def fresh(self) -> int:
        self.producers += 1
        return self.producers

    def batches(self, object_id: WalId, position: int, length: int, start: int) -> list[tuple[int, Batch]]:
        """The batches between two positions of a WAL object, with their offsets: the first one has `start`."""
        found = []
        for batch in self.objects[object_id]:
            if position <= batch.position < position + length:
                found.append((start, batch))
                start += len(batch.values)
        return found


class Brokers:
    """Ways to the brokers."""

    def __init__(self, cluster: SimCluster, rng: random.Random, truth: Truth) -> None:
        self.cluster = cluster
        self.rng = rng
        self.truth = truth
        self.late = 0.0
        """The chance that a connection breaks and its request arrives later."""
        self._sequences: dict[int, int] = {}
        self._waiting: dict[Node, list[_Pending]] = {}

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
        except Violation as violation:
            self.cluster.failures.append(str(violation))
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
        """Work that hands a batch to the broker's writer. The first one that waits flushes all that came until then."""

        async def work(node: Node) -> tuple[Verdict, int]:
            verdict: asyncio.Future[tuple[Verdict, int]] = self.cluster.world.loop.create_future()
            waiting = self._waiting.setdefault(node, [])
            waiting.append(_Pending(stream, mode, who, values, verdict))
            if len(waiting) == 1:
                await asyncio.sleep(self.cluster.world.delay() + self.rng.choice(GATHER_SECONDS))
                await self._flush(node, self._waiting.pop(node))
            return await verdict

        return work

    async def _flush(self, node: Node, pending: list[_Pending]) -> None:
        """Append one object with batches of any streams."""
        replica = node.domains[ONE]
        stamp = EPOCH_MS + int(self.cluster.world.loop.now * 1_000)  # older records would fall to retention
        epoch = replica.epoch
        sequence = self._sequences[epoch] = self._sequences.get(epoch, 0) + 1
        by_stream: dict[int, list[_Pending]] = {}
        for part in pending:
            by_stream.setdefault(part.stream, []).append(part)
        held = self.truth.objects[WalId(epoch, sequence)] = []
        position, chunks = FIRST_BYTE, []
        for stream, parts in by_stream.items():
            batches = [(BATCH_BYTES, len(part.values), stamp) for part in parts]
            modes = bytes(part.mode for part in parts)
            chunks.append(UnitChunk(stream, position, batches, [part.who for part in parts], modes))
            for part in parts:
                held.append(Batch(position, part.who[0], part.values, stamp))
                position += PREFIX_BYTES + BATCH_BYTES
        command = AppendUnits(sequence, position, 0, "z", [Unit([], chunks)])
        try:
            [result] = await replica.submit([command])
        except HeadwaterError as error:
            for part in pending:
                part.verdict.set_exception(error)
                part.verdict.exception()  # whoever sent it may be gone
            return
        assert isinstance(result, Appended), result
        for parts, found in zip(by_stream.values(), result.chunks, strict=True):
            for i, part in enumerate(parts):
                part.verdict.set_result(found.verdicts[i] if found.verdicts else (Verdict.ACCEPTED, found.first_offset))

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


def reserves(stream: int, rng: random.Random, seconds: float) -> Callable[[Node], Awaitable[None]]:
    """Work that reserves some offsets of a stream, and gives them up after a while."""

    async def work(node: Node) -> None:
        replica = node.domains[ONE]
        found = replica.state.streams.get(stream)
        if found is None:
            return
        [taken] = await replica.submit([Reserve(found.topic, [(stream, rng.randint(1, 3))], 3_000)])
        if isinstance(taken, Done):
            await asyncio.sleep(seconds)
            await replica.submit([Release(taken.value)])

    return work


async def release_all(node: Node) -> None:
    """Give up all reservations."""
    replica = node.domains[ONE]
    await replica.barrier()
    for number in list(replica.state.reservations):
        await replica.submit([Release(number)])
