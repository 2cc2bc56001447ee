"""Look-ups: a record by partition and offset, and the newest record with a key.

The newest record with a key is the one with the greatest offset in its partition. If several partitions have the key,
the one whose newest record has the greatest timestamp counts, and of equal ones the partition with the lower number.
All that is needed of the state is taken in one step. If an object was settled and deleted before it was read, the
look-up begins again; it never answers with less than there was.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from headwater.client.records import Record
from headwater.errors import BadInput, Damaged, NotFound, ObjectMissing, OffsetOutOfRange, SnapshotGone
from headwater.log.looking import bound_of
from headwater.log.segment.cache import Segment, SegmentCache
from headwater.log.segment.filters import key_hash
from headwater.log.wal.cache import WalCache
from headwater.objects import ObjectStore
from headwater.objects.reads import Reads, counted
from headwater.query.lookups.hot import LARGE, HotKeys
from headwater.query.lookups.indexed import index_of
from headwater.query.lookups.runs import HotRun, RunReader, hot_run, hot_runs, loads
from headwater.query.lookups.settled import Settled, Sought, segment_of, winner
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.threads import Offload, inline
from headwater.types import Domain

ATTEMPTS = 4
"""How often a look-up begins again because something was deleted or damaged under it."""
AT_ONCE = 8
"""Look-ups in files that run at once. Each may have a row group in memory; others wait."""
MAX_KEY = 1 << 20
"""The longest key that can be looked up."""


@dataclass(frozen=True, slots=True)
class Place:
    """The topic of a look-up, as the caller's process knows it."""

    topic: uuid.UUID
    state: Callable[[], StreamsState]
    streams: Callable[[], Sequence[Stream]]
    """The streams of all partitions."""
    catch_up: Callable[[], Awaitable[None]]
    """Brings the state up to the ledger's end."""

    def stream(self, partition: int) -> Stream:
        """The stream of a partition."""
        found = next((stream for stream in self.streams() if stream.partition == partition), None)
        if found is None:
            raise NotFound(f"the topic has no partition {partition}")
        return found


@dataclass(frozen=True, slots=True)
class Answer:
    """What a look-up has found, and what it cost."""

    partition: int
    record: Record | None
    """None: there is no such record. A record whose value is null is a tombstone."""
    read: Reads = field(default_factory=Reads)
    """Reads from the store. What is in memory costs none."""


class Lookups:
    """Look-ups of one process, with their caches."""

    def __init__(
        self,
        store: ObjectStore,
        wal: WalCache,
        segments: SegmentCache,
        *,
        opened_limit: int,
        cache_bytes: int,
        offload: Offload = inline,
    ) -> None:
        """Half of `cache_bytes` is for the keys of records in the WAL, half for the filters of files."""
        self._offload = offload
        self._runs = RunReader(wal, opened_limit)
        self.keys = HotKeys(self._runs, cache_bytes // 2, offload)
        self._settled = Settled(store, segments, cache_bytes // 2, offload)
        self._places = asyncio.Semaphore(AT_ONCE)

    def __repr__(self) -> str:
        return f"<Lookups: {self.keys!r}, {self._settled!r}>"

    # --- by offset -------------------------------------------------------------------------------------

    async def at(self, place: Place, partition: int, offset: int) -> Answer:
        """The committed record at an offset.

        There is none where a transaction was aborted or ended, in a gap, and in a transaction that is still open.
        Raises `OffsetOutOfRange` for an offset that the partition does not have.
        """
        if offset >= bound_of(place.stream(partition), True):
            await place.catch_up()

        async def find(fresh: bool) -> tuple[int, Record | None]:
            stream = place.stream(partition)
            if offset < 0 or offset >= stream.end:
                raise out_of_range(stream, offset)
            if offset < stream.log_start:
                return partition, await self._before_start(place, stream, offset, fresh)
            if offset >= bound_of(stream, True):
                return partition, None
            entry = stream.index[stream.index.find(offset)]
            return partition, await self._in_entry(place.state(), stream, entry, offset, fresh)

        return await self._answered(place, find)

    async def _in_entry(
        self, state: StreamsState, stream: Stream, entry: IndexEntry, offset: int, fresh: bool
    ) -> Record | None:
        """The record at an offset, by the entry of the index that covers it."""
        if offset < entry.start:
            return None
        if entry.in_wal:
            return await self._in_run(Domain(state.domain), hot_run(state, stream, entry), offset, fresh)
        if not entry.file:
            return None
        table = state.tables[stream.topic]
        return await self._in_file(segment_of(table.root, table.files[entry.file]), stream.partition, offset, fresh)

    async def _in_run(self, domain: Domain, hot: HotRun, offset: int, fresh: bool) -> Record | None:
        objects = await self._runs.load(domain, [hot], fresh)

        run = self._offload if hot.run.length > LARGE else inline
        found: Record | None = await run(self._runs.record, hot, objects[hot.object], offset)
        return found

    async def _in_file(self, segment: Segment, partition: int, offset: int, fresh: bool) -> Record | None:
        async with self._places:
            return await self._settled.at(segment, partition, offset, fresh)

    async def _before_start(self, place: Place, stream: Stream, offset: int, fresh: bool) -> Record | None:
        """A record that the log has no more, and the table perhaps has."""
        table = place.state().tables.get(place.topic)
        root = table.root if table is not None else ""
        found = [
            segment_of(root, file)
            for file in self._settled.files.listed(table).files
            if file.first_partition <= stream.partition <= file.last_partition
            and file.first_offset <= offset <= file.last_offset
        ]
        for segment in found:
            record = await self._in_file(segment, stream.partition, offset, fresh)
            if record is not None:
                return record
        raise out_of_range(stream, offset)

    # --- by key ----------------------------------------------------------------------------------------

    async def latest(self, place: Place, key: bytes, partition: int | None = None) -> Answer:
        """The newest committed record with a key, of all partitions or of one.

        Every record that was acknowledged before the call counts, whether or not it is settled.
        """
        if len(key) > MAX_KEY:
            raise BadInput(f"a key of {len(key)} bytes: the longest that can be looked up has {MAX_KEY}")
        await place.catch_up()
        hashed = key_hash(key)

        async def find(fresh: bool) -> tuple[int, Record | None]:
            if fresh:
                self.keys.forget(place.topic)
            hits = await self._newest(place, key, hashed, partition, fresh)
            number = winner(hits)
            return (number, hits[number]) if number is not None else (partition or 0, None)

        return await self._answered(place, find)

    async def _newest(
        self, place: Place, key: bytes, hashed: int, partition: int | None, fresh: bool
    ) -> dict[int, Record]:
        """By partition, its newest record with a key. Those that cannot be the newest of all may be left out."""
        chosen = list(place.streams()) if partition is None else [place.stream(partition)]
        tail = await self.keys.find(place.state(), place.topic, chosen, hashed, fresh)
        # All of the following is of one moment, up to the next await.
        state = place.state()
        streams: dict[int, Stream] = {stream.id: stream for stream in place.streams() if stream.id in tail.bounds}
        table = state.tables.get(place.topic)
        files = self._settled.files.listed(table)
        found = [
            (streams[one], hot, offset)
            for one, offset in tail.offsets.items()
            if one in streams and (hot := _hot(state, streams[one], offset)) is not None
        ]
        ahead = {
            stream.partition: numbers
            for stream, _, offset in found
            if (numbers := _ahead(stream, offset, files.last_offset, tail.bounds[stream.id]))
        }
        settled = {stream.id: stream.settled for stream in streams.values()}
        sought = Sought(
            root=table.root if table is not None else "",
            key=key,
            hashed=hashed,
            bounds={stream.partition: tail.bounds[one] for one, stream in streams.items()},
            files=files,
            ahead=ahead,
            index=index_of(table),
            file_at=lambda number, offset: _file_at(place, number, offset),
            fresh=fresh,
        )
        hits: dict[int, Record] = {}
        for stream, hot, offset in found:
            record = await self._in_run(Domain(state.domain), hot, offset, fresh)
            if record is None or record.key != key:  # another key with the same hash
                record = await self._scanned(place, stream.partition, key, settled[stream.id], fresh)
            if record is not None:
                hits[stream.partition] = record
            else:
                ahead.pop(stream.partition, None)  # its files are searched like those of other partitions
        if files.files:
            async with self._places:
                await self._settled.search(sought, hits)
        return hits

    async def _scanned(self, place: Place, partition: int, key: bytes, settled: int, fresh: bool) -> Record | None:
        """The newest record of a partition in the WAL with a key, found without hashes."""
        stream = place.stream(partition)
        if stream.settled != settled:
            raise ObjectMissing(f"partition {partition} was settled meanwhile")
        domain, bound = Domain(place.state().domain), bound_of(stream, True)
        for group in reversed(list(loads(hot_runs(place.state(), stream)))):
            objects = await self._runs.load(domain, group, fresh)
            for hot in reversed(group):
                offsets = [rows.last_with_key(key, bound) for rows in self._runs.rows(hot, objects[hot.object])]
                best = max((at for at in offsets if at is not None and at >= hot.start), default=None)
                if best is not None:
                    return await self._in_run(domain, hot, best, fresh)
        return None

    # --- again -----------------------------------------------------------------------------------------

    async def _answered(self, place: Place, find: Callable[[bool], Awaitable[tuple[int, Record | None]]]) -> Answer:
        """Call `find`, and again after a look at the ledger if an object is missing or damaged."""
        with counted() as read:
            for attempt in range(ATTEMPTS):
                try:
                    partition, record = await find(attempt > 0)
                    return Answer(partition, record, read)
                except ObjectMissing as error:
                    failure: Exception = SnapshotGone(f"{error}: it was deleted while it was read, look again")
                except Damaged as error:
                    failure = error
                await place.catch_up()
        raise failure


def _hot(state: StreamsState, stream: Stream, offset: int) -> HotRun | None:
    """The run that has an offset; None if it is settled, deleted or may not be read."""
    i = stream.index.find(offset)
    if i == len(stream.index) or offset < stream.log_start:
        return None
    entry = stream.index[i]
    return hot_run(state, stream, entry) if entry.in_wal and entry.start <= offset else None


def _file_at(place: Place, partition: int, offset: int) -> int:
    """The number of the file that has an offset, as far as the index of the log knows it; 0 if it does not."""
    stream = place.stream(partition)
    i = stream.index.find(offset)
    return stream.index[i].file if i < len(stream.index) and stream.index[i].start <= offset else 0


def _ahead(stream: Stream, offset: int, last: int, bound: int) -> set[int]:
    """The numbers of files with rows of a stream behind an offset in the WAL: of bulk appends, which settle at once.

    `last` is the greatest offset in any file: most often it is smaller, and there are none.
    """
    if offset >= last:
        return set()
    index = stream.index
    entries = (index[i] for i in range(index.find(offset), len(index)))
    return {entry.file for entry in entries if entry.file and entry.start < bound}


def out_of_range(stream: Stream, offset: int) -> OffsetOutOfRange:
    """The error for an offset behind the end of a partition, or before its start and in no table."""
    start, end = stream.log_start, stream.end
    message = f"partition {stream.partition} has the offsets {start} to {end}, not {offset}"
    return OffsetOutOfRange(message, partition=stream.partition, start=start, end=end)
