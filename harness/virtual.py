"""Virtual time for single parts: an event loop that never sleeps, its clock, and seeded randomness."""

import asyncio
import random
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

from harness.loop import SimLoop

EPOCH_MS = 1_700_000_000_000
LIMIT_SECONDS = 10_000.0

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine in virtual time. Tasks that it leaves running are cancelled."""
    loop = SimLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(asyncio.wait_for(work, LIMIT_SECONDS))
    finally:
        left = [task for task in loop.all_tasks if not task.done()]
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()


class VirtualClock:
    """The time of the running loop. The wall clock can be shifted against it."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self.monotonic() * 1000) + self.ahead_ms

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class SeededChance:
    """Randomness that is the same in every run."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def fraction(self) -> float:
        return self._random.random()

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)
