"""Threads that work for many callers: each caller who has jobs gets one done in turn."""

from __future__ import annotations

import asyncio
import threading

from headwater.threads import CALLER, Threads, Turns
from tests.support.promise import promise


async def work(threads: Threads, caller: str, *calls: object) -> None:
    """Jobs of a caller, all at once."""
    CALLER.set(caller)
    await asyncio.gather(*(threads.run(call) for call in calls))  # type: ignore[arg-type]


@promise("S4")
def test_a_caller_with_many_jobs_holds_up_no_other() -> None:
    done: list[str] = []
    began, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        go_on.wait(60)

    async def story() -> None:
        threads = Threads(1, "test", Turns())
        first = asyncio.create_task(work(threads, "greedy", wait, *[lambda: done.append("greedy")] * 100))
        await asyncio.to_thread(began.wait)
        others = [
            asyncio.create_task(work(threads, name, *[lambda name=name: done.append(name)] * 2)) for name in ("a", "b")
        ]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *others)
        await threads.close()

    asyncio.run(story())
    assert done[:6] == ["greedy", "a", "b"] * 2 and done[6:] == ["greedy"] * 98


def test_jobs_of_one_caller_stay_in_order() -> None:
    async def story() -> list[int]:
        threads, done = Threads(1, "test", Turns()), list[int]()
        await work(threads, "", *[lambda n=n: done.append(n) for n in range(100)])
        await threads.close()
        return done

    assert asyncio.run(story()) == list(range(100))
