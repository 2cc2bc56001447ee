"""One thing done to several objects at once: a cloud's store takes its time for each, and does many side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

AT_ONCE = 16

_A = TypeVar("_A")
_B = TypeVar("_B")


async def each(work: Callable[[_A], Awaitable[_B]], items: Iterable[_A], at_once: int = AT_ONCE) -> list[_B]:
    """What becomes of each, in order. After a failure no more are begun; it is raised when those under way are over."""
    waiting = list(items)
    if len(waiting) <= 1:
        return [await work(item) for item in waiting]
    found: dict[int, _B] = {}
    rest = iter(enumerate(waiting))
    failed = False

    async def worker() -> None:
        nonlocal failed
        for i, item in rest:
            if failed:
                return
            try:
                found[i] = await work(item)
            except BaseException:
                failed = True
                raise

    workers = [asyncio.ensure_future(worker()) for _ in range(min(at_once, len(waiting)))]
    try:
        results = await asyncio.gather(*workers, return_exceptions=True)
    except asyncio.CancelledError:
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [found[i] for i in range(len(waiting))]
