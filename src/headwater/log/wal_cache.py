"""WAL objects in memory: those just written, and those just read. Bounded, and never authoritative."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from typing import Protocol

from headwater.log import wal
from headwater.objects import ObjectStore
from headwater.types import Buffer, WalId


class CachedWal(Protocol):
    """A WAL object whose runs can be walked."""

    size: int

    def batches(self, start: int, end: int) -> list[Buffer]:
        """The batches of a run."""


class WrittenWal:
    """An object in the pieces it was written from, so that keeping it copies nothing."""

    __slots__ = ("_pieces", "_starts", "size")

    def __init__(self, image: wal.WalImage) -> None:
        self.size = image.size
        self._pieces = image.pieces[2:-1:2]
        self._starts: list[int] = []
        position = image.positions[0] if image.positions else 0
        for batch in self._pieces:
            self._starts.append(position)
            position += wal.PREFIX_BYTES + len(batch)

    def batches(self, start: int, end: int) -> list[Buffer]:
        return self._pieces[bisect_left(self._starts, start) : bisect_left(self._starts, end)]


class ReadWal:
    """An object as it was read back."""

    __slots__ = ("_data", "size")

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def batches(self, start: int, end: int) -> list[Buffer]:
        return wal.batches_between(self._data, start, end)


class WalCache:
    """The most recently used objects, up to a number of bytes, and one read per object at a time."""

    def __init__(self, store: ObjectStore, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._objects: OrderedDict[tuple[int, WalId], CachedWal] = OrderedDict()
        self._reading: dict[tuple[int, WalId], asyncio.Task[CachedWal]] = {}
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def __repr__(self) -> str:
        return f"<WalCache {len(self._objects)} objects, {self.bytes} of {self._limit} bytes>"

    def put(self, domain: int, object_id: WalId, cached: CachedWal) -> None:
        """Keep an object, at the expense of the least recently used ones."""
        key = (domain, object_id)
        if cached.size > self._limit or key in self._objects:
            return
        self._objects[key] = cached
        self.bytes += cached.size
        while self.bytes > self._limit:
            _, gone = self._objects.popitem(last=False)
            self.bytes -= gone.size

    def get(self, domain: int, object_id: WalId) -> CachedWal | None:
        """An object that is in memory."""
        key = (domain, object_id)
        found = self._objects.get(key)
        if found is not None:
            self.hits += 1
            self._objects.move_to_end(key)
        return found

    async def fetch(self, domain: int, object_id: WalId, path: str) -> CachedWal:
        """An object from memory or from the store."""
        found = self.get(domain, object_id)
        if found is not None:
            return found
        key = (domain, object_id)
        task = self._reading.get(key)
        if task is None:
            self.misses += 1
            task = self._reading[key] = asyncio.create_task(self._read(domain, object_id, path))
            task.add_done_callback(lambda done: self._finished(key, done))
        return await asyncio.shield(task)

    async def _read(self, domain: int, object_id: WalId, path: str) -> CachedWal:
        cached = ReadWal(await self._store.get(path))
        self.put(domain, object_id, cached)
        return cached

    def _finished(self, key: tuple[int, WalId], task: asyncio.Task[CachedWal]) -> None:
        self._reading.pop(key, None)
        if not task.cancelled():
            task.exception()
