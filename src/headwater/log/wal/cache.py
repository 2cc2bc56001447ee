"""WAL objects in memory: recently written and recently read ones. The cache is bounded; the store is the truth."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from headwater.background import Tasks, consume
from headwater.errors import Damaged, HeadwaterError, StoreUnavailable
from headwater.log.wal import format as wal
from headwater.objects import ObjectStore, reads
from headwater.types import Buffer, WalId

WHOLE_SHARE = 3
"""An object is checked as a whole if at least this part of it, a third, is wanted at once."""


class CachedWal(Protocol):
    """A WAL object in memory, whose runs can be read batch by batch."""

    size: int

    def batches(self, start: int, end: int, offsets: int) -> list[Buffer]:
        """The batches of a run that takes a number of offsets. Raises `DamagedRun` if they are not as stored."""

    def pieces(self) -> list[Buffer]:
        """The whole object."""

    def expect(self, size: int) -> None:
        """Prepare for runs of this size in all."""

    def is_whole(self) -> bool:
        """Whether the object is as it was written."""


class Neighbours(Protocol):
    """Brokers of the same zone, one of which may have the object in memory."""

    def can_ask(self, object_id: WalId) -> bool:
        """Whether another broker should be asked for the object before the store is read."""

    async def fetch(self, domain: int, object_id: WalId) -> bytes | None:
        """The bytes of the object, with a CRC that holds; None if the caller has to read it from the store."""


class WrittenWal:
    """An object as the pieces that were written, so that caching it copies nothing."""

    __slots__ = ("_batches", "_image", "_starts", "size")

    def __init__(self, image: wal.WalImage) -> None:
        self.size = image.size
        self._image = image
        self._batches: list[Buffer] = []
        self._starts: list[int] | None = None

    def batches(self, start: int, end: int, offsets: int) -> list[Buffer]:
        starts = self._find_starts() if self._starts is None else self._starts
        return self._batches[bisect_left(starts, start) : bisect_left(starts, end)]

    def pieces(self) -> list[Buffer]:
        return self._image.pieces

    def expect(self, size: int) -> None:
        pass  # its batches were checked when they came in

    def is_whole(self) -> bool:
        return True

    def _find_starts(self) -> list[int]:
        """Find the position of every batch. Done for the first reader, because many objects are never read."""
        image, starts = self._image, []
        position = image.positions[0] if image.positions else 0
        self._batches = image.pieces[2:-1:2]
        for batch in self._batches:
            starts.append(position)
            position += wal.PREFIX_BYTES + len(batch)
        self._starts = starts
        return starts


class ReadWal:
    """An object that was read, as one buffer. The batches of a run are checked when the run is first used."""

    __slots__ = ("_data", "_sound", "size")

    def __init__(self, data: bytes, *, checked: bool = False) -> None:
        """Take the bytes of an object. `checked` says that the CRC of the whole object was verified."""
        self.size = len(data)
        self._data = data
        self._sound: set[tuple[int, int]] | None = None if checked else set()

    def batches(self, start: int, end: int, offsets: int) -> list[Buffer]:
        if self._sound is None or (start, end) in self._sound:
            return wal.batches_between(self._data, start, end)
        found = wal.sound_batches(self._data, start, end, offsets)
        self._sound.add((start, end))
        return found

    def pieces(self) -> list[Buffer]:
        return [self._data]

    def expect(self, size: int) -> None:
        """Check the whole object if much of it is wanted: one CRC costs less than those of many batches."""
        if size * WHOLE_SHARE >= self.size:
            self.is_whole()

    def is_whole(self) -> bool:
        if self._sound is not None and wal.is_whole(self._data):
            self._sound = None
        return self._sound is None


class AbsentWal:
    """An object that cannot be read: it is missing, or another object is in its place. It is not cached."""

    size = 0

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def batches(self, start: int, end: int, offsets: int) -> list[Buffer]:
        raise wal.DamagedRun(self._reason, [], [])

    def pieces(self) -> list[Buffer]:
        raise Damaged(self._reason)

    def expect(self, size: int) -> None:
        pass

    def is_whole(self) -> bool:
        return False


_Key: TypeAlias = tuple[int, WalId]
_Futures: TypeAlias = dict[WalId, "asyncio.Future[CachedWal]"]


class WalCache:
    """The most recently used objects, up to a number of bytes. Concurrent callers share one read of an object."""

    def __init__(self, store: ObjectStore, limit: int) -> None:
        self._store = store
        self.limit = limit
        self._objects: OrderedDict[_Key, CachedWal] = OrderedDict()
        self._reading: dict[_Key, asyncio.Future[CachedWal]] = {}
        """Objects that are being read from the store."""
        self._asking: dict[_Key, asyncio.Future[CachedWal]] = {}
        """Objects that a neighbour has been asked for."""
        self._tasks = Tasks()
        self.neighbours: Neighbours | None = None
        """Brokers that are asked before the store is read."""
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self.store_reads = 0

    def __repr__(self) -> str:
        return f"<WalCache {len(self._objects)} objects, {self.bytes} of {self.limit} bytes>"

    def put(self, domain: int, object_id: WalId, cached: CachedWal) -> None:
        """Cache an object. The least recently used objects make room for it."""
        key = (domain, object_id)
        if cached.size > self.limit or key in self._objects:
            return
        self._objects[key] = cached
        self.bytes += cached.size
        while self.bytes > self.limit:
            _, gone = self._objects.popitem(last=False)
            self.bytes -= gone.size

    def get(self, domain: int, object_id: WalId) -> CachedWal | None:
        """The object, if it is in memory."""
        key = (domain, object_id)
        found = self._objects.get(key)
        if found is not None:
            self.hits += 1
            self._objects.move_to_end(key)
        return found

    async def load(self, domain: int, wanted: Sequence[tuple[WalId, str]], *, alone: bool = False) -> list[CachedWal]:
        """The wanted objects from memory, neighbours or the store. One that does not exist is an `AbsentWal`.

        With `alone` no neighbour is asked or waited for. Requests of neighbours are answered that way: otherwise two
        brokers that need objects of each other would wait for each other.
        """
        found: dict[WalId, CachedWal] = {}
        waiting: dict[WalId, asyncio.Future[CachedWal]] = {}
        from_store: list[tuple[WalId, str]] = []
        from_neighbours: list[tuple[WalId, str]] = []
        neighbours = None if alone else self.neighbours
        for object_id, path in dict(wanted).items():  # two runs may be in one object
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
        """Start to get objects with `work`. Other callers that want one of them wait for the same future."""
        loop = asyncio.get_running_loop()
        futures: _Futures = {}
        for object_id, _ in wanted:
            future = futures[object_id] = under_way[(domain, object_id)] = loop.create_future()
            future.add_done_callback(consume)

        async def run() -> None:
            try:
                await work(domain, wanted, futures)
            except HeadwaterError as error:
                _fail(futures, error)
            finally:
                _fail(futures, StoreUnavailable("reading was interrupted"))
                for object_id in futures:
                    del under_way[(domain, object_id)]

        self._tasks.spawn(run(), f"read-wal-{domain}")
        return futures

    async def read_again(self, domain: int, object_id: WalId, path: str) -> CachedWal:
        """The object from the store itself. It replaces what is in memory."""
        gone = self._objects.pop((domain, object_id), None)
        if gone is not None:
            self.bytes -= gone.size
        [cached] = await self.load(domain, [(object_id, path)], alone=True)
        return cached

    async def _read(self, domain: int, wanted: list[tuple[WalId, str]], futures: _Futures) -> None:
        self.store_reads += len(wanted)
        for (object_id, _), data in zip(wanted, await self._get(wanted), strict=True):
            reads.note(len(data) if isinstance(data, bytes) else 0)
            if isinstance(data, Damaged):
                futures[object_id].set_result(AbsentWal(str(data)))
            elif data is None:
                futures[object_id].set_result(AbsentWal("the object is missing"))
            elif wal.is_other(data, object_id, domain):
                futures[object_id].set_result(AbsentWal("another object is in its place"))
            else:
                cached = ReadWal(data)
                self.put(domain, object_id, cached)
                futures[object_id].set_result(cached)

    async def _get(self, wanted: list[tuple[WalId, str]]) -> Sequence[bytes | Damaged | None]:
        """The bytes of objects. One that the medium cannot read does not stop the others."""
        paths = [path for _, path in wanted]
        try:
            return await self._store.get_many(paths)
        except Damaged as error:
            if len(paths) == 1:
                return [error]
        return [(await self._get([one]))[0] for one in wanted]

    async def _ask(self, domain: int, wanted: list[tuple[WalId, str]], futures: _Futures) -> None:
        """Ask the neighbours for all objects at once. Those that no neighbour has are read from the store."""
        assert self.neighbours is not None
        answers = await asyncio.gather(*(self.neighbours.fetch(domain, object_id) for object_id, _ in wanted))
        left: list[tuple[WalId, str]] = []
        for (object_id, path), data in zip(wanted, answers, strict=True):
            if data is None:
                left.append((object_id, path))
            else:
                cached = ReadWal(data, checked=True)
                self.put(domain, object_id, cached)
                futures[object_id].set_result(cached)
        if left:
            for (object_id, _), cached_one in zip(left, await self.load(domain, left, alone=True), strict=True):
                futures[object_id].set_result(cached_one)


def _fail(futures: _Futures, error: HeadwaterError) -> None:
    for future in futures.values():
        if not future.done():
            future.set_exception(error)
