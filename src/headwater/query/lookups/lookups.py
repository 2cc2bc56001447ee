"""Look-ups: a record by partition and offset, and the newest record with a key.

The newest record with a key is the one with the greatest offset in its partition. If several partitions have the key,
the one whose newest record has the greatest timestamp counts, and of equal ones the partition with the lower number.
All that is needed of the state is taken in one step. If an object was settled and deleted before it was read, the
look-up begins again; it never answers with less than there was.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from headwater.background import each
from headwater.client.records import Record, decode_batches
from headwater.errors import BadInput, CorruptObject, NotFound
from headwater.log.looking import bound_of
from headwater.log.segment.cache import Segment, SegmentCache
from headwater.log.segment.encode import RowGroup
from headwater.log.segment.filters import key_hash
from headwater.log.wal.cache import WalCache
from headwater.objects import ObjectMissing, ObjectStore
from headwater.objects.reads import Reads, counted, so_far
from headwater.query.asking import TooMuch
from headwater.query.lookups.files import KeyFiles, TableFiles
from headwater.query.lookups.hot import LARGE, HotKeys
from headwater.query.lookups.runs import HotRun, RunReader, hot_run, hot_runs, loads
from headwater.query.scan import SnapshotGone
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import DataFile
from headwater.threads import Offload, inline
from headwater.types import Domain

ATTEMPTS = 4
"""How often a look-up begins again because something was deleted or damaged under it."""
AT_ONCE = 8
"""Look-ups in files that run at once. Each may have a row group in memory; others wait."""
READ_BYTES = 1 << 30
"""Bytes that one look-up may read from the store."""
MAX_KEY = 1 << 20
"""The longest key that can be looked up."""


class OutOfRange(BadInput):
    """A partition does not have an offset: it is behind the end, or before the start and in no table."""

    def __init__(self, partition: int, offset: int, start: int, end: int) -> None:
        super().__init__(f"partition {partition} has the offsets {start} to {end}, not {offset}")
        self.partition = partition
        self.start = start
        self.end = end


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
        self._store = store
        self._segments = segments
        self._offload = offload
        self._runs = RunReader(wal, opened_limit)
        self._opened_limit = opened_limit
        self.keys = HotKeys(self._runs, cache_bytes // 2, offload)
        self.files = KeyFiles(store, cache_bytes // 2)
        self._places = asyncio.Semaphore(AT_ONCE)

    def __repr__(self) -> str:
        return f"<Lookups: {self.keys!r}, {self.files!r}>"

    # --- by offset -------------------------------------------------------------------------------------

    async def at(self, place: Place, partition: int, offset: int) -> Answer:
        """The committed record at an offset.

        There is none where a transaction was aborted or ended, in a gap, and in a transaction that is still open.
        Raises `OutOfRange` for an offset that the partition does not have.
        """
        if offset >= bound_of(place.stream(partition), True):
            await place.catch_up()

        async def find(fresh: bool) -> tuple[int, Record | None]:
            stream = place.stream(partition)
            if offset < 0 or offset >= stream.end:
                raise OutOfRange(partition, offset, stream.log_start, stream.end)
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
        return await self._in_file(_segment(table.root, table.files[entry.file]), stream.partition, offset, fresh)

    async def _in_run(self, domain: Domain, hot: HotRun, offset: int, fresh: bool) -> Record | None:
        objects = await self._runs.load(domain, [hot], fresh)

        def decoded() -> Record | None:
            rows = self._runs.row(hot, objects[hot.object], offset)
            return next((record for group in rows if (record := self._record(group, offset)) is not None), None)

        found: Record | None = await (self._offload if hot.run.length > LARGE else inline)(decoded)
        return found

    async def _in_file(self, segment: Segment, partition: int, offset: int, fresh: bool) -> Record | None:
        if fresh:
            self._segments.forget(segment.path)
        footer = await self._segments.footer(segment)
        group = footer.find(partition, offset)
        if group is None or footer.groups[group].first_offset > offset:
            return None
        async with self._places:
            return self._record(await self._segments.rows(segment.path, footer, group), offset)

    async def _before_start(self, place: Place, stream: Stream, offset: int, fresh: bool) -> Record | None:
        """A record that the log has no more, and the table perhaps has."""
        table = place.state().tables.get(place.topic)
        root = table.root if table is not None else ""
        found = [
            _segment(root, file)
            for file in self.files.listed(table).files
            if file.first_partition <= stream.partition <= file.last_partition
            and file.first_offset <= offset <= file.last_offset
        ]
        for segment in found:
            record = await self._in_file(segment, stream.partition, offset, fresh)
            if record is not None:
                return record
        raise OutOfRange(stream.partition, offset, stream.log_start, stream.end)

    def _record(self, rows: RowGroup, offset: int) -> Record | None:
        """The record of a row."""
        data = rows.encode(offset, offset + 1, 1, True).records
        batches = decode_batches(data, max(len(data), self._opened_limit)) if len(data) else ()
        return next((record for batch in batches for record in batch.records if record.offset == offset), None)

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
            number = _winner(hits)
            return (number, hits[number]) if number is not None else (partition or 0, None)

        return await self._answered(place, find)

    async def _newest(
        self, place: Place, key: bytes, hashed: int, partition: int | None, fresh: bool
    ) -> dict[int, Record]:
        """By partition, its newest record with a key. Partitions whose record cannot be the newest of all are not
        looked at."""
        chosen = list(place.streams()) if partition is None else [place.stream(partition)]
        tail = await self.keys.find(place.state(), place.topic, chosen, hashed, fresh)
        # From here on all is of one moment, up to the next await. The tables of keys may know more or less than that.
        state = place.state()
        streams: dict[int, Stream] = {stream.id: stream for stream in place.streams()}
        table = state.tables.get(place.topic)
        files = self.files.listed(table)
        bounds = {streams[one].partition: end for one, end in tail.bounds.items() if one in streams}
        hot = [
            found
            for one, offset in tail.offsets.items()
            if one in tail.bounds and one in streams and (found := _hot(state, streams[one], offset)) is not None
        ]
        runs = {found.partition: hot_runs(state, streams[found.stream]) for found in hot}
        hits: dict[int, Record] = {}
        for found in hot:
            record = await self._in_run(Domain(state.domain), found, tail.offsets[found.stream], fresh)
            if record is None or record.key != key:  # another key with the same hash
                record = await self._scanned(Domain(state.domain), runs[found.partition], key, found.end, fresh)
            if record is not None:
                hits[found.partition] = record
        if table is not None and files.files:
            search = _Search(self, table.root, key, hashed, bounds, fresh)
            async with self._places:
                await search.run(files, hits)
        return hits

    async def _scanned(
        self, domain: Domain, runs: Sequence[HotRun], key: bytes, end: int, fresh: bool
    ) -> Record | None:
        """The newest record of a stream in the WAL with a key, found without hashes."""
        for group in reversed(list(loads(runs))):
            objects = await self._runs.load(domain, group, fresh)
            for hot in reversed(group):
                offsets = [rows.last_with_key(key, end) for rows in self._runs.rows(hot, objects[hot.object])]
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
                except CorruptObject as error:
                    failure = error
                await place.catch_up()
        raise failure

    # --- what a search needs ---------------------------------------------------------------------------

    async def groups(
        self, root: str, files: Iterable[DataFile], wanted: Callable[[int, int, int], bool], hashed: int, fresh: bool
    ) -> list[GroupPlace]:
        """The row groups of some files that may have a key; `wanted` judges partition, first and last offset."""

        async def look(file: DataFile) -> list[GroupPlace]:
            _check_limit()
            segment = _segment(root, file)
            if fresh:
                self.files.forget(segment.path)
            known = await self.files.get(segment)
            numbers = await known.may_have(
                hashed, lambda one: wanted(one.partition, one.first_offset, one.last_offset), self._store, segment.path
            )
            return [
                GroupPlace(segment, number, facts.partition, facts.last_offset, facts.max_timestamp)
                for number in numbers
                for facts in (known.groups[number],)
            ]

        return [found for group in await each(look, files) for found in group]

    async def newest_in(self, group: GroupPlace, key: bytes, below: int, fresh: bool) -> Record | None:
        """The newest record of a row group before an offset that has a key."""
        _check_limit()
        if fresh:
            self._segments.forget(group.segment.path)
        footer = await self._segments.footer(group.segment)
        rows = await self._segments.rows(group.segment.path, footer, group.number)
        offset = await (self._offload if len(rows) > LARGE else inline)(rows.last_with_key, key, below)
        return self._record(rows, offset) if offset is not None else None


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """A row group that may have a key."""

    segment: Segment
    number: int
    partition: int
    last_offset: int
    newest_ms: int


@dataclass(slots=True)
class _Search:
    """One search in the files of a table."""

    lookups: Lookups
    root: str
    key: bytes
    hashed: int
    bounds: dict[int, int]
    """By partition that is looked at, the offset at which readers stop."""
    fresh: bool

    async def run(self, files: TableFiles, hits: dict[int, Record]) -> None:
        """Complete `hits`, which has the records that are not settled."""
        # A bulk append may be in a file already while the records in front of it are not settled.
        ahead = [file for file in files.files if any(self._beyond(file, p, hits[p].offset) for p in hits)]
        if ahead:
            found = await self._groups(ahead, lambda p, _, last: p in hits and last > hits[p].offset)
            for partition, groups in found.items():
                await self._newest(partition, groups, hits)
        best = _winner(hits)
        if best is not None and files.newest_ms < hits[best].timestamp:
            return
        rest = [file for file in files.files if any(self._covers(file, p) for p in self.bounds if p not in hits)]
        done = frozenset(hits)
        found = await self._groups(rest, lambda p, *_: p not in done)
        by_time = sorted(found.items(), key=lambda item: -max(group.newest_ms for group in item[1]))
        for partition, groups in by_time:
            best = _winner(hits)
            if best is not None and max(group.newest_ms for group in groups) < hits[best].timestamp:
                return
            await self._newest(partition, groups, hits)

    async def _groups(
        self, files: Iterable[DataFile], wanted: Callable[[int, int, int], bool]
    ) -> dict[int, list[GroupPlace]]:
        """By partition, the row groups that may have the key, those with the greatest offsets first."""
        bounds, found = self.bounds, dict[int, list[GroupPlace]]()

        def counts(partition: int, first: int, last: int) -> bool:
            return partition in bounds and first < bounds[partition] and wanted(partition, first, last)

        for group in await self.lookups.groups(self.root, files, counts, self.hashed, self.fresh):
            found.setdefault(group.partition, []).append(group)
        for groups in found.values():
            groups.sort(key=lambda group: -group.last_offset)
        return found

    async def _newest(self, partition: int, groups: list[GroupPlace], hits: dict[int, Record]) -> None:
        for group in groups:
            known = hits.get(partition)
            if known is not None and group.last_offset <= known.offset:
                return
            record = await self.lookups.newest_in(group, self.key, self.bounds[partition], self.fresh)
            if record is not None and (known is None or record.offset > known.offset):
                hits[partition] = record

    def _covers(self, file: DataFile, partition: int) -> bool:
        return (
            file.first_partition <= partition <= file.last_partition
            and partition in self.bounds
            and file.first_offset < self.bounds[partition]
        )

    def _beyond(self, file: DataFile, partition: int, offset: int) -> bool:
        return file.last_offset > offset and self._covers(file, partition)


def _hot(state: StreamsState, stream: Stream, offset: int) -> HotRun | None:
    """The run that has an offset; None if it is settled, deleted or may not be read."""
    i = stream.index.find(offset)
    if i == len(stream.index) or offset < stream.log_start:
        return None
    entry = stream.index[i]
    return hot_run(state, stream, entry) if entry.in_wal and entry.start <= offset else None


def _check_limit() -> None:
    if so_far().bytes > READ_BYTES:
        raise TooMuch(f"the look-up has read {READ_BYTES} bytes and is not done: name a partition, or ask by SQL")


def _winner(hits: dict[int, Record]) -> int | None:
    """The partition whose record is the newest."""
    return max(hits, key=lambda partition: (hits[partition].timestamp, -partition), default=None)


def _segment(root: str, file: DataFile) -> Segment:
    return Segment(f"{root}/{file.name}", file.size, file.footer_checksum)
