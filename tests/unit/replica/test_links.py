"""Links and linked topics over two domains: created, paused, promoted, and finished by whoever comes by."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from harness.virtual import SeededChance, run
from headwater.errors import BadInput, Conflict, Exists, NotFound, StoreUnavailable
from headwater.replica.links import Linking
from headwater.replica.topics import Topics
from headwater.state.commands.links import LinkPhase, LinkSpec
from headwater.state.commands.streams import AppendWal, Chunk
from headwater.state.results import Appended
from headwater.state.streams.stream import Mirror
from headwater.types import Domain
from tests.support.promise import promise
from tests.support.scribe import FIRST_CHUNK, START_MS
from tests.unit.replica.test_membership import Process, World

PROMISES = ("N1",)

ONE = Domain(1)
SOURCE = uuid.UUID(int=9)
SPEC = LinkSpec("old", ("kafka:9092",), {}, ("orders",), (), (), {}, False)
COPYING, PAUSED, STOPPED, PROMOTED, FINISHING, PROMOTING = LinkPhase


class Side:
    """A process, and what it changes topics and links with."""

    def __init__(self, process: Process, seed: int) -> None:
        self.process = process
        chance = SeededChance(seed)
        self.topics = Topics(process.cluster, {ONE: process.domain}, chance)
        self.linking = Linking(process.cluster, {ONE: process.domain}, self.topics, chance)

    @property
    def links(self) -> dict[uuid.UUID, object]:
        return dict(self.process.cluster.state.links.topics)

    def mirrors(self, name: str) -> list[Mirror]:
        topic = self.process.cluster.state.names[name]
        return [self.process.domain.state.streams[stream].mirror for stream in topic.streams]

    async def catch_up(self) -> None:
        await self.process.cluster.barrier()
        await self.process.domain.barrier()

    async def produce(self, name: str) -> None:
        """Append a record to every partition."""
        streams = self.process.cluster.state.names[name].streams
        sequence = sum(self.process.domain.state.streams[s].next_offset for s in streams) + 1
        chunks = [Chunk(s, FIRST_CHUNK + i * 100, [(9, 1, 0)], []) for i, s in enumerate(streams)]
        [result] = await self.process.domain.submit([AppendWal(sequence, 10_000, START_MS, "z", chunks)])
        assert isinstance(result, Appended)


async def sides() -> tuple[Side, Side]:
    world = World()
    one, two = Side(await world.process(1), 1), Side(await world.process(2), 2)
    await two.catch_up()
    return one, two


@promise("N1")
def test_a_linked_topics_life() -> None:
    """Mirrors from their first moment on, new partitions too; paused, copied on, promoted."""

    async def told() -> None:
        one, two = await sides()
        link = await one.linking.put(SPEC, 0)
        assert one.linking.get("old") == link
        topic = await one.linking.create_topic("old", "orders", "orders", SOURCE, 2, {"retention.ms": "-1"})
        assert (topic.ready, topic.configs) == (2, {"retention.ms": "-1"})
        linked = one.process.cluster.state.links.topics[topic.id]
        assert (linked.link, linked.source, linked.source_id, linked.phase) == ("old", "orders", SOURCE, COPYING)
        assert one.mirrors("orders") == [Mirror(linked.generation, True, 0)] * 2
        await two.catch_up()
        await two.topics.add_partitions(two.process.cluster.state.names["orders"], 3)
        assert two.mirrors("orders") == [Mirror(linked.generation, True, 0)] * 3
        await one.catch_up()
        paused = await one.linking.change(linked, PAUSED, "a pause")
        assert paused.generation > linked.generation
        assert one.mirrors("orders") == [Mirror(paused.generation, True, 0)] * 3
        with pytest.raises(Conflict):
            await one.linking.change(linked, PROMOTED)
        promoted = await one.linking.change(paused, PROMOTED)
        assert one.mirrors("orders") == [Mirror(promoted.generation, False, 0)] * 3
        await one.linking.drop("old")
        with pytest.raises(NotFound):
            one.linking.get("old")
        assert not one.links

    run(told())


@promise("N1")
def test_the_way_back() -> None:
    """A promoted topic is copied again if nothing was written; else it stays promoted and says why."""

    async def told() -> None:
        one, _ = await sides()
        await one.linking.put(SPEC, 0)
        topic = await one.linking.create_topic("old", "orders", "orders", SOURCE, 2, {})
        linked = one.process.cluster.state.links.topics[topic.id]
        promoted = await one.linking.change(linked, PROMOTED)
        back = await one.linking.change(promoted, COPYING)
        assert all(mirror.on for mirror in one.mirrors("orders"))
        promoted = await one.linking.change(back, PROMOTED)
        await one.produce("orders")
        with pytest.raises(Conflict, match="its next offset is 1"):
            await one.linking.change(promoted, COPYING)
        refused = one.process.cluster.state.links.topics[topic.id]
        assert refused.phase is PROMOTED and "'orders' cannot be linked" in refused.reason
        assert one.mirrors("orders") == [Mirror(refused.generation, False, 0)] * 2

    run(told())


@promise("N1")
def test_a_topic_that_exists() -> None:
    """An empty one is linked; one with records is not."""

    async def told() -> None:
        one, _ = await sides()
        await one.linking.put(SPEC, 0)
        await one.topics.create("full", 1, {})
        with pytest.raises(Exists):
            await one.linking.create_topic("old", "full", "full", SOURCE, 1, {})
        empty, full = await one.topics.create("empty", 1, {}), one.process.cluster.state.names["full"]
        linked = await one.linking.link_topic(empty, "old", "empty", SOURCE)
        assert one.mirrors("empty") == [Mirror(linked.generation, True, 0)]
        await one.produce("full")
        with pytest.raises(Conflict):
            await one.linking.link_topic(full, "old", "full", SOURCE)
        assert not one.mirrors("full")[0].on

    run(told())


@promise("N1")
def test_the_intent_is_finished_by_anyone() -> None:
    """A promotion whose process died half way; the streams follow, and behind a second change only once."""

    async def told() -> None:
        one, two = await sides()
        await one.linking.put(SPEC, 0)
        topic = await one.linking.create_topic("old", "orders", "orders", SOURCE, 2, {})
        linked = one.process.cluster.state.links.topics[topic.id]
        inner = one.process.way.append

        async def refused(domain: Domain, record: bytes) -> int:
            if domain == ONE:
                raise StoreUnavailable("away")
            return await inner(domain, record)

        one.process.way.append = refused  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreUnavailable):
            await one.linking.change(linked, PROMOTED)
        await two.catch_up()
        assert [mirror.on for mirror in two.mirrors("orders")] == [True, True]
        [behind] = two.linking.behind(two.process.domain)
        assert behind.phase is PROMOTED
        await two.linking.carry_through(behind)
        assert two.mirrors("orders") == [Mirror(behind.generation, False, 0)] * 2
        assert not list(two.linking.behind(two.process.domain))
        await two.linking.carry_through(linked)  # of before: nothing comes back
        assert two.mirrors("orders") == [Mirror(behind.generation, False, 0)] * 2

    run(told())


@promise("N1")
def test_a_link_that_is_gone_leaves_no_topic() -> None:
    """A topic that cannot be linked is not left behind as an ordinary one."""

    async def told() -> None:
        one, _ = await sides()
        with pytest.raises(NotFound):
            await one.linking.create_topic("none", "orders", "orders", SOURCE, 1, {})
        assert "orders" not in one.process.cluster.state.names
        await one.topics.create("orders", 1, {})

    run(told())


@promise("N1")
def test_errors() -> None:
    """Each says what is wrong."""

    async def told() -> None:
        one, _ = await sides()
        await one.linking.put(SPEC, 0)
        with pytest.raises(Exists):
            await one.linking.put(SPEC, 0)
        with pytest.raises(Conflict):
            await one.linking.put(SPEC, 77)
        with pytest.raises(NotFound):
            await one.linking.drop("none")
        with pytest.raises(BadInput, match="a secret"):
            await one.linking.put(msgspec.structs.replace(SPEC, name="new", security={"sasl.password": "x"}), 0)
        topic = await one.linking.create_topic("old", "orders", "orders", SOURCE, 1, {})
        linked = one.process.cluster.state.links.topics[topic.id]
        with pytest.raises(BadInput, match="promote or delete"):
            await one.linking.drop("old")
        await one.topics.delete(topic)
        with pytest.raises(NotFound):
            await one.linking.change(linked, PAUSED)
        await one.linking.carry_through(linked)
        assert not one.links

    run(told())
