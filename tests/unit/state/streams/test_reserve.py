"""What `apply` makes of reservations, of what fills them, and of those that nobody fills."""

import uuid

import pytest

from headwater.state.commands.base import Fence, TakeLease, Tick
from headwater.state.commands.streams import DropStreams, TrimStreams
from headwater.state.commands.tables import Fill, Merge, NewFile, Release, Reserve, SegmentRun, Settle, WantSettled
from headwater.state.records import decode
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams import reserve as reserving
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.types import Domain, Position
from tests.support.promise import promise
from tests.support.scribe import START_MS, TOPIC, Scribe

PROMISES = ("L8",)

A, B = 1, 2
ROOT = "tables/t-7"
LIMIT = 60_000
LOADER = 5
"""The epoch that appends in bulk."""


class Story:
    """A state with two streams of one topic, and whoever appends in bulk."""

    def __init__(self) -> None:
        self.scribe = Scribe(StreamsState(Domain(1)))
        self.scribe.streams(A, B)
        self.woken: list[int] = []
        self.state.on_append = self.woken.append
        self.files = 0

    @property
    def state(self) -> StreamsState:
        assert isinstance(self.scribe.state, StreamsState)
        return self.scribe.state

    def stream(self, name: int = A) -> Stream:
        return self.state.streams[name]

    def append(self, count: int, stream: int = A, timestamp: int = 5) -> int:
        return self.scribe.append(1, stream, [(100, count, timestamp)]).first_offset

    def reserve(self, *parts: tuple[int, int], limit_ms: int = LIMIT, clock_ms: int = START_MS) -> int:
        result = self.scribe.do(LOADER, Reserve(TOPIC, list(parts), limit_ms), clock_ms)
        assert isinstance(result, Done), result
        return result.value

    def file(self, rows: int, groups: int = 4, size: int = 1_000, newest: int = 90) -> NewFile:
        self.files += 1
        return NewFile(f"_data/{self.files}.parquet", size, rows, groups, 0, 1, 0, 99, 1, newest, 0, 7)

    def fill(
        self,
        number: int,
        *runs: SegmentRun,
        files: list[NewFile] | None = None,
        newest: list[int] | None = None,
        epoch: int = LOADER,
        clock_ms: int = START_MS,
        root: str = ROOT,
    ) -> Result:
        made = [self.file(sum(r.end - r.start for r in runs))] if files is None else files
        times = [50] * len(runs) if newest is None else newest
        return self.scribe.do(epoch, Fill(number, root, made, list(runs), times), clock_ms)

    def settle(self, *runs: SegmentRun) -> Result:
        lease = self.scribe.do(9, TakeLease(COMPACTION, 1_000))
        assert isinstance(lease, Done)
        rows = sum(r.end - r.start for r in runs)
        return self.scribe.do(9, Settle(lease.value, TOPIC, ROOT, [self.file(rows)], list(runs)))

    def shape(self, stream: int = A) -> list[tuple[int, int, str]]:
        """(start, end, what lies there)"""
        kinds = []
        for e in self.stream(stream).index:
            what = f"file {e.file}" if e.file else f"reserved {e.reservation}" if e.reservation else "wal"
            kinds.append((e.start, e.end, "gap" if e.settled and not e.file else what))
        return kinds

    def heads(self, stream: int = A) -> tuple[int, int, int]:
        """(settled, end, next offset)"""
        found = self.stream(stream)
        return found.settled, found.end, found.next_offset


@pytest.fixture
def story() -> Story:
    return Story()


def run(start: int, end: int, file: int = 0, first: int = 0, groups: int = 1, stream: int = A) -> SegmentRun:
    return SegmentRun(stream, start, end, file, first, groups)


# --- reserving -------------------------------------------------------------------------------------------


@promise("L8")
def test_appends_go_on_behind_a_reservation_and_readers_stop_before_it(story: Story) -> None:
    story.append(3, timestamp=70)
    before = story.stream().bytes_from(0)
    assert story.reserve((A, 10), (B, 4)) == 1
    assert story.heads() == (0, 3, 13)
    assert story.append(2, timestamp=900) == 13
    assert story.heads() == (0, 3, 15)
    assert story.heads(B) == (0, 0, 4)
    assert story.shape() == [(0, 3, "wal"), (3, 13, "reserved 1"), (13, 15, "wal")]
    assert (story.stream().max_timestamp, story.stream().bytes_from(0)) == (70, before)
    assert story.stream(B).bytes_from(0) == 0
    assert story.state.reservations[1].parts == ((A, 3, 13), (B, 0, 4))


@promise("L8")
@pytest.mark.parametrize(
    ("parts", "limit_ms", "reason"),
    [
        ([], LIMIT, Reason.INVALID),
        ([(A, 0)], LIMIT, Reason.INVALID),
        ([(A, -1)], LIMIT, Reason.INVALID),
        ([(A, 1), (A, 1)], LIMIT, Reason.INVALID),
        ([(A, reserving.MAX_ROWS), (B, 1)], LIMIT, Reason.INVALID),
        ([(A, 1)], 0, Reason.INVALID),
        ([(A, 1)], reserving.MAX_LIMIT_MS + 1, Reason.INVALID),
        ([(A, 1), (99, 1)], LIMIT, Reason.UNKNOWN),
    ],
)
def test_reservations_that_cannot_be_made(
    story: Story, parts: list[tuple[int, int]], limit_ms: int, reason: Reason
) -> None:
    """Nothing changes, neither of the streams that could have been reserved."""
    result = story.scribe.do(LOADER, Reserve(TOPIC, parts, limit_ms))
    assert isinstance(result, Refused)
    assert result.reason is reason
    assert (story.heads(), story.state.reservations, story.state.last_reservation) == ((0, 0, 0), {}, 0)


@promise("L8")
def test_streams_of_another_topic(story: Story) -> None:
    result = story.scribe.do(LOADER, Reserve(uuid.UUID(int=8), [(A, 1)], LIMIT))
    assert isinstance(result, Refused)
    assert result.reason is Reason.UNKNOWN


@promise("L8")
def test_there_is_a_limit_for_a_stream(story: Story) -> None:
    for _ in range(reserving.MAX_PER_STREAM):
        story.reserve((A, 1))
    result = story.scribe.do(LOADER, Reserve(TOPIC, [(B, 1), (A, 1)], LIMIT))
    assert isinstance(result, Refused)
    assert result.reason is Reason.LEASED
    assert story.heads(B) == (0, 0, 0)
    story.reserve((B, 1))


@promise("L8")
def test_there_is_a_limit_in_all(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserving, "MAX_RESERVATIONS", 3)
    for name in (A, B, A):
        story.reserve((name, 1))
    assert isinstance(story.scribe.do(LOADER, Reserve(TOPIC, [(B, 1)], LIMIT)), Refused)
    story.scribe.do(LOADER, Release(1))
    story.reserve((B, 1))


# --- filling ---------------------------------------------------------------------------------------------


@promise("L8")
def test_filling(story: Story) -> None:
    """Files and entries come in one command; sizes and times behind them are right; readers are woken."""
    story.append(3, timestamp=70)
    number = story.reserve((A, 10), (B, 4))
    story.append(2, timestamp=20)
    story.woken.clear()
    first = run(3, 8, groups=2)
    result = story.fill(number, first, run(8, 13, first=2), run(0, 4, first=3, stream=B), newest=[60, 90, 80])
    assert result == Done(1)
    assert story.shape() == [(0, 3, "wal"), (3, 8, "file 1"), (8, 13, "file 1"), (13, 15, "wal")]
    assert story.heads() == (0, 15, 15)
    assert story.heads(B) == (4, 4, 4)
    assert story.woken == [A, B]
    entries = list(story.stream().index)
    assert [e.length for e in entries] == [104, 357, 357, 104]  # a thousand bytes over 14 rows
    assert [e.cumulative_size for e in entries] == [104, 461, 818, 922]
    assert story.stream().size == 922
    assert [e.running_max_timestamp for e in entries] == [70, 70, 90, 90]
    table = story.state.tables[TOPIC]
    assert (table.files[1].references, table.files[1].rows) == (3, 14)
    assert table.journal[0].ends == ((1, 4),)  # only what is settled from the start on
    assert story.state.reservations == {}
    assert story.append(1) == 15
    assert story.stream().index[-1].cumulative_size == 922 + 104


@promise("L8")
def test_a_second_reservation_keeps_readers_waiting(story: Story) -> None:
    """They may be filled in any order, and readers go on in the order of offsets."""
    one, two = story.reserve((A, 5)), story.reserve((A, 5))
    assert story.fill(two, run(5, 10)) == Done(1)
    assert story.heads() == (0, 0, 10)
    assert story.fill(one, run(0, 5)) == Done(2)
    assert story.heads() == (10, 10, 10)
    assert story.shape() == [(0, 5, "file 2"), (5, 10, "file 1")]
    assert [entry.ends for entry in story.state.tables[TOPIC].journal] == [(), ((0, 10),)]


@promise("L8", "T10")
def test_the_journal_tells_how_far_the_table_is_whole(story: Story) -> None:
    """Also where a gap joins rows to it that were there before."""
    one, two = story.reserve((A, 5)), story.reserve((A, 5))
    story.fill(two, run(5, 10))
    story.scribe.do(LOADER, Release(one))
    assert story.heads() == (10, 10, 10)
    assert [(e.added, e.ends) for e in story.state.tables[TOPIC].journal] == [((1,), ()), ((), ((0, 10),))]
    story.scribe.do(LOADER, Release(story.reserve((A, 1))))
    assert story.state.tables[TOPIC].last_sequence == 2  # no rows, no version


@promise("L8")
@pytest.mark.parametrize(
    ("runs", "newest"),
    [
        ([], None),
        ([run(3, 12)], None),  # not up to its end
        ([run(3, 14)], None),
        ([run(4, 13)], None),  # not from its start
        ([run(3, 8), run(9, 13)], None),  # a hole
        ([run(3, 13, groups=5)], None),  # no such row groups
        ([run(3, 13, groups=0)], None),
        ([run(3, 13, file=1)], None),  # no such file
        ([run(3, 13, file=-1)], None),  # nowhere
        ([run(0, 10, stream=B)], None),  # another stream
        ([run(3, 13), run(0, 1, stream=B)], None),
        ([run(3, 13, stream=99)], None),
        ([run(3, 13)], []),
        ([run(3, 13)], [91]),  # later than anything in the file
        ([run(3, 13)], [-2]),
    ],
)
def test_what_does_not_fit_changes_nothing(story: Story, runs: list[SegmentRun], newest: list[int] | None) -> None:
    story.append(3)
    number = story.reserve((A, 10))
    before = story.shape()
    result = story.fill(number, *runs, newest=newest)
    assert isinstance(result, Refused), result
    assert result.reason is Reason.INVALID
    assert (story.shape(), story.heads(), story.state.last_file) == (before, (0, 3, 13), 0)
    assert story.state.tables == {}
    assert story.fill(number, run(3, 13)) == Done(1)


@promise("L8")
def test_rows_files_and_place_must_fit(story: Story) -> None:
    """As many rows as offsets, no file without offsets, no file of nothing, and where the table lies."""
    one, two = story.reserve((A, 2)), story.reserve((A, 2))
    whole = run(0, 2)
    for files in ([story.file(1)], [story.file(3)], [story.file(2), story.file(2)], [story.file(0)], []):
        assert isinstance(story.fill(one, whole, files=files), Refused)
    assert isinstance(story.fill(one, whole, files=[story.file(2, size=1 << 40)]), Refused)
    assert isinstance(story.fill(one, whole, root=""), Refused)
    assert story.fill(one, whole) == Done(1)
    assert isinstance(story.fill(two, run(2, 4), root="tables/elsewhere"), Refused)
    assert story.fill(two, run(2, 4)) == Done(2)


@promise("L8")
def test_only_who_reserved_may_fill(story: Story) -> None:
    """Not another epoch, not after a fence, not twice, and not what nobody reserved."""
    number = story.reserve((A, 2))
    for epoch, wanted, reason in ((6, number, Reason.STALE), (LOADER, number + 1, Reason.UNKNOWN)):
        result = story.fill(wanted, run(0, 2), epoch=epoch)
        assert isinstance(result, Refused)
        assert result.reason is reason
    assert story.fill(number, run(0, 2)) == Done(1)
    again = story.fill(number, run(0, 2))
    assert isinstance(again, Refused)
    assert again.reason is Reason.UNKNOWN


@promise("L8")
def test_a_fence_closes_what_its_epoch_reserved(story: Story) -> None:
    """Nobody can fill it any more, so readers need not wait until it expires."""
    kept = story.scribe.do(6, Reserve(TOPIC, [(B, 2)], LIMIT))
    assert isinstance(kept, Done)
    number = story.reserve((A, 2), (B, 3))
    story.woken.clear()
    story.scribe.do(1, Fence(LOADER))
    result = story.fill(number, run(0, 2), run(2, 5, first=1, stream=B))
    assert isinstance(result, Refused)
    assert result.reason is Reason.FENCED
    assert story.shape() == [(0, 2, "gap")]
    assert story.shape(B) == [(0, 2, "reserved 1"), (2, 5, "gap")]
    assert (story.heads(), story.heads(B)) == ((2, 2, 2), (0, 0, 5))
    assert story.woken == [A, B]


# --- time limits -------------------------------------------------------------------------------------------


@promise("L8")
def test_one_that_has_expired(story: Story) -> None:
    """By the ledger's time. It cannot be filled, and anybody may release it."""
    number = story.reserve((A, 2))
    early = story.scribe.do(1, Release(number), START_MS + LIMIT - 1)
    assert isinstance(early, Refused)
    assert early.reason is Reason.LEASED
    late = story.fill(number, run(0, 2), clock_ms=START_MS + LIMIT)
    assert isinstance(late, Refused)
    assert late.reason is Reason.STALE
    assert story.shape() == [(0, 2, "reserved 1")]
    assert story.scribe.do(1, Release(number)) == Done()
    assert story.shape() == [(0, 2, "gap")]
    assert story.heads() == (2, 2, 2)
    gone = story.scribe.do(1, Release(number))
    assert isinstance(gone, Refused)
    assert gone.reason is Reason.UNKNOWN


@promise("L8")
def test_who_reserved_may_give_up(story: Story) -> None:
    """The offsets stay empty for ever, and what was appended behind them can be read."""
    story.append(3)
    number = story.reserve((A, 10))
    story.append(2)
    story.woken.clear()
    assert story.scribe.do(LOADER, Release(number)) == Done()
    assert story.shape() == [(0, 3, "wal"), (3, 13, "gap"), (13, 15, "wal")]
    assert story.heads() == (0, 15, 15)
    assert story.woken == [A]
    assert story.state.tables == {}


# --- trims, drops, settles ---------------------------------------------------------------------------------


@promise("L8", "L6")
def test_a_trim_stops_before_an_open_reservation(story: Story) -> None:
    story.append(3)
    number = story.reserve((A, 10))
    story.append(2)
    for start, moved in ((4, 0), (14, 0), (3, 1)):
        assert story.scribe.do(1, TrimStreams([(A, start)])) == Done(moved)
    assert story.shape()[0] == (3, 13, "reserved 1")
    assert story.fill(number, run(3, 13)) == Done(1)
    assert story.heads() == (13, 15, 15)
    assert story.scribe.do(1, TrimStreams([(A, 14)])) == Done(1)
    assert story.state.tables[TOPIC].files[1].references == 0


@promise("L8", "L6")
def test_a_trim_into_a_segment_that_lies_ahead(story: Story) -> None:
    """What is settled reaches to the end of the segment then."""
    story.append(3)
    number = story.reserve((A, 10))
    story.append(2)
    story.fill(number, run(3, 13))
    assert story.scribe.do(1, TrimStreams([(A, 7)])) == Done(1)
    assert story.shape() == [(3, 13, "file 1"), (13, 15, "wal")]
    assert story.heads() == (13, 15, 15)
    assert [entry.ends for entry in story.state.tables[TOPIC].journal] == [(), ((0, 13),)]


@promise("L8")
def test_a_dropped_stream_takes_its_reservations_along(story: Story) -> None:
    """Those of other streams of the same reservation too; it is refused afterwards."""
    number = story.reserve((A, 2), (B, 3))
    story.append(1, B)
    story.scribe.do(1, DropStreams((A,)))
    assert story.state.reservations == {}
    assert story.shape(B) == [(0, 3, "gap"), (3, 4, "wal")]
    assert isinstance(story.fill(number, run(0, 3, stream=B)), Refused)


@promise("L8")
def test_nothing_goes_into_a_dropped_table(story: Story) -> None:
    story.fill(story.reserve((A, 2)), run(0, 2))
    number = story.reserve((B, 2))
    story.scribe.do(1, DropStreams((A,)))
    for result in (
        story.fill(number, run(0, 2, stream=B)),
        story.scribe.do(LOADER, Reserve(TOPIC, [(B, 1)], LIMIT)),
    ):
        assert isinstance(result, Refused)
        assert result.reason is Reason.UNKNOWN


@promise("L8", "T1")
def test_settling_goes_over_what_is_settled_already(story: Story) -> None:
    """WAL before an open reservation settles; a filled one is gone over, and never settled again."""
    story.append(3)
    number = story.reserve((A, 10))
    story.append(2)
    assert isinstance(story.settle(run(0, 13)), Refused)  # nobody knows yet what will lie there
    assert isinstance(story.settle(run(13, 15)), Refused)  # not from the settled end on
    assert story.fill(number, run(3, 13)) == Done(1)
    assert story.heads()[0] == 0
    assert isinstance(story.settle(run(0, 13)), Refused)
    assert isinstance(story.settle(run(3, 13)), Refused)
    assert story.settle(run(0, 3)) == Done(2)
    assert story.state.tables[TOPIC].journal[-1].ends == ((0, 13),)
    assert story.heads()[0] == 13
    assert story.settle(run(13, 15)) == Done(3)
    assert story.heads() == (15, 15, 15)
    assert story.shape() == [(0, 3, "file 2"), (3, 13, "file 1"), (13, 15, "file 3")]


@promise("L8", "T1")
def test_wal_before_an_open_reservation_settles_up_to_it(story: Story) -> None:
    """And the reservation, once it is closed, moves what is settled on."""
    story.append(3)
    number = story.reserve((A, 10))
    assert story.settle(run(0, 3)) == Done(1)
    assert story.heads() == (3, 3, 13)
    story.scribe.do(LOADER, Release(number))
    assert story.heads() == (13, 13, 13)


@promise("L8", "T10")
def test_who_waits_for_a_table_waits_for_all_of_it(story: Story) -> None:
    """A settle that meets a segment on its way leaves the topic wanted, until the WAL behind it is done."""
    story.append(3)
    story.fill(story.reserve((A, 10)), run(3, 13))
    story.append(2)
    assert story.scribe.do(1, WantSettled(TOPIC)) == Done(1)
    story.settle(run(0, 3))
    assert TOPIC in story.state.wanted
    story.settle(run(13, 15))
    assert TOPIC not in story.state.wanted
    story.reserve((A, 1))
    story.append(1)
    assert story.scribe.do(1, WantSettled(TOPIC)) == Done(0)  # nothing that could be settled now


@promise("L8", "T5")
def test_segments_and_gaps_merge(story: Story) -> None:
    """A merge goes over gaps, and not over what is open."""
    story.fill(story.reserve((A, 2)), run(0, 2))
    story.scribe.do(LOADER, Release(story.reserve((A, 5))))
    story.fill(story.reserve((A, 3)), run(7, 10))
    lease = story.scribe.do(9, TakeLease(COMPACTION, 1_000))
    assert isinstance(lease, Done)
    size = story.stream().size
    merged = Merge(lease.value, TOPIC, [1, 2], [story.file(5)], [run(0, 10, groups=2)])
    assert story.scribe.do(9, merged) == Done(3)
    assert (story.shape(), story.stream().size) == ([(0, 10, "file 3")], size)


# --- checkpoints --------------------------------------------------------------------------------------------


@promise("M1", "L8")
def test_a_checkpoint_holds_reservations(story: Story) -> None:
    """A state restored from its image goes on as the one it was taken of."""
    story.append(3)
    one = story.reserve((A, 10), (B, 4))
    story.append(2)
    story.reserve((A, 1))
    image = story.state.image()
    other = StreamsState(Domain(1))
    other.restore(image)
    assert other.image() == image
    assert (other.streams[A].open, other.streams[A].end, other.last_reservation) == ((3, 15), 3, 2)
    records = len(story.scribe.records)
    story.fill(one, run(3, 13), run(0, 4, first=1, stream=B))
    story.scribe.do(1, Tick(), START_MS + 2 * LIMIT)
    story.scribe.do(1, Release(2))
    for data in story.scribe.records[records:]:
        other.apply(Position(other.position + 1), decode(data))
    assert other.image() == story.state.image()
    assert other.digest == story.state.digest
