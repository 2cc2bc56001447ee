"""What `apply` makes of holds, and what may be deleted while there are some."""

import uuid

import pytest

from headwater.state.commands.base import Fence, SetLevel, TakeLease, Tick
from headwater.state.commands.holds import HoldVersion, MoveHold, ReleaseVersions, TakeHold
from headwater.state.commands.streams import DropStreams, ForgetObjects, TrimStreams
from headwater.state.commands.tables import Follow, ForgetFiles, Merge, NewFile, Pin, Retire, SegmentRun, Settle
from headwater.state.machine import LEVELS
from headwater.state.records import Command, decode
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.domain import COMPACTION, HOLDS_LEVEL, HOUSEKEEPING
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored import holds as stored_holds
from headwater.state.streams.tables import JOURNAL_KEPT
from headwater.types import Domain, Position, WalId
from tests.support.promise import promise
from tests.support.scribe import START_MS, TOPIC, Scribe

PROMISES = ("Q2", "L3")

STREAM, ROOT = 1, "tables/t-7"
WRITER, GATEWAY, OTHER, COMPACTOR = 1, 5, 6, 9
STRANGE = uuid.UUID(int=8)


class Story:
    """A stream, a compactor that also keeps house, and gateways. Time moves only when a test says so."""

    def __init__(self) -> None:
        self.scribe = Scribe(StreamsState(Domain(1)))
        self.now = START_MS
        self.do(WRITER, SetLevel(HOLDS_LEVEL, LEVELS[HOLDS_LEVEL]))
        self.scribe.streams(STREAM)
        self.lease = self.number(COMPACTOR, TakeLease(COMPACTION, 1 << 40))
        self.keeping = self.number(COMPACTOR, TakeLease(HOUSEKEEPING, 1 << 40))
        self.end = self.names = 0

    @property
    def state(self) -> StreamsState:
        assert isinstance(self.scribe.state, StreamsState)
        return self.scribe.state

    def do(self, epoch: int, command: Command) -> Result:
        return self.scribe.do(epoch, command, self.now)

    def number(self, epoch: int, command: Command) -> int:
        result = self.do(epoch, command)
        assert isinstance(result, Done), result
        return result.value

    def pass_time(self, ms: int = 1) -> None:
        self.now += ms
        self.do(WRITER, Tick())

    def hold(self, epoch: int = GATEWAY) -> int:
        return self.number(epoch, TakeHold())

    def move(self, ms: int, epoch: int = GATEWAY) -> Result:
        return self.do(epoch, MoveHold(ms))

    def version(self, version: int, epoch: int = GATEWAY, topic: uuid.UUID = TOPIC) -> Result:
        return self.do(epoch, HoldVersion(topic, version))

    def append(self) -> None:
        self.scribe.append(WRITER, STREAM, [(100, 1, 5)], clock_ms=self.now)

    def _file(self, rows: int) -> NewFile:
        self.names += 1
        return NewFile(f"_data/{self.names}.parquet", 1_000, rows, 1, 0, 0, 0, 99, 1, 9, 0, 7)

    def settle(self) -> int:
        """One record more, which is settled; returns the version."""
        self.append()
        start, self.end = self.end, self.end + 1
        run = SegmentRun(STREAM, start, self.end, 0, 0, 1)
        return self.number(COMPACTOR, Settle(self.lease, TOPIC, ROOT, [self._file(1)], [run]))

    def merge(self, *files: int) -> int:
        """Files that begin at the start of the log become one; returns the version."""
        rows = sum(self.state.tables[TOPIC].files[number].rows for number in files)
        made, run = [self._file(rows)], [SegmentRun(STREAM, 0, rows, 0, 0, 1)]
        return self.number(COMPACTOR, Merge(self.lease, TOPIC, list(files), made, run))

    def ripe(self) -> list[int]:
        """The files that may be deleted; `ForgetFiles` agrees."""
        table = self.state.tables[TOPIC]
        found = [file.number for file in self.state.ripe(table)]
        copy = StreamsState(Domain(1))
        copy.restore(self.state.image())
        known = list(table.files)
        done = Scribe(copy)
        done.counters = dict(self.scribe.counters)
        assert done.do(COMPACTOR, ForgetFiles(self.lease, TOPIC, known), self.now) == Done(len(found))
        left = copy.tables[TOPIC].files if TOPIC in copy.tables else {}
        assert sorted(left) == sorted(set(known) - set(found))
        return found


@pytest.fixture
def story() -> Story:
    return Story()


@promise("Q2")
def test_a_hold_keeps_what_is_removed_from_then_on(story: Story) -> None:
    """Clocks tie, so what was removed in the same millisecond is kept; what was removed before is not."""
    for _ in range(4):
        story.settle()
    story.pass_time()
    story.merge(1, 2)
    assert story.ripe() == [1, 2]
    story.pass_time()
    assert story.hold() == story.now
    assert story.ripe() == [1, 2]
    story.merge(5, 3)
    assert story.ripe() == [1, 2], "removed when the hold was taken, by the same clock"
    story.pass_time()
    story.merge(6, 4)
    assert story.ripe() == [1, 2]
    assert story.move(story.now) == Done(story.now)
    assert story.ripe() == [1, 2, 3, 5], "files 4 and 6 were removed at the time of the hold"
    story.pass_time()
    assert story.move(story.now) == Done(story.now)
    assert story.ripe() == [1, 2, 3, 4, 5, 6]


@promise("Q2")
def test_wal_objects_are_held(story: Story) -> None:
    """An object that died at the time of a hold or later is not forgotten, whatever its deleter says."""
    story.settle()
    story.pass_time()
    story.hold()
    story.settle()
    story.pass_time(100)
    story.settle()
    assert [died for _, died in story.state.objects.dead()] == [START_MS, START_MS + 1, START_MS + 101]
    assert story.state.ripe_objects(story.now) == [WalId(WRITER, 1)]
    forget = ForgetObjects(story.keeping, [(WRITER, 1), (WRITER, 2), (WRITER, 3), (WRITER, 4)])
    assert story.do(COMPACTOR, forget) == Done(1)
    assert story.move(START_MS + 2) == Done(START_MS + 2)
    assert story.state.ripe_objects(story.now) == [WalId(WRITER, 2)]
    assert story.state.ripe_objects(START_MS) == []
    assert story.do(COMPACTOR, forget) == Done(1)
    story.do(COMPACTOR, Fence(GATEWAY))
    assert story.do(COMPACTOR, forget) == Done(1)
    assert not list(story.state.objects.dead())


@promise("Q2")
def test_only_a_fence_ends_a_hold(story: Story) -> None:
    """No time does, not even days without a word of its process. Afterwards the epoch holds nothing any more."""
    story.settle()
    story.hold()
    story.pass_time()
    story.settle()
    story.merge(1, 2)
    story.pass_time(30 * 86_400_000)
    assert story.ripe() == []
    story.do(COMPACTOR, Fence(GATEWAY))
    assert story.ripe() == [1, 2]
    refused = story.do(GATEWAY, TakeHold())
    assert isinstance(refused, Refused) and refused.reason is Reason.FENCED
    assert len(story.state.held) == 0


@promise("Q2")
def test_the_oldest_hold_counts(story: Story) -> None:
    """Each gateway has its own, and the end of one frees only what no other needs."""
    story.settle()
    story.settle()
    story.hold()
    story.pass_time()
    story.merge(1, 2)
    story.pass_time()
    story.hold(OTHER)
    assert story.state.held.oldest_ms == START_MS and story.ripe() == []
    story.do(COMPACTOR, Fence(OTHER))
    assert story.ripe() == []
    story.do(COMPACTOR, Fence(GATEWAY))
    assert story.state.held.oldest_ms is None and story.ripe() == [1, 2]


@promise("Q2")
def test_a_hold_moves_forward_only(story: Story) -> None:
    """Never back, never into the future; taking it again does not move it."""
    refused = story.move(START_MS)
    assert isinstance(refused, Refused) and refused.reason is Reason.UNKNOWN
    story.hold()
    story.pass_time(10)
    assert story.hold() == START_MS
    future = story.move(story.now + 1)
    assert isinstance(future, Refused) and future.reason is Reason.INVALID
    assert story.move(START_MS + 7) == Done(START_MS + 7)
    assert story.move(START_MS + 3) == Done(START_MS + 7)
    assert story.move(START_MS + 7) == Done(START_MS + 7)
    hold = story.state.held.get(GATEWAY)
    assert hold is not None and hold.since_ms == START_MS + 7


@promise("Q2")
def test_a_deleted_topic_keeps_what_is_read(story: Story) -> None:
    """Files of its table, and WAL objects; the table stays in the state until they are gone."""
    story.settle()
    story.settle()
    story.pass_time()
    story.merge(1, 2)
    story.append()
    story.pass_time()
    story.hold()
    story.do(WRITER, DropStreams((STREAM,)))
    table = story.state.tables[TOPIC]
    assert table.dropped and story.ripe() == [1, 2], "they were removed before"
    assert story.do(COMPACTOR, ForgetFiles(story.lease, TOPIC, [1, 2, 3])) == Done(2)
    assert story.state.ripe_objects(story.now) == [WalId(WRITER, 1), WalId(WRITER, 2)]
    assert story.do(COMPACTOR, ForgetFiles(story.lease, TOPIC, [])) == Done(0)
    assert list(story.state.tables[TOPIC].files) == [3]
    story.pass_time()
    story.move(story.now)
    assert story.ripe() == [3]
    assert story.do(COMPACTOR, ForgetFiles(story.lease, TOPIC, [3])) == Done(1)
    assert not story.state.tables


@promise("Q2")
def test_a_version_by_name(story: Story) -> None:
    """Its files stay however far the hold moves, through the deletion of the topic, until it is released."""
    for _ in range(3):
        story.settle()
    story.hold()
    assert story.version(2) == Done() == story.version(2)
    story.pass_time()
    story.merge(1, 2, 3)
    story.pass_time()
    story.move(story.now)
    assert story.ripe() == [3], "version 2 has files 1 and 2"
    story.hold(OTHER)
    assert story.version(2, OTHER) == Done()
    assert story.do(GATEWAY, ReleaseVersions([(TOPIC, 2), (TOPIC, 1), (STRANGE, 2)])) == Done(1)
    assert story.do(GATEWAY, ReleaseVersions([(TOPIC, 2)])) == Done(0)
    assert story.ripe() == [3]
    story.do(WRITER, DropStreams((STREAM,)))
    story.pass_time()
    story.move(story.now)
    story.move(story.now, OTHER)
    assert story.ripe() == [3, 4]
    story.do(COMPACTOR, Fence(OTHER))
    assert story.ripe() == [1, 2, 3, 4]


@promise("Q2")
def test_the_present_version_of_a_deleted_topic(story: Story) -> None:
    """A file that was in the table when the topic was deleted is of its newest version."""
    story.settle()
    story.settle()
    story.hold()
    assert story.version(2) == Done()
    assert story.version(1) == Done()
    story.do(GATEWAY, ReleaseVersions([(TOPIC, 2)]))
    story.do(WRITER, DropStreams((STREAM,)))
    story.pass_time()
    story.move(story.now)
    assert story.ripe() == [2]


@promise("Q2")
def test_a_version_that_is_not_whole_is_refused(story: Story) -> None:
    """A file may be deleted the moment nothing keeps it; a version that lacks one is never shown."""
    for _ in range(3):
        story.settle()
    assert isinstance(story.version(1), Refused), "without a hold"
    story.hold()
    for wrong in (story.version(4), story.version(-1), story.version(1, topic=STRANGE)):
        assert isinstance(wrong, Refused) and wrong.reason is Reason.UNKNOWN
    story.pass_time()
    story.merge(1, 2, 3)
    assert story.version(1) == Done(), "the hold is older than the removal"
    story.do(GATEWAY, ReleaseVersions([(TOPIC, 1)]))
    assert story.version(1) == Done()
    story.do(GATEWAY, ReleaseVersions([(TOPIC, 1)]))
    assert story.move(story.now) == Done(story.now)
    late = story.version(1)
    assert late == Refused(Reason.STALE, "version 1 has expired"), "a deleter may have acted before the tie"
    assert story.version(4) == Done() and story.version(0) == Done()
    story.pass_time()
    story.move(story.now)
    story.do(COMPACTOR, ForgetFiles(story.lease, TOPIC, [1, 2, 3]))
    assert isinstance(story.version(2), Refused)
    story.do(WRITER, DropStreams((STREAM,)))
    gone = story.version(3)
    assert isinstance(gone, Refused) and gone.reason is Reason.UNKNOWN


@promise("Q2")
def test_what_keeps_a_version(story: Story) -> None:
    """A follower that shows it, the log that names its files, or another hold that names it."""
    for _ in range(3):
        story.settle()
    story.do(COMPACTOR, Follow(story.lease, TOPIC, "delta", "", "here", 3, 2))
    story.merge(1, 2, 3)
    story.pass_time()
    story.hold()
    assert story.version(2) == Done() and story.version(3) == Done()
    assert story.version(1) == Done(), "its one file is in version 2 too"
    story.do(COMPACTOR, Follow(story.lease, TOPIC, "delta", "here", "there", 4, 4))
    story.hold(OTHER)
    assert story.version(3, OTHER) == Done(), "another hold names it"
    story.do(GATEWAY, ReleaseVersions([(TOPIC, 2), (TOPIC, 3)]))
    assert story.version(3) == Done(), "another hold names it"
    story.do(COMPACTOR, Fence(OTHER))
    story.do(GATEWAY, ReleaseVersions([(TOPIC, 3), (TOPIC, 1)]))
    assert isinstance(story.version(3), Refused) and isinstance(story.version(1), Refused)
    story.settle()
    story.do(COMPACTOR, Retire(story.lease, TOPIC, [4]))
    story.do(COMPACTOR, Follow(story.lease, TOPIC, "delta", "there", "everywhere", 6, 6))
    story.pass_time()
    story.move(story.now)
    assert story.version(5) == Done(), "the log still names file 4"
    story.do(GATEWAY, ReleaseVersions([(TOPIC, 5)]))
    story.do(WRITER, TrimStreams([(STREAM, 3)]))
    assert isinstance(story.version(5), Refused)


@promise("Q2", "T5")
def test_a_version_that_the_journal_has_forgotten(story: Story) -> None:
    """A follower's word suffices: it keeps all files of the versions that it shows."""
    for _ in range(JOURNAL_KEPT + 20):
        story.settle()
    last = story.state.tables[TOPIC].last_sequence
    story.do(COMPACTOR, Follow(story.lease, TOPIC, "iceberg", "", "here", last, 5))
    story.settle()
    assert story.state.tables[TOPIC].first_version > 10
    story.hold()
    assert isinstance(story.version(4), Refused)
    assert story.version(5) == Done() and story.version(10) == Done()
    assert story.do(COMPACTOR, Pin(story.lease, TOPIC, "iceberg", "here", last, last, (7, 12))) == Done()
    assert isinstance(story.version(9), Refused)
    assert story.version(10) == Done(), "it is held already"
    assert story.version(7) == Done() and story.version(12) == Done()
    story.hold(OTHER)
    assert story.version(10, OTHER) == Done()


@promise("Q2")
def test_limits(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of holds, and of versions that one of them names."""
    from headwater.state.streams import holds

    monkeypatch.setattr(holds, "MAX_HOLDS", 1)
    monkeypatch.setattr(holds, "MAX_VERSIONS", 1)
    story.settle()
    story.hold()
    story.hold()
    full = story.do(OTHER, TakeHold())
    assert isinstance(full, Refused) and full.reason is Reason.FULL
    assert story.version(1) == Done() == story.version(1)
    full = story.version(0)
    assert isinstance(full, Refused) and full.reason is Reason.FULL
    assert stored_holds.MAX_HOLDS == 1_000


@promise("M1", "M5")
def test_replay_checkpoint_and_copy_are_equal(story: Story) -> None:
    """The same records give the same bytes, from the beginning, from a checkpoint, and at any cut."""
    for i in range(4):
        story.settle()
        story.pass_time()
        story.hold(GATEWAY + i % 2)
    story.version(2)
    story.version(1, OTHER)
    story.version(1)
    story.merge(1, 2, 3)
    story.pass_time()
    story.move(story.now)
    story.do(GATEWAY, ReleaseVersions([(TOPIC, 2)]))
    story.do(COMPACTOR, Fence(OTHER))
    image, records = story.state.image(), story.scribe.records
    for cut in range(len(records) + 1):
        replica = StreamsState(Domain(1))
        for at, data in enumerate(records):
            if at == cut:
                restored = StreamsState(Domain(1))
                restored.restore(replica.image())
                assert restored.image() == replica.image()
                replica = restored
            replica.apply(Position(at + 1), decode(data))
        assert replica.image() == image and replica.digest == story.state.digest
    assert [(epoch, hold.since_ms, list(hold.versions)) for epoch, hold in story.state.held] == [
        (GATEWAY, story.now, [(TOPIC, 1)])
    ]


@promise("Q2")
def test_what_a_hold_would_let_go(story: Story) -> None:
    """Dead objects, removed files and dropped tables, in the time over which it moves."""
    between = story.state.removed_between
    assert not between(0, story.now + 1)
    story.settle()
    at = story.now
    assert between(at, at + 1) and not between(at, at) and not between(at + 1, at + 9) and not between(0, at)
    story.settle()
    for name, _ in list(story.state.objects.dead()):
        story.state.objects.forget(name)
    assert not between(0, at + 1), "settling removes no files"
    story.pass_time(10)
    story.merge(1, 2)
    at = story.now
    assert between(at, at + 1) and not between(at + 1, at + 9) and not between(0, at)
    table = story.state.tables[TOPIC]
    del table.journal[:-1]
    assert between(at - 5, at) and not between(at + 1, at + 9), "the journal does not reach back"
    story.pass_time(10)
    story.do(WRITER, DropStreams((STREAM,)))
    assert between(story.now, story.now + 1) and not between(story.now + 1, story.now + 2)
