"""Typed columns in the state: what is added, what is known of files, and which merges are refused."""

import uuid
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.segment.schema import segment_schema
from headwater.state.commands.base import SetLevel, TakeLease, Tick
from headwater.state.commands.columns import (
    KEY_COLUMN,
    AddColumns,
    Addition,
    Bounds,
    Column,
    FileTyping,
    FillFiles,
    Replace,
    SettleFiles,
    WantDecoded,
    additions,
    grown,
    up_to,
    walk,
)
from headwater.state.commands.streams import DropStreams, TrimStreams
from headwater.state.commands.tables import Follow, ForgetFiles, Merge, NewFile, Reserve, SegmentRun, SettleRuns
from headwater.state.machine import LEVELS, TYPED_LEVEL
from headwater.state.records import decode
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams import typed
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.typed import Columns, ColumnsVersion
from headwater.types import Domain, Position
from tests.support.promise import promise
from tests.support.scribe import START_MS, TOPIC, Scribe

PROMISES = ("T6", "T17")

A = 1
ROOT = "tables/t-7"
MASK = (1 << 64) - 1


def column(number: int, name: str, kind: str = "string", *children: Column) -> Column:
    return Column(number, name, name, kind, "", children)


ERROR = column(100, "decode_error")
DATA = column(101, "value_data", "struct", column(102, "a", "long"))


class Story:
    """A state at level 6 with a stream, and a compactor that holds the lease as epoch 9."""

    def __init__(self, level: int = TYPED_LEVEL) -> None:
        self.scribe = Scribe(StreamsState(Domain(1)))
        self.scribe.streams(A)
        self.scribe.do(1, SetLevel(level, LEVELS[level]))
        result = self.scribe.do(9, TakeLease(COMPACTION, 1 << 40))
        assert isinstance(result, Done)
        self.lease = result.value
        self.files = 0

    @property
    def state(self) -> StreamsState:
        assert isinstance(self.scribe.state, StreamsState)
        return self.scribe.state

    def add(self, *added: Column, parent: int = 0, expected: int | None = None, epoch: int = 9) -> Result:
        known = self.state.typed.get(TOPIC)
        version = known.columns.version if known is not None else 0
        command = AddColumns(
            self.lease, TOPIC, version if expected is None else expected, [Addition(parent, c) for c in added]
        )
        return self.scribe.do(epoch, command)

    def file(self, rows: int) -> NewFile:
        self.files += 1
        return NewFile(f"_data/{self.files}.parquet", 1_000, rows, 1, 0, 0, 0, 99, 1, 9, 0, 7)

    def settle(self, rows: int, typing: FileTyping | None) -> Result:
        """Append and settle some rows."""
        start = self.state.streams[A].next_offset
        self.scribe.append(1, A, [(100, rows, 5)])
        run = SegmentRun(A, start, start + rows, 0, 0, 1)
        if typing is None:
            return self.scribe.do(9, SettleRuns(self.lease, TOPIC, ROOT, [self.file(rows)], [run], [5]))
        command = SettleFiles(self.lease, TOPIC, ROOT, [self.file(rows)], [run], [5], [typing])
        return self.scribe.do(9, command)

    def replace(self, removed: list[int], typing: FileTyping, *, rewrites: bool = False) -> Result:
        files = self.state.tables[TOPIC].files
        rows = sum(files[number].rows for number in removed)
        entries = [entry for entry in self.state.streams[A].index if entry.file in removed]
        run = SegmentRun(A, entries[0].start, entries[-1].end, 0, 0, 1)
        return self.scribe.do(9, Replace(self.lease, TOPIC, removed, [self.file(rows)], [run], [typing], rewrites))


@pytest.fixture
def story() -> Story:
    return Story()


def refused(result: Result, reason: Reason, text: str = "") -> None:
    assert isinstance(result, Refused), result
    assert result.reason is reason
    assert text in result.detail


# --- columns -------------------------------------------------------------------------------------------


@promise("T6")
def test_columns_are_added_and_their_history_is_kept(story: Story) -> None:
    """A version holds for the journal entries after it, and every version can be looked up."""
    assert story.add(ERROR, DATA) == Done(1)
    assert story.settle(3, FileTyping(5, 1, 0, ())) == Done(1)
    assert story.add(column(103, "b", "double"), parent=101) == Done(2)
    assert story.settle(3, FileTyping(5, 2, 0, ())) == Done(2)
    columns = story.state.typed[TOPIC].columns
    assert columns.versions == (ColumnsVersion(102, 0), ColumnsVersion(103, 1))
    assert [columns.at(sequence) for sequence in range(4)] == [0, 1, 2, 2]
    assert columns.of(0) == () and columns.of(1) == (ERROR, DATA)
    wider = msgspec.structs.replace(DATA, children=(*DATA.children, column(103, "b", "double")))
    assert columns.of(2) == columns.newest == (ERROR, wider)
    assert (columns.version, columns.last_id) == (2, 103)


@promise("T17")
def test_bounds_of_columns_are_kept_and_bounded(story: Story) -> None:
    """Of the key and of columns that the table has, few and short."""
    story.add(ERROR, DATA)
    kept = (Bounds(KEY_COLUMN, 1, b"a", None), Bounds(102, 0, b"1" * 256, b"2"))
    assert story.settle(3, FileTyping(5, 1, 0, kept)) == Done(1)
    assert story.state.typed[TOPIC].files[1].bounds == kept
    many = tuple(Bounds(number, 0, None, None) for number in (KEY_COLUMN, *range(100, 164)))
    for wrong in (
        (Bounds(6, 0, None, None),),
        (Bounds(103, 0, None, None),),
        (Bounds(102, 4, None, None),),
        (Bounds(102, -1, None, None),),
        (Bounds(102, 0, b"x" * 257, None),),
        (Bounds(102, 0, None, b"x" * 257),),
        (Bounds(102, 0, None, None), Bounds(KEY_COLUMN, 0, None, None)),
        (Bounds(102, 0, None, None), Bounds(102, 0, None, None)),
        many,
    ):
        refused(story.settle(3, FileTyping(5, 1, 0, wrong)), Reason.INVALID, "_data/")


@promise("T6")
def test_a_topic_has_columns_before_it_has_a_table(story: Story) -> None:
    """The first settle of a topic needs them. They go with the topic."""
    assert story.add(ERROR) == Done(1)
    assert not story.state.tables
    assert story.scribe.do(1, DropStreams((A,))) == Done()
    assert not story.state.typed
    refused(story.add(ERROR, expected=0), Reason.UNKNOWN)


@promise("T6")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: s.add(expected=1), Reason.INVALID),
        (lambda s: s.add(column(103, "c"), expected=0), Reason.STALE),
        (lambda s: s.add(column(103, "c"), expected=2), Reason.STALE),
        (lambda s: s.add(column(103, "c"), epoch=8), Reason.STALE),
        (lambda s: s.add(column(102, "c")), Reason.INVALID),  # the id is used
        (lambda s: s.add(column(99, "c")), Reason.INVALID),
        (lambda s: s.add(column(1 << 31, "c")), Reason.INVALID),
        (lambda s: s.add(column(103, "c"), column(103, "d")), Reason.INVALID),
        (lambda s: s.add(column(103, "c", "struct", column(103, "d"))), Reason.INVALID),
        (lambda s: s.add(column(103, "c"), parent=100), Reason.INVALID),  # no struct
        (lambda s: s.add(column(103, "c"), parent=77), Reason.INVALID),
        (lambda s: s.add(column(103, "a"), parent=101), Reason.INVALID),  # the name is used
        (lambda s: s.add(column(103, "c"), column(104, "c")), Reason.INVALID),
        (lambda s: s.add(column(103, "offset")), Reason.INVALID),  # a column of the log
        (lambda s: s.add(column(103, "")), Reason.INVALID),
        (lambda s: s.add(column(103, "n" * 1_001)), Reason.INVALID),
        (lambda s: s.add(Column(103, "c", "c", "string", "d" * 1_001, ())), Reason.INVALID),
        (lambda s: s.add(column(103, "c", "text")), Reason.INVALID),
        (lambda s: s.add(column(103, "c", "int")), Reason.INVALID),
        (lambda s: s.add(column(103, "c", "decimal(39,2)")), Reason.INVALID),
        (lambda s: s.add(column(103, "c", "decimal(3,4)")), Reason.INVALID),
        (lambda s: s.add(column(103, "c", "decimal(0,0)")), Reason.INVALID),
        (lambda s: s.add(column(103, "c", "struct")), Reason.INVALID),
        (lambda s: s.add(column(103, "c", "long", column(104, "d"))), Reason.INVALID),
        (lambda s: s.add(column(103, "c", "list", column(104, "d"))), Reason.INVALID),
        (lambda s: s.add(column(103, "c", "map", column(104, "key"))), Reason.INVALID),
        (lambda s: s.add(deep(70)), Reason.INVALID),
        (lambda s: s.add(deep(64), parent=101), Reason.INVALID),
        (lambda s: s.add(*(column(103 + i, f"c{i}") for i in range(9_998))), Reason.INVALID),
        (lambda s: s.scribe.do(9, AddColumns(s.lease, uuid.UUID(int=8), 0, [])), Reason.UNKNOWN),
        (lambda s: s.scribe.do(9, AddColumns(s.lease + 1, TOPIC, 1, [])), Reason.STALE),
    ],
)
def test_columns_that_do_not_fit_change_nothing(
    story: Story, change: Callable[[Story], Result], reason: Reason
) -> None:
    story.add(ERROR, DATA)
    before, columns = story.state.digest, story.state.typed[TOPIC].columns
    refused(change(story), reason)
    assert (story.state.digest, story.state.typed[TOPIC].columns) == (before, columns)


def deep(levels: int) -> Column:
    found = column(1_000, "leaf")
    for i in range(1, levels):
        found = column(1_000 + i, "c", "struct", found)
    return found


@promise("T6")
def test_the_largest_columns_that_fit(story: Story) -> None:
    """Every kind, decimals of all sizes, 64 levels, 10,000 columns."""
    kinds = ["boolean", "long", "double", "decimal(38,38)", "decimal(1,0)", "date", "timestamp", "timestamptz"]
    kinds += ["string", "binary", "json"]
    assert story.add(*(column(100 + i, f"c{i}", kind) for i, kind in enumerate(kinds))) == Done(1)
    nested = column(200, "m", "map", column(201, "key"), column(202, "value", "list", column(203, "element", "long")))
    assert story.add(nested) == Done(2)
    assert story.add(deep(64)) == Done(3)
    left = typed.MAX_COLUMNS - len(list(walk(story.state.typed[TOPIC].columns.newest)))
    assert story.add(*(column(2_000 + i, f"n{i}") for i in range(left))) == Done(4)
    refused(story.add(column(50_000, "more")), Reason.INVALID, "10000")


@promise("T6")
def test_no_typed_column_hides_one_of_the_log() -> None:
    """The state knows the names of the log's columns without pyarrow."""
    assert frozenset(segment_schema().names) == typed.LOG_COLUMNS


names = st.text(st.sampled_from("abc"), min_size=1, max_size=2)


@promise("T6")
@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 30), names, st.booleans()), min_size=1, max_size=4), max_size=8))
def test_every_version_is_found_again(rounds: list[list[tuple[int, str, bool]]]) -> None:
    """Additions lead from one version to the next, and back by the last id; replay equals checkpoint."""
    story = Story()
    known: list[tuple[Column, ...]] = [()]
    number = 100
    for wanted in rounds:
        parents = [0, *(c.id for c in walk(known[-1]) if c.kind == "struct")]
        added = []
        for parent, name, struct in wanted:
            children = (column(number + 1, "x"),) if struct else ()
            added.append(
                Addition(
                    parents[parent % len(parents)], column(number, name, "struct" if struct else "long", *children)
                )
            )
            number += 2
        result = story.scribe.do(9, AddColumns(story.lease, TOPIC, len(known) - 1, added))
        if isinstance(result, Done):
            known.append(grown(known[-1], added))
            assert grown(known[-2], additions(known[-2], known[-1])) == known[-1]
    columns = story.state.typed[TOPIC].columns if TOPIC in story.state.typed else Columns()
    assert [columns.of(version) for version in range(columns.version + 1)] == known
    assert all(up_to(columns.newest, v.last_id) == known[i] for i, v in enumerate(columns.versions, 1))
    again = StreamsState(Domain(1))
    again.restore(story.state.image())
    assert again.image() == story.state.image()
    assert again.typed.keys() == story.state.typed.keys()
    assert all(again.typed[topic].columns == one.columns for topic, one in story.state.typed.items())


# --- files ---------------------------------------------------------------------------------------------


@promise("T5")
def test_a_merge_has_the_digest_of_its_files(story: Story) -> None:
    """The sums are compared modulo 2^64; one that differs changes nothing."""
    story.add(ERROR)
    story.settle(3, FileTyping(MASK, 1, 0, ()))
    story.settle(4, FileTyping(3, 1, 2, ()))
    before = story.state.image()
    for digest in (0, 1, 3, MASK):
        refused(story.replace([1, 2], FileTyping(digest, 1, 2, ())), Reason.INVALID, "digests")
    story.scribe.do(9, Tick())
    assert story.state.tables[TOPIC].last_sequence == 2 and len(before) <= len(story.state.image()) + 16
    assert story.replace([1, 2], FileTyping(2, 1, 2, ())) == Done(3)
    assert story.state.tables[TOPIC].journal[-1].operation == "merge"
    assert story.state.typed[TOPIC].files[3] == FileTyping(2, 1, 2, ())


@promise("T17")
def test_a_rewrite_changes_rows_of_the_table(story: Story) -> None:
    """It is a kind of entry of its own, and has the log's rows too."""
    story.settle(3, FileTyping(7, 0, 0, ()))
    assert [f.number for f in story.state.typed[TOPIC].undecoded(story.state.tables[TOPIC].live())] == [1]
    story.add(ERROR)
    refused(story.replace([1], FileTyping(8, 1, 0, ()), rewrites=True), Reason.INVALID)
    refused(story.replace([1], FileTyping(7, 1, 0, ())), Reason.INVALID, "a merge decodes none")
    assert story.replace([1], FileTyping(7, 1, 0, ()), rewrites=True) == Done(2)
    entry = story.state.tables[TOPIC].journal[-1]
    assert (entry.operation, entry.replaces, entry.added, entry.removed) == ("rewrite", False, (2,), (1,))
    assert not list(story.state.typed[TOPIC].undecoded(story.state.tables[TOPIC].live()))


@promise("T17")
def test_a_rewrite_reaches_rows_that_the_log_has_left(story: Story) -> None:
    """Files of which the table alone is left have no runs. A merge of them is refused, and so are half truths."""
    story.settle(3, FileTyping(7, 0, 0, ()))
    story.settle(4, FileTyping(8, 0, 0, ()))
    story.add(ERROR)
    story.scribe.do(1, TrimStreams([(A, 3)]))
    assert [file.references for file in story.state.tables[TOPIC].live()] == [0, 1]
    for removed, rows, digest, rewrites, reason in (
        ([1], 3, 7, False, Reason.INVALID),
        ([1], 3, 6, True, Reason.INVALID),
        ([1], 2, 7, True, Reason.INVALID),
        ([2], 4, 8, True, Reason.STALE),  # the log has it
    ):
        typings = [FileTyping(digest, 1 if rewrites else 0, 0, ())]
        command = Replace(story.lease, TOPIC, removed, [story.file(rows)], [], typings, rewrites)
        refused(story.scribe.do(9, command), reason)
    command = Replace(story.lease, TOPIC, [1], [story.file(3)], [], [FileTyping(7, 1, 0, ())], True)
    assert story.scribe.do(9, command) == Done(3)
    assert [file.number for file in story.state.tables[TOPIC].live()] == [2, 3]
    assert story.state.tables[TOPIC].journal[-1].operation == "rewrite"


@promise("T5")
def test_files_of_earlier_levels_are_compared_by_their_rows(story: Story) -> None:
    """They have no digest. Once they have one, a merge without digests is refused."""
    story.settle(3, None)
    story.settle(4, FileTyping(9, 0, 0, ()))
    run = SegmentRun(A, 0, 7, 0, 0, 1)
    refused(story.scribe.do(9, Merge(story.lease, TOPIC, [1, 2], [story.file(7)], [run])), Reason.STALE, "digests")
    assert story.replace([1, 2], FileTyping(123, 0, 0, ())) == Done(3)
    refused(story.scribe.do(9, Merge(story.lease, TOPIC, [3], [story.file(7)], [run])), Reason.STALE, "digests")
    assert story.replace([3], FileTyping(123, 0, 0, ())) == Done(4)


@promise("T17")
@pytest.mark.parametrize(
    "typing",
    [
        FileTyping(-1, 0, 0, ()),
        FileTyping(1 << 64, 0, 0, ()),
        FileTyping(1, -1, 0, ()),
        FileTyping(1, 2, 0, ()),
        FileTyping(1, 1, 4, ()),
    ],
)
def test_typings_that_cannot_be(story: Story, typing: FileTyping) -> None:
    story.add(ERROR)
    if typing.digest > MASK:
        with pytest.raises(OverflowError):  # no record can have it
            story.settle(3, typing)
        return
    refused(story.settle(3, typing), Reason.INVALID)
    assert not story.state.tables


@promise("T17")
def test_every_file_has_a_typing(story: Story) -> None:
    """Of settles, merges and bulk appends."""
    story.scribe.append(1, A, [(100, 3, 5)])
    run = SegmentRun(A, 0, 3, 0, 0, 1)
    refused(story.scribe.do(9, SettleFiles(story.lease, TOPIC, ROOT, [story.file(3)], [run], [5], [])), Reason.INVALID)
    assert story.scribe.do(9, Reserve(TOPIC, [(A, 2)], 1_000)) == Done(1)
    filled = SegmentRun(A, 3, 5, 0, 0, 1)
    refused(story.scribe.do(9, FillFiles(1, ROOT, [story.file(2)], [filled], [5], [])), Reason.INVALID)
    assert story.scribe.do(9, FillFiles(1, ROOT, [story.file(2)], [filled], [5], [FileTyping(4, 0, 0, ())])) == Done(1)
    assert story.state.typed[TOPIC].files == {1: FileTyping(4, 0, 0, ())}


@promise("T6")
def test_callers_want_files_decoded_again(story: Story) -> None:
    """Those with failures, or all. Files that come later are not meant."""
    refused(story.scribe.do(1, WantDecoded(TOPIC, False)), Reason.UNKNOWN)
    story.add(ERROR)
    story.settle(3, FileTyping(1, 1, 0, ()))
    story.settle(3, FileTyping(2, 1, 2, ()))
    story.settle(3, FileTyping(3, 0, 0, ()))

    def waiting() -> list[int]:
        return [file.number for file in story.state.typed[TOPIC].undecoded(story.state.tables[TOPIC].live())]

    assert waiting() == [3]
    assert story.scribe.do(1, WantDecoded(TOPIC, False)) == Done(2)
    assert waiting() == [2, 3]
    assert story.replace([2], FileTyping(2, 1, 2, ()), rewrites=True) == Done(4)
    assert waiting() == [3], "a file that fails again is not tried again"
    assert story.scribe.do(1, WantDecoded(TOPIC, True)) == Done(3)
    assert waiting() == [1, 3, 4]
    again = StreamsState(Domain(1))
    again.restore(story.state.image())
    assert again.image() == story.state.image()
    assert (again.typed[TOPIC].failed_up_to, again.typed[TOPIC].all_up_to) == (4, 4)


@promise("T6")
def test_typings_go_with_their_files_and_columns_with_their_table(story: Story) -> None:
    """Nothing is left of a table that is deleted."""
    story.add(ERROR)
    story.settle(3, FileTyping(1, 1, 0, ()))
    story.settle(3, FileTyping(2, 1, 0, ()))
    story.replace([1, 2], FileTyping(3, 1, 0, ()))
    assert story.scribe.do(9, ForgetFiles(story.lease, TOPIC, [1, 3])) == Done(1)
    assert set(story.state.typed[TOPIC].files) == {2, 3}
    assert story.scribe.do(9, Follow(story.lease, TOPIC, "delta", "", "", 3, 3)) == Done()
    story.scribe.do(1, DropStreams((A,)))
    refused(story.add(column(103, "late")), Reason.UNKNOWN)
    assert story.state.typed[TOPIC].columns.version == 1
    assert story.scribe.do(9, ForgetFiles(story.lease, TOPIC, [2, 3])) == Done(2)
    assert not story.state.typed and not story.state.tables


# --- histories -----------------------------------------------------------------------------------------

steps = st.tuples(st.sampled_from(["add", "settle", "old", "merge", "rewrite", "want", "forget", "drop"]),
                  st.integers(0, 7), st.integers(0, 7))  # fmt: skip


class History(Story):
    """Takes numbers for choices. Keeps the digest of every file's rows itself."""

    def __init__(self) -> None:
        super().__init__()
        self.digests: dict[int, int] = {}
        self.last_id = 99

    def live(self) -> list[int]:
        """The files in the order of their offsets."""
        return [entry.file for entry in self.state.streams[A].index if entry.file] if self.state.streams else []

    def version(self) -> int:
        return self.state.typed[TOPIC].columns.version if TOPIC in self.state.typed else 0

    def step(self, what: str, a: int, b: int) -> None:
        version, live = self.version(), self.live()
        if A not in self.state.streams:
            return
        if what == "add":
            self.last_id += 1
            assert self.add(column(self.last_id, f"c{self.last_id}"), expected=version) == Done(version + 1)
        elif what in ("settle", "old"):
            digest = (a * 8 + b) * 0x123456789ABCDEF & MASK
            typing = FileTyping(digest, min(a, version), 0, ()) if what == "settle" else None
            assert isinstance(self.settle(a + 1, typing), Done)
            self.digests[self.state.last_file] = digest
        elif what in ("merge", "rewrite") and live:
            first = a % len(live)
            chosen = live[first : first + 1 + b % 3]
            known, rewrites = self.state.typed.get(TOPIC), what == "rewrite"
            total = sum(self.digests[n] for n in chosen) & MASK
            sums = known.digest(chosen) if known is not None else None
            assert sums in (None, total)
            decoded = known is not None and all(n in known.files and known.files[n].version for n in chosen)
            told = FileTyping(total + (b == 7) & MASK, version if rewrites or decoded else 0, 0, ())
            result = self.replace(chosen, told, rewrites=rewrites)
            assert isinstance(result, Refused) == (b == 7 and sums is not None)
            if isinstance(result, Done):
                self.digests[self.state.last_file] = told.digest
        elif what == "want" and live:
            assert isinstance(self.scribe.do(1, WantDecoded(TOPIC, a % 2 == 0)), Done)
        elif what == "forget" and live:
            self.scribe.do(9, ForgetFiles(self.lease, TOPIC, list(range(self.state.last_file + 1))))
        elif what == "drop" and a == b == 0:
            self.scribe.do(1, DropStreams((A,)))

    def check(self) -> None:
        for topic, one in self.state.typed.items():
            table = self.state.tables.get(topic)
            assert one.files.keys() <= (table.files.keys() if table is not None else set())
            assert all(typing.version <= one.columns.version for typing in one.files.values())
            ids = [c.id for c in walk(one.columns.newest)]
            assert len(set(ids)) == len(ids) and max(ids, default=99) == one.columns.last_id
            assert [v.last_id for v in one.columns.versions] == sorted({v.last_id for v in one.columns.versions})


@promise("T17", "M1")
@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=25), st.integers(0, 40))
def test_any_order(plan: list[tuple[str, int, int]], cut: int) -> None:
    """No merge or rewrite has other rows than its files, and replay equals checkpoint."""
    history = History()
    images = [history.state.image()]
    for step in plan:
        history.step(*step)
        history.check()
        images.append(history.state.image())
    again = StreamsState(Domain(1))
    again.restore(images[min(cut, len(images) - 1)])
    for position in range(again.position, len(history.scribe.records)):
        again.apply(Position(position + 1), decode(history.scribe.records[position]))
    assert again.image() == images[-1]
    assert again.digest == history.state.digest


@promise("M5")
def test_below_the_level_nothing_is_different() -> None:
    """The same commands give the same image as in a build that does not know the level."""
    story = Story(level=5)
    story.settle(3, None)
    story.settle(4, None)
    run = SegmentRun(A, 0, 7, 0, 0, 1)
    assert story.scribe.do(9, Merge(story.lease, TOPIC, [1, 2], [story.file(7)], [run])) == Done(3)
    before = story.state.digest
    refused(story.settle(1, FileTyping(1, 0, 0, ())), Reason.INVALID, "headwater cluster upgrade")
    refused(story.add(ERROR), Reason.INVALID, "headwater cluster upgrade")
    assert not story.state.typed and b"typed" not in story.state.image() and story.state.clock_ms == START_MS
    assert before != story.state.digest, "the append of the settle that was refused"
