"""Reading a stream: from the index to batches with their offsets patched in."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import CorruptObject, NotFound
from headwater.log import wal
from headwater.log.batch import (
    join_patched,
    max_timestamp_of,
    offsets_of,
    record_timestamps,
    with_append_time,
)
from headwater.log.wal_cache import CachedWal, WalCache
from headwater.metadata.index import IndexEntry
from headwater.metadata.replica import Replica
from headwater.metadata.streams import Stream, StreamsState
from headwater.objects import ObjectMissing
from headwater.types import Buffer

MAX_ENTRIES_PER_READ = 10_000
ATTEMPTS = 2
"""An object that is gone means that the index moved on: look again, once."""


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

    def __init__(self, cache: WalCache, opened_limit: int) -> None:
        self._cache = cache
        self._opened_limit = opened_limit

    async def read(
        self, replica: Replica[StreamsState], stream_id: int, offset: int, max_bytes: int, first_whole: bool
    ) -> ReadResult:
        """Whole batches from the one that holds `offset`, up to `max_bytes`.

        With `first_whole` the first batch comes even if it alone is larger. The caller has made sure that the
        offset lies in the log.
        """
        batches: list[Buffer] = []
        base = -1
        room = max_bytes
        for attempt in range(ATTEMPTS):
            stream = _stream(replica, stream_id)
            index, i, n = stream.index, stream.index.find(offset), 0
            try:
                while i < len(index) and n < MAX_ENTRIES_PER_READ:
                    entry = index[i]
                    cached = self._cache.get(replica.domain, entry.object)
                    if cached is None:
                        if batches and room < entry.length // 2:
                            break  # not worth a trip to the store
                        cached = await self._load(replica, entry)
                    at = entry.start
                    for batch in _batches(cached, entry):
                        end = at + offsets_of(batch)
                        if end > offset:
                            if len(batch) > room and (batches or not first_whole):
                                return _result(batches, base, stream)
                            if not batches:
                                base = at
                            batches.append(batch)
                            room -= len(batch)
                        at = end
                    offset = entry.end
                    i = index.find(offset)  # the index may have moved while we waited
                    n += 1
                break
            except ObjectMissing as error:
                if batches:
                    break
                if attempt + 1 == ATTEMPTS:
                    raise CorruptObject(f"stream {stream_id}, offset {offset}: {error}") from error
                await replica.barrier()
        return _result(batches, base, stream)

    async def _load(self, replica: Replica[StreamsState], entry: IndexEntry) -> CachedWal:
        known = replica.state.objects.get(entry.object)
        if known is None:
            raise ObjectMissing(f"no WAL object {entry.object} in domain {replica.domain}")
        path = wal.path_of(known.zone, replica.domain, known.created_ms, entry.object)
        return await self._cache.fetch(replica.domain, entry.object, path)

    async def find_time(self, replica: Replica[StreamsState], stream_id: int, timestamp: int) -> TimedOffset | None:
        """The first record whose timestamp is at least `timestamp`."""
        stream = _stream(replica, stream_id)
        offset = stream.log_start
        i = stream.index.find_time(timestamp)
        while i < len(stream.index):
            entry = stream.index[i]
            for at, batch in await self._walk(replica, entry):
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
        for batch in _batches(await self._load(replica, entry), entry):
            found.append((at, batch))
            at += offsets_of(batch)
        return found


def _stream(replica: Replica[StreamsState], stream_id: int) -> Stream:
    stream = replica.state.streams.get(stream_id)
    if stream is None:
        raise NotFound(f"stream {stream_id} does not exist")
    return stream


def _batches(cached: CachedWal, entry: IndexEntry) -> list[Buffer]:
    batches = cached.batches(entry.position, entry.position + entry.length)
    if entry.append_time:
        return [with_append_time(batch, entry.max_timestamp) for batch in batches]
    return batches


def _result(batches: list[Buffer], base: int, stream: Stream) -> ReadResult:
    return ReadResult(join_patched(batches, base) if batches else b"", stream.next_offset, stream.log_start)
