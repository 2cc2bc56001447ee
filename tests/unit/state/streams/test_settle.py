"""What `apply` makes of settles, merges and followers."""

import uuid

import pytest

from headwater.state.commands.base import Fence, TakeLease, Tick
from headwater.state.commands.streams import DropStreams, TrimStreams
from headwater.state.commands.tables import (
    Expired,
    Follow,
    ForgetFiles,
    Merge,
    NewFile,
    Pin,
    Retire,
    SegmentRun,
    Settle,
    Unfollow,
    WantExpired,
)
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import JOURNAL_KEPT, ExpiryRequest
from headwater.types import Domain, WalId
from tests.support.promise import promise
from tests.support.scribe import START_MS, TOPIC, Scribe

PROMISES = ("T1", "L3")

A, B = 1, 2
ROOT = "tables/t-7"


class Story:
    """A state with two streams, and a compactor that holds the lease as epoch 9."""

    def __init__(self) -> None:
        self.scribe = Scribe(StreamsState(Domain(1)))
        self.scribe.streams(A, B)
        self.lease = self.take_lease(9)
        self.files = 0

    @property
    def state(self) -> StreamsState:
        assert isinstance(self.scribe.state, StreamsState)
        return self.scribe.state

    def stream(self, name: int = A) -> Stream:
        return self.state.streams[name]

    def take_lease(self, epoch: int, clock_ms: int = START_MS) -> int:
        result = self.scribe.do(epoch, TakeLease(COMPACTION, 1_000), clock_ms)
        assert isinstance(result, Done), result
        return result.value

    def append(self, stream: int, *offsets: int, timestamp: int = 5) -> None:
        """One object and index entry for each number of offsets."""
        for count in offsets:
            self.scribe.append(1, stream, [(100, count, timestamp)])

    def file(self, rows: int = 1, groups: int = 4) -> NewFile:
        self.files += 1
        return NewFile(f"_data/{self.files}.parquet", 1_000, rows, groups, 0, 1, 0, 99, 1, 9, 0, 7)

    def settle(
        self, *runs: SegmentRun, files: int = 1, epoch: int = 9, lease: int | None = None, rows: int = 1
    ) -> Result:
        made = [self.file(rows) for _ in range(files)]
        command = Settle(self.lease if lease is None else lease, TOPIC, ROOT, made, list(runs))
        return self.scribe.do(epoch, command)

    def merge(self, removed: list[int], *runs: SegmentRun, rows: int, files: int = 1) -> Result:
        return self.scribe.do(9, Merge(self.lease, TOPIC, removed, [self.file(rows) for _ in range(files)], list(runs)))

    def follow(self, cursor: int, oldest: int, name: str = "delta", expected: str = "", location: str = "") -> Result:
        return self.scribe.do(9, Follow(self.lease, TOPIC, name, expected, location, cursor, oldest))

    def shape(self, stream: int = A) -> list[tuple[int, int, int]]:
        return [(e.start, e.end, e.file) for e in self.stream(stream).index]


@pytest.fixture
def story() -> Story:
    return Story()


def run(start: int, end: int, file: int = 0, first: int = 0, groups: int = 1, stream: int = A) -> SegmentRun:
    return SegmentRun(stream, start, end, file, first, groups)


@promise("T1")
def test_entries_are_swapped_and_the_journal_grows(story: Story) -> None:
    """One command swaps the entries of several streams and enters the files."""
    story.append(A, 3, 4, 5, timestamp=50)
    story.append(B, 2, timestamp=70)
    size = story.stream().size
    assert story.settle(run(0, 7, groups=2), run(0, 2, first=2, stream=B), rows=9) == Done(1)
    assert story.shape() == [(0, 7, 1), (7, 12, 0)]
    assert story.shape(B) == [(0, 2, 1)]
    entry = story.stream().index[0]
    assert (entry.settled, entry.groups, entry.length, entry.cumulative_size) == (True, range(2), 208, 208)
    assert (entry.max_timestamp, entry.running_max_timestamp) == (50, 50)
    assert (story.stream().settled, story.stream(B).settled, story.stream().size) == (7, 2, size)
    table = story.state.tables[TOPIC]
    assert [f.name for f in table.live()] == ["_data/1.parquet"]
    assert (table.files[1].references, table.files[1].rows, table.files[1].added) == (2, 9, 1)
    assert table.journal[0].ends == ((0, 7), (1, 2))
    assert story.settle(run(7, 12)) == Done(2)
    assert story.shape() == [(0, 7, 1), (7, 12, 2)]


@promise("L3")
def test_the_wal_that_was_replaced_can_go(story: Story) -> None:
    """The objects of swapped entries lose their references, and nobody else's do."""
    story.append(A, 3, 4)
    story.settle(run(0, 3))
    assert [object_id for object_id, _ in story.state.objects.dead()] == [WalId(1, 1)]


@promise("T1")
def test_a_gap_needs_no_file(story: Story) -> None:
    """Offsets that hold no record any more become an entry without a file."""
    story.append(A, 3, 4)
    assert story.settle(run(0, 3, file=-1, groups=0), files=0) == Done(1)
    entry = story.stream().index[0]
    assert (entry.settled, entry.file, entry.start, entry.end) == (True, 0, 0, 3)
    assert story.settle(run(3, 7)) == Done(2)


@promise("T1")
@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ([run(0, 2)], Reason.STALE),  # no entry ends there
        ([run(0, 8)], Reason.STALE),  # beyond the end
        ([run(3, 7)], Reason.STALE),  # not where the settled part ends
        ([run(0, 3), run(4, 7)], Reason.INVALID),  # a hole
        ([run(0, 3, groups=5)], Reason.INVALID),  # no such row groups
        ([run(0, 3, groups=0)], Reason.INVALID),
        ([run(0, 3, file=1)], Reason.INVALID),  # no such file
        ([run(0, 3, file=-1)], Reason.INVALID),  # a file that nothing lies in
        ([run(0, 3, stream=99)], Reason.UNKNOWN),
        ([], Reason.INVALID),
    ],
)
def test_what_does_not_fit_changes_nothing(story: Story, runs: list[SegmentRun], reason: Reason) -> None:
    story.append(A, 3, 4)
    before = story.state.image()
    result = story.settle(*runs)
    assert isinstance(result, Refused), result
    assert result.reason is reason
    assert not story.state.tables
    assert story.shape() == [(0, 3, 0), (3, 7, 0)]
    assert len(before) == len(story.state.image())  # only counters and the position moved


@promise("T1")
def test_a_settle_happens_once(story: Story) -> None:
    """What two compactors planned alike is taken from one of them."""
    story.append(A, 3)
    assert story.settle(run(0, 3)) == Done(1)
    again = story.settle(run(0, 3))
    assert isinstance(again, Refused)
    assert again.reason is Reason.STALE
    assert story.state.tables[TOPIC].last_sequence == 1


@promise("T1")
def test_stale_compactors_are_refused(story: Story) -> None:
    """Whoever lost the lease, or was fenced, changes nothing."""
    story.append(A, 3)
    old = story.lease
    story.lease = story.take_lease(10, clock_ms=START_MS + 5_000)
    for epoch, lease in ((9, old), (9, story.lease), (10, old)):
        result = story.settle(run(0, 3), epoch=epoch, lease=lease)
        assert isinstance(result, Refused)
        assert result.reason is Reason.STALE
    story.scribe.do(1, Fence(10))
    result = story.settle(run(0, 3), epoch=10)
    assert isinstance(result, Refused)
    assert result.reason is Reason.FENCED
    assert story.shape() == [(0, 3, 0)]


@promise("T1", "L6")
def test_a_trim_between_plan_and_settle(story: Story) -> None:
    """What was deleted meanwhile does not come back; the rest can be planned anew."""
    story.append(A, 3, 4)
    story.scribe.do(1, TrimStreams([(A, 5)]))
    assert story.stream().settled == 5
    assert isinstance(story.settle(run(0, 7)), Refused)
    assert story.settle(run(5, 7)) == Done(1)
    assert story.shape() == [(5, 7, 1)]


@promise("L6")
def test_a_trim_past_segments(story: Story) -> None:
    """The log forgets its entries; the table keeps its rows."""
    story.append(A, 3, 4)
    story.settle(run(0, 3))
    story.settle(run(3, 7))
    story.scribe.do(1, TrimStreams([(A, 3)]))
    assert story.shape() == [(3, 7, 2)]
    table = story.state.tables[TOPIC]
    assert [(f.number, f.references) for f in table.live()] == [(1, 0), (2, 1)]


@promise("T5")
def test_merging(story: Story) -> None:
    """Small files become one; rows, offsets and sizes stay, and the old files wait for the followers."""
    story.append(A, 3, 4, 5)
    story.append(B, 2)
    story.settle(run(0, 3), run(0, 2, first=1, stream=B), rows=5)
    story.settle(run(3, 7), rows=4)
    story.settle(run(7, 12), rows=5)
    result = story.merge([1, 2], run(0, 7, groups=2), run(0, 2, first=2, stream=B), rows=9)
    assert result == Done(4)
    assert story.shape() == [(0, 7, 4), (7, 12, 3)]
    table = story.state.tables[TOPIC]
    assert sorted(f.number for f in table.live()) == [3, 4]
    assert (table.journal[-1].replaces, table.journal[-1].removed, table.journal[-1].ends) == (True, (1, 2), ())
    assert story.stream().index[0].cumulative_size == 208


@promise("T5")
def test_merges_that_do_not_fit(story: Story) -> None:
    """A merge that would lose rows or leave an entry behind is refused, and so is one that comes late."""
    story.append(A, 3, 4)
    story.append(B, 2)
    story.settle(run(0, 3), run(0, 2, first=1, stream=B), rows=5)
    story.settle(run(3, 7), rows=4)
    merged = run(0, 7, groups=2)
    whole = (merged, run(0, 2, first=2, stream=B))
    assert isinstance(story.merge([1, 2], merged, rows=9), Refused)  # stream B would be left behind
    assert isinstance(story.merge([1, 2], *whole, rows=8), Refused)  # a row would be lost
    assert isinstance(story.merge([1], *whole, rows=5), Refused)  # an entry lies in another file
    assert isinstance(story.merge([1, 7], *whole, rows=9), Refused)  # no such file
    assert isinstance(story.merge([], *whole, rows=9), Refused)
    assert story.state.tables[TOPIC].last_sequence == 2
    assert story.merge([1, 2], *whole, rows=9) == Done(3)
    assert isinstance(story.merge([1, 2], *whole, rows=9), Refused)


@promise("L3", "T5")
def test_files_go_when_no_follower_shows_them(story: Story) -> None:
    """A removed file stays as long as a retained version of some follower needs it."""
    story.append(A, 3, 4)
    story.settle(run(0, 3), rows=3)
    story.settle(run(3, 7), rows=4)
    assert story.follow(2, 1) == Done()
    assert story.follow(2, 2, "iceberg", location="one") == Done()
    story.merge([1, 2], run(0, 7), rows=7)
    forget = ForgetFiles(story.lease, TOPIC, [1, 2, 3])
    table = story.state.tables[TOPIC]
    assert story.scribe.do(9, forget) == Done(0)
    assert story.follow(3, 3) == Done()
    assert story.follow(3, 2, "iceberg", "one", "two") == Done()
    assert table.ripe() == []
    assert story.follow(3, 3, "iceberg", "two", "three") == Done()
    assert [f.number for f in table.ripe()] == [1, 2]
    assert story.scribe.do(9, forget) == Done(2)
    assert list(table.files) == [3]


@promise("T2", "T9")
def test_followers_move_by_compare_and_set(story: Story) -> None:
    """A pointer moves only from where it is, a cursor only forward and never past the journal."""
    story.append(A, 3, 4)
    story.settle(run(0, 3))
    assert story.follow(1, 1, "iceberg", location="one") == Done()
    for wrong in (
        story.follow(1, 1, "iceberg", location="two"),
        story.follow(0, 0, "iceberg", "one", "two"),
        story.follow(2, 1, "iceberg", "one", "two"),
        story.follow(1, 2, "iceberg", "one", "two"),
        story.scribe.do(9, Follow(story.lease + 1, TOPIC, "iceberg", "one", "two", 1, 1)),
        story.scribe.do(9, Follow(story.lease, uuid.UUID(int=8), "iceberg", "one", "two", 1, 1)),
    ):
        assert isinstance(wrong, Refused)
    assert story.state.tables[TOPIC].followers["iceberg"].location == "one"
    assert story.scribe.do(9, Unfollow(story.lease, TOPIC, "iceberg")) == Done()
    assert story.state.tables[TOPIC].followers == {}
    assert isinstance(story.scribe.do(9, Unfollow(story.lease, TOPIC, "iceberg")), Refused)


@promise("L3")
def test_a_deleted_topic_takes_its_table_along(story: Story) -> None:
    """Files of a dropped table may all go, then the table itself; nothing is settled into it any more."""
    story.append(A, 3)
    story.append(B, 2)
    story.settle(run(0, 3), rows=3)
    story.scribe.do(1, DropStreams((A,)))
    assert isinstance(story.settle(run(0, 2, stream=B)), Refused)
    assert isinstance(story.follow(1, 1), Refused)
    story.scribe.do(1, DropStreams((B,)))
    table = story.state.tables[TOPIC]
    assert [f.number for f in table.ripe()] == [1]
    assert story.scribe.do(9, ForgetFiles(story.lease, TOPIC, [1])) == Done(1)
    assert not story.state.tables


@promise("Q2")
def test_removals_have_a_time(story: Story) -> None:
    """A reader that holds files by the ledger's time must know when each was removed, and a table dropped."""
    story.append(A, 3, 4)
    story.settle(run(0, 3), rows=3)
    story.settle(run(3, 7), rows=4)
    table = story.state.tables[TOPIC]
    assert [file.removed_ms for file in table.files.values()] == [0, 0]
    story.scribe.do(1, Tick(), START_MS + 5_000)
    story.merge([1, 2], run(0, 7), rows=7)
    assert {f.number: (f.removed, f.removed_ms) for f in table.files.values()} == {
        1: (3, START_MS + 5_000),
        2: (3, START_MS + 5_000),
        3: (0, 0),
    }
    story.scribe.do(1, Tick(), START_MS + 9_000)
    story.scribe.do(1, DropStreams((A,)))
    story.scribe.do(1, Tick(), START_MS + 12_000)
    story.scribe.do(1, DropStreams((B,)))
    assert (table.dropped, table.dropped_ms) == (True, START_MS + 9_000)
    other = StreamsState(Domain(1))
    other.restore(story.state.image())
    assert (other.tables[TOPIC].dropped_ms, other.tables[TOPIC].files[1].removed_ms) == (
        START_MS + 9_000,
        START_MS + 5_000,
    )


@promise("T15")
def test_the_journal_is_bounded(story: Story) -> None:
    """Entries that every follower has passed go, except for the newest; a slow follower keeps what it needs."""
    count = JOURNAL_KEPT + 20
    for i in range(count):
        story.append(A, 1)
        story.settle(run(i, i + 1))
    table = story.state.tables[TOPIC]
    assert len(table.journal) == JOURNAL_KEPT
    assert table.entries_after(5) is None
    assert [e.sequence for e in table.entries_after(count - 2) or []] == [count - 1, count]
    assert table.entries_after(count) == []
    story.follow(25, 25)
    for i in range(count, count + 30):
        story.append(A, 1)
        story.settle(run(i, i + 1))
    assert [e.sequence for e in (table.entries_after(25) or [])[:1]] == [26]
    story.follow(count + 30, 25)
    assert len(table.journal) == JOURNAL_KEPT


@promise("M1")
def test_a_checkpoint_holds_tables(story: Story) -> None:
    """A state restored from its image is the same state."""
    story.append(A, 3, 4)
    story.append(B, 2)
    story.settle(run(0, 3), run(0, 2, first=1, stream=B), rows=5)
    story.settle(run(3, 7), rows=4)
    story.merge([1, 2], run(0, 7), run(0, 2, first=1, stream=B), rows=9)
    story.follow(2, 1, "iceberg", location="here")
    image = story.state.image()
    other = StreamsState(Domain(1))
    other.restore(image)
    assert other.image() == image
    assert [(e.start, e.end, e.file) for e in other.streams[A].index] == story.shape()
    assert other.tables[TOPIC].followers["iceberg"].location == "here"


@promise("L6")
def test_retiring(story: Story) -> None:
    """Files leave the table with their rows; the log still names them, and keeps them until it forgets them."""
    story.append(A, 3, 4, 5)
    for start, end in ((0, 3), (3, 7), (7, 12)):
        story.settle(run(start, end), rows=end - start)
    story.follow(3, 1)
    assert story.scribe.do(9, Retire(story.lease, TOPIC, [2, 1])) == Done(4)
    table = story.state.tables[TOPIC]
    entry = table.journal[-1]
    assert (entry.operation, entry.added, entry.removed, entry.ends) == ("retire", (), (1, 2), ())
    assert [f.number for f in table.live()] == [3]
    assert story.shape() == [(0, 3, 1), (3, 7, 2), (7, 12, 3)]
    story.follow(4, 4)
    assert table.ripe() == []  # the log reads them
    story.scribe.do(1, TrimStreams([(A, 3)]))
    assert [f.number for f in table.ripe()] == [1]
    image = story.state.image()
    for wrong in ([], [1], [3, 2], [3, 9]):
        refused = story.scribe.do(9, Retire(story.lease, TOPIC, wrong))
        assert isinstance(refused, Refused)
        assert refused.reason is Reason.STALE
    assert isinstance(story.scribe.do(9, Retire(story.lease + 1, TOPIC, [3])), Refused)
    assert isinstance(story.scribe.do(9, Retire(story.lease, uuid.UUID(int=8), [3])), Refused)
    assert len(story.state.image()) == len(image)
    assert isinstance(story.merge([2, 3], run(3, 12, groups=2), rows=9), Refused)  # one of them is retired


@promise("T5", "L3")
def test_pinned_versions_keep_their_files(story: Story) -> None:
    """What a tag shows stays, what lies between tags goes; a pin that rests on another standing is refused."""
    for i in range(6):
        story.append(A, 1)
        story.settle(run(i, i + 1))
    for i in range(1, 6):  # file i leaves with sequence 6 + i
        story.scribe.do(9, Retire(story.lease, TOPIC, [i]))
    story.scribe.do(1, TrimStreams([(A, 6)]))
    table = story.state.tables[TOPIC]
    story.follow(11, 3, "iceberg", location="one")
    assert table.ripe() == []

    def pin(recent: int, *pinned: int, location: str = "one", cursor: int = 11, lease: int = 0) -> Result:
        command = Pin(lease or story.lease, TOPIC, "iceberg", location, cursor, recent, pinned)
        return story.scribe.do(9, command)

    for wrong in (
        pin(11, 3, location="two"),
        pin(11, 3, cursor=10),
        pin(11, 3, lease=story.lease + 1),
        pin(11, 5, 4),
        pin(11, 11),
        pin(12, 3),
    ):
        assert isinstance(wrong, Refused)
    assert pin(10, 3, 8) == Done()
    assert [f.number for f in table.ripe()] == []  # 3 shows files 1 to 3, 8 shows 3 to 5
    assert pin(11, 8) == Done()
    assert [f.number for f in table.ripe()] == [1, 2]
    assert pin(11) == Done()
    assert [f.number for f in table.ripe()] == [1, 2, 3, 4, 5]
    assert pin(11, 8) == Done()
    other = StreamsState(Domain(1))
    other.restore(story.state.image())
    assert other.tables[TOPIC].followers == table.followers
    story.follow(11, 8, "iceberg", "one", "two")
    assert (table.followers["iceberg"].recent, table.followers["iceberg"].pinned) == (11, (8,))


@promise("T5")
def test_wishes_for_expiry(story: Story) -> None:
    """A wish waits for every follower; a newer one takes in the older; nobody to do it, nothing to wait for."""

    def want(keep: int, before_ms: int = 0, topic: uuid.UUID = TOPIC) -> Result:
        return story.scribe.do(1, WantExpired(topic, keep, before_ms))

    def done(follower: str, request: int, lease: int = 0) -> Result:
        return story.scribe.do(9, Expired(lease or story.lease, TOPIC, follower, request))

    assert isinstance(want(1), Refused)
    story.append(A, 3)
    story.settle(run(0, 3))
    table = story.state.tables[TOPIC]
    assert want(1) == Done(1)
    assert table.expiry is None
    story.follow(1, 1)
    story.follow(1, 1, "iceberg", location="one")
    assert isinstance(want(-1), Refused)
    assert want(4) == Done(2)
    assert want(0, 70) == Done(3)
    assert want(9, 50) == Done(4)
    assert table.expiry == ExpiryRequest(4, 4, 70, ["delta", "iceberg"])
    assert isinstance(done("delta", 3), Refused)
    assert isinstance(done("delta", 4, story.lease + 1), Refused)
    assert done("delta", 4) == Done()
    assert table.expiry == ExpiryRequest(4, 4, 70, ["iceberg"])
    other = StreamsState(Domain(1))
    other.restore(story.state.image())
    assert other.tables[TOPIC].expiry == table.expiry
    story.scribe.do(9, Unfollow(story.lease, TOPIC, "iceberg"))
    assert table.expiry is None
    assert isinstance(done("iceberg", 4), Refused)
