"""What `apply` makes of records in domain 0: epochs, topics, producer ids, leases."""

import uuid

import pytest

from headwater.errors import Halted
from headwater.settings import limits as settings_limits
from headwater.state.cluster import topics
from headwater.state.cluster.domain import NO_NODE, Process
from headwater.state.cluster.processes import MAX_PRODUCER_BLOCK
from headwater.state.cluster.state import ClusterState
from headwater.state.cluster.topics import MAX_PARTITIONS
from headwater.state.commands.base import Fence, TakeLease, Tick
from headwater.state.commands.cluster import (
    AddPartitions,
    AllocateProducers,
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    Listener,
    TakeEpoch,
    TopicGone,
    TopicReady,
)
from headwater.state.commands.streams import DropStreams
from headwater.state.machine import LEVEL
from headwater.state.results import Done, Reason, Refused
from headwater.types import Domain
from tests.support.promise import promise
from tests.support.scribe import START_MS, Scribe

PROMISES = ("K7", "K11", "M2")

LISTENERS = (Listener("PLAINTEXT", "localhost", 9092),)
ONE = Domain(1)
X, Y = uuid.UUID(int=1), uuid.UUID(int=2)


def state_of(scribe: Scribe) -> ClusterState:
    assert isinstance(scribe.state, ClusterState)
    return scribe.state


def take(scribe: Scribe, process: str, node: int, level: int = LEVEL) -> int:
    result = scribe.do(0, TakeEpoch(process, node, "z", LISTENERS, level, "b"))
    assert isinstance(result, Done)
    return result.value


@pytest.fixture
def scribe() -> Scribe:
    made = Scribe(ClusterState())
    assert take(made, "1/first", 1) == 1
    return made


def create(scribe: Scribe, topic: uuid.UUID, name: str, partitions: int = 2, domain: int = 1) -> Done | Refused:
    result = scribe.do(1, CreateTopic(topic, name, partitions, {"retention.ms": "5"}, Domain(domain)))
    assert isinstance(result, Done | Refused)
    return result


# --- epochs --------------------------------------------------------------------------------------------


@promise("M2")
def test_epochs_are_given_out_once(scribe: Scribe) -> None:
    """Each life of a process has its own; asking again for one life gives the same."""
    assert take(scribe, "2/a", 2) == 2
    assert take(scribe, "2/a", 2) == 2
    assert take(scribe, "compactor/x", NO_NODE) == 3
    assert take(scribe, "compactor/y", NO_NODE) == 4, "processes without a node id do not drive each other out"
    assert state_of(scribe).processes == {
        1: Process(1, "1/first", 1, "z", LISTENERS, LEVEL, "b"),
        2: Process(2, "2/a", 2, "z", LISTENERS, LEVEL, "b"),
        3: Process(3, "compactor/x", NO_NODE, "z", LISTENERS, LEVEL, "b"),
        4: Process(4, "compactor/y", NO_NODE, "z", LISTENERS, LEVEL, "b"),
    }


@promise("M2")
def test_a_new_life_fences_the_older_of_the_same_node(scribe: Scribe) -> None:
    """Two processes under one node id: the newer one counts."""
    take(scribe, "2/a", 2)
    scribe.do(2, TakeLease("x", 10_000))
    assert take(scribe, "2/b", 2) == 3
    state = state_of(scribe)
    assert state.is_fenced(2)
    assert sorted(state.processes) == [1, 3]
    assert state.lease("x") is None
    assert scribe.write(2, Tick()) == [Refused(Reason.FENCED)]
    assert take(scribe, "2/a", 2) == 4, "a late repetition is a life that nobody leads; peers will fence it"


@promise("M2")
def test_fences(scribe: Scribe) -> None:
    """Only of epochs that were given out; a member that is fenced is gone."""
    changes = []
    state_of(scribe).on_change = lambda: changes.append(1)
    take(scribe, "2/a", 2)
    assert scribe.do(1, Fence(2)) == Done()
    assert scribe.do(1, Fence(2)) == Done()
    assert list(state_of(scribe).processes) == [1]
    for epoch in (3, 100, 0, -1):
        assert isinstance(scribe.do(1, Fence(epoch)), Refused)
    assert len(changes) == 2


@promise("M2")
def test_without_an_epoch_only_an_epoch_can_be_taken(scribe: Scribe) -> None:
    assert scribe.write(0, Tick()) == [Refused(Reason.FENCED)]
    mixed = scribe.write(0, TakeEpoch("3/a", 3, "z", (), 1, "b"), AllocateProducers(5))
    assert mixed == [Refused(Reason.FENCED)] * 2
    assert list(state_of(scribe).processes) == [1]


@promise("K2")
def test_the_cluster_id_stays(scribe: Scribe) -> None:
    """The same for everybody and for ever, in the form of Kafka's."""
    name = state_of(scribe).cluster_id
    assert len(name) == 22
    take(scribe, "2/a", 2)
    scribe.do(2, Fence(1))
    assert state_of(scribe).cluster_id == name
    other = Scribe(ClusterState())
    take(other, "1/other", 1)
    assert state_of(other).cluster_id != name


# --- topics --------------------------------------------------------------------------------------------


@promise("K7")
def test_a_topics_life(scribe: Scribe) -> None:
    """Intent, ready, growing, deletion, gone."""
    assert create(scribe, X, "t") == Done()
    state = state_of(scribe)
    topic = state.topics[X]
    assert (topic.streams, topic.ready, topic.pending, topic.configs) == ([1, 2], 0, True, {"retention.ms": "5"})
    assert topic.created_ms == START_MS or topic.created_ms == 0
    assert scribe.do(1, TopicReady(X, 99)) == Done()
    assert (topic.ready, topic.pending) == (2, False)
    assert scribe.do(1, AddPartitions(X, 5)) == Done()
    assert (topic.streams, topic.ready, topic.pending) == ([1, 2, 3, 4, 5], 2, True)
    assert scribe.do(1, TopicReady(X, 5)) == Done()
    assert scribe.do(1, TopicReady(X, 3)) == Done()
    assert topic.ready == 5, "readiness never goes back"
    assert scribe.do(1, DeleteTopic(X)) == Done()
    assert topic.pending
    assert "t" not in state.names
    for command in (DeleteTopic(X), TopicReady(X, 5), AddPartitions(X, 9), AlterConfigs(X, {}, ())):
        assert scribe.do(1, command) == Refused(Reason.UNKNOWN, "the topic does not exist")
    assert scribe.do(1, TopicGone(X)) == Done()
    assert scribe.do(1, TopicGone(X)) == Done(), "carrying through twice is no mistake"
    assert state.topics == {}


@promise("K7")
def test_names_are_free_at_once(scribe: Scribe) -> None:
    """While the old topic's streams are still dropped, a new one of its name has streams of its own."""
    create(scribe, X, "t")
    assert create(scribe, Y, "t") == Refused(Reason.EXISTS, "topic 't' exists already")
    scribe.do(1, DeleteTopic(X))
    assert create(scribe, Y, "t") == Done()
    state = state_of(scribe)
    assert state.names["t"].id == Y
    assert not set(state.topics[X].streams) & set(state.topics[Y].streams)
    scribe.do(1, TopicGone(X))
    assert state.names["t"].id == Y


@promise("K7")
def test_creating_again_is_no_mistake(scribe: Scribe) -> None:
    """The id says whether it is the same intent."""
    assert create(scribe, X, "t") == Done()
    assert create(scribe, X, "t") == Done()
    assert state_of(scribe).topics[X].streams == [1, 2]


@promise("K7")
def test_what_cannot_be_created(scribe: Scribe) -> None:
    for partitions in (0, -1, MAX_PARTITIONS + 1):
        assert isinstance(create(scribe, X, "t", partitions), Refused)
    assert isinstance(create(scribe, X, "t", 1, domain=0), Refused)
    create(scribe, X, "t", 3)
    for total in (0, 1, 3, MAX_PARTITIONS + 1):
        result = scribe.do(1, AddPartitions(X, total))
        assert isinstance(result, Refused)
        assert result.reason is Reason.INVALID
    assert scribe.do(1, TopicGone(X)) == Refused(Reason.INVALID, "the topic is not being deleted")
    assert isinstance(scribe.do(1, TopicReady(Y, 1)), Refused)


@promise("S4")
def test_the_cluster_has_a_limit_on_partitions(scribe: Scribe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged when a command is applied, so that brokers cannot race past it. Deleted topics make room."""
    assert settings_limits.MAX_CLUSTER_PARTITIONS == topics.MAX_CLUSTER_PARTITIONS
    monkeypatch.setattr(topics, "MAX_CLUSTER_PARTITIONS", 10)
    state = state_of(scribe)
    assert create(scribe, X, "x", 6) == Done()
    refused = create(scribe, Y, "y", 5)
    assert isinstance(refused, Refused) and refused.reason is Reason.FULL
    assert create(scribe, Y, "y", 3) == Done()
    refused = scribe.do(1, AddPartitions(Y, 5))
    assert isinstance(refused, Refused) and refused.reason is Reason.FULL
    assert state.partitions == 9 and state.next_stream == 10
    scribe.do(1, DeleteTopic(X))
    assert isinstance(scribe.do(1, AddPartitions(Y, 5)), Refused), "its streams are still there"
    scribe.do(1, TopicGone(X))
    scribe.do(1, TopicGone(X))
    assert scribe.do(1, AddPartitions(Y, 5)) == Done()
    assert state.partitions == 5


@promise("K7")
def test_configs(scribe: Scribe) -> None:
    """Set and removed against what is there at this point of the ledger."""
    create(scribe, X, "t")
    assert scribe.do(1, AlterConfigs(X, {"a": "1", "b": "2"}, ("retention.ms", "nothing"))) == Done()
    assert scribe.do(1, AlterConfigs(X, {"b": "3"}, ("a", "b"))) == Done()
    assert state_of(scribe).topics[X].configs == {"b": "3"}


@promise("K11")
def test_producer_blocks(scribe: Scribe) -> None:
    """Blocks of ids never overlap."""
    assert scribe.do(1, AllocateProducers(1000)) == Done(1)
    assert scribe.do(1, AllocateProducers(1)) == Done(1001)
    assert scribe.do(1, AllocateProducers(MAX_PRODUCER_BLOCK)) == Done(1002)
    assert scribe.do(1, AllocateProducers(1)) == Done(1002 + MAX_PRODUCER_BLOCK)
    for count in (0, -1, MAX_PRODUCER_BLOCK + 1):
        assert isinstance(scribe.do(1, AllocateProducers(count)), Refused)


@promise("M1")
def test_commands_of_streams_halt(scribe: Scribe) -> None:
    with pytest.raises(Halted, match="is not a command of domain"):
        scribe.do(1, DropStreams((1,)))


@promise("M1")
def test_image_round_trip(scribe: Scribe) -> None:
    """A restored state is the state, and tells its listeners that all may have changed."""
    create(scribe, X, "t", 3)
    scribe.do(1, TopicReady(X, 3))
    create(scribe, Y, "u")
    scribe.do(1, DeleteTopic(Y))
    take(scribe, "2/a", 2)
    scribe.write(1, AllocateProducers(7), TakeLease("x", 1000), Fence(2))
    image = scribe.state.image()
    other = ClusterState()
    changes = []
    other.on_change = lambda: changes.append(1)
    other.restore(image)
    assert changes == [1]
    assert other.image() == image
    assert other.names.keys() == {"t"}
    assert other.topics.keys() == {X, Y}
    assert other.is_fenced(2)
    assert other.names["t"] is other.topics[X]
    with pytest.raises(Halted):
        other.restore(b"\x93\x01\x02\x03")
