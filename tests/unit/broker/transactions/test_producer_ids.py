"""Producer ids come in blocks, are never given twice, and go back only if nobody has used them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.broker.transactions.producer_ids import BLOCK, ProducerIds
from headwater.errors import NotReady
from headwater.state.results import Done, Reason, Refused

PROMISES = ("K12",)


class Blocks:
    """A cluster that hands out blocks, or refuses."""

    def __init__(self) -> None:
        self.asked = 0
        self.refuses = False

    async def submit(self, commands: list[Any]) -> list[Any]:
        await asyncio.sleep(0)
        if self.refuses:
            return [Refused(Reason.FENCED)]
        self.asked += 1
        return [Done((self.asked - 1) * BLOCK)]


def test_ids_of_many_callers() -> None:
    """Callers that come while a block is allocated share it."""

    async def test() -> None:
        blocks = Blocks()
        ids = ProducerIds(blocks)  # type: ignore[arg-type]
        taken = await asyncio.gather(*(ids.take() for _ in range(BLOCK + 1)))
        assert sorted(taken) == list(range(BLOCK + 1)) and blocks.asked == 2

    asyncio.run(test())


def test_an_id_that_goes_back_is_the_next() -> None:
    async def test() -> None:
        ids = ProducerIds(Blocks())  # type: ignore[arg-type]
        first = await ids.take()
        ids.give_back(first)
        assert await ids.take() == first and await ids.take() == first + 1

    asyncio.run(test())


def test_a_refusal_is_retriable() -> None:
    async def test() -> None:
        blocks = Blocks()
        blocks.refuses = True
        ids = ProducerIds(blocks)  # type: ignore[arg-type]
        with pytest.raises(NotReady):
            await ids.take()
        blocks.refuses = False
        assert await ids.take() == 0

    asyncio.run(test())
