"""Fetch sessions: what a client names, and what it makes of answers that leave partitions out."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from headwater.client.errors import AnswerLost, KafkaError, Throttled
from headwater.client.fetch_sessions import FetchSession
from headwater.client.fetching import FetchLimits, Place, WantedBatches, fetch_batches
from headwater.client.model import Fetched
from tests.support.batches import Rec
from tests.support.source_clusters import ModelCluster

LIMITS = FetchLimits(1.0, 0.0, 1 << 20, 1 << 20)
Answers = dict[Place, Fetched | KafkaError]


class World:
    """One broker with a topic of four partitions, and a session."""

    def __init__(self) -> None:
        self.cluster = ModelCluster()
        self.topic = self.cluster.create("t", 4)
        self.session = FetchSession()
        self.positions = [0, 0, 0, 0]

    def put(self, partition: int, records: int = 1) -> None:
        for number in range(records):
            self.topic.partitions[partition].log.append([(0, Rec(b"value %d" % number))], 1)

    def wanted(self, *partitions: int) -> list[WantedBatches]:
        return [WantedBatches("t", self.topic.id, p, self.positions[p], 0) for p in partitions]

    def fetch(self, *partitions: int) -> Answers:
        found = asyncio.run(self.session.fetch(self.cluster.connection(0), self.wanted(*partitions), LIMITS))
        assert found.keys() == {("t", partition) for partition in partitions}
        return found

    def end(self, answers: Answers, partition: int) -> int:
        answer = answers["t", partition]
        assert isinstance(answer, Fetched), answer
        return answer.high_watermark

    @property
    def named(self) -> list[int]:
        """The partitions that the last fetch named."""
        return [partition for _, partition, _ in self.cluster.fetches[-1]]


@pytest.fixture
def world() -> World:
    return World()


def test_only_changes_are_named(world: World) -> None:
    world.put(1, 3)
    assert world.end(world.fetch(0, 1, 2), 1) == 3 and world.named == [0, 1, 2]
    world.positions[1] = 3
    answers = world.fetch(0, 1, 2)
    assert world.named == [1] and [world.end(answers, p) for p in range(3)] == [0, 3, 0]
    world.fetch(0, 1, 2)
    assert world.named == [] and [epoch for _, epoch in world.cluster.sessions] == [0, 1, 2]
    world.put(2)
    found = world.fetch(0, 1, 2)["t", 2]
    assert isinstance(found, Fetched) and found.data and found.high_watermark == 1


def test_an_answer_has_the_records_of_its_own_fetch_only(world: World) -> None:
    world.put(0)
    first = world.fetch(0)["t", 0]
    world.positions[0] = 1
    again = world.fetch(0)["t", 0]
    assert isinstance(first, Fetched) and first.data
    assert isinstance(again, Fetched) and not again.data and not again.aborted and again.high_watermark == 1


def test_partitions_that_are_not_wanted_are_forgotten(world: World) -> None:
    world.fetch(0, 1)
    world.fetch(1)
    [session] = world.cluster.brokers[0].sessions.values()
    assert [partition for _, partition in session.asked] == [1]
    world.put(0)
    assert world.end(world.fetch(0, 1), 0) == 1 and world.named == [0]


def test_a_broker_that_has_forgotten_the_session_is_asked_anew(world: World) -> None:
    """It was restarted, or others needed its room; nothing fails."""
    world.fetch(0, 1)
    world.cluster.brokers[0].sessions.clear()
    world.put(1)
    assert world.end(world.fetch(0, 1), 1) == 1
    assert world.named == [0, 1] and [epoch for _, epoch in world.cluster.sessions] == [0, 1, 0]


def test_a_broker_without_room_or_sessions_gets_full_fetches(world: World) -> None:
    world.cluster.session_slots = 0
    for version in (17, 11, 4):
        world.cluster.fetch_version = version
        for _ in range(2):
            assert len(world.fetch(0, 1)) == 2 and world.named == [0, 1]


def test_a_session_survives_neither_a_failure_nor_a_cancelled_fetch(world: World) -> None:
    """The epochs of both sides may differ then. The next fetch ends the old session."""
    world.fetch(0)
    world.cluster.brokers[0].failure = AnswerLost("lost")
    with pytest.raises(AnswerLost):
        world.fetch(0)
    world.cluster.brokers[0].failure = None
    world.put(0)
    assert world.end(world.fetch(0), 0) == 1
    assert world.cluster.sessions[-1] == (101, 0) and len(world.cluster.brokers[0].sessions) == 1


def test_an_error_of_a_partition_is_told_until_it_ends(world: World) -> None:
    world.fetch(0, 1)
    world.cluster.fetch_errors["t", 1] = ErrorCode.not_leader_or_follower
    for _ in range(2):
        answers = world.fetch(0, 1)
        assert isinstance(answers["t", 1], KafkaError) and world.end(answers, 0) == 0
    world.cluster.fetch_errors.clear()
    assert world.end(world.fetch(0, 1), 1) == 0


def test_a_broker_that_does_not_tell_the_end_of_an_error_is_asked_anew(world: World) -> None:
    world.fetch(0, 1)
    world.cluster.fetch_errors["t", 1] = ErrorCode.not_leader_or_follower
    world.fetch(0, 1)
    world.cluster.fetch_errors.clear()
    [session] = world.cluster.brokers[0].sessions.values()
    session.told = dict.fromkeys(session.asked, (0, 0))
    assert world.end(world.fetch(0, 1), 1) == 0 and world.cluster.sessions[-1][1] == 0


def test_another_topic_of_the_name_begins_a_session(world: World) -> None:
    world.fetch(0)
    world.topic = world.cluster.create("t", 4)
    world.put(0, 2)
    assert world.end(world.fetch(0), 0) == 2 and world.cluster.sessions[-1][1] == 0


def test_a_topic_without_an_id_goes_by_name(world: World) -> None:
    world.fetch(0)
    world.topic.id = None
    world.put(0)
    assert world.end(world.fetch(0), 0) == 1 and world.cluster.sessions[-1][1] == 0
    world.fetch(0)
    assert world.cluster.sessions[-1][1] == 1


def test_a_fetch_beside_another_has_no_session(world: World) -> None:
    release = asyncio.Event()
    connection = world.cluster.connection(0)
    ask = connection.request

    async def slow(*args: object, **more: object) -> object:
        await release.wait()
        return await ask(*args, **more)

    async def run() -> None:
        connection.request = slow
        first = asyncio.ensure_future(world.session.fetch(connection, world.wanted(0), LIMITS))
        await asyncio.sleep(0)
        await world.session.fetch(world.cluster.connection(0), world.wanted(1), LIMITS)
        release.set()
        await first
        assert world.cluster.sessions == [(0, -1), (0, 0)]

    asyncio.run(run())


@pytest.mark.parametrize("fresh", [True, False])
def test_a_quota_is_told(world: World, fresh: bool) -> None:
    """A throttled answer names no partitions. The session goes on after it."""
    if not fresh:
        world.fetch(0)
    world.cluster.throttle_s = [2.5]
    world.put(1)
    with pytest.raises(Throttled, match="quota") as told:
        world.fetch(0, 1)
    assert told.value.seconds == 2.5
    assert world.end(world.fetch(0, 1), 1) == 1
    assert [epoch for _, epoch in world.cluster.sessions] == ([0, 0] if fresh else [0, 1, 2])


def test_a_quota_without_a_session(world: World) -> None:
    world.cluster.throttle_s = [1.0]
    with pytest.raises(Throttled):
        asyncio.run(fetch_batches(world.cluster.connection(0), world.wanted(0), LIMITS))


def test_epochs_begin_again_after_the_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.client.fetch_sessions.MAX_EPOCH", 2)
    world.fetch(0)
    for _ in range(2):
        world.fetch(0)
    [session] = world.cluster.brokers[0].sessions.values()
    session.epoch = 1
    world.fetch(0)
    assert [epoch for _, epoch in world.cluster.sessions] == [0, 1, 2, 1]
