"""Reading streams: from the index to batches with their offsets patched in.

A call reads any number of streams. It first chooses index entries for all of them, then gets the objects that these
name, each once, and then assembles the batches. A range that cannot be read is an error for the reads that begin in
it. Reads that begin before it end there, and reads that begin behind it do not notice it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.errors import BadInput, CorruptObject, HeadwaterError, NotFound
from headwater.log.batch import (
    base_offset_of,
    first_at,
    join_patched,
    max_timestamp_of,
    offsets_of,
    split_batches,
    with_append_time,
)
from headwater.log.damage import BadRange, Damage, DamagedRange, path_of
from headwater.log.segment.cache import MAX_EMPTY, DamagedRows, Segment, SegmentCache
from headwater.log.wal import format as wal
from headwater.log.wal.cache import AbsentWal, CachedWal, WalCache
from headwater.objects import ObjectMissing
from headwater.replica.replica import Replica
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.threads import Offload, inline
from headwater.types import Buffer, Domain, WalId

if TYPE_CHECKING:
    from headwater.log.segment.encode import Encoded

MAX_ENTRIES_PER_STREAM = 1_000
MAX_ENTRIES_PER_CALL = 20_000
LEAST_OBJECT_BYTES = 16 << 20
"""A call gets at least this many bytes of objects that are not in memory, if it needs them: half of the cache, if that
is more. So streams that share objects are served together from the objects that one call gets."""


class OffsetOutOfRange(BadInput):
    """The offset is not in the log."""


@dataclass(frozen=True, slots=True)
class Want:
    """What to read of a stream: batches from an offset on, up to a number of bytes."""

    replica: Replica[StreamsState]
    stream: int
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Batches from an offset on, and the high watermark and log start of the stream at that moment."""

    records: Buffer
    high_watermark: int
    log_start: int


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """A record's offset and timestamp."""

    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """The index entries for one `Want`. There are none if the call has no room for them."""

    stream: Stream
    entries: list[IndexEntry]


class _Hit(Exception):
    """A read begins in a damaged range."""

    def __init__(self, start: int, end: int, reason: str) -> None:
        super().__init__(reason)
        self.start = start
        self.end = end


@dataclass(slots=True)
class _Objects:
    """The WAL objects of one call."""

    cache: WalCache
    bytes_left: int
    entries_left: int = MAX_ENTRIES_PER_CALL
    held: dict[tuple[Domain, WalId], CachedWal] = field(default_factory=dict)
    wanted: dict[Domain, dict[WalId, str]] = field(default_factory=dict)
    sizes: dict[tuple[Domain, WalId], int] = field(default_factory=dict)
    """How much of each object that is not in memory is wanted."""
    failures: dict[Domain, HeadwaterError] = field(default_factory=dict)

    def take(self, state: StreamsState, entry: IndexEntry) -> bool:
        """Whether the call can use the object of an entry. One that is not in memory is noted for `load`."""
        domain, object_id = state.domain, entry.object
        if (domain, object_id) in self.held:
            return True
        if (domain, object_id) in self.sizes:
            self.sizes[(domain, object_id)] += entry.length
            return True
        cached = self.cache.get(domain, object_id)
        known = state.objects.get(object_id) if cached is None else None
        if cached is None and known is None:
            cached = AbsentWal(f"the metadata does not know the object {object_id}")
        if cached is not None:
            self.held[(domain, object_id)] = cached
            return True
        assert known is not None
        if self.wanted and known.size > self.bytes_left:
            return False
        self.bytes_left -= known.size
        path = wal.path_of(known.zone, domain, known.created_ms, object_id)
        self.wanted.setdefault(domain, {})[object_id] = path
        self.sizes[(domain, object_id)] = entry.length
        return True

    async def load(self) -> None:
        """Get the objects that are not in memory. A failure is kept for the entries that need them."""
        for domain, wanted in self.wanted.items():
            try:
                loaded = await self.cache.load(domain, list(wanted.items()))
            except HeadwaterError as error:
                self.failures[domain] = error
                continue
            for object_id, cached in zip(wanted, loaded, strict=True):
                cached.expect(self.sizes[(domain, object_id)])
                self.held[(domain, object_id)] = cached

    def of(self, domain: Domain, entries: list[IndexEntry]) -> list[CachedWal]:
        """The objects of the first entries, as far as they could be loaded. Raises if there is none."""
        found: list[CachedWal] = []
        for entry in entries:
            cached = self.held.get((domain, entry.object))
            if cached is None:
                break
            found.append(cached)
        if entries and not found:
            raise self.failures[domain]
        return found


class Reader:
    """Reads streams of any domain this process follows."""

    def __init__(
        self,
        cache: WalCache,
        segments: SegmentCache,
        opened_limit: int,
        damage: Damage,
        offload: Offload = inline,
    ) -> None:
        self._offload = offload
        self._cache = cache
        self._segments = segments
        self._opened_limit = opened_limit
        self.damage = damage

    async def read(
        self, replica: Replica[StreamsState], stream_id: int, offset: int, max_bytes: int, first_whole: bool
    ) -> ReadResult:
        """Whole batches of one stream from the one that holds `offset`, up to `max_bytes`.

        With `first_whole` the first batch is returned even if it alone is larger. The caller has checked that the
        offset is in the log.
        """
        want = Want(replica, stream_id, offset, max_bytes)
        [found] = await self.read_many([want], max_bytes, first_whole=first_whole)
        if isinstance(found, HeadwaterError):
            raise found
        return found

    async def read_many(
        self,
        wants: Sequence[Want],
        limit: int,
        *,
        first_whole: bool = True,
        did: Callable[[int], Awaitable[None]] | None = None,
    ) -> list[ReadResult | HeadwaterError]:
        """Whole batches of several streams, up to `limit` bytes in all, or an error for each.

        With `first_whole` the first batch of all is returned even if it alone is larger than a limit. `did` is called
        with the bytes of each stream, so that the caller can give other work a turn.
        """
        objects = self._new_objects()
        plans: list[_Plan | HeadwaterError] = []
        room = limit
        for want in wants:
            try:
                plan = self._plan(want, objects, room)
                room -= min(sum(entry.length for entry in plan.entries), max(want.max_bytes, 1))
                plans.append(plan)
            except HeadwaterError as error:
                plans.append(error)
        if objects.wanted:
            await objects.load()
        found: list[ReadResult | HeadwaterError] = []
        for want, planned in zip(wants, plans, strict=True):
            if isinstance(planned, HeadwaterError):
                found.append(planned)
                continue
            try:
                result = await self._carry_out(want, planned, objects, min(max(want.max_bytes, 0), limit), first_whole)
            except HeadwaterError as error:
                found.append(error)
                continue
            if result.records and self.damage.knows(want.replica.domain, want.stream):
                last = split_batches(result.records)[-1]
                end = base_offset_of(last) + offsets_of(last)
                self.damage.mended(want.replica.domain, want.stream, want.offset, end)
            limit -= len(result.records)
            first_whole = first_whole and not result.records
            if did is not None:
                await did(len(result.records))
            found.append(result)
        return found

    def _new_objects(self) -> _Objects:
        return _Objects(self._cache, max(self._cache.limit // 2, LEAST_OBJECT_BYTES))

    def _plan(self, want: Want, objects: _Objects, room: int) -> _Plan:
        """The index entries that a read needs, as far as the call has room for them."""
        stream = _located(want)
        known = self.damage.recent(want.replica.domain, want.stream, want.offset) if self.damage else None
        if known is not None:
            raise DamagedRange(known)
        entries: list[IndexEntry] = []
        state, index = want.replica.state, stream.index
        i, size, room = index.find(want.offset), 0, min(max(want.max_bytes, 0), room)
        last = min(len(index), i + MAX_ENTRIES_PER_STREAM)
        while i < last and size < room + 1 and objects.entries_left > 0:
            entry = index[i]
            if not entry.in_wal:
                if not entries:
                    entries.append(entry)
                break
            if not objects.take(state, entry):
                break
            entries.append(entry)
            objects.entries_left -= 1
            size += entry.length
            i += 1
        return _Plan(stream, entries)

    async def _carry_out(self, want: Want, plan: _Plan, objects: _Objects, room: int, first_whole: bool) -> ReadResult:
        """Read what was planned. If nothing was found for the streams before, this one is read in any case."""
        stream, entries = plan.stream, plan.entries
        if room <= 0 and not first_whole:
            return ReadResult(b"", stream.end, stream.log_start)
        if not entries and first_whole and want.offset < stream.end:
            objects = self._new_objects()
            entries = self._plan(want, objects, room).entries
            await objects.load()
        if entries and not entries[0].in_wal:
            return await self._read_settled(want, room, first_whole)
        try:
            return _assemble(stream, entries, objects.of(want.replica.domain, entries), want.offset, room, first_whole)
        except _Hit:
            return await self._read_again(want, room, first_whole)

    async def _read_again(self, want: Want, room: int, first_whole: bool) -> ReadResult:
        """Read a range that is missing or damaged a second time: by the newest index, and from the store itself."""
        await want.replica.barrier()
        stream = _located(want)
        i = stream.index.find(want.offset)
        if i == len(stream.index):
            return ReadResult(b"", stream.end, stream.log_start)
        entry = stream.index[i]
        if not entry.in_wal:
            return await self._read_settled(want, room, first_whole)
        try:
            return _assemble(stream, [entry], [await self._fresh(want, stream, entry)], want.offset, room, first_whole)
        except _Hit as hit:
            raise self._noted(want, stream, entry, hit.start, hit.end, str(hit)) from hit

    async def _fresh(self, want: Want, stream: Stream, entry: IndexEntry) -> CachedWal:
        path = path_of(want.replica.state, stream, entry)
        if not path:
            return AbsentWal(f"the metadata does not know the object {entry.object}")
        return await self._cache.read_again(want.replica.domain, entry.object, path)

    def _noted(self, want: Want, stream: Stream, entry: IndexEntry, start: int, end: int, reason: str) -> DamagedRange:
        path = path_of(want.replica.state, stream, entry)
        return self.damage.note(BadRange(want.replica.domain, want.stream, start, end, path, reason))

    async def _read_settled(self, want: Want, room: int, first_whole: bool) -> ReadResult:
        """Rows of segments as batches, up to the first entry that is not settled, or that cannot be read.

        A command may replace index entries during the read, so each step looks the offset up again.
        """
        pieces: list[Buffer] = []
        at, again = want.offset, False
        while room > 0 or not pieces:
            stream = _located(want)
            i = stream.index.find(at)
            if i == len(stream.index) or not stream.index[i].settled:
                break
            entry = stream.index[i]
            try:
                encoded = await self._encode(want, stream, entry, at, room, first_whole and not pieces)
            except (ObjectMissing, CorruptObject) as error:
                if pieces:
                    break
                if again:
                    rows = (error.start, error.end) if isinstance(error, DamagedRows) else (entry.start, entry.end)
                    raise self._noted(want, stream, entry, *rows, str(error)) from error
                again = True
                self._segments.forget(path_of(want.replica.state, stream, entry))
                await want.replica.barrier()
                continue
            if encoded.next_offset == at:
                break
            pieces.append(encoded.records)
            room -= len(encoded.records)
            at = encoded.next_offset
        stream = _stream(want.replica, want.stream)
        return ReadResult(b"".join(pieces), stream.end, stream.log_start)

    async def _encode(
        self, want: Want, stream: Stream, entry: IndexEntry, offset: int, room: int, first_whole: bool
    ) -> Encoded:
        from headwater.log.segment.encode import Encoded, empty_batch

        if not entry.file:
            end = min(entry.end, offset + MAX_EMPTY)
            return Encoded(empty_batch(offset, end), end)
        segment = _segment(want.replica.state, stream, entry)
        return await self._segments.encode(segment, stream.partition, offset, entry.end, room, first_whole)

    async def find_time(self, replica: Replica[StreamsState], stream_id: int, timestamp: int) -> TimedOffset | None:
        """The first record whose timestamp is at least `timestamp`. Raises if it may be in a damaged range."""
        stream = _stream(replica, stream_id)
        offset, again = stream.log_start, False
        i = stream.index.find_time(timestamp)
        while i < len(stream.index) and stream.index[i].end <= stream.end:
            entry = stream.index[i]
            want = Want(replica, stream_id, max(offset, entry.start), 0)
            try:
                found = await self._find_in(want, stream, entry, timestamp, again)
            except (_Hit, ObjectMissing, CorruptObject) as error:
                if again:
                    raise self._noted(want, stream, entry, entry.start, entry.end, str(error)) from error
                again = True
                await replica.barrier()
                stream = _located(want)
                i = stream.index.find(entry.start)
                continue
            if found is not None:
                return found
            again = False
            i = max(stream.index.find(entry.end), stream.index.find_time(timestamp))
        return None

    async def _find_in(
        self, want: Want, stream: Stream, entry: IndexEntry, timestamp: int, again: bool
    ) -> TimedOffset | None:
        """The first record of an entry with at least a timestamp. With `again`, nothing comes from memory."""
        if entry.file:
            segment = _segment(want.replica.state, stream, entry)
            if again:
                self._segments.forget(segment.path)
            found = await self._segments.find_time(segment, stream.partition, timestamp, want.offset)
            return TimedOffset(*found) if found is not None else None
        if not entry.in_wal:
            return None
        objects = self._new_objects()
        if again:
            objects.held[(want.replica.domain, entry.object)] = await self._fresh(want, stream, entry)
        objects.take(want.replica.state, entry)
        await objects.load()
        [cached] = objects.of(want.replica.domain, [entry])
        for at, batches, damage in _parts(entry, cached):
            if damage is not None:
                raise _Hit(at, *damage)
            base = at
            for batch in batches:
                if max_timestamp_of(batch) >= timestamp:
                    timed = await self._offload(first_at, batch, base, timestamp, want.offset, self._opened_limit)
                    if timed is not None:
                        return TimedOffset(*timed)
                base += offsets_of(batch)
        return None

    async def find_max_timestamp(self, replica: Replica[StreamsState], stream_id: int) -> TimedOffset | None:
        """The first record with the largest timestamp of the log."""
        stream = _stream(replica, stream_id)
        if not len(stream.index):
            return None
        return await self.find_time(replica, stream_id, stream.max_timestamp)


def _located(want: Want) -> Stream:
    """The stream, if the offset is not before its log start. That may have moved while the read waited."""
    stream = _stream(want.replica, want.stream)
    if want.offset < stream.log_start:
        raise OffsetOutOfRange(f"stream {want.stream} starts at {stream.log_start}, not {want.offset}")
    return stream


def _stream(replica: Replica[StreamsState], stream_id: int) -> Stream:
    stream = replica.state.streams.get(stream_id)
    if stream is None:
        raise NotFound(f"stream {stream_id} does not exist")
    return stream


def _segment(state: StreamsState, stream: Stream, entry: IndexEntry) -> Segment:
    """The segment that an entry names."""
    table = state.tables[stream.topic]
    file = table.files[entry.file]
    return Segment(f"{table.root}/{file.name}", file.size, file.footer_checksum)


def _parts(entry: IndexEntry, cached: CachedWal) -> list[tuple[int, list[Buffer], tuple[int, str] | None]]:
    """The batches of an entry with the offset of the first, or a damaged range with its end and the reason."""
    try:
        batches = cached.batches(entry.position, entry.position + entry.length, entry.end - entry.start)
    except wal.DamagedRun as error:
        start = entry.start + sum(map(offsets_of, error.before))
        end = entry.end - sum(map(offsets_of, error.behind))
        before, behind = _stamped(entry, error.before), _stamped(entry, error.behind)
        return [(entry.start, before, None), (start, [], (end, str(error))), (end, behind, None)]
    return [(entry.start, _stamped(entry, batches), None)]


def _stamped(entry: IndexEntry, batches: list[Buffer]) -> list[Buffer]:
    """The batches as the topic serves them. A new CRC is only made for batches that were checked."""
    return [with_append_time(batch, entry.max_timestamp) for batch in batches] if entry.append_time else batches


def _assemble(
    stream: Stream,
    entries: list[IndexEntry],
    objects: list[CachedWal],
    offset: int,
    room: int,
    first_whole: bool,
) -> ReadResult:
    """Whole batches from the one that holds the offset on, up to `room` bytes, or up to a damaged range."""
    chosen: list[Buffer] = []
    base = -1
    for entry, cached in zip(entries, objects, strict=False):
        for at, batches, damage in _parts(entry, cached):
            if damage is not None:
                if chosen:
                    return _result(chosen, base, stream)
                if offset < damage[0]:
                    raise _Hit(at, *damage)
            size = sum(map(len, batches))
            if size <= room and batches and (chosen or offset <= at):  # most runs are taken as a whole
                base = base if chosen else at
                chosen += batches
                room -= size
                continue
            for batch in batches:
                if not chosen:
                    end = at + offsets_of(batch)
                    if end <= offset:
                        at = end
                        continue
                    base = at
                if len(batch) > room and (chosen or not first_whole):
                    return _result(chosen, base, stream)
                chosen.append(batch)
                room -= len(batch)
    return _result(chosen, base, stream)


def _result(batches: list[Buffer], base: int, stream: Stream) -> ReadResult:
    return ReadResult(join_patched(batches, base) if batches else b"", stream.end, stream.log_start)
