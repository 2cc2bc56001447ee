"""Who is kept out of rotation because it is slow; the judge alone, then brokers in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.virtual import run
from headwater.app.node import Node
from headwater.broker.rotation.judge import UNKNOWN, Judge, Reading, Verdict
from headwater.broker.rotation.pace import MAX_OPEN, MAX_SAMPLES, Gauge
from headwater.coordination.common import GroupError
from headwater.replica.placement import choose
from headwater.settings.settings import Brownout
from headwater.state.commands.rotation import Report, SetRotation
from headwater.state.streams.stored.groups import shard_of
from headwater.types import Pieces
from tests.support.batches import Rec, batch
from tests.support.promise import promise
from tests.support.virtual_nodes import CountingStore, NodeWorld, sent, topic

PROMISES = ("M4",)

SETTINGS = Brownout(interval_ms=1_000, floor_ms=100, factor=3, after_ms=30_000, back_ms=60_000)
FAST, SLOW = Reading(10_000, 5_000), Reading(900_000, 5_000)


class Story:
    """A judge and the brokers it looks at, second by second."""

    def __init__(self, count: int) -> None:
        self.judge = Judge(SETTINGS)
        self.readings: dict[int, Reading | None] = dict.fromkeys(range(1, count + 1), FAST)
        self.out: set[int] = set()
        self.now = 0.0

    def go(self, seconds: int) -> list[tuple[float, Verdict]]:
        """Everything that is decided in the next seconds."""
        found = []
        for _ in range(seconds):
            self.now += 1
            for verdict in self.judge.decide(self.now, self.readings, self.out):
                (self.out.add if verdict.out else self.out.discard)(verdict.epoch)
                found.append((self.now, verdict))
        return found


@promise("M4")
def test_a_slow_broker_goes_out_and_comes_back() -> None:
    """Out after 30 s of being slow, back after 60 s of doing well."""
    story = Story(3)
    assert story.go(100) == []
    story.readings[2] = SLOW
    assert story.go(30) == []
    assert story.go(1) == [(131, Verdict(2, True))]
    assert story.go(200) == []
    story.readings[2] = FAST
    assert story.go(60) == []
    assert story.go(1) == [(392, Verdict(2, False))]
    assert story.go(200) == []


@promise("M4")
def test_a_spike_does_not_count() -> None:
    """Slow means slow all the time; doing well, too."""
    story = Story(3)
    for _ in range(5):
        story.readings[1] = SLOW
        assert story.go(29) == []
        story.readings[1] = FAST
        assert story.go(1) == []
    story.readings[1] = SLOW
    assert len(story.go(31)) == 1
    for _ in range(5):
        story.readings[1] = FAST
        assert story.go(59) == []
        story.readings[1] = SLOW
        assert story.go(1) == []


@promise("M4")
def test_a_slow_store_takes_nobody_out() -> None:
    """All are slow, some twice as slow as others; and who was out before is let back."""
    story = Story(5)
    story.readings[4] = SLOW
    assert len(story.go(31)) == 1
    story.readings = {i: Reading(1_000_000 + 200_000 * i, 2_000_000) for i in range(1, 6)}
    assert story.go(61) == [(92, Verdict(4, False))]
    assert story.go(1_000) == []


@promise("M4")
def test_fetching_counts_as_publishing_does() -> None:
    """Either is enough; a broker that knows of neither is not judged."""
    story = Story(4)
    story.readings[1] = Reading(UNKNOWN, 500_000)
    story.readings[2] = Reading(UNKNOWN, UNKNOWN)
    story.readings[3] = None
    assert story.go(500) == [], "one of three others told how it does: that is no majority"
    story.readings[3] = FAST
    assert story.go(31) == [(531, Verdict(1, True))]


@promise("M4")
def test_below_the_floor_nobody_is_slow() -> None:
    """Ten times as slow as the others, and quick all the same."""
    story = Story(3)
    story.readings = {1: Reading(90_000, 1), 2: Reading(9_000, 1), 3: Reading(9_000, 1)}
    assert story.go(500) == []


@promise("M4")
def test_at_most_a_third() -> None:
    """The slowest go first, and one comes back when others leave the cluster."""
    story = Story(7)
    story.readings |= {1: Reading(500_000, 1), 2: Reading(700_000, 1), 3: Reading(600_000, 1)}
    assert [v for _, v in story.go(200)] == [Verdict(2, True), Verdict(3, True)]
    for gone in (6, 7):
        del story.readings[gone]
    assert story.go(1) == [(201, Verdict(2, False))]
    assert story.out == {3}
    for gone in (4, 5):
        del story.readings[gone]
    assert [v for _, v in story.go(1)] == []
    del story.readings[2]
    assert [v for _, v in story.go(1)] == [Verdict(3, False)], "of two brokers none can be missed"


@promise("M4")
@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.integers(1, 7),
            st.none() | st.builds(Reading, st.integers(-1, 5_000_000), st.integers(-1, 5_000_000)),
            max_size=7,
        ),
        max_size=60,
    )
)
def test_whatever_is_reported(rounds: list[dict[int, Reading | None]]) -> None:
    """Never more than a third out, nobody taken out who is not there or out already, or below the floor."""
    judge, out, now = Judge(SETTINGS), set[int](), 0.0
    for readings in rounds:
        now += 20
        out &= readings.keys()
        before = set(out)
        for verdict in judge.decide(now, readings, frozenset(out)):
            assert verdict.epoch in readings
            assert verdict.out != (verdict.epoch in before), "a change"
            if verdict.out:
                reading = readings[verdict.epoch]
                assert reading is not None
                assert max(reading.publish_us, reading.fetch_us) > SETTINGS.floor_ms * 1000
                out.add(verdict.epoch)
            else:
                out.discard(verdict.epoch)
        assert 3 * len(out) <= len(readings)


@promise("M4")
@settings(deadline=None)
@given(st.integers(3, 9), st.integers(1, 2_000_000), st.integers(100, 300), st.integers(0, 100))
def test_brokers_alike_are_left_alone(count: int, base: int, percent: int, step: int) -> None:
    """Whatever the speed, nobody is out while no one takes more than three times what another does."""
    judge = Judge(SETTINGS)
    readings: dict[int, Reading | None] = {
        i: Reading(base * (100 + (percent - 100) * i // count) // 100, base) for i in range(1, count + 1)
    }
    for i in range(20):
        assert judge.decide(i * (10.0 + step), readings, frozenset()) == []


@promise("M4")
def test_a_gauge_tells_what_nine_of_ten_take() -> None:
    """Finished ones, and those that hang."""
    gauge = Gauge()
    assert gauge.take(0) is None
    for i in range(100):
        gauge.note(0.001 if i < 95 else 5.0)
    assert gauge.take(0) == 1_000
    assert gauge.take(0) is None, "only what is new"
    numbers = [gauge.begin(10) for _ in range(3)]
    assert gauge.take(14) == 4_000_000, "nothing was finished, and these hang"
    for number in numbers:
        gauge.end(number, 16)
    gauge.end(numbers[0], 17)
    assert gauge.take(16) == 6_000_000
    assert (gauge.last_us, gauge.take(16), gauge.last_us) == (6_000_000, None, -1)


@promise("M4")
def test_a_gauge_is_bounded() -> None:
    """In samples and in what is under way."""
    gauge = Gauge()
    for _ in range(2 * MAX_OPEN):
        gauge.begin(0)
        gauge.note(1)
    assert len(gauge._open) == MAX_OPEN
    assert len(gauge._samples) == MAX_SAMPLES


# --- brokers in virtual time ---------------------------------------------------------------------------


class OneSlow(CountingStore):
    """A node's way to the common store, as slow as it is told."""

    def __init__(self, common: CountingStore) -> None:
        super().__init__()
        self.objects = common.objects
        self.seconds = 0.0

    async def put(self, path: str, pieces: Pieces) -> None:
        await asyncio.sleep(self.seconds)
        await super().put(path, pieces)

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        await asyncio.sleep(self.seconds)
        return await super().get(path, start, length)


class SlowWorld(NodeWorld):
    """Each node has a way of its own to the store."""

    def __init__(self) -> None:
        super().__init__()
        self.common = self.store
        self.ways: dict[int, OneSlow] = {}
        self.nodes: list[Node] = []

    async def start(self, count: int) -> list[Node]:
        for number in range(1, count + 1):
            self.ways[number] = self.store = OneSlow(self.common)
            self.nodes.append(await self.node(number, brownout=SETTINGS))
        return self.nodes

    def out(self) -> list[set[int]]:
        """Who is out, as each node knows it, by node."""
        return [{s.processes[e].node for e in s.rotation.out} for s in (n.cluster.state for n in self.nodes)]

    def reports(self) -> int:
        return len(self.nodes[0].cluster.state.rotation.reports)


async def traffic(world: SlowWorld, stream: int, seconds: int) -> None:
    """Appends at the broker that leads the stream."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        leader = world.nodes[0].broker.routing.leader(stream)
        node = next(n for n in world.nodes if n.settings.node == leader)
        began = loop.time()
        await sent(node, stream, batch([Rec(b"x")]))
        node.broker.pace.publish.note(loop.time() - began)
        await asyncio.sleep(0.1)


@promise("M4")
def test_a_broker_with_a_slow_way_to_the_store() -> None:
    """It loses its partitions and its groups, and gets them back when it is quick again."""

    async def main() -> None:
        world = SlowWorld()
        nodes = await world.start(4)
        stream = (await topic(nodes[0])).streams[0]
        await traffic(world, stream, 20)
        leader = nodes[0].broker.routing.leader(stream)
        assert world.out() == [set()] * 4
        assert world.reports() == 0, "nothing is written while all is well"
        world.ways[leader].seconds = 0.5
        await traffic(world, stream, 60)
        assert world.out() == [{leader}] * 4
        successor = nodes[0].broker.routing.leader(stream)
        assert successor == choose(stream, [n for n in (1, 2, 3, 4) if n != leader])
        assert {m.node for m in nodes[0].broker.routing.brokers()} == {1, 2, 3, 4}, "it can still be reached"
        places = {nodes[0].broker.coordinator.place(f"g{i}") for i in range(50)}
        assert {m.node for m in places if m is not None} == {1, 2, 3, 4} - {leader}
        await traffic(world, stream, 100)
        assert world.out() == [{leader}] * 4, "it has no clients, but it probes and is still slow"
        assert nodes[leader - 1].reporter.probes > 0
        world.ways[leader].seconds = 0.0
        await traffic(world, stream, 80)
        assert world.out() == [set()] * 4
        assert nodes[0].broker.routing.leader(stream) == leader
        quiet = nodes[0].cluster.commits
        await asyncio.sleep(15)
        assert nodes[0].cluster.commits - quiet <= 1, "all is well again and nobody reports"

    run(main())


@promise("M4")
def test_groups_stay_for_a_while() -> None:
    """A broker that goes out gets no new groups, and loses those it has when it stays out, not at once."""

    async def main() -> None:
        world = SlowWorld()
        nodes = await world.start(4)
        stream = (await topic(nodes[0])).streams[0]
        leader = nodes[0].broker.routing.leader(stream)

        def places(name: str) -> set[int]:
            """Where a group is, as each of the nodes knows it."""
            found = [node.broker.coordinator.place(name) for node in nodes]
            return {member.node for member in found if member is not None}

        here = [name for name in (f"g{i}" for i in range(100)) if places(name) == {leader}]
        held, free = here[0], next(name for name in here if shard_of(name) != shard_of(here[0]))
        await nodes[leader - 1].broker.coordinator.enter(held)
        world.ways[leader].seconds = 0.5
        while not all(world.out()):
            await traffic(world, stream, 1)
        await traffic(world, stream, 10)
        assert places(held) == {leader}, "it may be back soon"
        await nodes[leader - 1].broker.coordinator.enter(held)
        assert leader not in places(free)
        await traffic(world, stream, 60)
        [successor] = places(held)
        assert successor != leader
        await nodes[successor - 1].broker.coordinator.enter(held)
        with pytest.raises(GroupError, match="not_coordinator"):
            await nodes[leader - 1].broker.coordinator.enter(held)
        world.ways[leader].seconds = 0.0
        await traffic(world, stream, 80)
        assert places(held) == places(free) == {leader}

    run(main())


@promise("M4")
def test_a_store_that_is_slow_for_all() -> None:
    """Nobody goes, though only one broker has clients; the others probe."""

    async def main() -> None:
        world = SlowWorld()
        nodes = await world.start(3)
        stream = (await topic(nodes[0])).streams[0]
        for way in world.ways.values():
            way.seconds = 0.6
        await traffic(world, stream, 150)
        assert world.out() == [set()] * 3
        assert world.reports() == 3
        assert sum(node.reporter.probes > 0 for node in nodes) >= 2

    run(main())


@promise("M4")
def test_two_brokers_are_left_alone() -> None:
    """None of them can be missed."""

    async def main() -> None:
        world = SlowWorld()
        nodes = await world.start(2)
        stream = (await topic(nodes[0])).streams[0]
        world.ways[nodes[0].broker.routing.leader(stream)].seconds = 0.9
        await traffic(world, stream, 120)
        assert world.out() == [set()] * 2

    run(main())


@promise("M2", "M4")
@pytest.mark.parametrize("survives", [True, False])
def test_the_acting_broker_may_die(survives: bool) -> None:
    """Another one decides in its place."""

    async def main() -> None:
        world = SlowWorld()
        nodes = await world.start(5)
        stream = (await topic(nodes[0])).streams[0]
        slow = 5
        world.ways[slow].seconds = 0.9
        if not survives:
            await nodes[0].stop()
            del nodes[0]
        for _ in range(60):
            nodes[-1].broker.pace.publish.note(0.9)
            await asyncio.sleep(1)
        assert world.out() == [{slow}] * len(nodes)
        assert stream

    run(main())


@promise("M4")
def test_what_domain_0_refuses() -> None:
    """Reports of those that serve nobody, unknown epochs, negative times, and more than a third out."""

    async def main() -> None:
        world = SlowWorld()
        nodes = await world.start(3)
        cluster = nodes[0].cluster
        epochs = [node.membership.epoch for node in nodes]

        async def tell(command: Any) -> str:
            [result] = await cluster.submit([command])
            return type(result).__name__

        assert await tell(Report(-2, 0)) == "Refused"
        assert await tell(Report(-1, 7)) == "Done"
        assert await tell(SetRotation(99, True)) == "Refused"
        assert await tell(SetRotation(epochs[1], True)) == "Done"
        assert await tell(SetRotation(epochs[1], True)) == "Done"
        assert await tell(SetRotation(epochs[2], True)) == "Refused"
        image = cluster.state.image()
        fresh = type(cluster.state)()
        fresh.restore(image)
        assert fresh.rotation.out.keys() == {epochs[1]}
        assert fresh.image() == image
        assert await tell(SetRotation(epochs[1], False)) == "Done"
        assert await tell(SetRotation(epochs[2], True)) == "Done"
        await nodes[2].stop()
        await cluster.barrier()
        assert not cluster.state.rotation.out, "a life that is over is forgotten"

    run(main())
