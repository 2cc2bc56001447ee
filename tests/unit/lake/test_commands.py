"""The command that a settled topic becomes."""

from headwater.lake.commands import failures_of, replace_command, settle_command
from headwater.lake.tasks import FileFacts, PartRun, TypedFacts
from headwater.state.commands.base import SetLevel
from headwater.state.commands.columns import Bounds, FileTyping, Replace, SettleFiles
from headwater.state.commands.tables import Merge, NewFile, SegmentRun, Settle, SettleRuns
from headwater.state.machine import LEVELS, TYPED_LEVEL
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.typed import TypedTable
from headwater.types import Domain
from tests.support.promise import promise
from tests.support.scribe import TOPIC, Scribe

PROMISES = ("T1",)

FACTS = [
    FileFacts(None, [PartRun(2, 5, 9, 0, 0, 40)], []),
    FileFacts(None, [PartRun(1, 0, 4, 0, 0, 30), PartRun(2, 0, 5, 0, 0, -1)], []),
]
RUNS = [SegmentRun(1, 0, 4, -1, 0, 0), SegmentRun(2, 0, 5, -1, 0, 0), SegmentRun(2, 5, 9, -1, 0, 0)]


@promise("M5", "T1")
def test_by_level() -> None:
    """Builds of the first level must be able to read what a newer compactor writes."""
    state = StreamsState(Domain(1))
    assert settle_command(state, 3, TOPIC, "root", FACTS) == Settle(3, TOPIC, "root", [], RUNS)
    assert replace_command(state, 3, TOPIC, [8], FACTS) == Merge(3, TOPIC, [8], [], RUNS)
    scribe = Scribe(state)
    scribe.do(1, SetLevel(TYPED_LEVEL - 1, LEVELS[TYPED_LEVEL - 1]))
    assert settle_command(state, 3, TOPIC, "root", FACTS) == SettleRuns(3, TOPIC, "root", [], RUNS, [30, -1, 40])
    scribe.do(1, SetLevel(TYPED_LEVEL, LEVELS[TYPED_LEVEL]))
    assert settle_command(state, 3, TOPIC, "root", FACTS) == SettleFiles(3, TOPIC, "root", [], RUNS, [30, -1, 40], [])
    assert replace_command(state, 3, TOPIC, [8], FACTS) == Replace(3, TOPIC, [8], [], RUNS, [], False)


NEW = NewFile("f", 9, 2, 1, 0, 0, 0, 1, 5, 5, 0, 7)


@promise("T7")
def test_what_is_told_of_files() -> None:
    """A settled or rewritten file is as decoded as its task says, a merged one as its sources were."""
    state = StreamsState(Domain(1))
    Scribe(state).do(1, SetLevel(TYPED_LEVEL, LEVELS[TYPED_LEVEL]))
    bounds = (Bounds(5, 0, b"a", b"b"),)
    facts = [FileFacts(NEW, [], [], TypedFacts(3, 1), 77, bounds), FileFacts(None, [], [])]
    settled = settle_command(state, 3, TOPIC, "root", facts)
    assert isinstance(settled, SettleFiles) and settled.typings == [FileTyping(77, 3, 1, bounds)]
    assert failures_of(settled) == 1
    rewritten = replace_command(state, 3, TOPIC, [8], facts, rewrites=True)
    assert isinstance(rewritten, Replace) and rewritten.typings == [FileTyping(77, 3, 1, bounds)]
    state.typed[TOPIC] = TypedTable()
    state.typed[TOPIC].files.update(
        {8: FileTyping(1, 2, 1, ()), 9: FileTyping(1, 1, 4, ()), 10: FileTyping(1, 0, 0, ())}
    )
    for removed, version in (([8, 9], 2), ([8, 10], 0), ([7], 0)):
        merged = replace_command(state, 3, TOPIC, removed, facts)
        assert isinstance(merged, Replace) and not merged.rewrites
        assert merged.typings == [FileTyping(77, version, 1, bounds)]
