"""Runs of the WAL that hold the records of a topic, and their rows.

A run is taken from the state together with all that decides which of its rows count: where readers stop, where the log
begins, and which transactions were aborted. Later looks at the state could contradict each other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headwater.client.records import Record, decode_batches, record_at
from headwater.errors import BadInput, Damaged
from headwater.lake.planning import run_of
from headwater.lake.tasks import WalRun
from headwater.log.batch import offsets_of
from headwater.log.looking import bound_of
from headwater.log.segment.decode import AbortedRange, Sizes, decode_runs
from headwater.log.segment.encode import RowGroup
from headwater.log.wal.cache import CachedWal, WalCache
from headwater.state.streams.index import IndexEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.types import Buffer, Domain, WalId

LOADED_BYTES = 16 << 20
"""Bytes of objects that are loaded together. A larger object is loaded alone."""
FEW = 500
"""A record that has more in front of it in its batch is found by the compiled loops."""
_LENGTH = struct.Struct(">I")


def record_of(rows: RowGroup, offset: int) -> Record | None:
    """The record at an offset; None if no row has it."""
    data = rows.encode(offset, offset + 1, 1, True).records
    batches = decode_batches(data, max(len(data), 1)) if len(data) else ()
    return next((record for batch in batches for record in batch.records if record.offset == offset), None)


@dataclass(frozen=True, slots=True)
class HotRun:
    """A run, and which of its rows count."""

    stream: int
    partition: int
    object: WalId
    object_size: int
    run: WalRun
    start: int
    """Rows before this offset are deleted."""
    end: int
    """Rows from this offset on may not be read yet."""
    aborted: Sequence[AbortedRange]

    @property
    def whole(self) -> bool:
        """Whether all transactions with records in the run have ended, so that its rows never change."""
        return self.run.end <= self.end


def hot_run(state: StreamsState, stream: Stream, entry: IndexEntry) -> HotRun:
    """The run of an index entry that is in the WAL."""
    bound = bound_of(stream, True)
    aborted: list[AbortedRange] = []
    if len(stream.aborted):
        found = stream.aborted.between(entry.start, min(bound, entry.end))
        aborted = [(one.producer, one.first, one.marker) for one in found]
    run, known = run_of(state, entry), state.objects.get(entry.object)
    size = known.size if known is not None else 0
    return HotRun(stream.id, stream.partition, entry.object, size, run, stream.log_start, bound, aborted)


def hot_runs(state: StreamsState, stream: Stream, since: int = 0) -> list[HotRun]:
    """The runs of a stream from an offset on that hold records that may be read."""
    index, bound = stream.index, bound_of(stream, True)
    start = max(since, stream.settled, stream.log_start)
    found = []
    for i in range(index.find(start), len(index)) if start < bound else ():
        entry = index[i]
        if entry.start >= bound:
            break
        if entry.in_wal:
            found.append(hot_run(state, stream, entry))
    return found


class RunReader:
    """Reads runs through the cache of WAL objects."""

    def __init__(self, wal: WalCache, opened_limit: int) -> None:
        self._wal = wal
        self._opened_limit = opened_limit
        self._few, self._many = Sizes(), Sizes()
        """How large the columns of a single batch, and those of a run, usually are."""

    async def load(self, domain: Domain, runs: Sequence[HotRun], fresh: bool) -> dict[WalId, CachedWal]:
        """The objects of some runs. With `fresh` they come from the store itself."""
        paths = {run.object: run.run.path for run in runs}
        if fresh:
            return {one: await self._wal.read_again(domain, one, path) for one, path in paths.items()}
        return dict(zip(paths, await self._wal.load(domain, list(paths.items())), strict=True))

    def rows(self, hot: HotRun, cached: CachedWal) -> Iterator[RowGroup]:
        """The rows of a run, in pieces. Raises `Damaged` if it is not as it was stored."""
        joined = b"".join(piece for batch in _batches(hot, cached) for piece in (_LENGTH.pack(len(batch)), batch))
        yield from self._decoded(hot, joined, hot.run.start, 0, self._many)

    def record(self, hot: HotRun, cached: CachedWal, offset: int) -> Record | None:
        """The record at an offset; None if it has none, or if its transaction was aborted."""
        base = hot.run.start
        for batch in _batches(hot, cached):
            following = base + offsets_of(batch)
            if offset < following:
                return self._in_batch(hot, batch, base, offset)
            base = following
        return None

    def _in_batch(self, hot: HotRun, batch: Buffer, base: int, offset: int) -> Record | None:
        if offset - base > FEW:
            rows = self._decoded(hot, _LENGTH.pack(len(batch)) + bytes(batch), base, offset, self._few)
            return next((found for group in rows if (found := record_of(group, offset)) is not None), None)
        try:
            producer, found = record_at(batch, base, offset, self._opened_limit)
        except BadInput as error:
            raise Damaged(f"partition {hot.partition}, the batch at offset {base}: {error}") from error
        if any(producer == gone and first <= offset < marker for gone, first, marker in hot.aborted):
            return None
        stamped = found is not None and hot.run.append_ms >= 0
        return replace(found, timestamp=hot.run.append_ms) if found is not None and stamped else found

    def _decoded(self, hot: HotRun, data: Buffer, base: int, first: int, sizes: Sizes) -> Iterator[RowGroup]:
        run = data, base, hot.run.append_ms
        for piece in decode_runs(hot.partition, [run], first, self._opened_limit, sizes, hot.aborted):
            yield RowGroup(piece)


def _batches(hot: HotRun, cached: CachedWal) -> list[Buffer]:
    run = hot.run
    return cached.batches(run.position, run.position + run.length, run.end - run.start)


def loads(runs: Sequence[HotRun]) -> Iterator[list[HotRun]]:
    """Runs in groups whose objects are loaded together. All runs of an object are in one group."""
    by_object: dict[WalId, list[HotRun]] = {}
    for run in runs:
        by_object.setdefault(run.object, []).append(run)
    group: list[HotRun] = []
    size = 0
    for together in by_object.values():
        if group and size + together[0].object_size > LOADED_BYTES:
            yield group
            group, size = [], 0
        group += together
        size += together[0].object_size
    if group:
        yield group
