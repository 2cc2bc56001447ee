"""A store with delays that a file names. Only for tests; an environment variable switches it on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from headwater.objects.store import ObjectInfo, ObjectStore
from headwater.types import Pieces

VARIABLE = "HEADWATER_TEST_SLOW_STORE"
"""Names a file. Each line has a node, or `*` for all, and the delay of each call of its store in seconds."""
EVERYBODY = "*"


class SlowedStore:
    """See `headwater.objects.store.ObjectStore`."""

    def __init__(self, inner: ObjectStore, file: Path, node: int) -> None:
        self._inner = inner
        self._file = file
        self._node = str(node)
        self.url = inner.url

    def __repr__(self) -> str:
        return f"<SlowedStore over {self._inner!r}>"

    async def _wait(self) -> None:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        pairs = [line.split() for line in lines if line.strip()]
        await asyncio.sleep(max((float(s) for node, s in pairs if node in (self._node, EVERYBODY)), default=0.0))

    async def put(self, path: str, pieces: Pieces) -> None:
        await self._wait()
        await self._inner.put(path, pieces)

    async def create(self, path: str, pieces: Pieces) -> bool:
        await self._wait()
        return await self._inner.create(path, pieces)

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        await self._wait()
        return await self._inner.get(path, start, length)

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        await self._wait()
        return await self._inner.get_many(paths)

    async def size(self, path: str) -> int:
        await self._wait()
        return await self._inner.size(path)

    async def delete(self, path: str) -> None:
        await self._inner.delete(path)

    def scan(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._inner.scan(prefix)

    async def close(self) -> None:
        await self._inner.close()
