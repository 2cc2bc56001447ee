"""A topic that is copied from another Kafka, while nodes die, pause and lose their way, and others try to write to it.

Every node copies, too: nothing but `apply` keeps two of them from copying the same records, or from copying on under a
generation of before. The source has gaps, and is truncated now and then. Producers, bulk appends and transactions try
to get in all the time. The topic is paused, promoted, and linked again. In the end every partition must have exactly
the records of the source at their offsets, up to where it was promoted, and those of producers behind that.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from harness.loop import run_as
from headwater.app.doctor.examining import check_links
from headwater.app.doctor.report import Report
from headwater.app.node import Node
from headwater.client.records import decode_batches
from headwater.errors import Conflict, Exists, HeadwaterError, NotFound, Retriable
from headwater.log.batch import Batch, check_batch, join_patched
from headwater.log.wal import format as wal
from headwater.log.write.part import Outcome, Part, Together
from headwater.replica.checkpoint import load_state, replay
from headwater.replica.links import Linking
from headwater.state.cluster.links import LinkedTopic
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.links import LinkPhase, LinkSpec, SkipStreams
from headwater.state.commands.streams import AnyCondition, EndIs, MirrorIs, Present, StartAt
from headwater.state.commands.tables import Release, Reserve
from headwater.state.commands.transactions import EndTransaction, InitTransaction, JoinTransaction
from headwater.state.results import Done, Judgement, Skipped, SkipVerdict, Transacted, UnitResult, UnitVerdict, Verdict
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.types import Domain
from tests.simulation.clients import History, Violation
from tests.simulation.cluster import EPOCH_MS, SimBroker, SimCluster
from tests.simulation.links.source import Diverged, Partition, Piece, epoch_of
from tests.simulation.run import Scene as Played
from tests.simulation.run import check_metadata, heal, until_done
from tests.simulation.stores import World
from tests.support.batches import Rec, batch, values
from tests.support.virtual_nodes import LAX, One

ONE = Domain(1)
BUSY_SECONDS = 10.0
QUIET_SECONDS = 8.0
"""Time for fences, for everybody's return and to copy to the end."""
TOPIC, SOURCE_ID = "copied", uuid.UUID(int=9)
SPEC = LinkSpec("old", ("kafka:9092",), {}, (TOPIC,), (), (), {}, False)
WHY = "somebody wants it so"
GOVERNED = (LinkPhase.COPYING, LinkPhase.COPYING, LinkPhase.PAUSED, LinkPhase.PROMOTED)
PARTITIONS = 3
"""Of the source. The topic here begins with two of them."""


class Copier:
    """What one life of a node does for links."""

    def __init__(self, setting: Setting, broker: SimBroker, node: Node, rng: random.Random) -> None:
        self._setting = setting
        self._rng = rng
        self._node = node
        self._replica = node.domains[ONE]
        self._linking = setting.linking(node)
        run_as(broker.life, self._watched())

    async def _watched(self) -> None:
        while self._setting.acting:
            await asyncio.sleep(self._rng.random() * 0.3)
            try:
                await self._round()
            except (Retriable, Conflict, NotFound):
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the verdict
                self._setting.cluster.failures.append(f"{type(error).__name__}: {error}")
                return

    async def _round(self) -> None:
        for linked in list(self._node.cluster.state.links.topics.values()):
            topic = self._node.cluster.state.topics.get(linked.topic)
            if topic is None or linked.phase is not LinkPhase.COPYING:
                continue
            for partition, name in enumerate(topic.streams[: topic.ready]):
                stream = self._replica.state.streams.get(name)
                if stream is not None and stream.mirror.on:
                    await self._copy(linked, stream, self._setting.source[partition])

    async def _copy(self, linked: LinkedTopic, stream: Stream, source: Partition) -> None:
        position, last = stream.next_offset, await self._last(stream)
        await asyncio.sleep(self._rng.random() * 0.05)
        try:
            pieces = source.fetch(position, last)
        except Diverged as error:
            await self._linking.change(linked, LinkPhase.STOPPED, str(error))
            self._setting.cluster.note(f"stopped: {error}")
            return
        if self._setting.busy:
            await asyncio.sleep(self._rng.random() ** 4)
            pieces = pieces[: self._rng.randint(1, 4)]
        for piece in pieces:
            if not piece.values and piece is not pieces[-1] and self._rng.random() < 0.8:
                continue  # the batch behind the gap leaves it
            done = self._append(linked, stream, position, piece) if piece.values else self._skip(linked, stream, piece)
            if not await done:
                return
            position = piece.next

    async def _last(self, stream: Stream) -> tuple[int, int] | None:
        """Offset and leader epoch of the last record here, from the log."""
        entry = next((e for e in reversed(list(stream.index)) if not e.gap), None)
        if entry is None:
            return None
        found = await self._node.broker.reader.read(self._replica, stream.id, entry.end - 1, 1 << 20, True)
        records = [record for one in decode_batches(found.records) for record in one.records]
        [(offset, value)] = [(r.offset, r.value or b"") for r in records if r.offset == entry.end - 1]
        if not value.startswith(b"s"):
            raise Violation(f"{value!r} of a producer is at {offset} of stream {stream.id}, which is a mirror")
        return offset, epoch_of(value)

    async def _append(self, linked: LinkedTopic, stream: Stream, position: int, piece: Piece) -> bool:
        conditions: list[AnyCondition] = [
            MirrorIs(stream.id, linked.generation), EndIs(stream.id, position), StartAt(stream.id, piece.start),
        ]  # fmt: skip
        judged = await self._setting.unit(self._node, stream, piece.values, conditions)
        if judged.verdict is UnitVerdict.ACCEPTED:
            self._setting.copied += len(piece.values)
            [placed] = judged.placed
            if placed.first_offset != piece.start:
                raise Violation(f"record {piece.start} of the source was placed at {placed.first_offset}")
        return judged.verdict is UnitVerdict.ACCEPTED

    async def _skip(self, linked: LinkedTopic, stream: Stream, piece: Piece) -> bool:
        command = SkipStreams([(int(stream.id), linked.generation, piece.start, piece.next)])
        [result] = await self._replica.submit([command])
        if not isinstance(result, Skipped):
            return False
        [(verdict, end)] = result.gaps
        if verdict is SkipVerdict.SKIPPED and end != piece.next:
            raise Violation(f"a gap up to {piece.next} of the source ends at {end}")
        return verdict is SkipVerdict.SKIPPED


class Setting:
    """One seed's cluster, and who acts in it."""

    def __init__(self, world: World, cluster: SimCluster, rng: random.Random) -> None:
        self.world = world
        self.cluster = cluster
        self.rng = rng
        self.source = [Partition(number) for number in range(PARTITIONS)]
        self.busy = self.acting = True
        self.copied = 0
        self.written: dict[int, dict[int, bytes]] = {}
        """By stream, what producers were told."""
        self._seen: dict[int, LinkedTopic] = {}
        """Linked topics as they were, by generation: processes that are late carry them through again."""
        self._promoted: dict[uuid.UUID, dict[int, dict[int, int]]] = {}
        """By topic that somebody wanted to promote, and by generation: by stream, where it ended."""
        self._known: set[Node] = set()
        self._number = 0

    def chance(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    def linking(self, node: Node) -> Linking:
        return Linking(node.cluster, node.domains, node.broker.topics, node.domains.chance)

    async def look_on(self) -> None:
        """Let nodes that have started copy, and failures through."""
        while self.acting:
            await asyncio.sleep(0.05)
            for broker in self.cluster.brokers.values():
                if broker.node is not None and broker.node not in self._known:
                    self._known.add(broker.node)
                    Copier(self, broker, broker.node, self.chance())
            if self.cluster.failures:
                raise Violation(self.cluster.failures[0])

    async def unit(
        self, node: Node, stream: Stream, records: tuple[bytes, ...], conditions: list[AnyCondition]
    ) -> UnitResult:
        """The result of a unit. Raises the error of one that has none."""
        decided: asyncio.Future[UnitResult | HeadwaterError] = asyncio.get_running_loop().create_future()
        unit = Together([(int(stream.id), self._batch(records))], conditions, decided.set_result)
        node.writers.of(ONE, "latency").append_unit(unit)
        outcome = await decided
        if isinstance(outcome, HeadwaterError):
            raise outcome
        return outcome

    def _batch(self, records: tuple[bytes, ...]) -> Batch:
        stamp = EPOCH_MS + int(self.world.loop.now * 1_000)
        return check_batch(batch([Rec(value, timestamp=stamp) for value in records]), LAX, stamp)

    # --- who acts --------------------------------------------------------------------------------------

    async def grow(self) -> None:
        """The source goes on."""
        rng = self.chance()
        while self.busy:
            await asyncio.sleep(rng.random() * 0.3)
            partition = rng.choice(self.source)
            partition.grow(rng)
            if rng.random() < 0.02 and partition.truncate(rng):
                self.cluster.note(f"source {partition.number} is truncated to {partition.end}")

    async def on_a_node(self, work: Callable[[Node, random.Random], Awaitable[None]], pause: float) -> None:
        """Do something on some node, again and again."""
        rng = self.chance()
        while self.busy:
            await asyncio.sleep(rng.random() * pause)
            serving = self.cluster.serving()
            broker = self.cluster.brokers[rng.choice(serving)] if serving else None
            if broker is not None and broker.node is not None:
                run_as(broker.life, self._tried(work, broker.node, rng))

    async def _tried(self, work: Callable[[Node, random.Random], Awaitable[None]], node: Node, rng: Any) -> None:
        try:
            await work(node, rng)
        except HeadwaterError:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the verdict
            self.cluster.failures.append(f"{type(error).__name__}: {error}")

    async def create(self, node: Node, rng: random.Random) -> None:
        """Create the link and its topic, if they are not there."""
        linking = self.linking(node)
        try:
            if SPEC.name not in node.cluster.state.links.links:
                await linking.put(SPEC, 0)
            if TOPIC not in node.cluster.state.names:
                await linking.create_topic(SPEC.name, TOPIC, TOPIC, SOURCE_ID, 2, {})
        except Exists:
            return

    async def govern(self, node: Node, rng: random.Random) -> None:
        """Pause, promote, link again, add a partition; delete what cannot be copied any more."""
        state = node.cluster.state
        topic = state.names.get(TOPIC)
        linked = state.links.topics.get(topic.id) if topic is not None else None
        if topic is None or linked is None:
            return
        self._seen[linked.generation] = linked
        if linked.phase is LinkPhase.PROMOTED and topic.id not in self._promoted:
            raise Violation(f"nobody promoted the topic: {linked.reason}")
        if linked.phase is LinkPhase.STOPPED or (linked.phase is LinkPhase.PROMOTED and linked.reason != WHY):
            await node.broker.topics.delete(topic)  # and it is created again
            return
        linking, what = self.linking(node), rng.random()
        if len(topic.streams) < PARTITIONS and what < 0.2:
            await node.broker.topics.add_partitions(topic, PARTITIONS)
            return
        phase = rng.choice([phase for phase in GOVERNED if phase is not linked.phase])
        ends = self._promoted.setdefault(topic.id, {}) if phase is LinkPhase.PROMOTED else {}
        try:
            changed = await linking.change(linked, phase, WHY)
            found = [node.domains[ONE].state.streams.get(name) for name in topic.streams]
            at = {int(s.id): s.mirror.end for s in found if s and s.mirror.generation == changed.generation}
            ends[changed.generation] = at
            self.cluster.note(f"{phase.name.lower()}")
        except Conflict as error:
            self.cluster.note(f"not {phase.name.lower()}: {error}")

    async def meddle(self, node: Node, rng: random.Random) -> None:
        """Try to write, as somebody who does not know of the link."""
        streams = list(node.domains[ONE].state.streams.values())
        if not streams:
            return
        stream, what = rng.choice(streams), rng.random()
        self._number += 1
        value = f"p{self._number}".encode()
        if what < 0.6:
            await self._produce(node, stream, value)
        elif what < 0.8:
            judged = await self.unit(node, stream, (value,), [Present()])
            if judged.verdict is UnitVerdict.ACCEPTED:
                self._told(stream, judged.placed[0].first_offset, value)
        elif what < 0.85:
            await self._reserve(node, stream)
        elif what < 0.93 and self._seen:
            await self.linking(node).carry_through(rng.choice(list(self._seen.values())))
        else:
            await self._transact(node, stream)

    async def _produce(self, node: Node, stream: Stream, value: bytes) -> None:
        caller = One()
        node.writers.of(ONE, "latency").append(Part(int(stream.id), self._batch((value,)), caller, 0))
        outcome = await caller.done
        if isinstance(outcome, Outcome) and outcome.verdict is Verdict.ACCEPTED:
            self._told(stream, outcome.offset, value)

    def _told(self, stream: Stream, offset: int, value: bytes) -> None:
        self.written.setdefault(int(stream.id), {})[offset] = value

    async def _reserve(self, node: Node, stream: Stream) -> None:
        [taken] = await node.domains[ONE].submit([Reserve(stream.topic, [(int(stream.id), 1)], 3_000)])
        if isinstance(taken, Done):
            await node.domains[ONE].submit([Release(taken.value)])

    async def _transact(self, node: Node, stream: Stream) -> None:
        name, replica = f"t{self._number}", node.domains[ONE]
        [begun] = await replica.submit([InitTransaction(name, 60_000, self._number, -1, -1)])
        assert isinstance(begun, Transacted)
        who = name, begun.producer, begun.epoch
        [joined] = await replica.submit([JoinTransaction(*who, (int(stream.id),), ())])
        assert isinstance(joined, Transacted)
        if joined.judgement is Judgement.DONE:
            await replica.submit([EndTransaction(*who, True, False, -1)])

    async def misfortunes(self) -> None:
        rng = self.chance()
        while True:
            await asyncio.sleep(rng.expovariate(1 / 1.5))
            if not self.cluster.befall(rng.choice(list(self.cluster.brokers)), rng.random(), rng):
                for other in self.cluster.brokers:
                    self.cluster.restart(other)

    # --- the end ---------------------------------------------------------------------------------------

    async def verdict(self) -> None:
        cluster, state = ClusterState(), self.cluster.make_streams(ONE)
        for one in (cluster, state):
            await load_state(self.world.verdict_ledger, self.world.store, one)
            await replay(self.world.verdict_ledger, one)
        assert isinstance(state, StreamsState)
        check_metadata(self.world, self.cluster, state)
        report = Report()
        check_links(cluster, state, report)
        if report.findings:
            raise Violation(str(report.findings[0]))
        linked = next(iter(cluster.links.topics.values()), None)
        told = self._promoted.get(linked.topic, {}).get(linked.generation, {}) if linked is not None else {}
        for stream in state.streams.values():
            self._judge(state, stream)
            if told.get(int(stream.id), stream.mirror.end) != stream.mirror.end:
                raise Violation(f"partition {stream.partition} was promoted at {told}, it says {stream.mirror}")
            end = self.source[stream.partition].end
            if linked is not None and linked.phase is LinkPhase.COPYING and stream.next_offset != end:
                raise Violation(f"partition {stream.partition} ends at {stream.next_offset}, its source at {end}")
        self.cluster.note(f"{self.copied} records copied; {linked}")

    def _judge(self, state: StreamsState, stream: Stream) -> None:
        """What a partition must have: the records of one history of the source, and those of producers behind them."""
        where, records = f"partition {stream.partition}", self._records(state, stream)
        end = stream.next_offset if stream.mirror.on else stream.mirror.end
        copied = {offset: value for offset, value in records.items() if value.startswith(b"s")}
        late = [offset for offset in copied if offset >= end]
        if late:
            raise Violation(f"{where}: {records[late[0]]!r} was copied to {late[0]}, though it was promoted at {end}")
        early = [offset for offset in records if offset < end and offset not in copied]
        if early:
            raise Violation(f"{where}: {records[early[0]]!r} of a producer is at {early[0]}, before {end}")
        epoch = max(map(epoch_of, copied.values()), default=0)
        history = self.source[stream.partition].records(epoch)
        wanted = {offset: value for offset, value in history.items() if offset < end}
        for offset in sorted(wanted.keys() | copied.keys()):
            if wanted.get(offset) != copied.get(offset):
                told = f"{copied.get(offset)!r} is at {offset}, in the source {wanted.get(offset)!r}"
                raise Violation(f"{where}: {told}")
        for offset, value in self.written.get(int(stream.id), {}).items():
            if records.get(offset) != value:
                raise Violation(f"{where}: {value!r} was acknowledged at {offset}, {records.get(offset)!r} is there")

    def _records(self, state: StreamsState, stream: Stream) -> dict[int, bytes]:
        """All records of a stream, from the index and the store."""
        found: dict[int, bytes] = {}
        for entry in stream.index:
            if not entry.in_wal:
                if entry.marker and stream.mirror.on:
                    raise Violation(f"a transaction ended at {entry.start} of stream {stream.id}, which is a mirror")
                continue
            known = state.objects.get(entry.object)
            if known is None:
                raise Violation(f"object {entry.object} is named by the index but not known")
            data = self.world.store.objects[wal.path_of(known.zone, ONE, known.created_ms, entry.object)]
            batches = wal.batches_between(data, entry.position, entry.position + entry.length)
            found.update(values(join_patched(batches, entry.start)))
        return found


async def _story(world: World, cluster: SimCluster, history: History, rng: random.Random) -> None:
    cluster.reply_lost = rng.choice([0.0, 0.02])
    cluster.start()
    setting = Setting(world, cluster, rng)
    start = asyncio.create_task
    chaos, watching = start(setting.misfortunes()), start(setting.look_on())
    eager = rng.choice([0.4, 1.5])
    working = [
        start(setting.grow()),
        start(setting.on_a_node(setting.create, 1.0)),
        start(setting.on_a_node(setting.govern, rng.choice([2.0, 6.0]))),
        *(start(setting.on_a_node(setting.meddle, eager)) for _ in range(2)),
    ]
    await until_done([start(asyncio.sleep(BUSY_SECONDS))], [*working, watching, chaos])
    chaos.cancel()
    heal(world, cluster)
    setting.busy = False
    await until_done(working, [watching])
    await until_done([start(asyncio.sleep(QUIET_SECONDS))], [watching])
    setting.acting = False
    await until_done([watching], [])
    await asyncio.sleep(2)  # until the last rounds are over
    await setting.verdict()
    history.ack(0, 0, [b""] * setting.copied)


LINKS = Played(_story, brokers=(1, 2, 3, 3))
