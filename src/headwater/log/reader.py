"""Reading a stream: from the index to batches with their offsets patched in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from headwater.errors import BadInput, CorruptObject, NotFound
from headwater.log import wal
from headwater.log.batch import (
    join_patched,
    max_timestamp_of,
    offsets_of,
    record_timestamps,
    with_append_time,
)
from headwater.log.segment_cache import MAX_EMPTY, Segment, SegmentCache
from headwater.log.wal_cache import CachedWal, WalCache
from headwater.metadata.index import IndexEntry
from headwater.metadata.replica import Replica
from headwater.metadata.streams import Stream, StreamsState
from headwater.objects import ObjectMissing
from headwater.types import Buffer

if TYPE_CHECKING:
    from headwater.log.segment_encode import Encoded

MAX_ENTRIES_PER_READ = 1_000
ATTEMPTS = 2
"""An object that is gone means that the index moved on: look again, once."""


class OffsetOutOfRange(BadInput):
    """The log does not hold that offset."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Batches from an offset on, and the stream's borders at that moment."""

    records: Buffer
    high_watermark: int
    log_start: int


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """A record's offset and timestamp."""

    offset: int
    timestamp: int


class Reader:
    """Reads streams of any domain this process follows."""

    def __init__(self, cache: WalCache, segments: SegmentCache, opened_limit: int) -> None:
        self._cache = cache
        self._segments = segments
        self._opened_limit = opened_limit

    async def read(
        self, replica: Replica[StreamsState], stream_id: int, offset: int, max_bytes: int, first_whole: bool
    ) -> ReadResult:
        """Whole batches from the one that holds `offset`, up to `max_bytes`.

        With `first_whole` the first batch comes even if it alone is larger. The caller has made sure that the
        offset lies in the log.
        """
        for attempt in range(ATTEMPTS):
            stream = _stream(replica, stream_id)
            if offset < stream.log_start:  # it moved while we waited
                raise OffsetOutOfRange(f"stream {stream_id} starts at {stream.log_start}, not {offset}")
            entries = self._plan(stream, offset, max_bytes)
            try:
                if entries and not entries[0].in_wal:
                    return await self._read_settled(replica, stream_id, offset, max_bytes, first_whole)
                objects = await self._load(replica, entries)
            except ObjectMissing as error:
                if attempt + 1 == ATTEMPTS:
                    raise CorruptObject(f"stream {stream_id}, offset {offset}: {error}") from error
                await replica.barrier()
                continue
            return _assemble(stream, entries, objects, offset, max_bytes, first_whole)
        raise AssertionError("the last attempt returns or raises")

    @staticmethod
    def _plan(stream: Stream, offset: int, max_bytes: int) -> list[IndexEntry]:
        """The entries that a read of this size touches, at least one if there is any."""
        entries: list[IndexEntry] = []
        index, i, size = stream.index, stream.index.find(offset), 0
        while i < len(index) and size < max_bytes + 1 and len(entries) < MAX_ENTRIES_PER_READ:
            entry = index[i]
            if entries and not entry.in_wal:
                break
            entries.append(entry)
            if not entry.in_wal:
                break
            size += entry.length
            i += 1
        return entries

    async def _load(self, replica: Replica[StreamsState], entries: list[IndexEntry]) -> list[CachedWal]:
        """The objects of entries, from memory if they are all there."""
        domain, get = replica.domain, self._cache.get
        cached = [get(domain, entry.object) for entry in entries]
        if None not in cached:
            return cast(list[CachedWal], cached)
        wanted = []
        for entry in entries:
            known = replica.state.objects.get(entry.object)
            if known is None:
                raise ObjectMissing(f"no WAL object {entry.object} in domain {domain}")
            wanted.append((entry.object, wal.path_of(known.zone, domain, known.created_ms, entry.object)))
        return await self._cache.load(domain, wanted)

    async def _read_settled(
        self, replica: Replica[StreamsState], stream_id: int, offset: int, room: int, first_whole: bool
    ) -> ReadResult:
        """Rows of segments as batches, up to the next entry of another kind. The index may be swapped while we read."""
        pieces: list[Buffer] = []
        at = offset
        while room > 0 or not pieces:
            stream = _stream(replica, stream_id)
            i = stream.index.find(at)
            if i == len(stream.index) or not stream.index[i].settled:
                break
            encoded = await self._encode(replica.state, stream, stream.index[i], at, room, first_whole and not pieces)
            if encoded.next_offset == at:
                break
            pieces.append(encoded.records)
            room -= len(encoded.records)
            at = encoded.next_offset
        stream = _stream(replica, stream_id)
        return ReadResult(b"".join(pieces), stream.end, stream.log_start)

    async def _encode(
        self, state: StreamsState, stream: Stream, entry: IndexEntry, offset: int, room: int, first_whole: bool
    ) -> Encoded:
        from headwater.log.segment_encode import Encoded, empty_batch

        if not entry.file:
            end = min(entry.end, offset + MAX_EMPTY)
            return Encoded(empty_batch(offset, end), end)
        segment = _segment(state, stream, entry)
        return await self._segments.encode(segment, stream.partition, offset, entry.end, room, first_whole)

    async def find_time(self, replica: Replica[StreamsState], stream_id: int, timestamp: int) -> TimedOffset | None:
        """The first record whose timestamp is at least `timestamp`."""
        stream = _stream(replica, stream_id)
        offset = stream.log_start
        i = stream.index.find_time(timestamp)
        while i < len(stream.index) and stream.index[i].end <= stream.end:
            entry = stream.index[i]
            if entry.file:
                segment, start = _segment(replica.state, stream, entry), max(offset, entry.start)
                found = await self._segments.find_time(segment, stream.partition, timestamp, start)
                if found is not None:
                    return TimedOffset(*found)
            for at, batch in await self._walk(replica, entry) if entry.in_wal else []:
                if max_timestamp_of(batch) < timestamp:
                    continue
                for delta, stamp in record_timestamps(batch, self._opened_limit):
                    if stamp >= timestamp and at + delta >= offset:
                        return TimedOffset(at + delta, stamp)
            i = max(stream.index.find(entry.end), stream.index.find_time(timestamp))
        return None

    async def find_max_timestamp(self, replica: Replica[StreamsState], stream_id: int) -> TimedOffset | None:
        """The first record with the largest timestamp of the log."""
        stream = _stream(replica, stream_id)
        if not len(stream.index):
            return None
        return await self.find_time(replica, stream_id, stream.max_timestamp)

    async def _walk(self, replica: Replica[StreamsState], entry: IndexEntry) -> list[tuple[int, Buffer]]:
        found, at = [], entry.start
        [cached] = await self._load(replica, [entry])
        for batch in _batches(cached, entry):
            found.append((at, batch))
            at += offsets_of(batch)
        return found


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


def _batches(cached: CachedWal, entry: IndexEntry) -> list[Buffer]:
    batches = cached.batches(entry.position, entry.position + entry.length)
    if entry.append_time:
        return [with_append_time(batch, entry.max_timestamp) for batch in batches]
    return batches


def _assemble(
    stream: Stream,
    entries: list[IndexEntry],
    objects: list[CachedWal],
    offset: int,
    room: int,
    first_whole: bool,
) -> ReadResult:
    """Whole batches from the one that holds the offset, as many as there is room for."""
    chosen: list[Buffer] = []
    base = -1
    for entry, cached in zip(entries, objects, strict=True):
        at = entry.start
        for batch in _batches(cached, entry):
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
