"""The share of one asker in the processes of an engine: its further queries wait, also while processes are free."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from headwater.query.asking import Engine


class Shares:
    """How many queries of one asker each engine works on, at most."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._working: Counter[tuple[Engine, str]] = Counter()
        self._lines: dict[tuple[Engine, str], deque[asyncio.Future[None]]] = {}

    def __repr__(self) -> str:
        return f"<Shares of {len(self._working)} askers, {self.waiting} queries wait>"

    @property
    def waiting(self) -> int:
        """How many queries wait for others of their askers."""
        return sum(map(len, self._lines.values()))

    @property
    def largest(self) -> int:
        """How many queries of one asker an engine works on, of the asker who has most."""
        return max(self._working.values(), default=0)

    async def enter(self, engine: Engine, asker: str) -> Share:
        """Wait until an engine may work on one more query of an asker."""
        key = (engine, asker)
        while self._working[key] >= self.most:
            waiter = asyncio.get_running_loop().create_future()
            line = self._lines.setdefault(key, deque())
            line.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake(key)  # the turn goes to the next one
                raise
            finally:
                self._drop(key, waiter)
        self._working[key] += 1
        return Share(self, key)

    def leave(self, key: tuple[Engine, str]) -> None:
        """See `Share.release`."""
        self._working[key] -= 1
        if not self._working[key]:
            del self._working[key]
        self._wake(key)

    def _wake(self, key: tuple[Engine, str]) -> None:
        for waiter in self._lines.get(key, ()):
            if not waiter.done():
                waiter.set_result(None)
                return

    def _drop(self, key: tuple[Engine, str], waiter: asyncio.Future[None]) -> None:
        line = self._lines[key]
        line.remove(waiter)
        if not line:
            del self._lines[key]


class Share:
    """One query's part of its asker's share, until it is released. To release it twice does no harm."""

    def __init__(self, shares: Shares, key: tuple[Engine, str]) -> None:
        self._shares: Shares | None = shares
        self._key = key

    def __repr__(self) -> str:
        return f"<Share of {self._key[1]}>"

    def release(self) -> None:
        """Let the next query of this asker begin."""
        if self._shares is not None:
            shares, self._shares = self._shares, None
            shares.leave(self._key)
