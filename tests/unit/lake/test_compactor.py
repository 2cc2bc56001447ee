"""T1: the command that a settled topic becomes."""

from headwater.lake.compactor import settle_command
from headwater.lake.tasks import FileFacts, PartRun
from headwater.state.commands.base import SetLevel
from headwater.state.commands.tables import SegmentRun, Settle, SettleRuns
from headwater.state.machine import LEVEL, LEVELS
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.support.scribe import TOPIC, Scribe

FACTS = [
    FileFacts(None, [PartRun(2, 5, 9, 0, 0, 40)], []),
    FileFacts(None, [PartRun(1, 0, 4, 0, 0, 30), PartRun(2, 0, 5, 0, 0, -1)], []),
]
RUNS = [SegmentRun(1, 0, 4, -1, 0, 0), SegmentRun(2, 0, 5, -1, 0, 0), SegmentRun(2, 5, 9, -1, 0, 0)]


def test_by_level() -> None:
    """M8, T1: builds of the first level must be able to read what a newer compactor writes."""
    state = StreamsState(Domain(1))
    assert settle_command(state, 3, TOPIC, "root", FACTS) == Settle(3, TOPIC, "root", [], RUNS)
    Scribe(state).do(1, SetLevel(LEVEL, LEVELS[LEVEL]))
    assert settle_command(state, 3, TOPIC, "root", FACTS) == SettleRuns(3, TOPIC, "root", [], RUNS, [30, -1, 40])
