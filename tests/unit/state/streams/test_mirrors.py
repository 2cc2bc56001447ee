"""Mirrors: only the link of the present generation appends to one, at the offsets of its source."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.state.commands.base import SetLevel, TakeLease
from headwater.state.commands.links import SetMirror, SkipStreams
from headwater.state.commands.streams import (
    AnyCondition,
    AppendUnits,
    Chunk,
    ConfigureStreams,
    DropStreams,
    EndIs,
    MirrorIs,
    Mode,
    Present,
    StartAt,
    StreamConfig,
    TrimStreams,
    Unit,
    UnitChunk,
)
from headwater.state.commands.tables import Reserve
from headwater.state.commands.transactions import EndTransaction, InitTransaction, JoinTransaction
from headwater.state.machine import LEVELS, LINKS_LEVEL
from headwater.state.records import decode
from headwater.state.results import (
    Appended,
    Done,
    Judgement,
    Placed,
    Reason,
    Refused,
    Result,
    Skipped,
    SkipVerdict,
    Transacted,
    UnitResult,
    UnitVerdict,
    Verdict,
)
from headwater.state.streams import mirrors
from headwater.state.streams.domain import COMPACTION, LAST_OFFSET, U32_MAX
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import NO_MIRROR, Mirror, Stream
from headwater.types import Domain, Position
from tests.support.promise import promise
from tests.support.scribe import FIRST_CHUNK, PREFIX, START_MS, TOPIC, Scribe

PROMISES = ("N1",)

A, B, MISSING = 1, 2, 99
LINK, BROKER = 1, 2
"""Epochs of the process that copies and of a broker."""
MIRRORED = Verdict.MIRRORED
SKIPPED, CONFLICT, NOT_MIRRORED = SkipVerdict.SKIPPED, SkipVerdict.CONFLICT, SkipVerdict.NOT_MIRRORED


class Story:
    """Two streams. The first one is a mirror under generation 3."""

    def __init__(self, level: int = LINKS_LEVEL) -> None:
        self.state = StreamsState(Domain(1))
        self.scribe = Scribe(self.state)
        self.scribe.do(LINK, SetLevel(level, LEVELS[level]))
        self.scribe.streams(A, B)
        self.woken: list[int] = []
        self.state.on_append = self.woken.append
        if level >= LINKS_LEVEL:
            assert self.set(3) == Done(1)

    def stream(self, name: int = A) -> Stream:
        return self.state.streams[name]

    def set(self, generation: int, *streams: int, mirrored: bool = True) -> Result:
        return self.scribe.do(LINK, SetMirror(streams or (A,), generation, mirrored))

    def units(self, *units: tuple[Sequence[AnyCondition], int, int], epoch: int = LINK) -> Result:
        """Append units: conditions, the stream and the number of its records."""
        made, position = [], FIRST_CHUNK
        for conditions, stream, count in units:
            made.append(Unit(list(conditions), [UnitChunk(stream, position, [(100, count, 5)], [], b"")]))
            position += 100 + PREFIX
        self.scribe.sequence += 1
        return self.scribe.do(epoch, AppendUnits(self.scribe.sequence, position + 4, START_MS, "z", made))

    def copy(self, start: int, count: int, generation: int = 3, end: int | None = None) -> UnitResult:
        """What a link does: append at the source's offset."""
        expected = self.stream().next_offset if end is None else end
        conditions = [EndIs(A, expected), StartAt(A, start), MirrorIs(A, generation)]
        result = self.units((conditions, A, count))
        assert isinstance(result, Appended) and result.units[0] is not None, result
        return result.units[0]

    def skip(self, *skips: tuple[int, int, int, int]) -> list[tuple[SkipVerdict, int]]:
        result = self.scribe.do(LINK, SkipStreams(list(skips)))
        assert isinstance(result, Skipped), result
        return result.gaps

    def check_restored(self) -> None:
        """A checkpoint, and a replay from the start, have the same bytes."""
        image = self.state.image()
        restored, again = StreamsState(Domain(1)), StreamsState(Domain(1))
        restored.restore(image)
        for position, record in enumerate(self.scribe.records, 1):
            again.apply(Position(position), decode(record))
        assert image == restored.image() == again.image()
        assert {n: s.mirror for n, s in restored.streams.items()} == {
            n: s.mirror for n, s in self.state.streams.items()
        }


# --- who may append ------------------------------------------------------------------------------------


@promise("N1")
def test_a_link_appends_at_the_offsets_of_its_source() -> None:
    """Gaps included; readers are woken; what is beside the mirror is not touched."""
    story = Story()
    assert story.copy(10, 3) == UnitResult(UnitVerdict.ACCEPTED, [], [], [Placed(A, 10, 3, -1)])
    assert (story.stream().next_offset, story.stream(B).next_offset) == (13, 0)
    assert story.woken == [A]
    assert story.copy(13, 1).placed == [Placed(A, 13, 1, -1)]
    assert [(e.start, e.end, e.gap) for e in story.stream().index] == [(0, 10, True), (10, 13, False), (13, 14, False)]
    story.check_restored()


@promise("N1")
def test_ordinary_batches_are_refused() -> None:
    """An append of a broker that does not know of the mirror changes nothing; other streams of it are accepted."""
    story = Story()
    before = story.stream().index.pack()
    command = story.scribe.wal(Chunk(A, FIRST_CHUNK, [(9, 1, 0), (9, 2, 0)], []), Chunk(B, 200, [(9, 1, 0)], []))
    result = story.scribe.do(BROKER, command)
    assert isinstance(result, Appended)
    assert result.chunks[0].verdicts == [(MIRRORED, -1)] * 2 and result.chunks[0].first_offset == -1
    assert result.chunks[1].verdicts is None
    assert (story.stream().index.pack(), story.stream().next_offset, story.woken) == (before, 0, [B])
    producers = story.scribe.append(BROKER, A, [(9, 1, 0)], [(7, 0, 0)])
    assert producers.verdicts == [(MIRRORED, -1)] and story.stream().producers is None
    story.check_restored()


@promise("N1")
def test_an_object_that_nothing_refers_to_is_not_entered() -> None:
    """All its batches were for a mirror."""
    story = Story()
    story.scribe.append(BROKER, A, [(9, 1, 0)])
    assert not len(story.state.objects)


@promise("N1")
@pytest.mark.parametrize("conditions", [[Present()], [EndIs(A, 0)], [StartAt(A, 4)], [MirrorIs(B, 3)]], ids=repr)
def test_units_of_others_are_refused(conditions: list[AnyCondition]) -> None:
    """A unit without `MirrorIs` for the stream, whatever else it has."""
    story = Story()
    result = story.units((conditions, A, 1))
    assert isinstance(result, Appended) and result.units[0] is not None
    assert result.units[0].verdict is UnitVerdict.MIRRORED
    assert story.stream().next_offset == 0 and not len(story.stream().index)


@promise("N1")
def test_plain_units_are_refused() -> None:
    """Batches without conditions, beside a unit of the link."""
    story = Story()
    result = story.units(((), A, 1), ([MirrorIs(A, 3)], A, 2), ((), A, 1))
    assert isinstance(result, Appended)
    assert [chunk.verdicts for chunk in result.chunks] == [[(MIRRORED, -1)], None, [(MIRRORED, -1)]]
    assert story.stream().next_offset == 2


@promise("N1")
@pytest.mark.parametrize("generation", [0, 2, 4])
def test_another_generation_is_refused(generation: int) -> None:
    """An earlier one, and one that the stream has not taken over yet. The present one is told."""
    story = Story()
    assert story.copy(0, 1, generation) == UnitResult(UnitVerdict.CONFLICT, [2], [0, 0, 3], [])
    assert story.skip((A, generation, 0, 5)) == [(NOT_MIRRORED, 0)]
    assert story.stream().next_offset == 0


@promise("N1")
def test_the_end_must_be_the_expected_one() -> None:
    """Of two processes that copy the same records, one appends them."""
    story = Story()
    assert story.copy(0, 3).verdict is UnitVerdict.ACCEPTED
    assert story.copy(0, 3, end=0) == UnitResult(UnitVerdict.CONFLICT, [0, 1], [3, 3, 3], [])
    assert story.stream().next_offset == 3


@promise("N1", "K12")
def test_transactions_stay_out() -> None:
    """A mirror cannot join a transaction, neither by a request nor by a batch; so no marker is written."""
    story = Story()
    story.scribe.do(BROKER, InitTransaction("id", 60_000, 100, -1, -1))
    joined = story.scribe.do(BROKER, JoinTransaction("id", 100, 0, (B, A), ()))
    assert joined == Transacted(Judgement.MIRRORED)
    chunk = UnitChunk(A, FIRST_CHUNK, [(9, 1, 0)], [(100, 0, 0)], bytes([Mode.JOINS]))
    story.scribe.sequence += 1
    result = story.scribe.do(BROKER, AppendUnits(story.scribe.sequence, 200, 0, "z", [Unit([], [chunk])]))
    assert isinstance(result, Appended) and result.chunks[0].verdicts == [(MIRRORED, -1)]
    assert not story.state.transactions.open_count
    assert story.scribe.do(BROKER, JoinTransaction("id", 100, 0, (B,), ())) == Transacted(Judgement.DONE, 100, 0)


@promise("N1", "L8")
def test_bulk_appends_are_refused() -> None:
    """A reservation would take offsets of the source."""
    story = Story()
    refused = story.scribe.do(BROKER, Reserve(TOPIC, [(B, 5), (A, 5)], 1_000))
    assert isinstance(refused, Refused) and refused.reason is Reason.MIRRORED
    assert (story.stream().next_offset, story.stream(B).next_offset) == (0, 0)


@promise("N1")
def test_a_mirror_keeps_the_timestamps_of_its_source() -> None:
    """Whatever the topic's configs say. They apply as soon as it is promoted."""
    story = Story()
    story.scribe.do(LINK, ConfigureStreams((A,), StreamConfig(True)))
    story.copy(0, 1)
    assert (story.stream().index[0].append_time, story.stream().index[0].max_timestamp) == (False, 5)
    story.set(4, mirrored=False)
    story.scribe.append(BROKER, A, [(9, 1, 5)])
    assert story.stream().index[1].append_time


# --- gaps ----------------------------------------------------------------------------------------------


@promise("N1")
def test_gaps_without_records_behind_them() -> None:
    """Each is judged by itself, and told the next offset."""
    story = Story()
    asked = [(A, 3, 0, 5), (A, 3, 0, 6), (B, 3, 0, 5), (MISSING, 3, 0, 5), (A, 3, 5, 7)]
    assert story.skip(*asked) == [
        (SKIPPED, 5), (CONFLICT, 5), (NOT_MIRRORED, 0), (SkipVerdict.NO_STREAM, -1), (SKIPPED, 7),
    ]  # fmt: skip
    assert (story.stream().next_offset, story.stream().settled, story.woken) == (7, 7, [A, A])
    story.check_restored()


@promise("N1")
@pytest.mark.parametrize("end", [-1, 0, LAST_OFFSET + 1, mirrors.MAX_GAPS * U32_MAX + 1])
def test_gaps_out_of_range(end: int) -> None:
    """Empty, backwards, or longer than the state would take."""
    story = Story()
    assert story.skip((A, 3, 0, end)) == [(SkipVerdict.INVALID, 0)]
    assert not len(story.stream().index)


@promise("N1")
def test_too_many_gaps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command has a limit."""
    monkeypatch.setattr(mirrors, "MAX_STREAMS", 1)
    story = Story()
    refused = story.scribe.do(LINK, SkipStreams([(A, 3, 0, 1), (A, 3, 1, 2)]))
    assert isinstance(refused, Refused) and refused.reason is Reason.INVALID
    assert isinstance(story.set(4, A, B), Refused) and story.stream().next_offset == 0


@promise("N1")
def test_gaps_that_follow_one_another_are_one_entry() -> None:
    """A source that only aborts does not grow the state, with and without a compactor."""
    for compactor in (False, True):
        story = Story()
        if compactor:
            story.scribe.do(LINK, TakeLease(COMPACTION, 10_000))
        for i in range(50):
            assert story.skip((A, 3, i * 4, i * 4 + 4)) == [(SKIPPED, i * 4 + 4)]
        assert [(e.start, e.end) for e in story.stream().index] == [(0, 200)]
        assert story.copy(300, 1).verdict is UnitVerdict.ACCEPTED
        assert [(e.start, e.end) for e in story.stream().index] == [(0, 300), (300, 301)]
        story.scribe.do(LINK, TrimStreams([(A, 301)]))
        assert story.skip((A, 3, 301, 305)) == [(SKIPPED, 305)]
        assert story.stream().settled == 305
        story.check_restored()


@promise("N1")
def test_a_gap_behind_records_that_are_not_settled_does_not_grow() -> None:
    """A compactor may have a plan that ends with it."""
    story = Story()
    story.scribe.do(LINK, TakeLease(COMPACTION, 10_000))
    story.copy(0, 1)
    story.skip((A, 3, 1, 2), (A, 3, 2, 3))
    assert [(e.start, e.end) for e in story.stream().index] == [(0, 1), (1, 2), (2, 3)]


@promise("N1")
def test_a_long_gap_has_as_many_entries_as_it_needs() -> None:
    """An entry covers 2^32 - 1 offsets."""
    story = Story()
    story.skip((A, 3, 0, 5))
    story.skip((A, 3, 5, U32_MAX + 8))
    assert [(e.start, e.end) for e in story.stream().index] == [(0, U32_MAX), (U32_MAX, U32_MAX + 8)]
    story.check_restored()


# --- generations ---------------------------------------------------------------------------------------


@promise("N1")
def test_generations_only_rise() -> None:
    """The same again changes nothing, an earlier one is refused, and one generation has one meaning."""
    story = Story()
    assert story.set(3) == Done(0)
    assert story.stream().mirror == Mirror(3, True, 0)
    for refused in (story.set(2), story.set(3, mirrored=False), story.set(2, mirrored=False)):
        assert isinstance(refused, Refused) and refused.reason is Reason.STALE
    assert story.stream().mirror == Mirror(3, True, 0)
    assert story.set(5) == Done(1)
    assert story.copy(0, 1, 3).verdict is UnitVerdict.CONFLICT
    assert story.copy(0, 1, 5).verdict is UnitVerdict.ACCEPTED
    story.check_restored()


@promise("N1")
def test_all_streams_or_none() -> None:
    """A stream that refuses keeps all others as they were."""
    story = Story()
    story.scribe.append(BROKER, B, [(9, 1, 0)])
    refused = story.set(7, A, B)
    assert isinstance(refused, Refused) and refused.reason is Reason.INVALID and "next offset is 1" in refused.detail
    assert isinstance(story.set(7, A, MISSING), Refused)
    assert (story.stream().mirror.generation, story.stream(B).mirror) == (3, NO_MIRROR)


@promise("N1")
@pytest.mark.parametrize("command", [SetMirror((), 9, True), SetMirror((A,), 0, True), SetMirror((A,), -1, False)])
def test_invalid_commands(command: SetMirror) -> None:
    """Refused, and nothing is changed."""
    story = Story()
    refused = story.scribe.do(LINK, command)
    assert isinstance(refused, Refused) and refused.reason is Reason.INVALID
    assert story.stream().mirror == Mirror(3, True, 0)


@promise("N1")
def test_promoting() -> None:
    """Producers write on from the same offset, and no link of before writes again."""
    story = Story()
    story.copy(10, 3)
    assert story.set(4, mirrored=False) == Done(1)
    assert story.scribe.append(BROKER, A, [(9, 2, 0)]).first_offset == 13
    for generation in (3, 4):
        assert story.copy(15, 1, generation).verdict is UnitVerdict.CONFLICT
        assert story.skip((A, generation, 15, 16)) == [(NOT_MIRRORED, 15)]
    assert story.copy(15, 1, 3).present[2] == -1
    story.check_restored()


@promise("N1")
def test_the_way_back_while_nothing_was_written() -> None:
    """A promoted stream is a mirror again; what was copied ends where it ended, however often it changes."""
    story = Story()
    story.copy(0, 3)
    assert story.set(4, mirrored=False) == Done(1)
    assert story.set(5, mirrored=False) == Done(1)
    assert story.set(6) == Done(1)
    assert story.copy(3, 1, 6).verdict is UnitVerdict.ACCEPTED
    story.set(7, mirrored=False)
    story.scribe.append(BROKER, A, [(9, 1, 0)])
    story.set(8, mirrored=False)
    refused = story.set(9)
    assert isinstance(refused, Refused) and refused.reason is Reason.INVALID
    assert "its next offset is 5, and what was copied ends at 4" in refused.detail
    assert story.stream().mirror == Mirror(8, False, 4)
    story.check_restored()


@promise("N1", "K12")
def test_no_mirror_while_a_transaction_is_open() -> None:
    """Its marker would take an offset of the source."""
    story = Story()
    story.scribe.do(BROKER, InitTransaction("id", 60_000, 100, -1, -1))
    story.scribe.do(BROKER, JoinTransaction("id", 100, 0, (B,), ()))
    refused = story.set(4, B)
    assert isinstance(refused, Refused) and "open transaction" in refused.detail
    story.scribe.do(BROKER, EndTransaction("id", 100, 0, False, False, -1))
    assert isinstance(story.set(4, B), Refused), "the marker is in the log by now"


@promise("N1", "L8")
def test_a_reservation_that_is_open_keeps_a_stream_from_being_a_mirror() -> None:
    """Also after it was released: its offsets are gone."""
    story = Story()
    story.scribe.do(BROKER, Reserve(TOPIC, [(B, 5)], 1_000))
    assert isinstance(story.set(4, B), Refused)


@promise("N1")
def test_a_dropped_stream_leaves_nothing() -> None:
    """A mirror is part of its stream."""
    story = Story()
    story.scribe.do(LINK, DropStreams((A,)))
    story.check_restored()
    story.scribe.streams(A)
    assert story.stream().mirror == NO_MIRROR


# --- levels --------------------------------------------------------------------------------------------


@promise("M5")
def test_conditions_of_mirrors_need_their_level() -> None:
    """Below it the condition is refused, and gaps do not grow: an older build folds the same bytes."""
    story = Story(LINKS_LEVEL - 1)
    refused = story.units(([MirrorIs(A, 3)], A, 1))
    assert isinstance(refused, Refused) and f"level {LINKS_LEVEL}" in refused.detail
    assert story.stream().next_offset == 0
    story.stream().skip_to(4, U32_MAX, grow=story.state.gaps_grow(story.stream()))
    story.units(([StartAt(A, 5)], A, 1))
    assert [(e.start, e.end) for e in story.stream().index] == [(0, 4), (4, 5), (5, 6)]
    assert b"mirrors" not in story.state.image()


# --- histories -----------------------------------------------------------------------------------------

steps = st.one_of(
    st.tuples(st.just("copy"), st.integers(0, 3), st.integers(1, 3), st.integers(-1, 0)),
    st.tuples(st.just("skip"), st.integers(1, 4), st.integers(-1, 0), st.integers(0, 1)),
    st.tuples(st.just("produce"), st.integers(1, 2), st.just(0), st.just(0)),
    st.tuples(st.just("raise"), st.booleans(), st.just(0), st.just(0)),
    st.tuples(st.just("trim"), st.integers(0, 40), st.just(0), st.just(0)),
)


@promise("N1")
@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=25))
def test_a_mirror_has_what_was_copied_and_nothing_else(plan: list[tuple[str, int, int, int]]) -> None:
    """Over any history, a plain model knows where every record goes, and whose appends count."""
    story, generation, on, written = Story(), 3, True, False
    records: list[tuple[int, str]] = []
    end = 0
    for what, one, two, three in plan:
        if what == "copy":
            taken = on and not three
            verdict = story.copy(end + one, two, generation + three).verdict
            assert (verdict is UnitVerdict.ACCEPTED) == taken
            if taken:
                records += [(end + one + i, "link") for i in range(two)]
                end += one + two
        elif what == "skip":
            taken = on and not two and not three
            [(skipped, _)] = story.skip((A, generation + two, end + three, end + three + one))
            assert (skipped is SKIPPED) == taken
            end += one if taken else 0
        elif what == "produce":
            accepted = story.scribe.append(BROKER, A, [(9, one, 0)]).verdicts is None
            assert accepted == (not on)
            if accepted:
                records += [(end + i, "producer") for i in range(one)]
                end, written = end + one, True
        elif what == "raise":
            generation += 1
            result = story.set(generation, mirrored=bool(one))
            assert isinstance(result, Done) == (on or not one or not written)
            if isinstance(result, Done):
                written = written and not on
                on = bool(one)
            else:
                generation -= 1
        else:
            story.scribe.do(LINK, TrimStreams([(A, one)]))
        stream = story.stream()
        assert stream.next_offset == end and stream.mirror.on == on
        kept = [(o, by) for o, by in records if o >= stream.log_start]
        held = [o for e in stream.index if not e.gap for o in range(e.start, e.end) if o >= stream.log_start]
        assert held == [o for o, _ in kept]
    story.check_restored()
