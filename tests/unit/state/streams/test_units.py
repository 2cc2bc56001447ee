"""Units with conditions: judged before their batches, all or nothing; gaps; keys that are used once."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.state.commands.groups import ChangeGroup, ClaimShard, CommitAlone, DropAlone
from headwater.state.commands.streams import (
    AnyCondition,
    AppendUnits,
    DropStreams,
    EndIs,
    Once,
    Present,
    StartAt,
    TrimStreams,
    Unit,
    UnitChunk,
    VersionIs,
)
from headwater.state.records import decode
from headwater.state.results import Appended, Done, Placed, Reason, Refused, UnitResult, UnitVerdict
from headwater.state.streams.domain import U32_MAX
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored import keys as stored_keys
from headwater.state.streams.stored.groups import shard_of
from headwater.state.streams.stored.keys import KEPT_MS
from headwater.types import Domain, Position
from tests.support.promise import promise
from tests.support.scribe import FIRST_CHUNK, PREFIX, START_MS, TOPIC, Scribe
from tests.support.soak import examples

PROMISES = ("L4",)

A, B, MISSING = 1, 2, 99
ACCEPTED, REPEATED, CONFLICT = UnitVerdict.ACCEPTED, UnitVerdict.REPEATED, UnitVerdict.CONFLICT
OWNER = b"ann"


class Log:
    """Two streams, and units that are appended to them."""

    def __init__(self) -> None:
        self.state = StreamsState(Domain(1))
        self.scribe = Scribe(self.state)
        self.scribe.streams(A, B)

    def command(self, *units: tuple[Sequence[AnyCondition], dict[int, int]]) -> AppendUnits:
        """A command for units: conditions, and by stream how many records."""
        made, position = [], FIRST_CHUNK
        for conditions, records in units:
            chunks = []
            for stream, count in records.items():
                chunks.append(UnitChunk(stream, position, [(100, count, START_MS)], [], b""))
                position += 100 + PREFIX
            made.append(Unit(list(conditions), chunks))
        self.scribe.sequence += 1
        return AppendUnits(self.scribe.sequence, position + 4, START_MS, "local", made)

    def append(
        self, *units: tuple[Sequence[AnyCondition], dict[int, int]], clock_ms: int = START_MS
    ) -> list[UnitResult | None]:
        result = self.scribe.do(1, self.command(*units), clock_ms)
        assert isinstance(result, Appended), result
        return result.units

    def one(self, records: dict[int, int], *conditions: AnyCondition, clock_ms: int = START_MS) -> UnitResult:
        [result] = self.append((conditions, records), clock_ms=clock_ms)
        assert result is not None
        return result

    def ends(self) -> tuple[int, int]:
        return self.state.streams[A].next_offset, self.state.streams[B].next_offset


def once(key: bytes, body: bytes = b"body", owner: bytes = OWNER, note: bytes = b"") -> Once:
    return Once(key, body, owner, note)


@promise("L4")
def test_the_end_is_as_expected() -> None:
    """The first of two that expect the same end wins, the other is told the present one."""
    log = Log()
    first, second = log.append(([EndIs(A, 0)], {A: 3}), ([EndIs(A, 0)], {A: 1}))
    assert first == UnitResult(ACCEPTED, [], [], [Placed(A, 0, 3, -1)])
    assert second == UnitResult(CONFLICT, [0], [3], [])
    assert log.ends() == (3, 0)
    assert log.one({A: 1}, EndIs(A, 3)).verdict is ACCEPTED


@promise("L4")
def test_all_or_nothing() -> None:
    """One condition that does not hold keeps all streams of the unit unchanged."""
    log = Log()
    before = log.state.image()
    refused = log.one({A: 2, B: 2}, EndIs(A, 0), EndIs(B, 7), EndIs(MISSING, 0))
    assert refused == UnitResult(CONFLICT, [1, 2], [0, 0, -1], [])
    assert log.ends() == (0, 0)
    assert not len(log.state.streams[A].index) and not len(log.state.objects)
    missing = log.one({A: 2, MISSING: 1}, Present())
    assert missing == UnitResult(UnitVerdict.NO_STREAM, [], [], [])
    assert log.ends() == (0, 0) and before != b""
    both = log.one({A: 2, B: 3}, Present())
    assert both == UnitResult(ACCEPTED, [], [], [Placed(A, 0, 2, -1), Placed(B, 0, 3, -1)])


@promise("L4")
def test_plain_batches_beside_units() -> None:
    """A refused unit takes nothing along, and later units see what was accepted."""
    log = Log()
    results = log.append(((), {A: 1}), ([EndIs(A, 0)], {A: 5}), ([EndIs(A, 1)], {A: 2, B: 1}), ([EndIs(B, 1)], {B: 1}))
    assert [result and result.verdict for result in results] == [None, CONFLICT, ACCEPTED, ACCEPTED]
    assert log.ends() == (3, 2)
    [known] = {entry.object for name in (A, B) for entry in log.state.streams[name].index}
    found = log.state.objects.get(known)
    assert found is not None and found.references == 4


@promise("L4")
def test_a_gap_is_an_entry() -> None:
    """Records begin at an offset beyond the end. What is left out is a gap, in the index and for settling."""
    log = Log()
    assert log.one({A: 2}, StartAt(A, 10)).placed == [Placed(A, 10, 2, -1)]
    assert log.one({A: 1}, StartAt(A, 12)).placed == [Placed(A, 12, 1, -1)]
    assert log.one({A: 1}, StartAt(A, 20)).placed == [Placed(A, 20, 1, -1)]
    stream = log.state.streams[A]
    assert [(e.start, e.end, e.gap) for e in stream.index] == [
        (0, 10, True), (10, 12, False), (12, 13, False), (13, 20, True), (20, 21, False),
    ]  # fmt: skip
    assert (stream.settled, stream.end, stream.size) == (10, 21, 3 * 104)
    assert stream.max_timestamp == START_MS
    assert log.one({A: 1}, StartAt(A, 20)) == UnitResult(CONFLICT, [0], [21], [])
    log.scribe.do(1, TrimStreams([(A, 15)]))
    assert [(e.start, e.end) for e in stream.index] == [(13, 20), (20, 21)]
    assert stream.settled == 20


@promise("L4")
def test_a_very_long_gap() -> None:
    """It takes several entries; one that would take too many is refused."""
    log = Log()
    start = 3 * U32_MAX + 5
    assert log.one({A: 1}, StartAt(A, start)).verdict is ACCEPTED
    assert [e.end for e in log.state.streams[A].index] == [U32_MAX, 2 * U32_MAX, 3 * U32_MAX, start, start + 1]
    assert log.one({A: 1}, StartAt(A, 1 << 60)).verdict is CONFLICT


@promise("L4")
def test_the_end_behind_a_reservation_or_a_transaction_counts() -> None:
    """`EndIs` compares where the next record goes, not where readers stop."""
    log = Log()
    log.one({A: 4}, Present())
    log.state.streams[A].open = (2,)
    assert log.state.streams[A].end == 2
    assert log.one({A: 1}, EndIs(A, 2)).present == [4]
    assert log.one({A: 1}, EndIs(A, 4)).verdict is ACCEPTED


@promise("L4")
def test_the_version_of_a_table() -> None:
    """0 while nothing was settled; afterwards the journal's newest sequence."""
    log = Log()
    assert log.one({A: 1}, VersionIs(TOPIC, 3)) == UnitResult(CONFLICT, [0], [0], [])
    assert log.one({A: 1}, VersionIs(TOPIC, 0)).verdict is ACCEPTED
    assert log.one({A: 1}, VersionIs(uuid.UUID(int=1), 0)).verdict is ACCEPTED


@promise("H1")
def test_a_key_is_used_once() -> None:
    """The same body gets the first answer, whatever the other conditions say now; another body is refused."""
    log = Log()
    first = log.one({A: 2, B: 1}, EndIs(A, 0), once(b"k", note=b"n"))
    assert first.verdict is ACCEPTED
    again = log.one({A: 2, B: 1}, EndIs(A, 0), once(b"k"))
    assert again == UnitResult(REPEATED, [], [], first.placed, b"n")
    assert log.one({A: 2}, EndIs(A, 2), once(b"k", b"other")) == UnitResult(UnitVerdict.MISMATCH, [], [], [])
    assert log.ends() == (2, 1)
    assert log.one({A: 1}, EndIs(A, 9), once(b"l")).verdict is CONFLICT
    assert log.one({A: 1}, EndIs(A, 2), once(b"l")).verdict is ACCEPTED, "a refusal is not kept"


@promise("H1")
def test_a_key_outlives_its_topic() -> None:
    """A repetition after the topic is gone gets the first answer, not an error."""
    log = Log()
    log.one({A: 2}, once(b"k"))
    log.scribe.do(1, DropStreams((A,)))
    assert log.one({A: 2}, once(b"k")).verdict is REPEATED


def test_keys_expire_after_a_day() -> None:
    log = Log()
    log.one({A: 1}, once(b"k"))
    log.one({A: 1}, once(b"l"), clock_ms=START_MS + 5)
    assert log.one({A: 1}, once(b"k"), clock_ms=START_MS + KEPT_MS - 1).verdict is REPEATED
    assert log.one({A: 1}, once(b"k"), clock_ms=START_MS + KEPT_MS).verdict is ACCEPTED
    assert len(log.state.keys) == 2 and log.state.keys.owned(OWNER) == 2
    log.one({A: 1}, once(b"m"), clock_ms=START_MS + KEPT_MS + 5)
    assert [key for key, _ in log.state.keys.pack()] == [b"k", b"m"]


@promise("H1")
def test_an_owner_with_too_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further keys are refused, none is forgotten early, other owners are not concerned."""
    monkeypatch.setattr(stored_keys, "MAX_OWNED", 2)
    monkeypatch.setattr(stored_keys, "MAX_KEYS", 3)
    log = Log()
    for key in (b"1", b"2"):
        assert log.one({A: 1}, once(key)).verdict is ACCEPTED
    assert log.one({A: 1}, once(b"3")).verdict is UnitVerdict.FULL
    assert log.one({A: 1}, once(b"1")).verdict is REPEATED
    assert log.one({A: 1}, once(b"3", owner=b"bob")).verdict is ACCEPTED
    assert log.one({A: 1}, once(b"4", owner=b"cid")).verdict is UnitVerdict.FULL
    assert log.ends()[0] == 3


@promise("M5", "H1")
def test_keys_are_in_checkpoints() -> None:
    """With gaps and ends, and the same bytes again."""
    log = Log()
    first = log.one({A: 2}, StartAt(A, 5), once(b"k"))
    restored = StreamsState(Domain(1))
    restored.restore(log.state.image())
    assert restored.image() == log.state.image()
    log.state = log.scribe.state = restored
    assert log.one({A: 2}, StartAt(A, 5), once(b"k")) == UnitResult(REPEATED, [], [], first.placed)
    assert restored.keys.owned(OWNER) == 1


@promise("L4")
@pytest.mark.parametrize(
    ("records", "conditions", "word"),
    [
        ({}, [Present()], "no records"),
        ({A: 1}, [once(b"k"), once(b"l")], "two keys"),
        ({A: 1}, [once(b"")], "empty or too long"),
        ({A: 1}, [once(b"k" * 33)], "empty or too long"),
        ({A: 1}, [once(b"k", note=b"n" * 65)], "empty or too long"),
        ({A: 1}, [StartAt(B, 1)], "without records"),
        ({A: 1}, [StartAt(A, 1), StartAt(A, 1)], "named twice"),
        ({A: 1}, [StartAt(A, -1)], "out of range"),
        ({A: 1}, [EndIs(A, 1 << 63)], "out of range"),
        ({A: 1}, [Present()] * 2_001, "conditions"),
    ],
)
def test_flaws(records: dict[int, int], conditions: list[AnyCondition], word: str) -> None:
    """A command that no correct writer sends is refused as a whole and changes nothing."""
    log = Log()
    refused = log.scribe.do(1, log.command(((), {A: 1}), (conditions, records)))
    assert isinstance(refused, Refused) and refused.reason is Reason.INVALID and word in refused.detail
    assert log.ends() == (0, 0)


def test_producers_and_doubled_streams_in_units() -> None:
    log = Log()
    batches = [(100, 1, START_MS)]
    for chunks in (
        [UnitChunk(A, FIRST_CHUNK, batches, [(5, 0, 0)], b"")],
        [UnitChunk(A, FIRST_CHUNK, batches, [], b""), UnitChunk(A, FIRST_CHUNK + 104, batches, [], b"")],
    ):
        command = AppendUnits(1, FIRST_CHUNK + 300, START_MS, "local", [Unit([Present()], chunks)])
        assert isinstance(log.scribe.do(1, command), Refused)
    assert log.ends() == (0, 0)


def test_commits_without_a_coordinator() -> None:
    """A group without members takes offsets from any process; one with members from its coordinator only."""
    log = Log()
    commit = CommitAlone("g", [(TOPIC.bytes, 0, 5, -1, "here")])
    assert log.scribe.do(1, commit) == Done()
    group = log.state.groups.get("g")
    assert group is not None and group.offsets[TOPIC][0].offset == 5
    assert log.scribe.do(1, DropAlone("g")) == Done()
    assert isinstance(log.scribe.do(1, DropAlone("g")), Refused)
    claim = log.scribe.do(1, ClaimShard(shard_of("g")))
    assert isinstance(claim, Done)
    log.scribe.do(1, ChangeGroup(claim.value, "g", "consumer", b"head", {"m": b""}, ()))
    for command in (commit, DropAlone("g")):
        refused = log.scribe.do(1, command)
        assert isinstance(refused, Refused) and refused.reason is Reason.LEASED
    log.scribe.do(1, ChangeGroup(claim.value, "g", "consumer", None, {}, ("m",)))
    assert log.scribe.do(1, commit) == Done()
    assert isinstance(log.scribe.do(1, DropAlone("g")), Refused), "its coordinator may keep it in memory"


conditions = st.one_of(
    st.builds(EndIs, st.sampled_from([A, B]), st.integers(0, 12)),
    st.builds(once, st.sampled_from([b"k", b"l", b"m"]), st.sampled_from([b"1", b"2"])),
    st.just(Present()),
)
starts = st.builds(StartAt, st.just(A), st.integers(0, 20))
units = st.tuples(st.lists(conditions, min_size=1, max_size=3), st.booleans(), st.integers(1, 3), st.integers(0, 2))


@promise("L4", "H1")
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(units, starts, st.integers(0, KEPT_MS // 3)), max_size=12))
def test_histories(history: list[tuple[tuple[list[AnyCondition], bool, int, int], StartAt, int]]) -> None:
    """Any history against a model: dense or with gaps, answers that repeat, replay and checkpoint equal."""
    log, clock = Log(), START_MS
    ends: dict[int, int] = {A: 0, B: 0}
    known: dict[bytes, tuple[int, bytes, list[Placed]]] = {}
    for (made, gap, in_a, in_b), start, later in history:
        clock += later
        keys = [c for c in made if isinstance(c, Once)][:1]
        tested = [c for c in made if not isinstance(c, Once)] + keys + ([start] if gap else [])
        records = {A: in_a} | ({B: in_b} if in_b else {})
        result = log.one(records, *tested, clock_ms=clock)
        known = {key: kept for key, kept in known.items() if kept[0] + KEPT_MS > clock} if keys else known
        if keys and keys[0].key in known:
            _, body, placed = known[keys[0].key]
            same = keys[0].body == body
            assert result.verdict is (REPEATED if same else UnitVerdict.MISMATCH)
            assert result.placed == (placed if same else [])
            continue
        holds = all(ends[c.stream] == c.offset for c in made if isinstance(c, EndIs))
        holds = holds and (not gap or start.offset >= ends[A])
        assert result.verdict is (ACCEPTED if holds else CONFLICT)
        if holds:
            ends[A] = max(ends[A], start.offset) if gap else ends[A]
            assert result.placed == [Placed(s, ends[s], count, -1) for s, count in records.items()]
            for stream, count in records.items():
                ends[stream] += count
            if keys:
                known[keys[0].key] = (clock, keys[0].body, result.placed)
        assert log.ends() == (ends[A], ends[B])
    for stream in log.state.streams.values():
        at = 0
        for entry in stream.index:
            assert entry.start == at
            at = entry.end
        assert at == stream.next_offset
    replayed = Scribe(StreamsState(Domain(1)))
    for data in log.scribe.records:
        replayed.state.apply(Position(replayed.state.position + 1), decode(data))
    restored = StreamsState(Domain(1))
    restored.restore(log.state.image())
    assert replayed.state.image() == log.state.image() == restored.image()
