"""Holds as they are described, for the command line, HTTP and metrics."""

from headwater.replica.described import hold_lines, oldest_seconds
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import Fence, SetLevel, Tick
from headwater.state.commands.holds import TakeHold
from headwater.state.commands.streams import DropStreams
from headwater.state.machine import LEVEL, LEVELS
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.support.scribe import START_MS, Scribe

PROMISES = ("O6",)

GATEWAY, OTHER = 5, 6


def test_holds_are_described() -> None:
    """The oldest first; only one that keeps something back has an age that counts."""
    state = StreamsState(Domain(1))
    scribe = Scribe(state)
    scribe.do(1, SetLevel(LEVEL, LEVELS[LEVEL]))
    scribe.streams(1)
    scribe.append(1, 1, [(100, 1, 5)])
    scribe.do(GATEWAY, TakeHold())
    scribe.do(1, Tick(), START_MS + 3_000)
    scribe.do(OTHER, TakeHold(), START_MS + 3_000)
    states = [ClusterState(), state]
    assert [(line.epoch, line.age_ms, line.keeps) for line in hold_lines(states)] == [
        (GATEWAY, 3_000, False), (OTHER, 0, False),
    ]  # fmt: skip
    assert oldest_seconds([state]) == 0
    scribe.do(1, DropStreams((1,)), START_MS + 3_000)
    assert [line.keeps for line in hold_lines(states)] == [True, True]
    assert oldest_seconds([state]) == 3
    scribe.do(1, Fence(GATEWAY), START_MS + 4_000)
    assert oldest_seconds([state]) == 1
