"""The state of domains 1 to N: streams with their heads, offset indexes and producers, and the WAL objects.

Appending is the hot path of every replica: `_append` judges batch by batch in ledger order, and nothing else
ever assigns an offset.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from headwater.errors import Halted
from headwater.metadata import grouping, reserving, settling, swaps
from headwater.metadata.base import COMMON_COMMANDS, BaseImage, State
from headwater.metadata.commands import (
    AppendWal,
    Chunk,
    ConfigureStreams,
    CreateStreams,
    DropStreams,
    ExpireProducers,
    Fence,
    ForgetObjects,
    StreamConfig,
    TakeLease,
    TrimStreams,
)
from headwater.metadata.grouping import Groups, GroupsImage
from headwater.metadata.index import APPEND_TIME, NO_TIMESTAMP, OffsetIndex
from headwater.metadata.producers import Producers
from headwater.metadata.reserving import Reservation
from headwater.metadata.results import Appended, ChunkResult, Done, Reason, Refused, Result, Verdict
from headwater.metadata.tables import TableImage, TopicTable
from headwater.metadata.wal_objects import WalObjects
from headwater.types import Domain, StreamId, WalId

HOUSEKEEPING = "housekeeping"
"""The lease of whoever does a domain's retention, garbage collection and checkpoints."""

PREFIX_BYTES = 4
"""A batch inside a WAL object is preceded by its length."""

U32_MAX = (1 << 32) - 1
I64_MAX = (1 << 63) - 1
MAX_OBJECT_BYTES = U32_MAX

_PAIR = struct.Struct("<qq")


class Stream:
    """A stream's head and index."""

    __slots__ = (
        "append_time",
        "id",
        "index",
        "log_start",
        "next_offset",
        "open",
        "partition",
        "producers",
        "settled",
        "size",
        "topic",
    )

    def __init__(self, id: StreamId, topic: uuid.UUID, partition: int, append_time: bool) -> None:
        self.id = id
        self.topic = topic
        self.partition = partition
        self.append_time = append_time
        self.next_offset = 0
        self.log_start = 0
        self.settled = 0
        """Everything before this offset lies in segments, or is gone; what comes next does not."""
        self.open: tuple[int, ...] = ()
        """Where open reservations begin, rising."""
        self.size = 0
        """WAL bytes ever accepted, the last entry's cumulative size."""
        self.index = OffsetIndex()
        self.producers: Producers | None = None

    def __repr__(self) -> str:
        return f"<Stream {self.id}: {self.log_start} to {self.next_offset}, {len(self.index)} entries>"

    @property
    def end(self) -> int:
        """Where the log ends for readers: before the first open reservation. Appends go on at `next_offset`."""
        return self.open[0] if self.open else self.next_offset

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the log, or -1."""
        entries = self.index.find(self.open[0]) if self.open else len(self.index)
        return self.index[entries - 1].running_max_timestamp if entries else NO_TIMESTAMP

    def bytes_from(self, offset: int) -> int:
        """How many stored bytes lie at and beyond an offset, up to the log's end, to the granularity of an entry."""
        i = self.index.find(offset)
        if i == len(self.index):
            return 0
        entry = self.index[i]
        size = self.index[self.index.find(self.open[0])].cumulative_size if self.open else self.size
        return max(0, size - entry.cumulative_size + entry.length)

    def advance(self) -> bool:
        """Move the settled end over all that is settled already; tells whether rows of a segment were among it."""
        i, rows = self.index.find(self.settled), False
        while i < len(self.index) and self.index[i].settled:
            rows = rows or bool(self.index[i].file)
            self.settled = self.index[i].end
            i += 1
        return rows


class StreamImage(msgspec.Struct, array_like=True):
    """A stream inside a checkpoint."""

    id: int
    topic: int
    partition: int
    append_time: bool
    next_offset: int
    log_start: int
    settled: int
    size: int
    index: bytes
    producers: tuple[list[tuple[int, int, int, int, list[int]]], list[tuple[int, int]]] | None


class StreamsImage(msgspec.Struct, array_like=True):
    """A checkpoint of such a domain."""

    base: BaseImage
    topics: list[bytes]
    streams: list[StreamImage]
    objects: list[tuple[int, str, int, bytes]]
    tables: list[TableImage]
    last_file: int
    wanted: list[bytes]
    settles: bool
    reservations: list[Reservation]
    last_reservation: int
    groups: GroupsImage


_decoder = msgspec.msgpack.Decoder(StreamsImage)


class StreamsState(State):
    """The fold of a domain that holds streams."""

    def __init__(self, domain: Domain) -> None:
        super().__init__(domain)
        self.streams: dict[int, Stream] = {}
        self.objects = WalObjects()
        self.tables: dict[uuid.UUID, TopicTable] = {}
        self.wanted: dict[uuid.UUID, None] = {}
        """Topics that somebody wants settled soon."""
        self.settles = False
        """Whether a compactor has ever worked here: from then on retention waits until records are settled."""
        self.last_file = 0
        """The newest segment's number; numbers are never used again."""
        self.reservations: dict[int, Reservation] = {}
        """Those that are open, by number."""
        self.last_reservation = 0
        self.groups = Groups()
        self.on_append: Callable[[int], None] | None = None
        """Told of every stream whose end moved; set by the replica, no part of the state."""

    def _take_lease(self, epoch: int, command: TakeLease) -> Result:
        result = super()._take_lease(epoch, command)
        if command.name == settling.COMPACTION and isinstance(result, Done):
            self.settles = True
        return result

    def _fence(self, epoch: int, command: Fence) -> Result:
        result = super()._fence(epoch, command)
        if isinstance(result, Done):
            reserving.abandon_all(self, command.epoch)
            self.groups.release(command.epoch)
        return result

    # --- streams -----------------------------------------------------------------------------------

    def _create(self, epoch: int, command: CreateStreams) -> Result:
        if not all(0 < stream <= I64_MAX for stream in command.streams):
            return Refused(Reason.INVALID, "a stream's id is out of range")
        for partition, stream in enumerate(command.streams, command.first_partition):
            if stream not in self.streams:
                self.streams[stream] = Stream(StreamId(stream), command.topic, partition, command.config.append_time)
        self._roll("create", command.streams)
        return Done()

    def _configure(self, epoch: int, command: ConfigureStreams) -> Result:
        for stream in command.streams:
            if stream in self.streams:
                self.streams[stream].append_time = command.config.append_time
        return Done()

    def _drop(self, epoch: int, command: DropStreams) -> Result:
        reserving.abandon_streams(self, command.streams)
        for name in command.streams:
            stream = self.streams.pop(name, None)
            if stream is not None:
                self._release(stream, len(stream.index))
                self.wanted.pop(stream.topic, None)
                table = self.tables.get(stream.topic)
                if table is not None:
                    table.dropped = True
                if self.on_append:
                    self.on_append(name)
        self._roll("drop", command.streams)
        return Done()

    def _release(self, stream: Stream, entries: int) -> None:
        swaps.release(self, stream, stream.index.drop(entries))

    def _trim(self, epoch: int, command: TrimStreams) -> Result:
        moved = 0
        for name, start in command.starts:
            stream = self.streams.get(name)
            if stream is None or not stream.log_start < start <= stream.end:
                continue
            stream.log_start = start
            stream.settled = max(stream.settled, start)
            self._release(stream, stream.index.find(start))
            if stream.advance():
                reserving.note_end(self, stream)
            moved += 1
            self._roll("trim", name, start)
            if self.on_append:
                self.on_append(name)
        return Done(moved)

    # --- appending -----------------------------------------------------------------------------------

    def _append(self, epoch: int, command: AppendWal) -> Result:
        flaw = self._flaw(epoch, command)
        if flaw:
            return Refused(Reason.INVALID, flaw)
        results: list[ChunkResult] = []
        references = 0
        for chunk in command.chunks:
            stream = self.streams.get(chunk.stream)
            if stream is None:
                missing = [(Verdict.NO_STREAM, -1)] * len(chunk.batches)
                results.append(ChunkResult(-1, -1, NO_TIMESTAMP, missing))
                continue
            entries = len(stream.index)
            results.append(self._append_chunk(epoch, command.sequence, stream, chunk))
            references += len(stream.index) - entries
        if references:
            self.objects.add(
                epoch,
                command.sequence,
                zone=command.zone,
                created_ms=command.created_ms,
                size=command.size,
                references=references,
            )
        return Appended(results)

    def _flaw(self, epoch: int, command: AppendWal) -> str:
        """Why this command cannot come from a sound writer, or nothing. Nothing is changed before this."""
        if not 0 < command.size <= MAX_OBJECT_BYTES:
            return f"a WAL object of {command.size} bytes"
        if not 0 <= command.sequence <= U32_MAX or not self.objects.fits(epoch, command.sequence):
            return f"WAL object {command.sequence} of epoch {epoch} is out of sequence or known already"
        if epoch > U32_MAX or not -I64_MAX <= command.created_ms <= I64_MAX:
            return f"a WAL object of epoch {epoch} made at {command.created_ms}"
        for chunk in command.chunks:
            if chunk.producers and len(chunk.producers) != len(chunk.batches):
                return f"stream {chunk.stream}: some batches lack a producer"
            end, span = chunk.position + PREFIX_BYTES * len(chunk.batches), 0
            for length, offsets, timestamp in chunk.batches:
                if length <= 0 or offsets <= 0:
                    return f"stream {chunk.stream}: an empty batch"
                if timestamp > I64_MAX:
                    return f"stream {chunk.stream}: a timestamp of {timestamp}"
                end += length
                span += offsets
            if chunk.position <= 0 or end > command.size:
                return f"stream {chunk.stream}: batches beyond the object's end"
            if span > U32_MAX:
                return f"stream {chunk.stream}: {span} offsets in one object"
        return ""

    def _append_chunk(self, epoch: int, sequence: int, stream: Stream, chunk: Chunk) -> ChunkResult:
        first = offset = stream.next_offset
        append_ms = self.clock_ms if stream.append_time else NO_TIMESTAMP
        position = run_position = chunk.position
        run_offset, run_timestamp = offset, NO_TIMESTAMP
        verdicts: list[tuple[Verdict, int]] | None = None
        producers, shared = chunk.producers, len(self._writers) > 1 or bool(self._fenced)
        for i, (length, offsets, timestamp) in enumerate(chunk.batches):
            refused = None
            if producers and producers[i][0] >= 0:
                if stream.producers is None:
                    stream.producers = Producers()
                refused = stream.producers.take(*producers[i], offsets, offset, epoch, shared, self.clock_ms)
            if refused is None:
                if verdicts is not None:
                    verdicts.append((Verdict.ACCEPTED, offset))
                offset += offsets
                if timestamp > run_timestamp:
                    run_timestamp = timestamp
                position += PREFIX_BYTES + length
                continue
            if verdicts is None:
                verdicts = self._accepted_so_far(first, chunk, i)
            verdicts.append(refused)
            self._add_run(epoch, sequence, stream, run_position, position, run_offset, offset, run_timestamp, append_ms)
            position += PREFIX_BYTES + length
            run_position, run_offset, run_timestamp = position, offset, NO_TIMESTAMP
        self._add_run(epoch, sequence, stream, run_position, position, run_offset, offset, run_timestamp, append_ms)
        stream.next_offset = offset
        self.digest = zlib.crc32(_PAIR.pack(stream.id, offset), self.digest)
        if self.on_append and offset != first:
            self.on_append(stream.id)
        return ChunkResult(first, stream.log_start, append_ms, verdicts)

    @staticmethod
    def _accepted_so_far(first: int, chunk: Chunk, count: int) -> list[tuple[Verdict, int]]:
        verdicts = []
        for _, offsets, _ in chunk.batches[:count]:
            verdicts.append((Verdict.ACCEPTED, first))
            first += offsets
        return verdicts

    @staticmethod
    def _add_run(
        epoch: int,
        sequence: int,
        stream: Stream,
        position: int,
        end_position: int,
        offset: int,
        end_offset: int,
        timestamp: int,
        append_ms: int,
    ) -> None:
        """One index entry for the accepted batches between two positions, if there are any."""
        if end_offset == offset:
            return
        stream.size += end_position - position
        flags = 0
        if append_ms != NO_TIMESTAMP:
            timestamp, flags = append_ms, APPEND_TIME
        length, span = end_position - position, end_offset - offset
        stream.index.append(end_offset, span, stream.size, timestamp, epoch, sequence, position, length, flags)

    # --- housekeeping ----------------------------------------------------------------------------------

    def _expire(self, epoch: int, command: ExpireProducers) -> Result:
        gone = 0
        for stream in self.streams.values():
            if stream.producers is not None:
                gone += stream.producers.expire(command.before_ms)
        self._roll("expire", gone)
        return Done(gone)

    def _forget(self, epoch: int, command: ForgetObjects) -> Result:
        if not self._holds(epoch, HOUSEKEEPING, command.lease):
            return Refused(Reason.STALE, "the housekeeping lease has passed on")
        gone = sum(self.objects.forget(WalId(e, s)) for e, s in command.objects)
        self._roll("forget", gone)
        return Done(gone)

    # --- checkpoints -----------------------------------------------------------------------------------

    def image(self) -> bytes:
        topics: dict[uuid.UUID, int] = {}
        streams = [
            StreamImage(
                id=s.id,
                topic=topics.setdefault(s.topic, len(topics)),
                partition=s.partition,
                append_time=s.append_time,
                next_offset=s.next_offset,
                log_start=s.log_start,
                settled=s.settled,
                size=s.size,
                index=s.index.pack(),
                producers=s.producers.pack() if s.producers is not None else None,
            )
            for s in self.streams.values()
        ]
        return msgspec.msgpack.encode(
            StreamsImage(
                base=self._base_image(),
                topics=[topic.bytes for topic in topics],
                streams=streams,
                objects=self.objects.pack(),
                tables=[table.pack() for table in self.tables.values()],
                last_file=self.last_file,
                wanted=[topic.bytes for topic in self.wanted],
                settles=self.settles,
                reservations=list(self.reservations.values()),
                last_reservation=self.last_reservation,
                groups=self.groups.pack(),
            )
        )

    def restore(self, image: bytes) -> None:
        try:
            decoded = _decoder.decode(image)
        except msgspec.MsgspecError as error:
            raise Halted(f"a checkpoint cannot be read by this version: {error}") from error
        self._restore_base(decoded.base)
        topics = [uuid.UUID(bytes=t) for t in decoded.topics]
        self.streams = {}
        for s in decoded.streams:
            stream = Stream(StreamId(s.id), topics[s.topic], s.partition, s.append_time)
            stream.next_offset, stream.log_start, stream.size = s.next_offset, s.log_start, s.size
            stream.settled = s.settled
            stream.index = OffsetIndex(s.index)
            stream.producers = Producers.unpack(*s.producers) if s.producers is not None else None
            self.streams[s.id] = stream
        self.objects = WalObjects.unpack(decoded.objects)
        self.tables = {table.topic: table for table in map(TopicTable.unpack, decoded.tables)}
        self.last_file = decoded.last_file
        self.wanted = {uuid.UUID(bytes=topic): None for topic in decoded.wanted}
        self.settles = decoded.settles
        self.reservations = {found.number: found for found in decoded.reservations}
        self.last_reservation = decoded.last_reservation
        self.groups = Groups.unpack(decoded.groups, self.groups)
        for found in decoded.reservations:
            for name, start, _ in found.parts:
                self.streams[name].open += (start,)

    COMMANDS: ClassVar[dict[type, Callable[[Any, int, Any], Result]]] = {
        **COMMON_COMMANDS,
        TakeLease: _take_lease,
        Fence: _fence,
        CreateStreams: _create,
        ConfigureStreams: _configure,
        DropStreams: _drop,
        AppendWal: _append,
        TrimStreams: _trim,
        ExpireProducers: _expire,
        ForgetObjects: _forget,
        **settling.COMMANDS,
        **reserving.COMMANDS,
        **grouping.COMMANDS,
    }


def stream_config(configs: dict[str, str]) -> StreamConfig:
    """What `apply` needs of a topic's configs."""
    return StreamConfig(append_time=configs.get("message.timestamp.type") == "LogAppendTime")
