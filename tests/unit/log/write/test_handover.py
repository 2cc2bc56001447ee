"""A change of the profile under load keeps the order of each stream."""

import asyncio
import random

import pytest

from harness.virtual import EPOCH_MS, run
from headwater.errors import HeadwaterError
from headwater.log.batch import check_batch
from headwater.log.write.handover import Handover
from headwater.log.write.part import Outcome, Part
from headwater.settings.settings import Profile, Wal
from headwater.state.results import Verdict
from tests.support.batches import batch, values
from tests.support.promise import promise
from tests.support.virtual_nodes import LAX, NodeWorld, One, read, send, topic

PROMISES = ("L1", "K11")

WAL = Wal(
    latency=Profile(object_bytes=1 << 20, min_interval_ms=0, gather_ms=0, flushes=2),
    cost=Profile(object_bytes=1 << 20, min_interval_ms=30, gather_ms=0, flushes=2),
)
BATCHES = 300


class Line:
    """In place of a writer: notes what it is given."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def admit(self, part: Part) -> None:
        self.parts.append(part)

    def withdraw(self, part: Part) -> bool:
        if part not in self.parts:
            return False
        self.parts.remove(part)
        return True


def test_batches_wait_until_the_former_writer_has_decided_its_own() -> None:
    async def told() -> None:
        handover, one, two = Handover(), Line(), Line()
        caller, checked = One(), check_batch(batch([b"x"]), LAX, EPOCH_MS)
        parts = [Part(1, checked, caller, i) for i in range(6)]
        assert handover.enter(one, parts[:1]) == parts[:1]
        assert handover.enter(two, parts[1:3]) == []
        assert handover.enter(one, parts[3:5]) == [], "behind those of the other writer"
        other = Part(2, checked, caller, 9)
        assert handover.enter(two, [parts[5], other]) == [other]
        handover.leave(1)
        assert (one.parts, two.parts) == ([], parts[1:3])
        assert handover.withdraw(parts[2]) > 0, "one that reached its writer"
        assert handover.withdraw(parts[3]) > 0, "one that waits"
        assert handover.withdraw(parts[0]) == 0, "one that is decided"
        handover.leave(1)
        assert one.parts == [parts[4]]
        handover.leave(1)
        assert two.parts == [parts[1], parts[5]]
        handover.leave(1)
        handover.leave(2)
        assert handover.waiting == 0 and repr(handover).startswith("<Handover of 0 streams")

    run(told())


@promise("K11")
@pytest.mark.parametrize("producer", [7, -1], ids=["idempotent", "plain"])
def test_the_profile_changes_under_load(producer: int) -> None:
    """No batch overtakes an earlier one, and none is refused."""

    async def told() -> None:
        world, rng = NodeWorld(), random.Random(5)
        node = await world.node(wal=WAL)
        [stream] = (await topic(node)).streams
        outcomes: list[asyncio.Future[Outcome | HeadwaterError]] = []
        profile = "latency"
        for i in range(BATCHES):
            if rng.random() < 0.2:
                profile = "cost" if profile == "latency" else "latency"
            world.store.put_seconds = rng.choice([0.0, 0.01, 0.1])
            identity = (producer, 0, i) if producer >= 0 else (-1, -1, -1)
            outcomes.append(send(node, stream, batch([b"%d" % i], producer=identity), profile))
            await asyncio.sleep(rng.choice([0, 0, 0.01]))
        assert await asyncio.gather(*outcomes) == [Outcome(Verdict.ACCEPTED, i, 0, -1) for i in range(BATCHES)]
        assert values(await read(node, stream)) == [(i, b"%d" % i) for i in range(BATCHES)]

    run(told())


@promise("M5")
def test_draining_decides_what_waits() -> None:
    """Batches that wait for another writer were taken, too."""

    async def told() -> None:
        world = NodeWorld()
        node = await world.node(wal=WAL)
        [stream] = (await topic(node)).streams
        world.store.put_seconds = 0.5
        outcomes = [send(node, stream, batch([b"%d" % i]), p) for i, p in enumerate(("cost", "latency", "cost"))]
        await asyncio.sleep(0.1)
        await node.writers.drain()
        assert await asyncio.gather(*outcomes) == [Outcome(Verdict.ACCEPTED, i, 0, -1) for i in range(3)]

    run(told())
