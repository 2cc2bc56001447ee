"""Bulk appends: records that go into the log as segments, without the WAL and without Spark.

Records are gathered until they fill a file. Then their offsets are reserved, the file is written with these offsets and
stored, and the command `Fill` makes the records visible to consumers and tables. A failure before that command leaves
only a gap in the offsets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.clock import Chance, Clock
from headwater.configs.topics import TopicConfig
from headwater.errors import (
    EpochLost,
    HeadwaterError,
    Mirrored,
    NotFound,
    NotReady,
    OutcomeUnknown,
    Overloaded,
    Retriable,
)
from headwater.lake.bulk.input import Records
from headwater.lake.bulk.rules import check_records, outdated
from headwater.lake.planning import DATA, table_root
from headwater.lake.segments import NewSegment
from headwater.log.segment.rows import plain_rows
from headwater.objects import ObjectStore
from headwater.replica.replica import Replica
from headwater.state.cluster.domain import Topic
from headwater.state.commands.tables import Bounds, FileTyping, Fill, NewFile, Release, Reserve, SegmentRun
from headwater.state.results import Done, Reason, Refused, Result
from headwater.state.streams.domain import Reservation
from headwater.state.streams.index import NO_TIMESTAMP
from headwater.state.streams.state import StreamsState
from headwater.threads import Offload, inline

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Array: TypeAlias = npt.NDArray[Any]

log = logging.getLogger("headwater.bulk")
PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds before each further attempt to append a file."""
LOOK_SECONDS = 0.5
PATIENCE_SECONDS = 60.0
"""How long past its time limit a reservation may stay open. After that the append gives up waiting for its release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkLimits:
    """The size of one file, and the time limit for storing it."""

    rows_per_file: int = 1_000_000
    file_bytes: int = 48 << 20
    """Bytes of a file before compression. They are held in memory."""
    reserved_ms: int = 60_000


@dataclass(slots=True)
class Written:
    """The part of a bulk append that is in the log."""

    records: int = 0
    files: int = 0
    bytes: int = 0
    partitions: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Per partition: number of records, first and last offset. Records of others may be between them."""

    def add(self, file: NewFile, parts: Iterable[tuple[int, int, int]]) -> None:
        """Count a file with (partition, start, end) of its records."""
        self.files += 1
        self.bytes += file.size
        self.records += file.rows
        for partition, start, end in parts:
            count, first, _ = self.partitions.get(partition, (0, start, end))
            self.partitions[partition] = (count + end - start, first, end - 1)


class Gathered:
    """Records that become one file, by partition."""

    def __init__(self) -> None:
        self._held: dict[int, list[pa.RecordBatch]] = {}
        self.rows = self.bytes = 0

    def __repr__(self) -> str:
        return f"<Gathered {self.rows} records of {len(self._held)} partitions>"

    def add(self, batch: pa.RecordBatch, partitions: Array | int) -> None:
        """Add records, each with its own partition or all with the same one."""
        import numpy as np
        import pyarrow as pa

        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        if isinstance(partitions, int):
            self._held.setdefault(partitions, []).append(batch)
            return
        order = np.argsort(partitions, kind="stable")
        ordered, sorted_batch = partitions[order], batch.take(pa.array(order))
        borders = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
        for start, end in pairwise(borders):
            self._held.setdefault(int(ordered[start]), []).append(sorted_batch.slice(start, end - start))

    def counts(self) -> list[tuple[int, int]]:
        """How many records each partition has."""
        return [(p, sum(batch.num_rows for batch in self._held[p])) for p in sorted(self._held)]

    def batches(self, partition: int) -> list[pa.RecordBatch]:
        """The records of a partition, in their order."""
        return self._held[partition]


@dataclass(frozen=True, slots=True)
class _Segment:
    """A file that is written but not stored yet."""

    file: NewFile
    pieces: list[bytes]
    runs: list[SegmentRun]
    newest: list[int]
    digest: int
    bounds: tuple[Bounds, ...]


class BulkAppend:
    """Appends records to one topic."""

    def __init__(
        self,
        topic: Topic,
        replica: Replica[StreamsState],
        store: ObjectStore,
        clock: Clock,
        chance: Chance,
        *,
        config: TopicConfig,
        limits: BulkLimits,
        partition: int | None = None,
        offload: Offload = inline,
    ) -> None:
        if partition is not None and not 0 <= partition < topic.ready:
            raise NotFound(f"topic {topic.name!r} has no partition {partition}; it has {topic.ready}")
        self._topic = topic
        self._config = config
        self._replica = replica
        self._store = store
        self._clock = clock
        self._chance = chance
        self._limits = limits
        self._partition = partition
        self._offload = offload
        self._partitions = topic.ready
        self._gathered = 0
        self._jobs = 0
        self.written = Written()
        self.outdated = 0

    def __repr__(self) -> str:
        return f"<BulkAppend to {self._topic.name}, {self.written.records} records in {self.written.files} files>"

    async def check(self, records: Iterable[Records], done: Callable[[int], None] = lambda _: None) -> int:
        """Check that all of the records can be appended, without appending them; returns their number.

        Afterwards `outdated` is the number of those that are older than the topic's retention.
        """
        pieces, count = iter(records), 0
        self.outdated = 0
        while (piece := await self._offload(self._next, pieces)) is not None:
            count += piece.batch.num_rows
            self.outdated += outdated(piece, self._config, self._clock.wall_ms())
            done(count)
        return count

    async def append(self, records: Iterable[Records], done: Callable[[int], None] = lambda _: None) -> Written:
        """Append all of the records, file by file. If one fails, the error says how many records are in the log."""
        pieces, written = iter(records), self.written
        try:
            async with contextlib.aclosing(self._files(pieces)) as files:
                async for gathered in files:
                    await self._enter(gathered)
                    done(written.records)
        except HeadwaterError as error:
            if not written.records:
                raise
            raise type(error)(f"{error}; the first {written.records} records are in the log") from error
        return written

    # --- gathering -----------------------------------------------------------------------------------------

    def _next(self, pieces: Iterator[Records]) -> Records | None:
        """The next records, checked and with timestamps; None at the end."""
        piece = next(pieces, None)
        if piece is None:
            return None
        return check_records(piece, self._config, self._clock.wall_ms())

    async def _files(self, pieces: Iterator[Records]) -> AsyncGenerator[Gathered, None]:
        """The records in portions, one per file."""
        limits, gathered = self._limits, Gathered()
        while (piece := await self._offload(self._next, pieces)) is not None:
            at = 0
            while at < piece.batch.num_rows:
                part = piece.batch.slice(at, limits.rows_per_file - gathered.rows)
                at += part.num_rows
                await self._offload(self._gather, gathered, part)
                if gathered.rows >= limits.rows_per_file or gathered.bytes >= limits.file_bytes:
                    yield gathered
                    gathered = Gathered()
                    self._gathered += 1
        if gathered.rows:
            yield gathered

    def _gather(self, gathered: Gathered, batch: pa.RecordBatch) -> None:
        keyless = self._gathered % self._partitions
        if self._partition is not None or self._partitions == 1:
            gathered.add(batch, self._partition or 0)
        elif batch.column("key").null_count == batch.num_rows:
            gathered.add(batch, keyless)
        else:
            gathered.add(batch, key_partitions(batch.column("key"), self._partitions, keyless))

    # --- appending -------------------------------------------------------------------------------------------

    async def _enter(self, gathered: Gathered) -> None:
        """Append a file. An attempt that certainly failed and may succeed later is repeated."""
        for pause in PAUSES:
            try:
                return await self._try(gathered)
            except OutcomeUnknown:
                raise
            except Retriable as error:
                log.info("appending a file is tried again", extra={"topic": self._topic.name, "reason": str(error)})
                await asyncio.sleep(pause)
        return await self._try(gathered)

    async def _try(self, gathered: Gathered) -> None:
        replica, topic = self._replica, self._topic
        self._jobs += 1
        prefix = f"{DATA}{replica.epoch:010d}-{self._jobs:08d}-"
        reservation = await self._reserve(gathered)
        table = replica.state.tables.get(topic.id)
        root = table.root if table is not None else table_root(topic.name, topic.id)
        path = ""
        try:
            segment = await self._offload(self._write, gathered, reservation, prefix)
            path = f"{root}/{segment.file.name}"
            await self._store.put(path, segment.pieces)
            await self._fill(reservation, root, segment)
        except OutcomeUnknown:
            raise
        except HeadwaterError:
            await self._give_up(reservation, path)
            raise
        partitions = {topic.streams[p]: p for p, _ in gathered.counts()}
        self.written.add(segment.file, [(partitions[name], start, end) for name, start, end in reservation.parts])

    async def _reserve(self, gathered: Gathered) -> Reservation:
        parts = [(self._topic.streams[partition], count) for partition, count in gathered.counts()]
        [result] = await self._replica.submit([Reserve(self._topic.id, parts, self._limits.reserved_ms)])
        if isinstance(result, Done):
            found = self._replica.state.reservations.get(result.value)
            if found is not None:
                return found
        raise _error(result, f"no offsets of topic {self._topic.name!r} could be reserved")

    def _write(self, gathered: Gathered, reservation: Reservation, prefix: str) -> _Segment:
        """Write a segment of the gathered records at the reserved offsets."""
        from pyarrow import compute

        segment, runs, newest = NewSegment(), [], []
        for (partition, _), (stream, start, end) in zip(gathered.counts(), reservation.parts, strict=True):
            at, largest = start, NO_TIMESTAMP
            for batch in gathered.batches(partition):
                segment.writer.add(partition, plain_rows(partition, at, batch, self._config.append_time))
                at += batch.num_rows
                largest = max(largest, compute.max(batch.column("timestamp_ms")).as_py())
            first, groups = segment.writer.end_part()
            runs.append(SegmentRun(stream, start, end, 0, first, groups))
            newest.append(largest)
        file = segment.close(prefix, self._chance)
        assert file is not None, "gathered records have rows"
        return _Segment(file, segment.pieces, runs, newest, segment.digest, segment.bounds)

    async def _fill(self, reservation: Reservation, root: str, segment: _Segment) -> None:
        typing = FileTyping(segment.digest, 0, 0, segment.bounds)  # its rows are decoded later
        command = Fill(reservation.number, root, [segment.file], segment.runs, segment.newest, [typing])
        try:
            [result] = await self._replica.submit([command])
        except EpochLost:
            # The command may be committed nevertheless. It cannot be applied once the reservation is closed.
            if await self._stands(reservation, segment.file):
                return
            raise
        if not isinstance(result, Done):
            raise _error(result, f"{segment.file.rows} records for {self._topic.name!r} were not accepted", NotReady)

    async def _stands(self, reservation: Reservation, file: NewFile) -> bool:
        """Wait until a reservation is filled or released; returns whether it was filled."""
        patience = self._limits.reserved_ms / 1000 + PATIENCE_SECONDS
        state, until = self._replica.state, self._clock.monotonic() + patience
        while self._clock.monotonic() < until:
            with contextlib.suppress(Retriable):
                await self._replica.barrier()
                if reservation.number not in state.reservations:
                    return _lies_in(state, reservation, file)
            await asyncio.sleep(LOOK_SECONDS)
        name, start, end = reservation.parts[0]
        raise OutcomeUnknown(f"it is unknown whether offsets {start} to {end} of stream {name} were appended")

    async def _give_up(self, reservation: Reservation, path: str) -> None:
        """Release the reservation, so that readers continue, and delete the file. Housekeeping does what fails here."""
        with contextlib.suppress(HeadwaterError):
            await self._replica.submit([Release(reservation.number)])
        if path:
            with contextlib.suppress(HeadwaterError):
                await self._store.delete(path)


def key_partitions(keys: pa.Array, partitions: int, keyless: int) -> Array:
    """The partition of each key, by Kafka's default partitioner."""
    import numpy as np

    from headwater.lake.bulk import kernels as bulk_kernels

    borders = np.frombuffer(keys.buffers()[1], dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    held = keys.buffers()[2]
    data = np.frombuffer(held, dtype=np.uint8) if held is not None and held.size else np.zeros(0, dtype=np.uint8)
    valid = keys.is_valid().to_numpy(zero_copy_only=False)
    found = np.empty(len(keys), dtype=np.int32)
    bulk_kernels.key_partitions(borders, data, valid, partitions, keyless, found)
    return found


def _lies_in(state: StreamsState, reservation: Reservation, file: NewFile) -> bool:
    table = state.tables.get(reservation.topic)
    if table is not None and any(known.name == file.name for known in table.files.values()):
        return True
    name, start, _ = reservation.parts[0]
    stream = state.streams.get(name)
    if stream is None or start < stream.log_start:
        return False
    return bool(stream.index[stream.index.find(start)].file)


def _error(result: Result, what: str, unknown: type[HeadwaterError] = NotFound) -> HeadwaterError:
    """The error for the caller of a refused command."""
    if not isinstance(result, Refused):
        return NotReady(f"{what}: the reservation is already released")
    kinds: dict[Reason, type[HeadwaterError]] = {
        Reason.FENCED: EpochLost,
        Reason.LEASED: Overloaded,
        Reason.STALE: NotReady,
        Reason.UNKNOWN: unknown,
        Reason.MIRRORED: Mirrored,
    }
    return kinds.get(result.reason, HeadwaterError)(f"{what}: {result.detail or result.reason.value}")
