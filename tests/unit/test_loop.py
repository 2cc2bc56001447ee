"""The event loop of simulations: virtual time, and nodes that crash and pause."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harness.loop import MANY_TIMERS, Deadlock, Life, SimLoop, run_as


def run(story: Callable[[SimLoop], Awaitable[Any]]) -> Any:
    loop = SimLoop()
    loop.set_exception_handler(lambda _, context: None)  # tasks of crashed nodes never end
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(story(loop))  # type: ignore[arg-type]
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_callbacks_run_in_the_order_of_virtual_time() -> None:
    async def story(loop: SimLoop) -> list[tuple[str, float]]:
        told: list[tuple[str, float]] = []
        for name, delay in (("c", 3_000.0), ("a", 1.0), ("b", 2.0)):
            loop.call_later(delay, lambda name=name: told.append((name, loop.time())))
        loop.call_soon(lambda: told.append(("first", loop.time())))
        await asyncio.sleep(4_000)
        return told

    assert run(story) == [("first", 0.0), ("a", 1.0), ("b", 2.0), ("c", 3_000.0)]


def test_a_cancelled_callback_does_not_run() -> None:
    async def story(loop: SimLoop) -> list[int]:
        told: list[int] = []
        timers = [loop.call_later(1 + i, told.append, i) for i in range(3 * MANY_TIMERS)]
        for i, timer in enumerate(timers):
            if i % 3:
                timer.cancel()
                timer.cancel()
                assert timer.cancelled()
        soon = loop.call_soon(told.append, -1)
        soon.cancel()
        await asyncio.sleep(1)
        assert loop.cancelled_timers <= MANY_TIMERS  # most of them are gone before their time
        await asyncio.sleep(1_000)
        assert loop.cancelled_timers == 0
        return told

    assert run(story) == list(range(0, 3 * MANY_TIMERS, 3))


def test_a_time_out_ends_a_wait() -> None:
    async def story(loop: SimLoop) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await loop.create_future()
        async with asyncio.timeout(5):
            await asyncio.sleep(1)
        await asyncio.sleep(10)
        return loop.time()

    assert run(story) == 16.0


def test_a_loop_with_nothing_to_run_says_so() -> None:
    async def story(loop: SimLoop) -> None:
        await loop.create_future()

    with pytest.raises(Deadlock):
        run(story)


def test_a_failing_callback_is_told_to_the_handler() -> None:
    async def story(loop: SimLoop) -> list[str]:
        told: list[str] = []
        loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))

        def fail() -> None:
            raise ValueError("broken")

        loop.call_soon(fail)
        await asyncio.sleep(1)
        return told

    assert run(story) == ["broken"]


async def _count(told: list[float]) -> None:
    try:
        while True:
            told.append(asyncio.get_running_loop().time())
            await asyncio.sleep(1)
    finally:
        told.append(-1)


def test_a_crashed_node_never_runs_again() -> None:
    async def story(loop: SimLoop) -> None:
        told: list[float] = []
        crashed: list[float] = []
        life = Life("one", on_crash=[lambda: crashed.append(loop.now)])
        run_as(life, _count(told))
        await asyncio.sleep(2.5)
        life.crash()
        life.crash()
        await asyncio.sleep(10)
        assert told == [0, 1, 2]
        assert crashed == [2.5]

    run(story)


def test_a_node_crashes_at_a_step() -> None:
    async def story(loop: SimLoop) -> None:
        told: list[float] = []
        life = Life("one", crash_at_step=4)
        run_as(life, _count(told))
        await asyncio.sleep(10)
        assert life.dead
        assert life.steps == 4
        assert len(told) == 2  # the task's start, and for each second a timer and the task

    run(story)


def test_the_callbacks_of_a_paused_node_run_later() -> None:
    async def story(loop: SimLoop) -> None:
        told: list[float] = []
        life = Life("one")
        run_as(life, _count(told))
        await asyncio.sleep(1.5)
        life.paused_until = 6.0
        outside: list[float] = []
        loop.outside(1, lambda: outside.append(loop.now))
        await asyncio.sleep(5)
        assert told == [0, 1, 6]
        assert outside == [2.5]

    run(story)
