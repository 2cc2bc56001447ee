"""The offset index against a plain list."""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.state.streams.index import (
    APPEND_TIME,
    COMMIT,
    ENTRY_BYTES,
    GAP,
    MARKER,
    MARKER_BYTES,
    MAX_GROUPS,
    NO_TIMESTAMP,
    SEGMENT,
    IndexEntry,
    OffsetIndex,
    SettledEntry,
)
from headwater.types import WalId
from tests.support.promise import promise

PROMISES = ("L1", "K5")

U32 = st.integers(0, (1 << 32) - 1)
TIMESTAMPS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-1, 50)


def counted(entry: IndexEntry) -> int:
    """The timestamp that running maxima count."""
    return NO_TIMESTAMP if entry.flags & MARKER else entry.max_timestamp


@promise("N1")
def test_a_gap_at_the_end_grows() -> None:
    """Up to a limit of offsets; nothing else grows, and nothing shrinks."""
    index = OffsetIndex()
    assert not index.grow(5, 10)
    index.skip(5, 5, 0)
    assert index.grow(8, 10) and not index.grow(8, 10) and not index.grow(3, 10)
    assert index.grow(50, 10) and not index.grow(50, 10)
    assert [(entry.start, entry.end, entry.gap) for entry in index] == [(0, 10, True)]
    index.append(12, 2, 30, 7, 1, 1, 93, 30, 0)
    assert not index.grow(50, 100)
    assert [(entry.start, entry.end) for entry in index] == [(0, 10), (10, 12)]


class IndexModel(RuleBasedStateMachine):
    """Entries as a list of what each call said."""

    @initialize(start=st.integers(0, 1 << 40))
    def begin(self, start: int) -> None:
        self.index = OffsetIndex()
        self.model: list[IndexEntry] = []
        self.end = start
        self.size = 0

    @rule(
        gap=st.integers(0, 3),
        span=st.integers(1, 1000) | st.just((1 << 32) - 1),
        timestamp=TIMESTAMPS,
        epoch=U32,
        sequence=U32,
        position=U32,
        length=st.integers(1, (1 << 32) - 1),
        flags=st.sampled_from([0, APPEND_TIME]),
    )
    def append(
        self, gap: int, span: int, timestamp: int, epoch: int, sequence: int, position: int, length: int, flags: int
    ) -> None:
        self.end += gap + span
        self.size += length
        self.index.append(
            end=self.end,
            span=span,
            cumulative_size=self.size,
            max_timestamp=timestamp,
            object_epoch=epoch,
            object_sequence=sequence,
            position=position,
            length=length,
            flags=flags,
        )
        self.model.append(
            IndexEntry(
                self.end - span, self.end, self.size, timestamp, 0, WalId(epoch, sequence), position, length, flags, 0
            )
        )

    @rule(
        clock=st.integers(0, (1 << 63) - 1) | st.integers(0, 50),
        producer=st.integers(0, (1 << 63) - 1),
        epoch=st.integers(0, 32_767),
        commit=st.booleans(),
    )
    def mark(self, clock: int, producer: int, epoch: int, commit: bool) -> None:
        self.size += MARKER_BYTES
        self.index.mark(self.end, self.size, clock, producer, epoch, commit=commit)
        self.end += 1
        place = WalId(producer >> 32, producer & 0xFFFFFFFF)
        flags = MARKER | COMMIT * commit
        self.model.append(IndexEntry(self.end - 1, self.end, self.size, clock, 0, place, 0, MARKER_BYTES, flags, epoch))
        found = self.index[-1]
        assert (found.marker, found.commits, found.producer, found.producer_epoch) == (True, commit, producer, epoch)
        assert (found.in_wal, found.settled, found.unsettled, found.file) == (False, False, True, 0)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def restate(self, data: st.DataObject) -> None:
        """Sizes and running maxima are derived anew behind an entry."""
        behind = data.draw(st.integers(0, len(self.model) - 1))
        size = self.model[behind].cumulative_size
        for i in range(behind + 1, len(self.model)):
            size += self.model[i].length
            self.model[i] = msgspec.structs.replace(self.model[i], cumulative_size=size)
        assert self.index.restate(behind) == size
        self.size = size

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, len(self.model)))
        dropped = self.index.drop(count)
        assert [(e.object, e.start, e.end) for e in dropped] == [(e.object, e.start, e.end) for e in self.model[:count]]
        del self.model[:count]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), file=U32, groups=st.integers(1, MAX_GROUPS), group=st.integers(0, 9))
    def replace(self, data: st.DataObject, file: int, groups: int, group: int) -> None:
        first = data.draw(st.integers(0, len(self.model) - 1))
        last = data.draw(st.integers(first + 1, len(self.model)))
        gone = self.model[first:last]
        stamp = max(map(counted, gone))
        length = gone[-1].length
        made = SettledEntry(gone[0].start, gone[-1].end, gone[-1].cumulative_size, stamp, length, file, group, groups)
        if made.end - made.start >= 1 << 32:
            return
        self.index.replace(first, last, [made])
        self.index.restart_running_maximum(first + 1)
        flags = SEGMENT if file else GAP
        entry = IndexEntry(
            made.start, made.end, made.cumulative_size, stamp, 0, WalId(0, file), group << 16 | groups, length, flags, 0
        )
        self.model[first:last] = [entry]
        found = self.index[first]
        assert (found.settled, found.file, found.groups) == (True, file, range(group, group + groups))

    @rule()
    def through_bytes(self) -> None:
        packed = self.index.pack()
        assert len(packed) == ENTRY_BYTES * len(self.model)
        self.index = OffsetIndex(packed)

    @rule(data=st.data())
    def find(self, data: st.DataObject) -> None:
        edges = [0, *(o for e in self.model for o in (e.start, e.end))]
        offset = data.draw(st.sampled_from(edges)) + data.draw(st.integers(-1, 1))
        wanted = next((i for i, e in enumerate(self.model) if e.end > offset), len(self.model))
        assert self.index.find(offset) == wanted

    @rule(data=st.data())
    def find_time(self, data: st.DataObject) -> None:
        timestamp = data.draw(st.sampled_from([0, *(e.max_timestamp for e in self.model)])) + data.draw(
            st.integers(-1, 1)
        )
        wanted = next((i for i, e in enumerate(self.model) if counted(e) >= timestamp), len(self.model))
        assert self.index.find_time(timestamp) == wanted

    @invariant()
    def same_entries(self) -> None:
        assert len(self.index) == len(self.model)
        running = None
        for i, (entry, wanted) in enumerate(zip(self.index, self.model, strict=True)):
            running = counted(wanted) if running is None else max(running, counted(wanted))
            assert entry.running_max_timestamp == running
            assert (entry.start, entry.end, entry.cumulative_size) == (
                wanted.start,
                wanted.end,
                wanted.cumulative_size,
            )
            assert (entry.object, entry.position, entry.length, entry.flags, entry.max_timestamp) == (
                wanted.object,
                wanted.position,
                wanted.length,
                wanted.flags,
                wanted.max_timestamp,
            )
            assert entry.append_time == bool(wanted.flags & APPEND_TIME)
            assert self.index[i - len(self.model)] == entry


IndexModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_index_is_a_list = IndexModel.TestCase


@promise("L1")
def test_borders() -> None:
    """What is not there is an error, and bytes that are no entries are refused."""
    index = OffsetIndex()
    assert repr(index) == "<OffsetIndex empty>"
    assert index.find(0) == index.find_time(0) == 0
    assert index.drop(0) == []
    for i in (0, -1):
        with pytest.raises(IndexError):
            index[i]
    with pytest.raises(ValueError, match="whole number"):
        OffsetIndex(bytes(ENTRY_BYTES + 1))
    index.append(
        end=5, span=5, cumulative_size=9, max_timestamp=3, object_epoch=1, object_sequence=2, position=4, length=9,
        flags=0,
    )  # fmt: skip
    assert repr(index) == "<OffsetIndex 1 entries, offsets 0 to 5>"
    with pytest.raises(IndexError):
        index[-2]
