"""Creating, growing, changing and deleting topics over two domains."""

import pytest

from harness.virtual import SeededChance, run
from headwater.errors import Exists, InvalidName, InvalidPartitions, NotFound, StoreUnavailable
from headwater.replica.topics import Topics, check_name, topic_id_text
from headwater.types import Domain
from tests.support.promise import promise
from tests.unit.replica.test_membership import Process, World

PROMISES = ("K7",)

ONE = Domain(1)


def topics_of(process: Process, seed: int = 1) -> Topics:
    return Topics(process.cluster, {ONE: process.domain}, SeededChance(seed))


@promise("K7")
def test_a_topics_life() -> None:
    """It can be used when the call returns, here and after a barrier elsewhere."""

    async def told() -> None:
        world = World()
        one, two = await world.process(1), await world.process(2)
        topics = topics_of(one)
        topic = await topics.create("t", 3, {"message.timestamp.type": "LogAppendTime"})
        assert (topic.ready, topic.pending) == (3, False)
        streams = [one.domain.state.streams[s] for s in topic.streams]
        assert [(s.topic, s.partition, s.append_time) for s in streams] == [(topic.id, i, True) for i in range(3)]
        await topics.add_partitions(topic, 5)
        assert [one.domain.state.streams[s].partition for s in topic.streams] == [0, 1, 2, 3, 4]
        await topics.alter(topic, {"retention.ms": "5"}, ["message.timestamp.type"])
        assert topic.configs == {"retention.ms": "5"}
        assert not any(one.domain.state.streams[s].append_time for s in topic.streams)
        await two.cluster.barrier()
        assert two.cluster.state.names["t"].ready == 5
        with pytest.raises(Exists):
            await topics_of(two, 2).create("t", 1, {})
        await topics.delete(topic)
        assert one.domain.state.streams == {}
        assert one.cluster.state.topics == {}
        for change in (topics.delete(topic), topics.alter(topic, {}, []), topics.add_partitions(topic, 9)):
            with pytest.raises(NotFound):
                await change
        again = await topics.create("t", 1, {})
        assert not set(again.streams) & set(topic.streams)

    run(told())


@promise("K7")
def test_an_intent_is_finished_by_anyone() -> None:
    """A creation or deletion whose process died half way is carried through by another."""

    async def told() -> None:
        world = World()
        one, two = await world.process(1), await world.process(2)
        mine, theirs = topics_of(one), topics_of(two, 2)
        kept = await mine.create("kept", 2, {})

        async def refused(domain: Domain, record: bytes) -> int:
            if domain == ONE:
                raise StoreUnavailable("away")
            return await inner(domain, record)

        inner = one.way.append
        one.way.append = refused  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreUnavailable):
            await mine.create("begun", 2, {})
        with pytest.raises(StoreUnavailable):
            await mine.delete(kept)
        await two.cluster.barrier()
        assert sorted(t.name for t in theirs.pending()) == ["begun", "kept"]
        for topic in theirs.pending():
            await theirs.carry_through(topic)
        for topic in theirs.pending():
            await theirs.carry_through(topic)
        assert theirs.pending() == []
        assert list(two.cluster.state.names) == ["begun"]
        assert two.cluster.state.names["begun"].ready == 2
        assert sorted(two.domain.state.streams) == two.cluster.state.names["begun"].streams

    run(told())


@promise("K7")
def test_errors() -> None:
    async def told() -> None:
        world = World()
        one = await world.process(1)
        topics = topics_of(one)
        topic = await topics.create("t", 3, {})
        for total in (0, 3, 2):
            with pytest.raises(InvalidPartitions):
                await topics.add_partitions(topic, total)
        with pytest.raises(InvalidPartitions):
            await topics.create("u", 0, {})
        with pytest.raises(InvalidName):
            await topics.create("no way", 1, {})

    run(told())


@promise("K7")
@pytest.mark.parametrize("name", ["a", "a.b_c-D9", "x" * 249, "...", "__consumer_offsets"])
def test_names(name: str) -> None:
    """Kafka's rules."""
    check_name(name)


@promise("K7")
@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250, "a\n", "a:b"])
def test_bad_names(name: str) -> None:
    with pytest.raises(InvalidName):
        check_name(name)


@promise("K7")
def test_ids_as_text() -> None:
    """As Kafka's tools print them."""
    text = topic_id_text(SeededChance().uuid())
    assert len(text) == 22
    assert "=" not in text
