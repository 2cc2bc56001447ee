"""Readers with the product's own reader, and a compactor that writes real segments."""

from __future__ import annotations

import random
import uuid

from headwater.app.node import Node
from headwater.client.records import decode_batches
from headwater.lake import merging, planning
from headwater.lake.commands import replace_command, settle_command
from headwater.lake.spark.executor import perform
from headwater.lake.tasks import FileFacts
from headwater.state.commands.base import TakeLease
from headwater.state.results import Done, Reason, Refused
from headwater.state.streams.domain import COMPACTION
from headwater.types import Buffer
from tests.simulation.clients import Violation
from tests.simulation.cluster import Disconnected
from tests.simulation.units.appenders import Scene
from tests.simulation.units.auditor import ONE

MOST_BYTES = (1, 200, 1 << 20)


def taken(data: Buffer, first: int) -> tuple[int, dict[int, bytes]]:
    """Where a reader goes on, and the records from an offset on."""
    got: dict[int, bytes] = {}
    at = first
    for batch in decode_batches(data):
        if not batch.control:
            got.update((r.offset, r.value or b"") for r in batch.records if r.offset >= at)
        at = max(at, batch.next_offset)
    return at, got


class Reader:
    """Reads all records of one stream, from any node."""

    def __init__(self, scene: Scene, stream: int, rng: random.Random) -> None:
        self.scene = scene
        self.stream = stream
        self.rng = rng
        self.position = 0

    async def poll(self) -> None:
        asked, most = self.position, self.rng.choice(MOST_BYTES)

        async def work(node: Node) -> tuple[int, dict[int, bytes]] | int:
            replica = node.domains[ONE]
            stream = replica.state.streams.get(self.stream)
            if stream is None or asked >= stream.end:
                return asked
            if asked < stream.log_start:
                return stream.log_start
            found = await node.core.reader.read(replica, self.stream, asked, most, True)
            return taken(found.records, asked)

        try:
            found = await self.scene.brokers.ask(work)
        except Disconnected:
            return
        if isinstance(found, int):
            self.position = found
            return
        last, got = found
        await self.scene.auditor.fold()
        self.scene.auditor.check_read(self.stream, asked, last, got)
        self.position = last
        if self.rng.random() < 0.02:
            self.position = 0


class Compactor:
    """Settles topics with the product's plans, files and commands."""

    def __init__(self, scene: Scene, rng: random.Random) -> None:
        self.scene = scene
        self.rng = rng
        self.jobs = 0

    async def round(self) -> None:
        """Settle some of what can be settled of one topic."""
        self.jobs += 1
        job, pick = self.jobs, self.rng.random()
        limits = planning.Limits(
            file_bytes=self.rng.choice([100, 400, 1 << 20]), job_bytes=self.rng.choice([1, 1 << 20])
        )

        async def work(node: Node) -> None:
            replica = node.domains[ONE]
            [lease] = await replica.submit([TakeLease(COMPACTION, 2_000)])
            topics = list(dict.fromkeys(stream.topic for stream in replica.state.streams.values()))
            if isinstance(lease, Done) and topics:
                await self._settle(node, lease.value, job, topics[int(pick * len(topics))], limits)

        try:
            await self.scene.brokers.ask(work)
        except Disconnected:
            return

    async def _settle(self, node: Node, lease: int, job: int, topic: uuid.UUID, limits: planning.Limits) -> None:
        replica = node.domains[ONE]
        streams = [stream for stream in replica.state.streams.values() if stream.topic == topic]
        plan = planning.TopicPlan(topic, planning.table_root("t", topic), streams, 0)
        prefix = f"{replica.epoch}-{job}-"
        found = planning.plan_settle(replica.state, [plan], store="", prefix=prefix, slots=1, limits=limits)
        facts: list[FileFacts] = []
        for task in found.tasks:
            facts += (await perform(node.domains.store, task)).files
        damaged = [input for fact in facts for input in fact.damaged]
        if facts and not damaged:
            [result] = await replica.submit([settle_command(lease, topic, plan.root, facts)])
            if isinstance(result, Refused) and result.reason is Reason.INVALID:
                raise Violation(f"a settle was refused: {result.detail}")
        await self._merge(node, lease, topic, prefix)

    async def _merge(self, node: Node, lease: int, topic: uuid.UUID, prefix: str) -> None:
        """Rewrite small files of a table as one."""
        replica = node.domains[ONE]
        table = replica.state.tables.get(topic)
        if table is None or table.dropped:
            return
        streams = [stream for stream in replica.state.streams.values() if stream.topic == topic]
        limits = planning.Limits(merge_files=3)
        found = merging.plan_merge([table], lambda _: streams, store="", prefix=prefix, slots=1, limits=limits)
        for task in found.tasks:
            facts = (await perform(node.domains.store, task)).files
            [result] = await replica.submit([replace_command(replica.state, lease, topic, found.removed[topic], facts)])
            if isinstance(result, Refused) and result.reason is Reason.INVALID:
                raise Violation(f"a merge was refused: {result.detail}")
