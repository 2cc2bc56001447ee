"""Readers of transactions and a compactor, with the product's own looks, plans and commands.

Records have no bytes here, so this module says what a look's entries hold. Where to stop, what to leave out and what to
settle is decided by `headwater.log.looking` and `headwater.lake.planning`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from dataclasses import dataclass

from headwater.app.node import Node
from headwater.lake import planning
from headwater.lake.commands import settle_command
from headwater.lake.tasks import FileFacts, FileTask, PartRun, StreamPart
from headwater.log import looking
from headwater.log.wal import format as wal
from headwater.state.commands.base import TakeLease
from headwater.state.commands.tables import NewFile
from headwater.state.results import Done
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from tests.simulation.clients import Violation
from tests.simulation.cluster import Disconnected
from tests.simulation.transacting import GROUP, ONE, Brokers, Truth, Value

SLOW_SECONDS = 3.0
"""How long a read from a slow store takes. A compactor settles in the meantime."""


@dataclass(frozen=True)
class Read:
    """What a reader took from an offset on, in one synchronous step."""

    stream: int
    offset: int
    look: looking.Look
    names: dict[int, str]
    """The names of segments by number."""

    @property
    def end(self) -> int:
        """Where the reader goes on."""
        if not self.look.entries:
            return self.offset
        return max(self.offset, min(self.look.bound, self.look.entries[-1].end))


class Rules:
    """What is not part of a look. A planted defect replaces one of them."""

    @staticmethod
    def after_reading(read: Read, state: StreamsState) -> Read:
        """What a reader has when the objects are read."""
        return read

    @staticmethod
    def dropped(part: StreamPart) -> list[tuple[int, int, int]]:
        """The aborted ranges whose records a settling task leaves out."""
        return part.aborted

    @staticmethod
    def stable_offset(state: StreamsState, topic: uuid.UUID, place: int) -> int | None:
        """A committed offset, if no open transaction may still change it."""
        if state.transactions.is_staged(GROUP, topic, place):
            return None
        group = state.groups.get(GROUP)
        found = group.offsets.get(topic, {}).get(place) if group is not None else None
        return found.offset if found is not None else 0


def take(state: StreamsState, stream: Stream, offset: int, limit: int, committed: bool = True) -> Read:
    """Look at a stream as the product's reader does, for up to `limit` entries."""
    taken = itertools.count()
    look = looking.look(stream, offset, committed, lambda _: next(taken) < limit)
    table = state.tables.get(stream.topic)
    names = {e.file: table.files[e.file].name for e in look.entries if e.file and table is not None}
    return Read(int(stream.id), offset, look, names)


def records_of(truth: Truth, read: Read) -> list[tuple[int, Value]]:
    """The records that a client keeps of what it was given."""
    kept, look = [], read.look
    for entry in look.entries:
        if entry.marker:
            continue
        if entry.file:
            rows = truth.files[read.names[entry.file]]
            kept += [(at, rows[read.stream, at]) for at in range(entry.start, entry.end) if (read.stream, at) in rows]
        elif entry.in_wal:
            for start, batch in truth.batches(entry.object, entry.position, entry.length, entry.start):
                if not any(a.producer == batch.producer and a.first <= start < a.marker for a in look.aborted):
                    kept += list(enumerate(batch.values, start))
    return [(at, value) for at, value in kept if read.offset <= at < look.bound]


class Reader:
    """Reads one stream, from any broker."""

    def __init__(self, brokers: Brokers, stream: int, rng: random.Random, *, committed: bool = True) -> None:
        self.brokers = brokers
        self.rng = rng
        self.stream = stream
        self.committed = committed
        self.position = 0
        self.seen: dict[int, Value] = {}
        self.polled: list[tuple[int, int]] = []
        """The ranges of offsets that it read."""

    async def poll(self) -> None:
        asked, limit = self.position, self.rng.choice([1, 3, 50])
        slow = self.rng.random() * SLOW_SECONDS if self.rng.random() < 0.1 else 0.0

        async def work(node: Node) -> Read | int | None:
            state = node.domains[ONE].state
            stream = state.streams.get(self.stream)
            if stream is None:
                return None
            self._watch(node, stream)
            if asked > looking.bound_of(stream, self.committed):
                return None
            if asked < stream.log_start:
                return stream.log_start
            read = take(state, stream, asked, limit, self.committed)
            await asyncio.sleep(slow or self.brokers.cluster.world.delay())
            return Rules.after_reading(read, state)

        try:
            found = await self.brokers.ask(work)
        except Disconnected:
            return
        if isinstance(found, int):
            self.position = found
        elif found is not None:
            self._take(asked, found)

    def _take(self, asked: int, read: Read) -> None:
        for at, value in records_of(self.brokers.truth, read):
            if self.seen.setdefault(at, value) != value:
                raise Violation(f"stream {self.stream} offset {at} was {self.seen[at]}, now {value}")
        self.position = read.end
        self.polled.append((asked, self.position))

    def _watch(self, node: Node, stream: Stream) -> None:
        key, known = (node, self.stream), self.brokers.truth.stable.get((node, self.stream), 0)
        if stream.stable < known:
            raise Violation(f"stream {self.stream}: the stable offset fell from {known} to {stream.stable}")
        self.brokers.truth.stable[key] = stream.stable


class Compactor:
    """Settles topics by the product's plans and commands. Only the files are not written."""

    def __init__(self, brokers: Brokers, rng: random.Random) -> None:
        self.brokers = brokers
        self.rng = rng
        self.jobs = 0

    async def round(self) -> None:
        """Settle some of what can be settled of one topic."""
        self.jobs += 1
        job, pick = self.jobs, self.rng.random()
        limits = planning.Limits(
            file_bytes=self.rng.choice([60, 200, 1 << 20]), job_bytes=self.rng.choice([1, 1 << 20])
        )

        async def work(node: Node) -> None:
            replica = node.domains[ONE]
            [lease] = await replica.submit([TakeLease(COMPACTION, 2_000)])
            topics = list(dict.fromkeys(stream.topic for stream in replica.state.streams.values()))
            if isinstance(lease, Done) and topics:
                await self._settle(node, lease.value, job, topics[int(pick * len(topics))], limits)

        try:
            await self.brokers.ask(work)
        except Disconnected:
            return

    async def _settle(self, node: Node, lease: int, job: int, topic: uuid.UUID, limits: planning.Limits) -> None:
        replica = node.domains[ONE]
        streams = [stream for stream in replica.state.streams.values() if stream.topic == topic]
        plan = planning.TopicPlan(topic, planning.table_root("t", topic), streams, 0)
        prefix = f"{replica.epoch}-{job}-"
        found = planning.plan_settle(replica.state, [plan], store="", prefix=prefix, slots=1, limits=limits)
        tasks = [file for task in found.tasks for file in task.files]
        if not tasks:
            return
        facts = [self._write(number, task) for number, task in enumerate(tasks)]
        await asyncio.sleep(self.brokers.cluster.world.delay())  # the files are written
        await replica.submit([settle_command(lease, topic, plan.root, facts)])

    def _write(self, number: int, task: FileTask) -> FileFacts:
        """The rows of a file, without what was aborted."""
        rows: dict[tuple[int, int], Value] = {}
        runs: list[PartRun] = []
        groups, stamps = 0, [-1]
        for part in task.parts:
            newest, gone = -1, Rules.dropped(part)
            for run in part.runs:
                object_id = wal.id_of_path(run.path)
                assert object_id is not None, run
                for start, batch in self.brokers.truth.batches(object_id, run.position, run.length, run.start):
                    if any(producer == batch.producer and first <= start < last for producer, first, last in gone):
                        continue
                    kept = {(part.stream, at): v for at, v in enumerate(batch.values, start) if at >= part.start}
                    rows |= kept
                    newest = max(newest, batch.stamp) if kept else newest
            held = 1 if newest >= 0 else 0
            runs.append(PartRun(part.stream, part.start, part.end, groups if held else 0, held, newest))
            groups, stamps = groups + held, [*stamps, newest]
        if not rows:
            return FileFacts(None, runs, [])
        name = f"{task.prefix}{number}"
        self.brokers.truth.files[name] = rows
        partitions = [part.partition for part in task.parts]
        offsets = [at for _, at in rows]
        file = NewFile(
            name=name,
            size=10,
            rows=len(rows),
            groups=groups,
            first_partition=min(partitions),
            last_partition=max(partitions),
            first_offset=min(offsets),
            last_offset=max(offsets),
            min_timestamp=0,
            max_timestamp=max(stamps),
            timestamp_nulls=0,
            footer_checksum=7,
        )
        return FileFacts(file, runs, [])
