"""M7: several objects at once, so many and no more."""

import asyncio

import pytest

from headwater.errors import StoreUnavailable
from headwater.log.several import each


def test_in_order_and_bounded() -> None:
    """M7"""
    under_way = most = 0

    async def work(item: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001 * (item % 3))
        under_way -= 1
        return item * 2

    assert asyncio.run(each(work, range(50), at_once=4)) == [2 * i for i in range(50)]
    assert most == 4
    assert asyncio.run(each(work, [])) == []
    assert asyncio.run(each(work, [7])) == [14]


def test_a_failure_ends_it() -> None:
    """M7: what is under way ends, nothing more begins, and the failure is told."""
    begun, ended = [], []

    async def work(item: int) -> None:
        begun.append(item)
        await asyncio.sleep(0)
        if item == 3:
            raise StoreUnavailable("no")
        await asyncio.sleep(0)
        ended.append(item)

    with pytest.raises(StoreUnavailable):
        asyncio.run(each(work, range(50), at_once=4))
    assert begun == [0, 1, 2, 3]
    assert ended == [0, 1, 2]


def test_being_cancelled() -> None:
    """M7: nothing goes on behind the caller's back."""
    ended = []

    async def work(item: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(item)

    async def scenario() -> None:
        task = asyncio.create_task(each(work, range(10), at_once=4))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert sorted(ended) == [0, 1, 2, 3]
