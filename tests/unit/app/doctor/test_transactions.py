"""`headwater doctor` finds every way in which ids, streams, markers and aborted ranges can disagree."""

import struct
from collections.abc import Callable

import pytest

from headwater.app.doctor.examining import check_references, check_stream
from headwater.app.doctor.report import Report
from headwater.app.doctor.tables import check_tables
from headwater.app.doctor.transactions import check_transactions
from headwater.state.commands.base import TakeLease, Tick
from headwater.state.commands.groups import ClaimShard
from headwater.state.commands.streams import AppendUnits, Mode, TrimStreams, Unit, UnitChunk
from headwater.state.commands.tables import SegmentRun, Settle
from headwater.state.commands.transactions import (
    AbortTransaction,
    EndTransaction,
    InitTransaction,
    JoinTransaction,
    StageOffsets,
)
from headwater.state.results import Appended, Done, Judgement, Transacted
from headwater.state.streams.aborted import Aborted
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.index import ENTRY_BYTES, OffsetIndex
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.groups import shard_of
from headwater.state.streams.stored.transactions import Phase
from headwater.state.streams.stream import Stream
from headwater.types import Domain
from tests.support.scribe import FIRST_CHUNK, PREFIX, START_MS, TOPIC, Scribe

PROMISES = ("O6",)

A, B = 1, 2
FIRST, SECOND, OLD = 70, 80, 90
"""Producer ids: two with open transactions, one whose transaction was aborted."""
MINUTE = 60_000
_H = struct.Struct("<H")
_I = struct.Struct("<I")
SPAN_AT, LENGTH_AT, FLAGS_AT, EPOCH_AT, OWN_AT = 32, 48, 52, 54, 16


class Story:
    """A domain with committed, aborted and open transactions."""

    def __init__(self) -> None:
        self.scribe = Scribe(StreamsState(Domain(1)))
        self.scribe.streams(A, B)
        for name, producer in (("first", FIRST), ("second", SECOND), ("old", OLD)):
            self.done(InitTransaction(name, MINUTE, producer, -1, -1))
        claimed = self.scribe.do(1, ClaimShard(shard_of("readers")))
        assert isinstance(claimed, Done)
        self.claim = claimed.value
        self.append(A, OLD, 0, 0)
        self.append(A, FIRST, 0, 0)
        self.done(EndTransaction("old", OLD, 0, commit=False, bump=True, fresh=0))
        self.done(EndTransaction("first", FIRST, 0, commit=True, bump=True, fresh=0))
        self.append(A, SECOND, 0, 0)
        self.append(A, FIRST, 1, 0)
        self.done(JoinTransaction("first", FIRST, 1, (B,), ()))
        self.stage("first", FIRST, 1)

    @property
    def state(self) -> StreamsState:
        assert isinstance(self.scribe.state, StreamsState)
        return self.scribe.state

    @property
    def stream(self) -> Stream:
        return self.state.streams[A]

    def done(self, command: InitTransaction | JoinTransaction | EndTransaction | StageOffsets) -> Transacted:
        result = self.scribe.do(1, command)
        assert isinstance(result, Transacted) and result.judgement is Judgement.DONE, result
        return result

    def append(self, stream: int, producer: int, epoch: int, sequence: int, records: int = 2) -> None:
        self.scribe.sequence += 1
        chunk = UnitChunk(stream, FIRST_CHUNK, [(100, records, 5)], [(producer, epoch, sequence)], bytes([Mode.JOINS]))
        size = FIRST_CHUNK + PREFIX + 100 + 4
        command = AppendUnits(self.scribe.sequence, size, START_MS, "local", [Unit([], [chunk])])
        result = self.scribe.do(1, command)
        assert isinstance(result, Appended) and result.chunks[0].verdicts is None, result

    def stage(self, id: str, producer: int, epoch: int) -> None:
        offsets = [(TOPIC.bytes, 0, 5, -1, "")]
        self.done(StageOffsets(self.claim, "readers", id, producer, epoch, joins=True, offsets=offsets))

    def examined(self) -> Report:
        report = Report()
        for stream in self.state.streams.values():
            check_stream(stream, report)
        check_references(self.state, report)
        check_tables(self.state, report)
        check_transactions(self.state, report)
        return report

    def patch(self, entry: int, at: int, layout: struct.Struct, value: int) -> None:
        """Change a field of an index entry."""
        data = bytearray(self.stream.index.pack())
        layout.pack_into(data, entry * ENTRY_BYTES + at, value)
        self.stream.index = OffsetIndex(bytes(data))

    def aborted(self, *rows: tuple[int, int, int, int]) -> None:
        self.stream.aborted = Aborted()
        for row in rows:
            self.stream.aborted.add(*row)


def test_what_is_sound() -> None:
    """Offsets 0-1 aborted, 2-3 committed, 4 and 5 their markers, 6-7 and 8-9 open."""
    story = Story()
    report = story.examined()
    assert (report.findings, report.notes) == ([], [])
    counted = ("transactional ids", "open transactions", "markers", "aborted ranges")
    assert [report.checked[what] for what in counted] == [3, 2, 2, 1]
    assert [entry.marker for entry in story.stream.index] == [False, False, True, True, False, False]
    assert list(story.stream.running.items()) == [(SECOND, 6), (FIRST, 8)]


def test_the_state_stays_sound_to_the_end() -> None:
    """After ends of every kind, a trim into an open transaction, and a settle of markers and aborted records."""
    story = Story()
    assert isinstance(story.scribe.do(1, TrimStreams([(A, 9)])), Done)
    assert story.stream.stable == 9
    assert story.examined().findings == []
    second = story.state.transactions.get("second")
    assert second is not None
    result = story.scribe.do(1, AbortTransaction("second", second.number, SECOND, 0, 0))
    assert isinstance(result, Transacted) and result.judgement is Judgement.DONE
    assert story.examined().findings == []
    story.done(InitTransaction("first", MINUTE, 0, -1, -1))
    assert story.examined().findings == [] and not story.stream.running
    lease = story.scribe.do(1, TakeLease(COMPACTION, 1_000))
    assert isinstance(lease, Done)
    settled = story.scribe.do(
        1, Settle(lease.value, TOPIC, "tables/t", [], [gap(A, 9, 12), gap(B, 0, 1)], [-1, -1], [])
    )
    assert isinstance(settled, Done), settled
    assert (story.stream.settled, len(story.stream.aborted)) == (12, 0)
    assert story.examined().findings == []


def gap(stream: int, start: int, end: int) -> SegmentRun:
    return SegmentRun(stream, start, end, -1, 0, 0)


def phase(story: Story, id: str, to: Phase) -> None:
    found = story.state.transactions.get(id)
    assert found is not None
    found.phase = to


def unlist(story: Story, id: str, stream: int) -> None:
    found = story.state.transactions.get(id)
    assert found is not None
    del found.streams[stream]


def rename(story: Story, id: str, group: str) -> None:
    found = story.state.transactions.get(id)
    assert found is not None
    found.groups[group] = found.groups.pop("readers")


def rewrite(story: Story, id: str, **fields: int) -> None:
    found = story.state.transactions.get(id)
    assert found is not None
    for name, value in fields.items():
        setattr(found, name, value)


DEFECTS: dict[str, tuple[str, str, Callable[[Story], None]]] = {
    "a phase that is not that of the list": (
        "transactions", "'second': its phase is COMMITTED, but it is listed as open",
        lambda story: phase(story, "second", Phase.COMMITTED)),
    "an open phase that no list has": (
        "transactions", "'old': its phase is OPEN, but it is listed as not open",
        lambda story: phase(story, "old", Phase.OPEN)),
    "a producer id of two": (
        "transactions", "'old': its producer id 70 belongs to another",
        lambda story: rewrite(story, "old", producer=FIRST)),
    "an epoch out of range": (
        "transactions", "'old': its epoch cannot be 32767", lambda story: rewrite(story, "old", epoch=32_767)),
    "a running producer that has no transaction": (
        "transactions", "stream 2: producer 99 runs from 0 on without an open transaction",
        lambda story: story.state.streams[B].running.update({99: 0})),
    "a running producer whose transaction ended": (
        "transactions", "producer 90 runs from 9 on without an open transaction",
        lambda story: story.stream.running.update({OLD: 9})),
    "a running producer in a stream that it has not joined": (
        "transactions", "producer 80 runs, but 'second' has not joined the stream",
        lambda story: unlist(story, "second", A)),
    "running producers out of order": (
        "transactions", "producer 70 cannot run from 5 on",
        lambda story: story.stream.running.update({FIRST: 5})),
    "a running producer beyond the end": (
        "transactions", "producer 70 cannot run from 10 on",
        lambda story: story.stream.running.update({FIRST: 10})),
    "an open transaction that does not run": (
        "transactions", "stream 1 at 6: belongs to the open transaction of 'second', but does not run",
        lambda story: story.stream.running.__delitem__(SECOND)),
    "a stream that is missing": (
        "transactions", "'first': has joined stream 2, which is missing",
        lambda story: story.state.streams.__delitem__(B)),
    "a group that is missing": (
        "transactions", "has offsets for the group 'nobody', which is missing",
        lambda story: rename(story, "first", "nobody")),
    "a marker of two offsets": ("markers", "of 2 offsets", lambda story: story.patch(2, SPAN_AT, _I, 2)),
    "a marker of another size": ("markers", "79 bytes", lambda story: story.patch(2, LENGTH_AT, _I, 79)),
    "a marker in a segment": ("markers", "the flags 18", lambda story: story.patch(2, FLAGS_AT, _H, 18)),
    "a marker's epoch out of range": (
        "markers", "epoch 40000", lambda story: story.patch(2, EPOCH_AT, _H, 40_000)),
    "records with the flag of a commit": (
        "markers", "only a marker has", lambda story: story.patch(0, FLAGS_AT, _H, 32)),
    "records with a producer's epoch": (
        "markers", "only a marker has", lambda story: story.patch(0, EPOCH_AT, _H, 1)),
    "an aborted range with the marker of a commit": (
        "aborted", "producer 90 has no marker of an abort", lambda story: story.patch(2, FLAGS_AT, _H, 48)),
    "an aborted range that ends at records": (
        "aborted", "has no marker of an abort", lambda story: story.aborted((OLD, 0, 3, 4))),
    "an aborted range of another producer": (
        "aborted", "producer 91 has no marker of an abort", lambda story: story.aborted((91, 0, 4, 2))),
    "an aborted range beyond the end": (
        "aborted", "has no marker of an abort", lambda story: story.aborted((OLD, 0, 99, 2))),
    "aborted ranges out of order": (
        "aborted", "is out of order", lambda story: story.aborted((OLD, 0, 4, 2), (SECOND, 0, 3, 2))),
    "a stable offset that falls": (
        "aborted", "is out of order", lambda story: story.aborted((OLD, 0, 4, 2), (SECOND, 5, 6, 1))),
    "an aborted range without records": (
        "aborted", "cannot be", lambda story: story.aborted((OLD, 4, 4, 2))),
    "a stable offset beyond the marker": (
        "aborted", "cannot be, with the stable offset 6", lambda story: story.aborted((OLD, 0, 4, 6))),
    "a running producer in its aborted range": (
        "aborted", "producer 80 runs from 6 on, which is aborted",
        lambda story: story.aborted((OLD, 0, 4, 2), (SECOND, 5, 9, 6))),
    "an aborted range before the log start": (
        "aborted", "is kept, but readers begin at 5", lambda story: setattr(story.stream, "log_start", 5)),
    "an aborted range that is settled": (
        "aborted", "is kept, but readers begin at 5", lambda story: setattr(story.stream, "settled", 5)),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect(defect: str) -> None:
    check, words, plant = DEFECTS[defect]
    story = Story()
    plant(story)
    findings = [f"{f.subject}: {f.problem}" for f in story.examined().findings if f.check == check]
    assert any(words in finding for finding in findings), findings


def test_a_marker_counts_for_no_running_maximum() -> None:
    """A record with an older timestamp behind it, and one whose maximum is that of the marker."""
    story = Story()
    entry = story.stream.index[2]
    assert (entry.max_timestamp, entry.running_max_timestamp) == (START_MS, 5)
    story.patch(4, 24, struct.Struct("<q"), START_MS)
    findings = [f.problem for f in story.examined().findings]
    assert findings == ["the running maximum of timestamps is wrong"]


def test_a_hanging_transaction_is_a_note() -> None:
    """Nothing is wrong with the data, and a broker may still end the transaction."""
    story = Story()
    story.scribe.do(1, Tick(), START_MS + 2 * MINUTE)
    assert story.examined().notes == []
    story.scribe.do(1, Tick(), START_MS + 2 * MINUTE + 1)
    report = story.examined()
    assert report.findings == []
    assert sorted(note.split(" is hanging: ")[0] for note in report.notes) == [
        "the transaction of 'first'",
        "the transaction of 'second'",
    ]
    assert "open for 120 s, with a time-out of 60 s" in report.notes[0]
