"""Holds as they are described, for the command line, HTTP and metrics."""

from headwater.replica.described import hold_lines, lease_lines, member_line, oldest_seconds
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import Fence, TakeLease, Tick
from headwater.state.commands.cluster import TakeEpoch
from headwater.state.commands.holds import TakeHold
from headwater.state.commands.streams import DropStreams
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.support.scribe import START_MS, Scribe

PROMISES = ("O6",)

GATEWAY, OTHER = 5, 6


def test_holds_are_described() -> None:
    """The oldest first; only one that keeps something back has an age that counts."""
    state = StreamsState(Domain(1))
    scribe = Scribe(state)
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


def test_leases_of_the_dead_are_not_shown() -> None:
    """Neither one whose process is gone, nor one that has run out: both are free."""
    cluster = ClusterState()
    scribe = Scribe(cluster)
    for name in ("1/0.1/a/1", "compactor/0.1/b/1"):
        scribe.do(0, TakeEpoch(name, 1 if name[0] == "1" else -1, "", (), 1, "0.1"))
    first, second = cluster.processes
    scribe.do(first, TakeLease("kept", 9_000))
    scribe.do(second, TakeLease("short", 1_000))
    assert [line.name for line in lease_lines(cluster, [cluster])] == ["kept", "short"]
    assert [member_line(cluster, [], member).role for member in cluster.processes.values()] == ["broker", "compactor"]
    scribe.do(first, Tick(), START_MS + 2_000)
    assert [line.name for line in lease_lines(cluster, [cluster])] == ["kept"]
    scribe.do(second, Fence(first), START_MS + 2_000)
    assert lease_lines(cluster, [cluster]) == []
