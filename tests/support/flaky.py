"""A store in memory that fails and waits by a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from headwater.objects.memory import MemoryStore
from headwater.objects.store import ObjectInfo
from headwater.types import Pieces


class FlakyStore(MemoryStore):
    """Each call takes the next step of the script: an error, seconds to wait, or nothing."""

    def __init__(self, script: Iterable[Exception | float | None] = ()) -> None:
        super().__init__()
        self.script = list(script)
        self.calls: list[str] = []
        self.lost_replies = False
        """Whether a call that fails has had its effect nevertheless."""
        self.under_way = 0
        self.most_under_way = 0
        self.break_off_after = 0
        """After this many lines a listing takes the next step of the script."""

    async def _meet(self, name: str) -> Exception | None:
        self.calls.append(name)
        met = self.script.pop(0) if self.script else None
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(met if isinstance(met, int | float) else 0)
        finally:
            self.under_way -= 1
        if isinstance(met, Exception):
            if not self.lost_replies:
                raise met
            return met
        return None

    async def put(self, path: str, pieces: Pieces) -> None:
        lost = await self._meet("put")
        await super().put(path, pieces)
        if lost:
            raise lost

    async def create(self, path: str, pieces: Pieces) -> bool:
        lost = await self._meet("create")
        data = b"".join(pieces)
        created = await super().create(path, pieces) or self.objects[path] == data
        if lost:
            raise lost
        return created

    async def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        await self._meet("get")
        return await super().get(path, start, length)

    async def size(self, path: str) -> int:
        await self._meet("size")
        return await super().size(path)

    async def delete(self, path: str) -> None:
        await self._meet("delete")
        await super().delete(path)

    async def scan(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        given = 0
        for path, data in sorted(self.objects.items()):
            if not path.startswith(prefix) or path <= after:
                continue
            if given == self.break_off_after:
                await self._meet("scan")
            given += 1
            yield ObjectInfo(path, len(data))
