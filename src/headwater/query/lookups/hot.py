"""The keys of a topic's records that are not settled yet, as sorted hashes in memory.

A look-up first takes in the runs that were written since the last one. Every hash has the newest offset of its key in
each stream. Small tables are merged into larger ones, eight at a time, so that a look-up probes a few dozen at most.

A table may know of records that were settled or deleted meanwhile. The caller compares what it finds with the index.
A stream settles in the order of its offsets, so if the newest record with a key is settled, the older ones are too.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.log.looking import bound_of
from headwater.log.wal.cache import CachedWal
from headwater.query.lookups.runs import HotRun, RunReader, hot_runs, loads
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.threads import Offload, inline
from headwater.types import Domain, WalId

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]

MERGED = 8
"""Tables of about the same size that are merged into one."""
MAX_TOPICS = 1_000
"""Topics whose tables are kept, however small these are."""
LARGE = 64 << 10
"""More bytes of runs, or rows of tables, are worked on in a thread."""


class KeyTable:
    """Hashes of keys, ascending, each with a stream and the newest offset of the key in it."""

    __slots__ = ("hashes", "offsets", "streams")

    def __init__(self, hashes: Array, streams: Array, offsets: Array) -> None:
        """Take rows in any order."""
        import numpy as np

        order = np.lexsort((offsets, streams, hashes))
        self.hashes, self.streams, self.offsets = hashes[order], streams[order], offsets[order]
        if len(order) > 1:  # of several rows with a key the last one counts
            last = (self.hashes[1:] != self.hashes[:-1]) | (self.streams[1:] != self.streams[:-1])
            kept = np.append(last, True)
            self.hashes, self.streams, self.offsets = self.hashes[kept], self.streams[kept], self.offsets[kept]

    def __len__(self) -> int:
        return len(self.hashes)

    def __repr__(self) -> str:
        return f"<KeyTable of {len(self)} keys>"

    @property
    def size_bytes(self) -> int:
        return int(self.hashes.nbytes + self.streams.nbytes + self.offsets.nbytes)

    def find(self, hashed: int, found: dict[int, int]) -> None:
        """Note the newest offset of a key in each stream."""
        import numpy as np

        wanted = np.uint64(hashed)
        first = int(self.hashes.searchsorted(wanted))
        while first < len(self.hashes) and self.hashes[first] == wanted:
            stream, offset = int(self.streams[first]), int(self.offsets[first])
            found[stream] = max(offset, found.get(stream, -1))
            first += 1

    def without(self, settled: dict[int, int]) -> KeyTable | None:
        """The rows that are not settled yet; None if there are none."""
        import numpy as np

        streams, which = np.unique(self.streams, return_inverse=True)
        ends = np.array([settled.get(stream, 0) for stream in streams.tolist()], dtype=np.int64)
        kept = self.offsets >= ends[which]
        return KeyTable(self.hashes[kept], self.streams[kept], self.offsets[kept]) if kept.any() else None


def merged(tables: Sequence[KeyTable], settled: dict[int, int]) -> KeyTable | None:
    """One table of several, without what is settled."""
    import numpy as np

    joined = KeyTable(
        np.concatenate([table.hashes for table in tables]),
        np.concatenate([table.streams for table in tables]),
        np.concatenate([table.offsets for table in tables]),
    )
    return joined.without(settled)


@dataclass(slots=True)
class _Topic:
    """What is known about a topic."""

    known: dict[int, int] = field(default_factory=dict)
    """By stream: all runs before this offset are in the tables."""
    tables: list[KeyTable] = field(default_factory=list)
    pruned: int = -1
    """The sum of the settled ends when settled rows were last removed."""
    taking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def size_bytes(self) -> int:
        return sum(table.size_bytes for table in self.tables)


@dataclass(frozen=True, slots=True)
class Tail:
    """What the tables know about a key."""

    offsets: dict[int, int]
    """By stream, the newest offset that may have the key."""
    bounds: dict[int, int]
    """By stream, the offset up to which the answer holds."""


class HotKeys:
    """Tables of the topics that were asked for most recently, up to a number of bytes."""

    def __init__(self, runs: RunReader, limit: int, offload: Offload = inline) -> None:
        self._runs = runs
        self._limit = limit
        self._offload = offload
        self._topics: OrderedDict[uuid.UUID, _Topic] = OrderedDict()

    def __repr__(self) -> str:
        return f"<HotKeys of {len(self._topics)} topics, {self.size_bytes} of {self._limit} bytes>"

    @property
    def size_bytes(self) -> int:
        """The bytes of all tables."""
        return sum(topic.size_bytes for topic in self._topics.values())

    def forget(self, topic: uuid.UUID) -> None:
        """Forget a topic's tables, so that its runs are read again."""
        self._topics.pop(topic, None)

    async def find(
        self, state: StreamsState, topic: uuid.UUID, streams: Sequence[Stream], hashed: int, fresh: bool
    ) -> Tail:
        """The newest offset of a key in each stream, among all records that may be read now and are not settled."""
        own = self._topics.setdefault(topic, _Topic())
        self._topics.move_to_end(topic)
        async with own.taking:
            settled: dict[int, int] = {stream.id: stream.settled for stream in streams}
            self._prune(own, settled)
            bounds: dict[int, int] = {}
            pending: list[HotRun] = []
            for stream in streams:
                bounds[stream.id] = bound_of(stream, True)
                pending += hot_runs(state, stream, own.known.get(stream.id, 0))
            offsets: dict[int, int] = {}
            new: list[KeyTable] = []
            room = self._limit - own.size_bytes
            for group in loads(pending):
                table = await self._table(Domain(state.domain), group, fresh)
                table.find(hashed, offsets)
                room -= table.size_bytes
                if room >= 0:
                    new.append(table)
            if room >= 0 and all(run.whole for run in pending):
                own.tables += new
                own.known.update(bounds)
            for table in own.tables:
                table.find(hashed, offsets)
            await self._tidy(own, settled)
        self._evict(topic)
        return Tail(offsets, bounds)

    async def _table(self, domain: Domain, group: list[HotRun], fresh: bool) -> KeyTable:
        objects = await self._runs.load(domain, group, fresh)
        size = sum(run.run.length for run in group)
        table: KeyTable = await (self._offload if size > LARGE else inline)(self._hashed, group, objects)
        return table

    def _hashed(self, group: list[HotRun], objects: dict[WalId, CachedWal]) -> KeyTable:
        import numpy as np

        hashes, streams, offsets = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for hot in group:
            for rows in self._runs.rows(hot, objects[hot.object]):
                at, hashed = rows.hashed_keys()
                counts = (at >= hot.start) & (at < hot.end)
                hashes.append(hashed[counts])
                offsets.append(at[counts])
                streams.append(np.full(len(offsets[-1]), hot.stream, dtype=np.int64))
        return KeyTable(np.concatenate(hashes), np.concatenate(streams), np.concatenate(offsets))

    async def _tidy(self, own: _Topic, settled: dict[int, int]) -> None:
        """Merge tables of about the same size. What is settled goes away with that."""
        while True:
            classes: dict[int, list[KeyTable]] = {}
            for table in own.tables:
                classes.setdefault(len(table).bit_length() // 3, []).append(table)
            full = next((tables for tables in classes.values() if len(tables) >= MERGED), None)
            if full is None:
                return
            rows = sum(map(len, full))
            made: KeyTable | None = await (self._offload if rows > LARGE else inline)(merged, full, settled)
            gone = set(map(id, full))
            own.tables = [table for table in own.tables if id(table) not in gone]
            if made is not None:
                own.tables.append(made)

    def _prune(self, own: _Topic, settled: dict[int, int]) -> None:
        """Remove settled rows if half of the room is taken, and something was settled since the last time."""
        if 2 * own.size_bytes < self._limit or own.pruned == sum(settled.values()):
            return
        own.pruned = sum(settled.values())
        own.tables = [kept for table in own.tables if (kept := table.without(settled)) is not None]

    def _evict(self, newest: uuid.UUID) -> None:
        while len(self._topics) > 1 and (len(self._topics) > MAX_TOPICS or self.size_bytes > self._limit):
            oldest = next(iter(self._topics))
            if oldest == newest:
                return
            del self._topics[oldest]
