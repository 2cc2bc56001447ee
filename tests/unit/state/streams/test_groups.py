"""What `apply` makes of claims, of what coordinators decide, and of committed offsets."""

import uuid

import pytest

from headwater.state.commands.base import Fence, Tick
from headwater.state.commands.groups import ChangeGroup, ClaimShard, CommitOffsets, DropGroup, DropOffsets
from headwater.state.records import Command
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams import groups as grouping
from headwater.state.streams import offsets
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.groups import Committed, StoredGroup, shard_of
from headwater.types import Domain
from tests.support.scribe import START_MS, Scribe

PROMISES = ("K8", "K10")

GROUP = "g"
TOPIC = uuid.UUID(int=9)
ONE, TWO = 1, 2
"""Epochs of two coordinators."""


class Story:
    """A state, and who coordinates its groups."""

    def __init__(self) -> None:
        self.scribe = Scribe(StreamsState(Domain(1)))
        self.told: list[int] = []
        self.state.groups.on_claim = self.told.append

    @property
    def state(self) -> StreamsState:
        assert isinstance(self.scribe.state, StreamsState)
        return self.scribe.state

    @property
    def group(self) -> StoredGroup:
        group = self.state.groups.get(GROUP)
        assert group is not None
        return group

    def do(self, epoch: int, command: Command, clock_ms: int = START_MS) -> Result:
        return self.scribe.do(epoch, command, clock_ms)

    def claim(self, epoch: int = ONE) -> int:
        result = self.do(epoch, ClaimShard(shard_of(GROUP)))
        assert isinstance(result, Done)
        return result.value

    def commit(self, epoch: int, claim: int, *offsets: tuple[int, int], clock_ms: int = START_MS) -> Result:
        entered = [(TOPIC.bytes, partition, offset, -1, "") for partition, offset in offsets]
        return self.do(epoch, CommitOffsets(claim, GROUP, entered), clock_ms)


def refused(result: Result) -> Reason:
    assert isinstance(result, Refused)
    return result.reason


def test_a_coordinator_keeps_head_members_and_offsets() -> None:
    story = Story()
    claim = story.claim()
    assert story.do(ONE, ChangeGroup(claim, GROUP, "classic", b"head", {"a": b"1", "b": b"2"}, ())) == Done()
    assert story.do(ONE, ChangeGroup(claim, GROUP, "classic", None, {"c": b"3"}, ("a", "nobody"))) == Done()
    assert (story.group.kind, story.group.head, story.group.members) == ("classic", b"head", {"b": b"2", "c": b"3"})
    assert story.commit(ONE, claim, (0, 5), (1, 7)) == Done()
    assert story.commit(ONE, claim, (0, 6), clock_ms=START_MS + 9) == Done()
    assert story.group.offsets[TOPIC] == {0: Committed(6, -1, "", START_MS + 9), 1: Committed(7, -1, "", START_MS)}
    assert story.group.count == 2


def test_what_an_earlier_holder_writes_is_refused() -> None:
    story = Story()
    old, new = story.claim(ONE), story.claim(TWO)
    assert new > old
    for command in (
        ChangeGroup(old, GROUP, "classic", b"x", {}, ()),
        CommitOffsets(old, GROUP, [(TOPIC.bytes, 0, 1, -1, "")]),
        DropOffsets(old, GROUP, [(TOPIC.bytes, 0)]),
        DropGroup(old, GROUP),
        ChangeGroup(new, GROUP, "classic", b"x", {}, ()),
    ):
        assert refused(story.do(ONE, command)) is Reason.STALE
    assert story.state.groups.get(GROUP) is None
    assert story.commit(TWO, new, (0, 1)) == Done()


def test_a_fence_takes_the_shards_of_its_process() -> None:
    story = Story()
    claim = story.claim()
    story.do(TWO, Tick())
    story.told.clear()
    story.do(TWO, Fence(ONE))
    assert story.told == [shard_of(GROUP)]
    assert story.state.groups.claims == {}
    assert refused(story.commit(TWO, claim, (0, 1))) is Reason.STALE


def test_everybody_is_told_of_a_claim() -> None:
    story = Story()
    story.claim()
    story.claim(TWO)
    assert story.told == [shard_of(GROUP)] * 2


@pytest.mark.parametrize("shard", [-1, grouping.SHARDS])
def test_only_shards_that_exist_are_claimed(shard: int) -> None:
    assert refused(Story().do(ONE, ClaimShard(shard))) is Reason.INVALID


def test_a_group_of_another_kind_starts_afresh_and_keeps_its_offsets() -> None:
    story = Story()
    claim = story.claim()
    story.do(ONE, ChangeGroup(claim, GROUP, "classic", b"old", {"a": b"1"}, ()))
    story.commit(ONE, claim, (0, 5))
    story.do(ONE, ChangeGroup(claim, GROUP, "consumer", b"new", {}, ()))
    assert (story.group.kind, story.group.head, story.group.members) == ("consumer", b"new", {})
    assert story.group.count == 1


def test_offsets_and_groups_go() -> None:
    story = Story()
    claim = story.claim()
    story.commit(ONE, claim, (0, 5), (1, 7))
    assert story.do(ONE, DropOffsets(claim, GROUP, [(TOPIC.bytes, 0), (TOPIC.bytes, 4), (bytes(16), 0)])) == Done(1)
    assert (list(story.group.offsets[TOPIC]), story.group.count) == ([1], 1)
    assert story.do(ONE, DropOffsets(claim, GROUP, [(TOPIC.bytes, 1)])) == Done(1)
    assert story.group.offsets == {}
    assert story.do(ONE, DropGroup(claim, GROUP)) == Done()
    assert refused(story.do(ONE, DropGroup(claim, GROUP))) is Reason.UNKNOWN


def test_there_are_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    claim = story.claim()
    other = next(f"h{i}" for i in range(10_000) if shard_of(f"h{i}") == shard_of(GROUP))
    monkeypatch.setattr(offsets, "MAX_OFFSETS", 2)
    assert story.commit(ONE, claim, (0, 1), (1, 1)) == Done()
    assert refused(story.commit(ONE, claim, (2, 1))) is Reason.INVALID
    assert refused(story.commit(ONE, claim, (0, 1), (2, 1))) is Reason.INVALID
    assert story.commit(ONE, claim, (0, 5), (1, 6), (0, 7)) == Done(), "replaced offsets are not new ones"
    before = story.state.image()
    assert refused(story.do(ONE, CommitOffsets(claim, other, [(TOPIC.bytes, i, 1, -1, "") for i in range(3)])))
    assert story.state.groups.get(other) is None, "a refused command makes no group"
    assert len(before) == len(story.state.image())
    monkeypatch.setattr(offsets, "MAX_GROUPS", 1)
    assert refused(story.do(ONE, ChangeGroup(claim, other, "classic", b"", {}, ()))) is Reason.INVALID
    assert refused(story.do(ONE, CommitOffsets(claim, GROUP, [(b"short", 0, 1, -1, "")]))) is Reason.INVALID
    monkeypatch.setattr(grouping, "MAX_NAME", 0)
    assert refused(story.commit(ONE, claim, (0, 2))) is Reason.INVALID


def test_groups_are_part_of_a_checkpoint() -> None:
    story = Story()
    claim = story.claim()
    story.do(ONE, ChangeGroup(claim, GROUP, "classic", b"head", {"a": b"1"}, ()))
    story.commit(ONE, claim, (0, 5))
    image = story.state.image()
    restored = StreamsState(Domain(1))
    told: list[int] = []
    restored.groups.on_claim = told.append
    restored.restore(image)
    assert restored.groups.get(GROUP) == story.group
    assert restored.image() == image
    assert told == [shard_of(GROUP)]
    assert restored.groups.holds(ONE, GROUP, claim)
