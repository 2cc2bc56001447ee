"""What `apply` makes of links and linked topics in domain 0."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest

from headwater.state.cluster import links
from headwater.state.cluster.links import SECRETS, Link, LinkedTopic, SourceEnds
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import SetLevel
from headwater.state.commands.cluster import CreateTopic, DeleteTopic, TakeEpoch, TopicGone
from headwater.state.commands.links import DropLink, LinkPhase, LinkSpec, NoteSourceEnds, PutLink, SetLinkTopic
from headwater.state.machine import LEVELS, LINK_ENDS_LEVEL, LINKS_LEVEL
from headwater.state.records import decode
from headwater.state.results import Done, Reason, Refused, Result
from headwater.types import Domain, Position
from tests.support.promise import promise
from tests.support.scribe import START_MS, Scribe

PROMISES = ("N1",)

X, Y, Z = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)
SOURCE = uuid.UUID(int=9)
COPYING, PAUSED, STOPPED, PROMOTED, FINISHING, PROMOTING = LinkPhase
SPEC = LinkSpec(
    name="old",
    bootstrap=("kafka:9092",),
    security={"sasl.username": "ann", "sasl.password.file": "/run/secret"},
    topics=("orders",),
    patterns=("pay.*",),
    groups=(".*",),
    options={"configs": "true"},
    paused=False,
)


class Story:
    """A cluster at the level of links, with the topics X and Y and the link `old`."""

    def __init__(self, level: int = LINKS_LEVEL) -> None:
        self.state = ClusterState()
        self.scribe = Scribe(self.state)
        self.scribe.do(0, TakeEpoch("1/a", 1, "z", (), LINK_ENDS_LEVEL, "b"))
        self.do(SetLevel(level, LEVELS[level]))
        for topic, name in ((X, "x"), (Y, "y")):
            self.do(CreateTopic(topic, name, 2, {}, Domain(1)))
        assert self.do(PutLink(SPEC, 0)) == Done(1)

    def do(self, command: Any, clock_ms: int = START_MS) -> Result:
        return self.scribe.do(1, command, clock_ms)

    def set(self, topic: uuid.UUID, phase: LinkPhase, seen: int, link: str = "old", clock_ms: int = START_MS) -> Result:
        return self.do(SetLinkTopic(topic, link, "orders", SOURCE, phase, "why", seen), clock_ms)

    def topic(self, topic: uuid.UUID = X) -> LinkedTopic:
        return self.state.links.topics[topic]

    def check_restored(self) -> None:
        image = self.state.image()
        restored, again = ClusterState(), ClusterState()
        restored.restore(image)
        for position, record in enumerate(self.scribe.records, 1):
            again.apply(Position(position), decode(record))
        assert image == restored.image() == again.image()


def reason(result: Result) -> Reason:
    assert isinstance(result, Refused), result
    return result.reason


@promise("N1")
def test_a_link_is_created_and_changed() -> None:
    """The caller names the version that it has seen, so that no change is lost."""
    story = Story()
    assert story.state.links.links == {"old": Link(SPEC, 1, START_MS)}
    paused = msgspec.structs.replace(SPEC, paused=True)
    assert reason(story.do(PutLink(paused, 0))) is Reason.EXISTS
    assert reason(story.do(PutLink(paused, 7))) is Reason.STALE
    assert reason(story.do(PutLink(msgspec.structs.replace(SPEC, name="other"), 7))) is Reason.UNKNOWN
    assert story.do(PutLink(paused, 1), START_MS + 9) == Done(2)
    assert story.state.links.links == {"old": Link(paused, 2, START_MS)}
    assert reason(story.do(PutLink(SPEC, 1))) is Reason.STALE
    story.check_restored()


@promise("N1")
def test_listeners_are_told() -> None:
    """A process that follows the cluster notices links and linked topics."""
    story = Story()
    told: list[int] = []
    story.state.on_change = lambda: told.append(1)
    story.set(X, COPYING, 0)
    assert told == [1]
    assert reason(story.set(X, COPYING, 0)) is Reason.STALE and told == [1]


@promise("N1")
def test_a_topics_phases() -> None:
    """Every change has a generation of its own, and only who saw the last one makes the next."""
    story = Story()
    assert story.set(X, COPYING, 0) == Done(2)
    assert story.topic() == LinkedTopic(X, "old", "orders", SOURCE, COPYING, "why", 2, START_MS)
    assert story.set(X, PAUSED, 2, clock_ms=START_MS + 5) == Done(3)
    assert (story.topic().mirrored, story.topic().since_ms) == (True, START_MS + 5)
    assert reason(story.set(X, COPYING, 2)) is Reason.STALE
    assert story.set(X, PAUSED, 3, clock_ms=START_MS + 9) == Done(4)
    assert story.topic().since_ms == START_MS + 5
    assert story.set(X, PROMOTED, 4) == Done(5)
    assert not story.topic().mirrored
    story.check_restored()


@promise("N1")
def test_topics_of_two_links() -> None:
    """One link copies a topic at a time; another one may take over what was promoted."""
    story = Story()
    story.do(PutLink(msgspec.structs.replace(SPEC, name="new"), 0))
    assert story.set(X, COPYING, 0) == Done(3)
    assert reason(story.set(X, COPYING, 3, link="new")) is Reason.EXISTS
    assert reason(story.set(X, COPYING, 0, link="new")) is Reason.STALE
    assert story.set(X, PROMOTED, 3) == Done(4)
    assert story.set(X, COPYING, 4, link="new") == Done(5)
    assert [found.topic for found in story.state.links.of("new")] == [X] and not story.state.links.of("old")


@promise("N1")
def test_what_does_not_exist() -> None:
    """No link, no topic, a topic that is being deleted."""
    story = Story()
    assert reason(story.set(X, COPYING, 0, link="none")) is Reason.UNKNOWN
    assert reason(story.set(Z, COPYING, 0)) is Reason.UNKNOWN
    assert reason(story.do(DropLink("none"))) is Reason.UNKNOWN
    story.do(DeleteTopic(X))
    assert reason(story.set(X, COPYING, 0)) is Reason.UNKNOWN
    assert not story.state.links.topics


@promise("N1")
def test_deleting_a_link() -> None:
    """Not while a topic waits for it. Numbers are not used again, so no generation comes back."""
    story = Story()
    story.set(X, COPYING, 0)
    story.set(Y, PROMOTED, 0)
    refused = story.do(DropLink("old"))
    assert reason(refused) is Reason.INVALID and len(story.state.links.topics) == 2
    assert story.set(X, PROMOTED, 2) == Done(4)
    assert story.do(DropLink("old")) == Done()
    assert not story.state.links.links and not story.state.links.topics
    story.check_restored()
    assert story.do(PutLink(SPEC, 0)) == Done(5)
    assert story.set(X, COPYING, 0) == Done(6)


@promise("N1")
def test_deleting_a_topic() -> None:
    """The link forgets it at once, and can be deleted."""
    story = Story()
    story.set(X, COPYING, 0)
    story.do(DeleteTopic(X))
    assert not story.state.links.topics
    story.do(TopicGone(X))
    assert story.do(DropLink("old")) == Done()


@promise("N1", "S3")
@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "a/b"},
        {"name": ".a"},
        {"name": "a" * 101},
        {"bootstrap": ()},
        {"bootstrap": ("",)},
        {"bootstrap": ("h:1",) * (links.MAX_BOOTSTRAP + 1)},
        {"topics": ("t",) * (links.MAX_LISTED + 1)},
        {"patterns": ("",)},
        {"groups": ("g" * (links.MAX_TEXT + 1),)},
        {"options": {str(i): "" for i in range(links.MAX_OPTIONS + 1)}},
        {"options": {"o": "v" * (links.MAX_TEXT + 1)}},
        *({"security": {name: "hunter2"}} for name in SECRETS),
    ],
    ids=lambda change: f"{next(iter(change))}",
)
def test_invalid_links(change: dict[str, Any]) -> None:
    """Refused, nothing is changed, and the refusal repeats no value."""
    story = Story()
    refused = story.do(PutLink(msgspec.structs.replace(SPEC, **change), 0 if "name" in change else 1))
    assert reason(refused) is Reason.INVALID and "hunter2" not in str(refused)
    assert story.state.links.links == {"old": Link(SPEC, 1, START_MS)}


@promise("N1")
def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of links, of linked topics, of texts."""
    story = Story()
    monkeypatch.setattr(links, "MAX_LINKS", 1)
    monkeypatch.setattr(links, "MAX_LINKED", 1)
    assert reason(story.do(PutLink(msgspec.structs.replace(SPEC, name="new"), 0))) is Reason.FULL
    story.set(X, COPYING, 0)
    assert reason(story.set(Y, COPYING, 0)) is Reason.FULL
    long = "r" * (links.MAX_TEXT + 1)
    for source, why in (("", "ok"), (long, "ok"), ("ok", long)):
        assert reason(story.do(SetLinkTopic(X, "old", source, SOURCE, PAUSED, why, 2))) is Reason.INVALID
    assert story.topic().phase is COPYING


def test_where_a_source_ends() -> None:
    """The ends of a generation: noted by partition, forgotten with the next generation, and with the topic."""
    story = Story(LINK_ENDS_LEVEL)
    story.set(X, COPYING, 0)
    assert story.do(NoteSourceEnds(X, 2, [(1, 7)]), START_MS + 3) == Done()
    assert story.state.links.ends == {X: SourceEnds(X, 2, [-1, 7], START_MS + 3)}
    assert story.do(NoteSourceEnds(X, 2, [(0, 5), (1, 8)])) == Done()
    assert story.state.links.ends[X].ends == [5, 8]
    story.check_restored()
    for ends in ([(2, 1)], [(-1, 1)], [(0, -1)], [(0, 1 << 63)]):
        assert reason(story.do(NoteSourceEnds(X, 2, ends))) is Reason.INVALID
    assert reason(story.do(NoteSourceEnds(Y, 2, []))) is Reason.UNKNOWN
    assert reason(story.do(NoteSourceEnds(Z, 2, []))) is Reason.UNKNOWN
    assert story.set(X, FINISHING, 2) == Done(3)
    assert reason(story.do(NoteSourceEnds(X, 2, [(0, 6)]))) is Reason.STALE
    assert story.do(NoteSourceEnds(X, 3, [(0, 6)])) == Done()
    assert story.state.links.ends[X].ends == [6, -1]
    story.do(DeleteTopic(X))
    assert not story.state.links.ends
    assert story.set(Y, PROMOTING, 0) == Done(4)
    assert story.do(NoteSourceEnds(Y, 4, [(0, 1)])) == Done()
    assert story.set(Y, PROMOTED, 4) == Done(5)
    assert story.do(DropLink("old")) == Done() and not story.state.links.ends
    story.check_restored()


@promise("M5")
def test_the_steps_of_a_promotion_need_the_sixth_level() -> None:
    """Before it they change no byte, and the image is that of the fifth level."""
    story = Story()
    story.set(X, COPYING, 0)
    before = story.topic()
    for phase in (FINISHING, PROMOTING):
        refused = story.set(X, phase, 2)
        assert reason(refused) is Reason.INVALID and "needs level 6, the cluster is at 5" in str(refused)
    refused = story.do(NoteSourceEnds(X, 2, [(0, 1)]))
    assert reason(refused) is Reason.INVALID and "needs level 6" in str(refused)
    assert story.topic() == before and b"link ends" not in story.state.image()
    story.do(SetLevel(LINK_ENDS_LEVEL, LEVELS[LINK_ENDS_LEVEL]))
    assert story.set(X, FINISHING, 2) == Done(3)
    assert story.topic().mirrored and story.topic().copied
    assert story.set(X, PROMOTING, 3) == Done(4)
    assert story.topic().mirrored and not story.topic().copied
