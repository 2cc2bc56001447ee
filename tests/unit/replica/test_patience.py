"""A limit on the ledger's time: a ledger that hangs is noticed, and a process that is late does not blame it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from harness.loop import SimLoop
from harness.virtual import SeededChance, VirtualClock, run
from headwater.errors import NotReady
from headwater.ledger.memory import MemoryLedger
from headwater.objects.memory import MemoryStore
from headwater.replica.patience import LedgerTime, catch_up
from headwater.replica.replica import Replica
from headwater.state.records import encode_record
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Epoch, Position

ONE = Domain(1)


class SlowLedger(MemoryLedger):
    """A ledger whose answers a test delays."""

    answer: Callable[[], Awaitable[object]] | None = None

    async def last(self, domain: Domain) -> Position:
        if self.answer is not None:
            await self.answer()
        return await super().last(domain)


async def replica_of(ledger: SlowLedger) -> Replica[StreamsState]:
    made = Replica(ledger, MemoryStore(), StreamsState(ONE), VirtualClock(), SeededChance())
    await made.start()
    return made


def late(seconds: float, turns: int) -> None:
    """Let each of the next turns of the event loop take so many seconds."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    loop.now += seconds
    if turns > 1:
        loop.call_soon(late, seconds, turns - 1)


def test_a_ledger_that_does_not_answer() -> None:
    """The limit holds; a ledger that answers just before it is waited for."""

    async def story() -> None:
        ledger = SlowLedger()
        replica = await replica_of(ledger)
        began = asyncio.get_running_loop().time()
        ledger.answer = asyncio.Event().wait
        with pytest.raises(NotReady, match="does not answer in time"):
            await catch_up(2.0, replica)
        assert 2.0 <= asyncio.get_running_loop().time() - began < 2.1
        ledger.answer = None
        await replica.close()

    run(story())


def test_an_answer_before_the_limit() -> None:
    async def story() -> None:
        ledger = SlowLedger()
        replica = await replica_of(ledger)
        ledger.answer = lambda: asyncio.sleep(1.9)
        await ledger.append(ONE, encode_record(Epoch(0), 0, 0, 0, []))
        await catch_up(2.0, replica)
        assert replica.state.position == 1
        await replica.close()

    run(story())


def test_the_delay_of_the_process_does_not_count() -> None:
    """Each turn of the loop takes a second. The ledger answers within five of them, and within the limit."""

    async def answer() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def story() -> None:
        ledger = SlowLedger()
        replica = await replica_of(ledger)
        ledger.answer = answer
        began = asyncio.get_running_loop().time()
        late(1.0, 20)
        await asyncio.gather(*(catch_up(2.0, replica, replica) for _ in range(3)))
        assert asyncio.get_running_loop().time() - began > 4.0
        await replica.close()

    run(story())


def test_other_errors_pass() -> None:
    """What fails inside fails as it is, and a cancelled caller is cancelled. No timer is left."""

    async def story() -> None:
        with pytest.raises(TimeoutError, match="another"):
            async with LedgerTime(1.0):
                raise TimeoutError("another")
        waiting = asyncio.ensure_future(_forever())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        limit = LedgerTime(1.0)
        async with limit:
            pass
        left = repr(limit)
        await asyncio.sleep(10.0)
        assert repr(limit) == left

    run(story())


async def _forever() -> None:
    async with LedgerTime(1.0):
        await asyncio.Event().wait()
