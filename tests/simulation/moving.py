"""The shard of a group moves in the moment in which its members get partitions, and the group goes on.

The members are models of real clients with the clients' own rules for errors. A shard moves because its broker is
fenced though it lives, dies, is paused past its session, or loses the ledger. When all is well again, every partition
must be read: a member that was given an error that its client does not retry would never begin to.
"""

from __future__ import annotations

import asyncio
import random

from harness.loop import run_as
from tests.simulation.clients import Client, History, Violation, create_topic
from tests.simulation.cluster import SimCluster
from tests.simulation.group_clients import GroupClient, Truth
from tests.simulation.java import JavaClassic, JavaConsumer
from tests.simulation.librdkafka import LibrdkafkaClassic, LibrdkafkaConsumer
from tests.simulation.run import Scene, heal, until_done
from tests.simulation.stores import World

KINDS = (LibrdkafkaClassic, LibrdkafkaConsumer, JavaClassic, JavaConsumer)
MOVES = 6
MOVING_SECONDS = 40.0
SETTLING_SECONDS = 25.0
"""Sessions of members that are gone end within this time, and the others have their partitions."""
READING_SECONDS = 3.0


class Mover:
    """Moves the shard of a group when a member was assigned partitions."""

    def __init__(self, world: World, cluster: SimCluster, rng: random.Random) -> None:
        self._world = world
        self._cluster = cluster
        self._rng = rng
        self.moves = 0

    def __call__(self, member: GroupClient) -> None:
        node, rng = member.coordinator, self._rng
        if node is None or self.moves >= MOVES or rng.random() < 0.2:
            return
        self.moves += 1
        soon = rng.choice([0.0, 0.001, 0.01, 0.1, 0.5]) * rng.random()
        move = rng.choice([self._fence, self._fence, self._crash, self._pause, self._outage])
        self._world.loop.outside(soon, move, node)

    def _fence(self, node: int) -> None:
        """Another broker takes this one for dead. It takes a new epoch at once, and the shard comes back."""
        broker = self._cluster.brokers[node]
        others = [other for number, other in self._cluster.brokers.items() if number != node and other.serves]
        if broker.node is None or not others:
            return
        judge = self._rng.choice(others)
        assert judge.node is not None
        for process in list(judge.node.cluster.state.processes.values()):
            if process.node == node:
                self._cluster.note(f"broker-{node} is fenced")
                run_as(judge.life, judge.node.membership.fence(process))

    def _crash(self, node: int) -> None:
        self._cluster.crash(node)
        self._world.loop.outside(self._rng.random() * 6, self._cluster.restart, node)

    def _pause(self, node: int) -> None:
        self._cluster.pause(node, self._rng.random() * 12)

    def _outage(self, node: int) -> None:
        self._cluster.note("outage")
        self._world.outage_until = self._world.loop.now + self._rng.random() * 15


async def _story(world: World, cluster: SimCluster, history: History, rng: random.Random) -> None:
    """The story of one seed."""
    cluster.reply_lost = rng.choice([0.0, 0.0, 0.02])
    cluster.start()
    partitions = rng.choice([1, 2, 4])
    await create_topic(Client(cluster, random.Random(rng.getrandbits(64)), history), partitions)
    truth = Truth(f"g{rng.getrandbits(16)}")
    mover = Mover(world, cluster, random.Random(rng.getrandbits(64)))
    kind = rng.choice(KINDS)
    cluster.note(f"{kind.__name__} on {partitions} partitions")
    members = [
        kind(cluster, random.Random(rng.getrandbits(64)), history, truth, partitions, mover)
        for _ in range(rng.randint(1, 3))
    ]
    living = []
    for member in members:
        living.append(asyncio.create_task(member.run()))
        await _time(rng.random() * MOVING_SECONDS / 8, living)
    end = world.loop.now + MOVING_SECONDS
    while world.loop.now < end and mover.moves < MOVES:
        await _time(1.0, living)
    heal(world, cluster)
    mover.moves = MOVES
    await _time(SETTLING_SECONDS, living)
    truth.reads.clear()
    await _time(READING_SECONDS, living)
    for member in members:
        member.stop = True
    await until_done(living, [])
    if cluster.failures:
        raise Violation(cluster.failures[0])
    idle = [partition for partition in range(partitions) if not truth.reads[partition]]
    if idle:
        raise Violation(f"group {truth.name} of {kind.__name__} sticks: partitions {idle} are not read")
    history.ack(0, 0, [b""] * truth.assignments)


MOVING = Scene(_story, brokers=(2, 3))


async def _time(seconds: float, watched: list[asyncio.Task[None]]) -> None:
    await until_done([asyncio.create_task(asyncio.sleep(seconds))], watched)
