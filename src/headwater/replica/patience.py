"""How long a caller waits for the ledger. The delay of a process that has too much to do itself does not count."""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Any

from headwater.errors import NotReady
from headwater.replica.replica import Replica

STEP_SECONDS = 0.05
"""The limit is counted in steps of this length."""


class LedgerTime:
    """A limit on the time that the ledger takes: `async with LedgerTime(2.0): ...`. After it `NotReady` is raised.

    A timer of the event loop counts the steps. A step counts the same however late the loop comes to it, and each one
    gives the loop a turn. So a process that is overloaded or was stopped does not take its own delay for the ledger's.
    """

    def __init__(self, seconds: float) -> None:
        self._left = math.ceil(seconds / STEP_SECONDS)
        self._limit = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<LedgerTime, {self._left} steps left>"

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise NotReady("the ledger does not answer in time") from None

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(STEP_SECONDS, self._step)

    def _step(self) -> None:
        self._left -= 1
        if self._left > 0:
            self._wait()
        else:
            self._limit.reschedule(0.0)  # a time that has passed


async def catch_up(seconds: float, *replicas: Replica[Any]) -> None:
    """Bring replicas up to date, one after the other. Raises `NotReady` if the ledger takes longer for all of them."""
    async with LedgerTime(seconds):
        for replica in replicas:
            await replica.barrier()
