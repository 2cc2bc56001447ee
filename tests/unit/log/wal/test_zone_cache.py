"""Brokers of a zone read each WAL object once, in virtual time over a store that counts."""

from __future__ import annotations

import asyncio

import pytest

from harness.virtual import SeededChance, VirtualClock, run
from headwater.app.node import Node
from headwater.log.wal.zone_cache import PeerFailed
from headwater.settings.settings import INTERNAL, Settings
from headwater.state.commands.cluster import Listener
from headwater.types import WalId
from tests.support.batches import Rec, batch
from tests.support.faulty import FaultyLedger
from tests.support.promise import promise
from tests.support.virtual_nodes import ONE, QUIET, NodeWorld, read, sent, topic

PROMISES = ("L9",)

OBJECTS = 30


class Wires:
    """Carries questions between the nodes of a test, unless it is told not to."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.broken: set[int] = set()
        self.bent: set[int] = set()
        self.asked = 0

    async def ask(self, address: tuple[str, int], domain: int, object_id: WalId) -> bytes | None:
        self.asked += 1
        await asyncio.sleep(0.001)
        if address[1] in self.broken:
            raise PeerFailed("no answer")
        pieces = await self.nodes[address[1]].wal_object(domain, object_id)
        data = None if pieces is None else b"".join(pieces)
        return data[:-1] + b"?" if data is not None and address[1] in self.bent else data

    async def close(self) -> None:
        """Nothing to do."""


async def start(world: NodeWorld, wires: Wires, number: int, zone: str = "z") -> Node:
    node = Node(
        Settings(node=number, objects="memory://", zone=zone, housekeeping=QUIET),
        FaultyLedger(world.ledger),
        world.store,
        VirtualClock(),
        SeededChance(number),
        listeners=(Listener("PLAINTEXT", "h", 9092), Listener(INTERNAL, "h", number)),
        peers=wires,
    )
    wires.nodes[number] = node
    await node.start()
    return node


async def written(world: NodeWorld, wires: Wires) -> int:
    """A stream of many objects whose writer has left."""
    writer = await start(world, wires, 9)
    stream = (await topic(writer)).streams[0]
    for i in range(OBJECTS):
        await sent(writer, stream, batch([Rec(b"%d" % i)]))
    await writer.stop()
    return stream


async def all_of(node: Node, stream: int) -> bytes:
    await node.domains[ONE].barrier()
    return await read(node, stream, max_bytes=1 << 24)


@promise("L9")
def test_one_read_per_object_and_zone() -> None:
    """All brokers of two zones at once, with objects that each other's owners need: no circle, one read a zone."""

    async def main() -> None:
        world, wires = NodeWorld(), Wires()
        stream = await written(world, wires)
        nodes = [await start(world, wires, i, "ab"[i % 2]) for i in range(6)]
        for node in nodes:
            await node.cluster.barrier()
        answers = await asyncio.gather(*(all_of(node, stream) for node in nodes))
        assert len(set(answers)) == 1 and answers[0]
        assert world.store.reads == 2 * OBJECTS
        assert sum(node.cache.store_reads for node in nodes) == 2 * OBJECTS
        assert wires.asked == 6 * OBJECTS - 2 * OBJECTS
        assert {node.cache.store_reads > 0 for node in nodes} == {True}, "every broker owns some"

    run(main())


@promise("L9")
def test_the_writer_in_the_zone_is_asked_first() -> None:
    """What a live broker of the zone wrote is in its memory, so the store is not read at all."""

    async def main() -> None:
        world, wires = NodeWorld(), Wires()
        nodes = [await start(world, wires, i) for i in range(1, 4)]
        stream = (await topic(nodes[0])).streams[0]
        for i in range(OBJECTS):
            await sent(nodes[i % 3], stream, batch([Rec(b"%d" % i)]))
        answers = [await all_of(node, stream) for node in nodes]
        assert len(set(answers)) == 1
        assert world.store.reads == 0

    run(main())


@promise("L9")
@pytest.mark.parametrize("flaw", ["broken", "bent"])
def test_a_broker_that_fails_is_done_without(flaw: str) -> None:
    """No answer, or one whose CRC is wrong: the store is read, and that broker is left alone for a while."""

    async def main() -> None:
        world, wires = NodeWorld(), Wires()
        stream = await written(world, wires)
        one, two = [await start(world, wires, i) for i in (1, 2)]
        await one.cluster.barrier()
        getattr(wires, flaw).add(2)
        expected = await all_of(two, stream)
        assert await all_of(one, stream) == expected
        assert one.zone_cache is not None and one.zone_cache.failed > 0
        assert not one.cache._asking and not one.cache._reading
        asked = wires.asked
        assert not any(one.zone_cache.can_ask(WalId(1, i)) for i in range(OBJECTS))
        await asyncio.sleep(5)
        assert any(one.zone_cache.can_ask(WalId(1, i)) for i in range(OBJECTS))
        assert wires.asked == asked

    run(main())


@promise("L9", "S3")
def test_an_object_that_is_not_known_is_not_told() -> None:
    """Only what the metadata names can be asked for."""

    async def main() -> None:
        world, wires = NodeWorld(), Wires()
        stream = await written(world, wires)
        node = await start(world, wires, 1)
        [first] = [o for o in node.domains[ONE].state.objects if o.id.sequence == 1]
        assert await node.wal_object(1, first.id)
        assert await node.wal_object(1, WalId(first.id.epoch, 10_000)) is None
        assert await node.wal_object(5, first.id) is None
        del world.store.objects[next(path for path in world.wal_paths() if str(first.id) in path)]
        node.cache._objects.clear()
        assert await node.wal_object(1, first.id) is None
        assert stream

    run(main())


@promise("L9")
def test_owners_are_of_the_zone_and_can_be_reached() -> None:
    """A broker without an internal listener, or of another zone, owns nothing; all agree on who does."""

    async def main() -> None:
        world, wires = NodeWorld(), Wires()
        nodes = [await start(world, wires, i, "aab"[i - 1]) for i in (1, 2, 3)]
        silent = await world.node(4, zone="a")
        for node in nodes:
            await node.cluster.barrier()
        ids = [WalId(silent.membership.epoch, i) for i in range(50)]
        owners = []
        for node in nodes:
            assert node.zone_cache is not None
            found = [node.zone_cache.owner(i) for i in ids]
            owners.append([member.node if member is not None else None for member in found])
        assert owners[0] == owners[1]
        assert set(owners[0]) == {1, 2}
        assert set(owners[2]) == {3}
        own = nodes[0].zone_cache
        assert own is not None
        assert all(own.can_ask(i) == (owner == 2) for i, owner in zip(ids, owners[0], strict=True))

    run(main())
