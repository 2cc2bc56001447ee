"""A stream's head and offset index, as the state keeps them."""

from __future__ import annotations

import uuid

import msgspec

from headwater.state.streams.aborted import Aborted
from headwater.state.streams.index import MARKER_BYTES, NO_TIMESTAMP, OffsetIndex
from headwater.state.streams.producers import Producers
from headwater.types import StreamId

NO_ABORTED = Aborted()
"""The list of every stream in which nothing was aborted: one for all, because there may be 100,000 such streams."""


class Mirror(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Whether a stream has the records of another Kafka, and since which change of its link."""

    generation: int
    """That of the newest change. Generations only rise."""
    on: bool
    """Only units with the condition `MirrorIs` append to the stream."""
    end: int
    """The next offset when the stream began or ended to be a mirror. What was copied ends there if it ended."""


NO_MIRROR = Mirror(0, False, 0)
"""What every stream has that was never a mirror."""


class Stream:
    """A stream's head and index."""

    __slots__ = (
        "aborted",
        "append_time",
        "id",
        "index",
        "log_start",
        "mirror",
        "next_offset",
        "open",
        "partition",
        "producers",
        "running",
        "settled",
        "size",
        "topic",
    )

    def __init__(self, id: StreamId, topic: uuid.UUID, partition: int, append_time: bool) -> None:
        self.id = id
        self.topic = topic
        self.partition = partition
        self.append_time = append_time
        """Whether records get the time of commit as their timestamp. A mirror keeps the timestamps of its source."""
        self.next_offset = 0
        self.log_start = 0
        self.settled = 0
        """All records before this offset are in segments, or gone. The next record is not."""
        self.open: tuple[int, ...] = ()
        """The first offsets of open reservations, ascending."""
        self.size = 0
        """The total of bytes ever added to the stream: the cumulative size of the last entry."""
        self.index = OffsetIndex()
        self.producers: Producers | None = None
        self.running: dict[int, int] = {}
        """The first offset of each open transaction with records here, by producer id. Offsets rise."""
        self.aborted = NO_ABORTED
        self.mirror = NO_MIRROR

    def __repr__(self) -> str:
        return f"<Stream {self.id}: {self.log_start} to {self.next_offset}, {len(self.index)} entries>"

    @property
    def end(self) -> int:
        """The end of the log for readers: the first open reservation, if any. Appends continue at `next_offset`."""
        return self.open[0] if self.open else self.next_offset

    @property
    def stable(self) -> int:
        """Where readers of committed records stop: the first record of the oldest open transaction, or the end."""
        if not self.running:
            return self.end
        return max(self.log_start, min(self.end, next(iter(self.running.values()))))

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that clients are told: 0, or -1 (unknown) of a stream that is or was a mirror.

        Its offsets have other epochs in the source. A consumer that takes 0 there would find its place truncated.
        """
        return -1 if self.mirror.generation else 0

    def close(self, producer: int, epoch: int, clock_ms: int, date_ms: int, *, commit: bool) -> None:
        """End a producer's transaction in this stream by a marker, which has the date."""
        offset, first = self.next_offset, self.running.pop(producer, None)
        self.size += MARKER_BYTES
        self.index.mark(offset, self.size, date_ms, producer, epoch, commit=commit)
        self.next_offset = offset + 1
        if first is not None and not commit:
            if self.aborted is NO_ABORTED:
                self.aborted = Aborted()
            self.aborted.add(producer, first, offset, next(iter(self.running.values()), self.next_offset))
        if self.producers is not None:
            self.producers.seen(producer, clock_ms)

    def skip_to(self, offset: int, most: int, *, grow: bool) -> int:
        """Leave a gap up to an offset, in entries of `most` offsets at most. Returns how many entries that takes.

        With `grow` the gap at the end of the log grows first, if there is one.
        """
        entries = 0
        if grow and self.index.grow(offset, most):
            self.next_offset = self.index[-1].end
            entries += 1
        while self.next_offset < offset:
            span = min(offset - self.next_offset, most)
            self.next_offset += span
            self.index.skip(self.next_offset, span, self.size)
            entries += 1
        self.advance()
        return entries

    def forget_aborted(self) -> None:
        """Forget the aborted transactions that no reader of this stream can meet any more."""
        self.aborted.forget(max(self.settled, self.log_start))

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the log, or -1."""
        entries = self.index.find(self.open[0]) if self.open else len(self.index)
        return self.index[entries - 1].running_max_timestamp if entries else NO_TIMESTAMP

    def bytes_from(self, offset: int, *, committed: bool = False) -> int:
        """The stored bytes from an offset to the log's end, in whole index entries.

        With `committed` up to the stable offset. Of an entry that reaches beyond that a share is counted, at least a
        byte, because there are records to read.
        """
        i, bound = self.index.find(offset), self.stable if committed else self.end
        if i == len(self.index):
            return 0
        entry = self.index[i]
        before, size, last = entry.cumulative_size - entry.length, self.size, self.index.find(bound)
        if last < len(self.index):
            end = self.index[last]
            size = end.cumulative_size - end.length
            if end.start < bound:
                size += max(1, end.length * (bound - end.start) // (end.end - end.start))
        return max(0, size - before)

    def advance(self) -> bool:
        """Move the settled end past all settled entries. Returns whether one of them has rows of a segment."""
        i, rows = self.index.find(self.settled), False
        while i < len(self.index) and self.index[i].settled:
            rows = rows or bool(self.index[i].file)
            self.settled = self.index[i].end
            i += 1
        return rows
