"""Cursors of dead letters move with the unit that appends the letters, or not at all."""

from __future__ import annotations

from headwater.state.commands.streams import CursorIs, DropStreams, StartAt
from headwater.state.machine import TYPED_LEVEL
from headwater.state.results import Reason, Refused, UnitResult
from headwater.state.streams.state import StreamsState
from headwater.types import Domain
from tests.support.promise import promise
from tests.unit.state.streams.test_units import ACCEPTED, CONFLICT, A, B, Log

PROMISES = ("T7",)


def settled(level: int = TYPED_LEVEL) -> Log:
    """Stream A is settled up to 10."""
    log = Log(level)
    assert log.one({A: 1}, StartAt(A, 10)).verdict is ACCEPTED
    assert log.state.streams[A].settled == 10
    return log


@promise("T7")
def test_a_cursor_moves_with_its_unit() -> None:
    """The second of two that expect the same cursor appends nothing."""
    log = settled()
    first, second = log.append(([CursorIs(A, 0, 5)], {B: 2}), ([CursorIs(A, 0, 5)], {B: 2}))
    assert first is not None and first.verdict is ACCEPTED
    assert second == UnitResult(CONFLICT, [0], [5], [])
    assert log.ends() == (11, 2) and log.state.letters == {A: 5}
    assert log.one({B: 1}, CursorIs(A, 5, 10)).verdict is ACCEPTED
    assert log.state.letters == {A: 10}


@promise("T7")
def test_a_cursor_stays_with_a_unit_that_is_refused() -> None:
    """Whatever refuses the unit."""
    log = settled()
    assert log.one({B: 1}, CursorIs(A, 0, 5), StartAt(B, 1 << 60)).verdict is CONFLICT
    assert log.one({99: 1}, CursorIs(A, 0, 5)).verdict is not ACCEPTED
    assert log.one({B: 1}, CursorIs(A, 0, 11)) == UnitResult(CONFLICT, [0], [-1], [])  # not settled yet
    assert log.one({B: 1}, CursorIs(99, 0, 5)).verdict is CONFLICT
    for flawed in ([CursorIs(A, 5, 5)], [CursorIs(A, -1, 5)], [CursorIs(A, 0, 5), CursorIs(A, 0, 6)]):
        refused = log.scribe.do(1, log.command((flawed, {B: 1})))
        assert isinstance(refused, Refused) and refused.reason is Reason.INVALID
    assert not log.state.letters and log.ends() == (11, 0)


def test_an_older_level_knows_no_cursors() -> None:
    log = settled(TYPED_LEVEL - 1)
    refused = log.scribe.do(1, log.command(([CursorIs(A, 0, 5)], {B: 1})))
    assert isinstance(refused, Refused) and f"level {TYPED_LEVEL}" in refused.detail


def test_cursors_are_in_checkpoints_and_go_with_their_streams() -> None:
    log = settled()
    log.one({B: 1}, CursorIs(A, 0, 5))
    copy = StreamsState(Domain(1))
    copy.restore(log.state.image())
    assert copy.letters == {A: 5} and copy.image() == log.state.image()
    log.scribe.do(1, DropStreams((A,)))
    assert not log.state.letters
