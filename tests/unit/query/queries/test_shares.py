"""Queries of one asker leave processes to those of others."""

from __future__ import annotations

import asyncio

from harness.virtual import run
from headwater.query.asking import Engine
from headwater.query.queries.shares import Share, Shares
from headwater.settings.settings import Sql

PROMISES = ("S4",)


def test_the_share_by_the_settings() -> None:
    assert [Sql(workers=n, warm=0).share for n in (1, 2, 3, 8)] == [1, 1, 2, 7]
    assert Sql(workers=4, workers_per_user=3).share == 3


async def entered(shares: Shares, asker: str, engine: Engine = Engine.DUCKDB) -> asyncio.Task[Share]:
    task = asyncio.ensure_future(shares.enter(engine, asker))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


def test_one_asker_waits_for_itself_alone() -> None:
    async def main() -> None:
        shares = Shares(1)
        first, second = await entered(shares, "a"), await entered(shares, "a")
        other, spark = await entered(shares, "b"), await entered(shares, "a", Engine.SPARK)
        assert [task.done() for task in (first, second, other, spark)] == [True, False, True, True]
        assert (shares.waiting, shares.largest) == (1, 1)
        for _ in range(2):
            first.result().release()  # twice does no harm
        assert (await second) and shares.waiting == 0
        third = await entered(shares, "a")
        assert not third.done()
        third.cancel()
        await asyncio.gather(third, return_exceptions=True)
        second.result().release()
        assert (shares.waiting, shares.largest) == (0, 1)

    run(main())


def test_a_turn_goes_on_if_its_query_is_cancelled() -> None:
    async def main() -> None:
        shares = Shares(1)
        first = await entered(shares, "a")
        second, third = await entered(shares, "a"), await entered(shares, "a")
        first.result().release()
        second.cancel()  # it has its turn already, but has not run
        await asyncio.gather(second, return_exceptions=True)
        assert (await third) and shares.waiting == 0

    run(main())
