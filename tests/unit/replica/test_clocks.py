"""What is said of the clocks of processes."""

import logging

import pytest

from headwater.clock import WaryClock
from headwater.replica.clocks import DateWatch, clock_lines, clock_words, span, times_lines
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import Tick
from headwater.state.commands.cluster import TakeEpoch
from headwater.state.results import Done
from tests.support.promise import promise
from tests.support.scribe import START_MS, Scribe
from tests.unit.test_clock import Source

PROMISES = ("M1", "L6")
DAY = 86_400_000


def cluster_of(*nodes: int) -> tuple[ClusterState, Scribe]:
    """A cluster with a process for each node; -1 serves no clients."""
    state = ClusterState()
    scribe = Scribe(state)
    for i, node in enumerate(nodes):
        scribe.write(0, TakeEpoch(f"p{i}", node, "", (), 1, "0.1.0"))
        assert scribe.do(i + 1, Tick()) == Done()
    return state, scribe


@promise("M1")
def test_a_clock_that_differs_is_named() -> None:
    state, scribe = cluster_of(3, 4, -1)
    clock = WaryClock(Source())
    assert clock_words(state, clock) == []
    scribe.do(2, Tick(), START_MS - 3 * DAY)
    assert clock_words(state, clock) == [
        "the wall clock of broker 4 is 3 days behind that of the others: set the clock of its host right"
    ]
    scribe.do(2, Tick(), START_MS)
    scribe.write(3, Tick(), clock_ms=START_MS + 90_000, steady_ms=START_MS)
    [words] = clock_words(state, clock)
    assert words.startswith("the wall clock of the process of epoch 3 is 90 s ahead of that of the others")
    assert [line.ahead_ms for line in clock_lines(state)] == [0, 0, 90_000]


@promise("M1")
def test_a_jump_of_the_own_host_is_told() -> None:
    state, _ = cluster_of(3)
    source = Source()
    clock = WaryClock(source)
    source.wall += 30 * DAY
    clock.wall_ms()
    [words] = clock_words(state, clock)
    assert words.startswith("the wall clock of this host has jumped ahead by 30 days: set it right.")


@promise("M1")
def test_the_log_names_whose_clocks_moved_the_date(caplog: pytest.LogCaptureFixture) -> None:
    state, scribe = cluster_of(3, 4, 5)
    watch = DateWatch()
    with caplog.at_level(logging.WARNING, "headwater.clock"):
        watch.look(state)
        scribe.write(1, Tick(), clock_ms=START_MS + DAY, steady_ms=START_MS)
        watch.look(state)
        assert not caplog.records
        scribe.write(2, Tick(), clock_ms=START_MS + DAY, steady_ms=START_MS)
        watch.look(state)
    [record] = caplog.records
    assert record.by_ms == DAY  # type: ignore[attr-defined]
    assert record.by_clocks_of == ["broker 3", "broker 4"]  # type: ignore[attr-defined]


@promise("L6")
def test_the_times_of_a_domain() -> None:
    state, scribe = cluster_of(3)
    [line] = times_lines([state])
    assert (line.ledger_ms, line.date_ms, line.retention_ms, line.believed_in_ms) == (START_MS,) * 3 + (None,)
    scribe.write(1, Tick(), clock_ms=START_MS + DAY, steady_ms=START_MS)
    [line] = times_lines([state])
    assert (line.date_ms, line.retention_ms, line.believed_in_ms) == (START_MS + DAY, START_MS, 1_800_000)


def test_spans() -> None:
    assert [span(ms) for ms in (0, 1_500, -90_000, 180_000, 8_000_000, 30 * DAY)] == [
        "0 s", "1.5 s", "90 s", "3 minutes", "2.22 hours", "30 days"
    ]  # fmt: skip
