"""WAL objects in memory: those just written, and those just read. Bounded, and never authoritative."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from headwater.errors import HeadwaterError, StoreUnavailable
from headwater.log import wal
from headwater.objects import ObjectMissing, ObjectStore
from headwater.types import Buffer, WalId


class CachedWal(Protocol):
    """A WAL object whose runs can be walked."""

    size: int

    def batches(self, start: int, end: int) -> list[Buffer]:
        """The batches of a run."""


class WrittenWal:
    """An object in the pieces it was written from, so that keeping it copies nothing."""

    __slots__ = ("_image", "_pieces", "_starts", "size")

    def __init__(self, image: wal.WalImage) -> None:
        self.size = image.size
        self._image: wal.WalImage | None = image
        self._pieces: list[Buffer] = []
        self._starts: list[int] = []

    def batches(self, start: int, end: int) -> list[Buffer]:
        if self._image is not None:
            self._find_starts(self._image)
        return self._pieces[bisect_left(self._starts, start) : bisect_left(self._starts, end)]

    def _find_starts(self, image: wal.WalImage) -> None:
        """Done for the first reader: many objects never have one."""
        position = image.positions[0] if image.positions else 0
        self._pieces, self._image = image.pieces[2:-1:2], None
        for batch in self._pieces:
            self._starts.append(position)
            position += wal.PREFIX_BYTES + len(batch)


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
        self._reading: dict[tuple[int, WalId], asyncio.Future[CachedWal]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
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

    async def load(self, domain: int, wanted: Sequence[tuple[WalId, str]]) -> list[CachedWal]:
        """Objects with their paths, from memory or from the store; raises `ObjectMissing` for one that is gone."""
        found: dict[WalId, CachedWal] = {}
        waiting: dict[WalId, asyncio.Future[CachedWal]] = {}
        missing: list[tuple[WalId, str]] = []
        for object_id, path in dict(wanted).items():  # two runs may lie in one object
            cached = self.get(domain, object_id)
            reading = self._reading.get((domain, object_id))
            if cached is not None:
                found[object_id] = cached
            elif reading is not None:
                waiting[object_id] = reading
            else:
                missing.append((object_id, path))
        if missing:
            waiting.update(self._begin_reading(domain, missing))
        for object_id, future in waiting.items():
            found[object_id] = await asyncio.shield(future)
        return [found[object_id] for object_id, _ in wanted]

    def _begin_reading(self, domain: int, wanted: list[tuple[WalId, str]]) -> dict[WalId, asyncio.Future[CachedWal]]:
        self.misses += len(wanted)
        loop = asyncio.get_running_loop()
        futures: dict[WalId, asyncio.Future[CachedWal]] = {}
        for object_id, _ in wanted:
            future = futures[object_id] = self._reading[(domain, object_id)] = loop.create_future()
            future.add_done_callback(_consume)
        task = loop.create_task(self._read(domain, wanted, futures))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return futures

    async def _read(
        self, domain: int, wanted: list[tuple[WalId, str]], futures: dict[WalId, asyncio.Future[CachedWal]]
    ) -> None:
        try:
            objects = await self._store.get_many([path for _, path in wanted])
            for (object_id, path), data in zip(wanted, objects, strict=True):
                if data is None:
                    futures[object_id].set_exception(ObjectMissing(f"no object {path}"))
                else:
                    cached = ReadWal(data)
                    self.put(domain, object_id, cached)
                    futures[object_id].set_result(cached)
        except HeadwaterError as error:
            _fail(futures, error)
        finally:
            _fail(futures, StoreUnavailable("reading was interrupted"))
            for object_id in futures:
                del self._reading[(domain, object_id)]


def _fail(futures: dict[WalId, asyncio.Future[CachedWal]], error: HeadwaterError) -> None:
    for future in futures.values():
        if not future.done():
            future.set_exception(error)


def _consume(future: asyncio.Future[CachedWal]) -> None:
    """Look at the exception, so that nobody is told that nobody did."""
    if not future.cancelled():
        future.exception()
