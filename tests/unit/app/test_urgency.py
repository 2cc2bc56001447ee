"""Settling steps back less while tables are late, and back again when their targets have held for a while."""

import asyncio

from harness.virtual import VirtualClock, run
from headwater.app.urgency import CALM_LOOKS, LOOK_SECONDS, URGENCY, Priority, Urgency
from headwater.background import Background
from tests.support.promise import promise

PROMISES = ("T10", "T12")


def test_it_rises_step_by_step_and_falls_after_a_while() -> None:
    urgency = Urgency(10)
    assert [urgency.look(lag) for lag in (0.0, 1.9, 2.0, 2.1, 2.5, 3.0, 3.0, 9.0)] == [10, 10, 10, 5, 2, 1, 0, 0]
    assert [urgency.look(lag) for lag in (1.9, 1.0, 1.5)] == [0, 0, 0], "the target does not hold yet"
    calm = [urgency.look(0.5) for _ in range(CALM_LOOKS + 6)]
    assert calm == [0] * (CALM_LOOKS - 1) + [1, 2, 4, 8, 10, 10, 10]


def test_a_lag_that_goes_up_and_down_does_not_swing_it() -> None:
    urgency = Urgency(10)
    urgency.look(3.0)
    seen = {urgency.look(lag) for _ in range(20) for lag in (0.9, 1.1, 1.9)}
    assert seen == {5}


@promise("T10")
def test_a_process_follows_the_lag() -> None:
    """Every look moves while it is raised, for the sake of new threads; none does as a rule."""

    async def story() -> None:
        lag, moved = [0.0], list[int]()
        priority = Priority(10, lambda: lag[0], moved.append, lambda: {"process": 10, "session": moved[-1]})
        background = Background(VirtualClock())
        background.run(URGENCY, priority.run)
        await asyncio.sleep(10 * LOOK_SECONDS + 1)
        assert moved == []
        lag[0] = 5.0
        await asyncio.sleep(6 * LOOK_SECONDS)
        assert moved == [5, 2, 1, 0, 0, 0]
        assert priority.described() == "niceness 10 of the process, 0 of the session; 0 is wanted, 10 as a rule"
        present, wanted = priority.metrics()
        assert [value for _, value in (*present.samples, *wanted.samples)] == [10, 0, 0]
        lag[0] = 0.0
        await asyncio.sleep(20 * LOOK_SECONDS)
        assert moved[-4:] == [8, 10, 10, 10]
        await background.close()

    run(story())


def test_one_that_never_steps_back_does_not_move() -> None:
    moved = list[int]()
    run(Priority(0, lambda: 9.0, moved.append, dict).run())
    assert moved == []
