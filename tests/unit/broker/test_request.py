"""Answers that are not known yet."""

import asyncio

from headwater.broker.request import Pending, Values
from tests.support.promise import promise

PROMISES = ("K2",)


@promise("K2")
def test_a_pending_answer_reaches_its_caller_at_once() -> None:
    """Callers that ask before it is known, after that, or wait for it."""

    async def scenario() -> None:
        early, late = Pending(), Pending()
        told: list[Values | None] = []
        early.then(told.append)
        early.answer({"a": 1})
        assert told == [{"a": 1}]
        late.answer(None)
        late.then(told.append)
        assert told == [{"a": 1}, None]
        assert await early == {"a": 1}
        waited = Pending()
        asyncio.get_running_loop().call_soon(waited.answer, {"b": 2})
        assert await waited == {"b": 2}

    asyncio.run(scenario())
