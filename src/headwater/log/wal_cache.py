"""WAL objects in memory: those just written, and those just read. Bounded, and never authoritative."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from headwater.errors import HeadwaterError, StoreUnavailable
from headwater.log import wal
from headwater.objects import ObjectMissing, ObjectStore
from headwater.types import Buffer, WalId


class CachedWal(Protocol):
    """A WAL object whose runs can be walked."""

    size: int

    def batches(self, start: int, end: int) -> list[Buffer]:
        """The batches of a run."""

    def pieces(self) -> list[Buffer]:
        """The whole object."""


class Neighbours(Protocol):
    """Brokers nearby, one of which may have read an object already."""

    def can_ask(self, object_id: WalId) -> bool:
        """Whether somebody else is to be asked for an object first."""

    async def fetch(self, domain: int, object_id: WalId) -> bytes | None:
        """An object's bytes; nothing if it has to come from the store."""


class WrittenWal:
    """An object in the pieces it was written from, so that keeping it copies nothing."""

    __slots__ = ("_batches", "_image", "_starts", "size")

    def __init__(self, image: wal.WalImage) -> None:
        self.size = image.size
        self._image = image
        self._batches: list[Buffer] = []
        self._starts: list[int] | None = None

    def batches(self, start: int, end: int) -> list[Buffer]:
        starts = self._find_starts() if self._starts is None else self._starts
        return self._batches[bisect_left(starts, start) : bisect_left(starts, end)]

    def pieces(self) -> list[Buffer]:
        return self._image.pieces

    def _find_starts(self) -> list[int]:
        """Done for the first reader: many objects never have one."""
        image, starts = self._image, []
        position = image.positions[0] if image.positions else 0
        self._batches = image.pieces[2:-1:2]
        for batch in self._batches:
            starts.append(position)
            position += wal.PREFIX_BYTES + len(batch)
        self._starts = starts
        return starts


class ReadWal:
    """An object as it was read back."""

    __slots__ = ("_data", "size")

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def batches(self, start: int, end: int) -> list[Buffer]:
        return wal.batches_between(self._data, start, end)

    def pieces(self) -> list[Buffer]:
        return [self._data]


_Key: TypeAlias = tuple[int, WalId]
_Futures: TypeAlias = dict[WalId, "asyncio.Future[CachedWal]"]


class WalCache:
    """The most recently used objects, up to a number of bytes, and one read per object at a time."""

    def __init__(self, store: ObjectStore, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._objects: OrderedDict[_Key, CachedWal] = OrderedDict()
        self._reading: dict[_Key, asyncio.Future[CachedWal]] = {}
        """What is on its way from the store."""
        self._asking: dict[_Key, asyncio.Future[CachedWal]] = {}
        """What a neighbour was asked for."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.neighbours: Neighbours | None = None
        """Who is asked before the store is."""
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self.store_reads = 0

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

    async def load(self, domain: int, wanted: Sequence[tuple[WalId, str]], *, alone: bool = False) -> list[CachedWal]:
        """Objects with their paths, from memory, neighbours or the store; raises `ObjectMissing` for one that is gone.

        What a neighbour asks for is found `alone` and never waits for another neighbour: else two that need objects
        of each other would wait in a circle.
        """
        found: dict[WalId, CachedWal] = {}
        waiting: dict[WalId, asyncio.Future[CachedWal]] = {}
        from_store: list[tuple[WalId, str]] = []
        from_neighbours: list[tuple[WalId, str]] = []
        neighbours = None if alone else self.neighbours
        for object_id, path in dict(wanted).items():  # two runs may lie in one object
            cached = self.get(domain, object_id)
            under_way = self._reading.get((domain, object_id))
            if under_way is None and not alone:
                under_way = self._asking.get((domain, object_id))
            if cached is not None:
                found[object_id] = cached
            elif under_way is not None:
                waiting[object_id] = under_way
            elif neighbours is not None and neighbours.can_ask(object_id):
                from_neighbours.append((object_id, path))
            else:
                from_store.append((object_id, path))
        self.misses += len(from_store) + len(from_neighbours)
        if from_store:
            waiting.update(self._begin(self._read, self._reading, domain, from_store))
        if from_neighbours:
            waiting.update(self._begin(self._ask, self._asking, domain, from_neighbours))
        for object_id, future in waiting.items():
            found[object_id] = await asyncio.shield(future)
        return [found[object_id] for object_id, _ in wanted]

    def _begin(
        self,
        work: Callable[[int, list[tuple[WalId, str]], _Futures], Awaitable[None]],
        under_way: dict[_Key, asyncio.Future[CachedWal]],
        domain: int,
        wanted: list[tuple[WalId, str]],
    ) -> _Futures:
        """Start to get objects in one way. Whoever wants one of them meanwhile joins."""
        loop = asyncio.get_running_loop()
        futures: _Futures = {}
        for object_id, _ in wanted:
            future = futures[object_id] = under_way[(domain, object_id)] = loop.create_future()
            future.add_done_callback(_consume)

        async def run() -> None:
            try:
                await work(domain, wanted, futures)
            except HeadwaterError as error:
                _fail(futures, error)
            finally:
                _fail(futures, StoreUnavailable("reading was interrupted"))
                for object_id in futures:
                    del under_way[(domain, object_id)]

        task = loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return futures

    async def _read(self, domain: int, wanted: list[tuple[WalId, str]], futures: _Futures) -> None:
        self.store_reads += len(wanted)
        objects = await self._store.get_many([path for _, path in wanted])
        for (object_id, path), data in zip(wanted, objects, strict=True):
            if data is None:
                futures[object_id].set_exception(ObjectMissing(f"no object {path}"))
            else:
                cached = ReadWal(data)
                self.put(domain, object_id, cached)
                futures[object_id].set_result(cached)

    async def _ask(self, domain: int, wanted: list[tuple[WalId, str]], futures: _Futures) -> None:
        """Ask for all at once. What nobody has comes from the store."""
        assert self.neighbours is not None
        answers = await asyncio.gather(*(self.neighbours.fetch(domain, object_id) for object_id, _ in wanted))
        left: list[tuple[WalId, str]] = []
        for (object_id, path), data in zip(wanted, answers, strict=True):
            if data is None:
                left.append((object_id, path))
            else:
                cached = ReadWal(data)
                self.put(domain, object_id, cached)
                futures[object_id].set_result(cached)
        if left:
            for (object_id, _), cached_one in zip(left, await self.load(domain, left, alone=True), strict=True):
                futures[object_id].set_result(cached_one)


def _fail(futures: _Futures, error: HeadwaterError) -> None:
    for future in futures.values():
        if not future.done():
            future.set_exception(error)


def _consume(future: asyncio.Future[CachedWal]) -> None:
    """Look at the exception, so that nobody is told that nobody did."""
    if not future.cancelled():
        future.exception()
