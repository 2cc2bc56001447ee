"""An event loop in a thread of its own, for callers that have none, or that have one that runs (as in a notebook)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from headwater.errors import ConfigError

_T = TypeVar("_T")


class Loop:
    """Runs coroutines one after the other, always on the same event loop. The thread starts with the first one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "headwater")
        self._runner = asyncio.Runner()
        self._closed = False

    def __repr__(self) -> str:
        return "<Loop>"

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of a coroutine."""
        if self._closed:
            work.close()
            raise ConfigError("the connection is closed")
        return self._thread.submit(self._runner.run, work).result()

    def each(self, items: AsyncGenerator[_T, None]) -> Iterator[_T]:
        """The items of an asynchronous generator. Nothing is made before it is asked for."""

        async def following() -> tuple[_T] | None:
            try:
                return (await anext(items),)
            except StopAsyncIteration:
                return None

        try:
            while (found := self.run(following())) is not None:
                yield found[0]
        finally:
            if not self._closed:
                self.run(items.aclose())

    def close(self) -> None:
        """End the loop and its thread."""
        if self._closed:
            return
        self._closed = True
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()
