"""A wall clock that jumps."""

import logging

import pytest

from headwater.clock import BELIEVED_AFTER_MS, JUMP_MS, LOOKS, WaryClock, host_clock
from tests.support.promise import promise

PROMISES = ("M1",)
SECOND, DAY = 1_000, 86_400_000


class Source:
    """A host whose clocks a test sets."""

    def __init__(self) -> None:
        self.passed_ms = 0
        self.wall = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self.passed_ms / 1000

    def run(self, ms: int) -> None:
        self.passed_ms += ms
        self.wall += ms


@promise("M1")
@pytest.mark.parametrize("jump", [30 * DAY, -30 * DAY, JUMP_MS + 1])
def test_a_jump_is_believed_when_it_lasts(jump: int, caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    clock, began = WaryClock(source), source.wall
    source.wall += jump
    with caplog.at_level(logging.WARNING, "headwater.clock"):
        for _ in range(BELIEVED_AFTER_MS // SECOND):
            assert clock.wall_ms() == began + source.passed_ms
            assert clock.jump_ms == jump
            source.run(SECOND)
        assert clock.wall_ms() == source.wall
    assert clock.jump_ms == 0
    assert [record.message for record in caplog.records] == [
        "the wall clock of this host has jumped, and is not believed for now",
        "the wall clock of this host has jumped for good",
    ]


@promise("M1")
def test_a_clock_that_is_set_right_again_was_never_believed() -> None:
    source = Source()
    clock, began = WaryClock(source), source.wall
    for _ in range(50):
        source.wall += 30 * DAY
        for _ in range(26):
            source.run(SECOND)
            assert clock.wall_ms() == began + source.passed_ms
        source.wall -= 30 * DAY
        source.run(SECOND)
        assert clock.wall_ms() == source.wall == began + source.passed_ms
        assert clock.jump_ms == 0


@promise("M1")
def test_small_corrections_are_taken_over_at_once() -> None:
    source = Source()
    clock = WaryClock(source)
    for step in (5, -5, JUMP_MS, -JUMP_MS, 400):
        source.wall += step
        assert clock.wall_ms() == source.wall
        assert clock.jump_ms == 0


@promise("M1")
def test_a_clock_that_keeps_jumping_is_not_believed() -> None:
    """Nor is one at which nobody looked in between."""
    source = Source()
    clock, began = WaryClock(source), source.wall
    for i in range(100):
        source.wall = began + source.passed_ms + (i + 1) * DAY
        assert clock.wall_ms() == began + source.passed_ms
        source.passed_ms += BELIEVED_AFTER_MS // 2
    source = Source()
    clock, began = WaryClock(source), source.wall
    source.wall += DAY
    for _ in range(LOOKS - 1):
        assert clock.wall_ms() == began + source.passed_ms
        source.run(BELIEVED_AFTER_MS)
    assert clock.wall_ms() == source.wall


def test_the_clock_of_this_host() -> None:
    clock = host_clock()
    first, second = clock.wall_ms(), clock.wall_ms()
    assert first <= second
    assert clock.jump_ms == 0
