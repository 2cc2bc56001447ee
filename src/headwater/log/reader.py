"""Reading streams: from the index to batches with their offsets patched in.

A call reads any number of streams. It first chooses index entries for all of them, then gets the objects that these
name, each once, and then assembles the batches. A range that cannot be read is an error for the reads that begin in
it. Reads that begin before it end there, and reads that begin behind it do not notice it.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import Damaged, HeadwaterError, NotFound, ObjectMissing, OffsetOutOfRange
from headwater.log.batch import (
    MAX_EMPTY,
    base_offset_of,
    empty_batch,
    first_at,
    join_patched,
    max_timestamp_of,
    offsets_of,
    split_batches,
    with_leader_epoch,
)
from headwater.log.damage import BadRange, Damage, DamagedRange, path_of
from headwater.log.gathering import Hit, Objects, parts
from headwater.log.looking import Look, bound_of, look
from headwater.log.segment.cache import DamagedRows, Segment, SegmentCache
from headwater.log.wal.cache import AbsentWal, CachedWal, WalCache
from headwater.replica.replica import Replica
from headwater.state.streams.aborted import AbortedTransaction
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.threads import Offload, inline
from headwater.types import Buffer

if TYPE_CHECKING:
    from headwater.log.segment.encode import Encoded

MAX_ENTRIES_PER_STREAM = 1_000
LEAST_OBJECT_BYTES = 16 << 20
"""A call gets at least this many bytes of objects that are not in memory, if it needs them: half of the cache, if that
is more. So streams that share objects are served together from the objects that one call gets."""


@dataclass(frozen=True, slots=True)
class Want:
    """What to read of a stream: batches from an offset on, up to a number of bytes."""

    replica: Replica[StreamsState]
    stream: int
    offset: int
    max_bytes: int
    committed: bool = False
    """Whether to stop at the first open transaction, and to tell which transactions were aborted."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Batches from an offset on, and the borders of the stream when its index entries were chosen."""

    records: Buffer
    high_watermark: int
    log_start: int
    stable: int
    aborted: Sequence[AbortedTransaction] = ()
    """The aborted transactions with records among the batches. Only for readers of committed records."""


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """A record's offset and timestamp."""

    offset: int
    timestamp: int


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
        self.cache = cache
        """WAL objects in memory."""
        self.segments = segments
        """Footers and row groups in memory."""
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
        plans: list[Look | HeadwaterError] = []
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

    def _new_objects(self) -> Objects:
        return Objects(self.cache, max(self.cache.limit // 2, LEAST_OBJECT_BYTES))

    def _plan(self, want: Want, objects: Objects, room: int) -> Look:
        """A look at the index entries that a read needs, as far as the call has room for them."""
        stream = _located(want)
        known = self.damage.recent(want.replica.domain, want.stream, want.offset) if self.damage else None
        if known is not None:
            raise DamagedRange(known)
        state, size, count, room = want.replica.state, 0, 0, min(max(want.max_bytes, 0), room)

        def admit(entry: IndexEntry) -> bool:
            """Take runs, markers and gaps behind them; or one settled entry, with which `_read_settled` begins."""
            nonlocal size, count
            if size > room or count == MAX_ENTRIES_PER_STREAM or objects.entries_left <= 0:
                return False
            if not entry.unsettled and not (entry.gap and count):
                size, count = room + 1, count + 1
                return count == 1
            if not objects.take(state, entry):
                return False
            objects.entries_left -= 1
            size, count = size + entry.length, count + 1
            return True

        return look(stream, want.offset, want.committed, admit)

    async def _carry_out(self, want: Want, plan: Look, objects: Objects, room: int, first_whole: bool) -> ReadResult:
        """Read what was planned. If nothing was found for the streams before, this one is read in any case."""
        if room <= 0 and not first_whole:
            return _result([], want.offset, plan)
        if not plan.entries and first_whole and want.offset < plan.bound:
            objects = self._new_objects()
            plan = self._plan(want, objects, room)
            await objects.load()
        if plan.entries and not plan.entries[0].unsettled:
            return await self._read_settled(want, room, first_whole)
        try:
            return _assemble(plan, objects.of(want.replica.domain, plan.entries), want.offset, room, first_whole)
        except Hit:
            return await self._read_again(want, room, first_whole)

    async def _read_again(self, want: Want, room: int, first_whole: bool) -> ReadResult:
        """Read a range that is missing or damaged a second time: by the newest index, and from the store itself."""
        await want.replica.barrier()
        stream = _located(want)
        taken = itertools.count()
        plan = look(stream, want.offset, want.committed, lambda _: next(taken) == 0)
        if not plan.entries:
            return _result([], want.offset, plan)
        [entry] = plan.entries
        if not entry.unsettled:
            return await self._read_settled(want, room, first_whole)
        cached = None if entry.marker else await self._fresh(want, stream, entry)
        try:
            return _assemble(plan, [cached], want.offset, room, first_whole)
        except Hit as hit:
            raise self._noted(want, stream, entry, hit.start, hit.end, str(hit)) from hit

    async def _fresh(self, want: Want, stream: Stream, entry: IndexEntry) -> CachedWal:
        path = path_of(want.replica.state, stream, entry)
        if not path:
            return AbsentWal(f"the metadata does not know the object {entry.object}")
        return await self.cache.read_again(want.replica.domain, entry.object, path)

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
            if max(at, entry.start) >= bound_of(stream, want.committed):
                break  # a bulk append behind an open transaction
            try:
                encoded = await self._encode(want, stream, entry, at, room, first_whole and not pieces)
            except (ObjectMissing, Damaged) as error:
                if pieces:
                    break
                if again:
                    rows = (error.start, error.end) if isinstance(error, DamagedRows) else (entry.start, entry.end)
                    raise self._noted(want, stream, entry, *rows, str(error)) from error
                again = True
                self.segments.forget(path_of(want.replica.state, stream, entry))
                await want.replica.barrier()
                continue
            if encoded.next_offset == at:
                break
            pieces.append(encoded.records)
            room -= len(encoded.records)
            at = encoded.next_offset
        stream = _stream(want.replica, want.stream)
        joined: Buffer = b"".join(pieces)
        if stream.leader_epoch:
            joined = with_leader_epoch(joined, stream.leader_epoch)
        return ReadResult(joined, stream.end, stream.log_start, stream.stable)

    async def _encode(
        self, want: Want, stream: Stream, entry: IndexEntry, offset: int, room: int, first_whole: bool
    ) -> Encoded:
        from headwater.log.segment.encode import Encoded

        if not entry.file:
            end = min(entry.end, offset + MAX_EMPTY)
            return Encoded(empty_batch(offset, end), end)
        segment = _segment(want.replica.state, stream, entry)
        return await self.segments.encode(segment, stream.partition, offset, entry.end, room, first_whole)

    async def find_time(
        self, replica: Replica[StreamsState], stream_id: int, timestamp: int, *, committed: bool = False
    ) -> TimedOffset | None:
        """The first record whose timestamp is at least `timestamp`. Raises if it may be in a damaged range.

        With `committed` there is none if it is part of an open transaction, or behind the first one.
        """
        stream = _stream(replica, stream_id)
        offset, again = stream.log_start, False
        i = stream.index.find_time(timestamp)
        while i < len(stream.index) and stream.index[i].start < bound_of(stream, committed):
            entry = stream.index[i]
            want = Want(replica, stream_id, max(offset, entry.start), 0)
            try:
                found = await self._find_in(want, stream, entry, timestamp, again)
            except (Hit, ObjectMissing, Damaged) as error:
                if again:
                    raise self._noted(want, stream, entry, entry.start, entry.end, str(error)) from error
                again = True
                await replica.barrier()
                stream = _located(want)
                i = stream.index.find(entry.start)
                continue
            if found is not None:
                return found if found.offset < bound_of(stream, committed) else None
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
                self.segments.forget(segment.path)
            found = await self.segments.find_time(segment, stream.partition, timestamp, want.offset)
            return TimedOffset(*found) if found is not None else None
        if not entry.in_wal:
            return None
        objects = self._new_objects()
        if again:
            objects.held[(want.replica.domain, entry.object)] = await self._fresh(want, stream, entry)
        objects.take(want.replica.state, entry)
        await objects.load()
        [cached] = objects.of(want.replica.domain, [entry])
        for at, batches, damage in parts(entry, cached):
            if damage is not None:
                raise Hit(at, *damage)
            base = at
            for batch in batches:
                if max_timestamp_of(batch) >= timestamp:
                    timed = await self._offload(first_at, batch, base, timestamp, want.offset, self._opened_limit)
                    if timed is not None:
                        return TimedOffset(*timed)
                base += offsets_of(batch)
        return None

    async def find_max_timestamp(
        self, replica: Replica[StreamsState], stream_id: int, *, committed: bool = False
    ) -> TimedOffset | None:
        """The first record with the largest timestamp of the log. See `find_time` for `committed`."""
        stream = _stream(replica, stream_id)
        if not len(stream.index):
            return None
        return await self.find_time(replica, stream_id, stream.max_timestamp, committed=committed)


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


def _assemble(look: Look, objects: list[CachedWal | None], offset: int, room: int, first_whole: bool) -> ReadResult:
    """Whole batches from the one that holds the offset on, up to `room` bytes, a damaged range or the bound."""
    chosen: list[Buffer] = []
    base = -1
    for entry, cached in zip(look.entries, objects, strict=False):
        for at, batches, damage in parts(entry, cached):
            if at >= look.bound:
                break
            if damage is not None:
                if chosen:
                    return _result(chosen, base, look)
                if offset < damage[0]:
                    raise Hit(at, *damage)
            size = sum(map(len, batches))
            whole = size <= room and entry.end <= look.bound
            if whole and batches and (chosen or offset <= at):  # most runs are taken as a whole
                base = base if chosen else at
                chosen += batches
                room -= size
                continue
            following = at
            for batch in batches:
                first, following = following, following + offsets_of(batch)
                if first >= look.bound:
                    return _result(chosen, base, look)
                if not chosen:
                    if following <= offset:
                        continue
                    base = first
                if len(batch) > room and (chosen or not first_whole):
                    return _result(chosen, base, look)
                chosen.append(batch)
                room -= len(batch)
    return _result(chosen, base, look)


def _result(batches: list[Buffer], base: int, look: Look) -> ReadResult:
    records = join_patched(batches, base, look.leader_epoch) if batches else b""
    return ReadResult(records, look.end, look.log_start, look.stable, look.aborted if batches else [])
