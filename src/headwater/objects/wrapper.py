"""The common part of wrappers: operations that a wrapper does not change go to the inner store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from headwater.objects.gathering import gathered
from headwater.objects.store import ObjectInfo, ObjectStore
from headwater.types import Pieces


class ResumableStore(ObjectStore, Protocol):
    """A store whose listings can begin in the middle."""

    def scan(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """See `ObjectStore.scan`; with `after`, only paths behind that one."""


class Wrapper:
    """A store around another one. `get_many` uses the wrapper's own `get`, several at once."""

    def __init__(self, inner: ResumableStore, gets_at_once: int) -> None:
        self.inner = inner
        self.url = inner.url
        self._gets_at_once = gets_at_once

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.inner!r}>"

    async def put(self, path: str, pieces: Pieces) -> None:
        await self.inner.put(path, pieces)

    async def create(self, path: str, pieces: Pieces) -> bool:
        return await self.inner.create(path, pieces)

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return await self.inner.get(path, start, length)

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return await gathered(self.get, paths, self._gets_at_once)

    async def size(self, path: str) -> int:
        return await self.inner.size(path)

    async def delete(self, path: str) -> None:
        await self.inner.delete(path)

    def scan(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        return self.inner.scan(prefix, after)

    async def close(self) -> None:
        await self.inner.close()
