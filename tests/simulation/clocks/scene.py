"""Clocks that are wrong: of one host or of all, ahead or back, by seconds or by a month, also across restarts.

Producers have right clocks. No record may go before its time, and none may stay for ever. Nothing is fenced because of
a clock. Records of a topic with log-append time get the right time as long as no process begins with a wrong clock. The
times of the product are shortened, so that a seed takes less than a minute of virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import msgspec
from kio.schema.errors import ErrorCode

import headwater.clock as host_clocks
from headwater.log import housekeeping
from headwater.replica import membership
from headwater.replica.checkpoint import load_state, replay
from headwater.state import clocks
from headwater.state.cluster.state import ClusterState
from headwater.types import Domain
from tests.simulation.clients import CREATE_TOPICS, PRODUCE, PRODUCE_VERSION, Client, History, Violation, produced
from tests.simulation.cluster import EPOCH_MS, SETTINGS, Disconnected, SimCluster
from tests.simulation.run import Scene, check_metadata, heal, until_done
from tests.simulation.stores import Faults, World
from tests.support.batches import Rec, batch

ONE = Domain(1)
BELIEVED_MS, PATIENCE_MS, JUMP_MS, DOUBT_MS, ABSENCE_MS, WAITING_MS = 3_000, 12_000, 400, 1_000, 1_000, 2_000
SHORTENED = (
    (host_clocks, "BELIEVED_AFTER_MS", BELIEVED_MS),
    (host_clocks, "JUMP_MS", JUMP_MS),
    (host_clocks, "LOOKS", 3),
    (membership, "TICK_SECONDS", 0.8),
    (clocks, "PATIENCE_MS", PATIENCE_MS),
    (clocks, "DOUBT_MS", DOUBT_MS),
    (clocks, "MAX_ABSENCE_MS", ABSENCE_MS),
    (clocks, "MAX_DELAY_MS", ABSENCE_MS),
    (housekeeping, "WAITING_MS", WAITING_MS),
)
RETENTION_MS = 8_000
SLACK_MS = DOUBT_MS + ABSENCE_MS + 500
"""A date that differs by less is not doubted, a process that joins adds a little time, and clocks are off by less."""
BUSY_SECONDS = 24.0
QUIET_SECONDS = PATIENCE_MS / 1000 + RETENTION_MS / 1000 + 8.0
JUMPS_MS = (3_000, 60_000, 3_600_000, 30 * 86_400_000)
CREATED, APPENDED = "created", "appended"


class Story:
    """One seed."""

    def __init__(self, world: World, cluster: SimCluster, history: History, rng: random.Random) -> None:
        self.world = world
        self.cluster = cluster
        self.history = history
        self.rng = rng
        self.client = Client(cluster, random.Random(rng.getrandbits(64)), history)
        self.sent: dict[tuple[str, int], int] = {}
        """The true time at which a record was sent that was acknowledged, by topic and offset."""
        self.restarts = 0
        self.calm = rng.random() < 0.5
        self.busy = True
        self.log_starts: dict[int, int] = {}

    @property
    def now_ms(self) -> int:
        """The true time."""
        return EPOCH_MS + int(self.world.loop.now * 1000)

    # --- who acts --------------------------------------------------------------------------------------

    async def create(self) -> None:
        for name in (CREATED, APPENDED):
            configs = {"retention.ms": str(RETENTION_MS)}
            if name == APPENDED:
                configs["message.timestamp.type"] = "LogAppendTime"
            topic = {
                "name": name,
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
            while True:
                answer = await self.client.ask(CREATE_TOPICS, 5, topics=[topic])
                if answer["topics"][0]["error_code"] in (ErrorCode.none, ErrorCode.topic_already_exists):
                    break
                await self.client.rest()

    async def produce(self, name: str) -> None:
        client = Client(self.cluster, random.Random(self.rng.getrandbits(64)), self.history)
        while self.busy:
            await self.send(client, name)
            await asyncio.sleep(client.rng.random())

    async def send(self, client: Client, name: str) -> None:
        """Send a record with the true time."""
        sent_ms = self.now_ms
        data = batch([Rec(b"x", timestamp=sent_ms)])
        content = [{"name": name, "partition_data": [{"index": 0, "records": data}]}]
        try:
            async with asyncio.timeout(20):
                raw = await client.connection(client.any_node()).send(
                    PRODUCE, PRODUCE_VERSION, acks=-1, timeout=5_000, topic_data=content
                )
        except (Disconnected, TimeoutError):
            return
        answer = produced(raw)
        if answer.error_code is not ErrorCode.none:
            return
        self.sent[(name, answer.base_offset)] = sent_ms
        self.history.acked.setdefault(0, {})[len(self.sent)] = b"x"
        if name == APPENDED and not self.restarts:
            off = int(answer.log_append_time.timestamp() * 1000) - self.now_ms
            if not -2_000 < off < JUMP_MS + 200:
                raise Violation(f"a record has a time of append {off} ms from now")

    async def upset(self) -> None:
        """Set clocks wrong for a while, again and again."""
        rng, cluster = random.Random(self.rng.getrandbits(64)), self.cluster
        while self.busy:
            await asyncio.sleep(1 + rng.random() * 3)
            nodes = list(cluster.brokers)
            hosts = nodes if rng.random() < 0.5 else [rng.choice(nodes)]
            by_ms = rng.choice(JUMPS_MS) * rng.choice((1, -1))
            cluster.note(f"clocks of {hosts} jump by {by_ms} ms")
            for node in hosts:
                cluster.wrong_ms[node] = by_ms
            await asyncio.sleep(0.2 + rng.random() * (BELIEVED_MS / 1000 - 0.5))
            if not self.calm and rng.random() < 0.5:
                self.restarts += 1
                for node in hosts:
                    cluster.crash(node)
                    cluster.restart(node)
                await asyncio.sleep(rng.random() * 2)
            cluster.wrong_ms.clear()
            cluster.note("clocks are right")
            await asyncio.sleep(PATIENCE_MS / 1000 if self.restarts else BELIEVED_MS / 1000 + 1)

    async def watch(self) -> None:
        """Look at what brokers have deleted."""
        while True:
            await asyncio.sleep(0.2)
            for node in self.cluster.serving():
                found = self.cluster.brokers[node].node
                if found is None:
                    continue
                names = {topic.id: topic.name for topic in found.cluster.state.topics.values()}
                for stream in found.domains[ONE].state.streams.values():
                    name, before = names.get(stream.topic), self.log_starts.get(stream.id, 0)
                    for offset in range(before, stream.log_start):
                        self._gone(name or "", offset)
                    self.log_starts[stream.id] = max(before, stream.log_start)

    def _gone(self, name: str, offset: int) -> None:
        sent = self.sent.get((name, offset))
        if sent is not None and self.now_ms - sent < RETENTION_MS - SLACK_MS:
            raise Violation(f"offset {offset} of {name} was deleted {self.now_ms - sent} ms after it was sent")

    # --- the end ---------------------------------------------------------------------------------------

    async def check(self) -> None:
        state, cluster = self.cluster.make_streams(ONE), ClusterState()
        for one in (state, cluster):
            await load_state(self.world.verdict_ledger, self.world.store, one)
            await replay(self.world.verdict_ledger, one)
        check_metadata(self.world, self.cluster, state)
        if abs(state.date_ms - self.now_ms) > 5_000:
            raise Violation(f"the date is {state.date_ms - self.now_ms} ms from now")
        names = {topic.id: topic.name for topic in cluster.topics.values()}
        for stream in state.streams.values():
            left = stream.next_offset - stream.log_start
            if left and not (self.restarts and names[stream.topic] == APPENDED):
                raise Violation(f"{left} records of stream {stream.id} outlived their retention")
        dead = [o for o in state.objects if o.dead_ms and state.clock_ms - o.dead_ms > 5_000]
        if dead:
            raise Violation(f"{len(dead)} dead objects are still there")
        fenced = sum(1 for _ in cluster.fenced_epochs())
        if self.calm and fenced:
            raise Violation(f"{fenced} processes were fenced, and none had died")


@contextlib.contextmanager
def shortened() -> Iterator[None]:
    """The times of the product, as the scene has them."""
    with contextlib.ExitStack() as stack:
        for module, name, value in SHORTENED:
            stack.enter_context(patch.object(module, name, value))
        yield


async def _story(world: World, cluster: SimCluster, history: History, rng: random.Random) -> None:
    with shortened():
        story = Story(world, cluster, history, rng)
        if story.calm:
            world.faults = Faults(delay=world.faults.delay)
        cluster.start()
        await story.create()
        working = [asyncio.create_task(story.produce(name)) for name in (CREATED, APPENDED)]
        watching: list[asyncio.Task[Any]] = [asyncio.create_task(story.watch())]
        upset = asyncio.create_task(story.upset())
        await until_done([asyncio.create_task(asyncio.sleep(BUSY_SECONDS))], [*working, *watching, upset])
        story.busy = False
        upset.cancel()
        cluster.wrong_ms.clear()
        heal(world, cluster)
        await until_done(working, watching)
        await until_done([asyncio.create_task(asyncio.sleep(QUIET_SECONDS))], watching)
        await story.check()


CLOCKS = Scene(
    _story,
    brokers=(1, 1, 2, 3),
    settings=msgspec.structs.replace(
        SETTINGS,
        housekeeping=msgspec.structs.replace(SETTINGS.housekeeping, checkpoint_bytes=30_000, arrival_grace_ms=0),
    ),
)
"""Wrong clocks."""
