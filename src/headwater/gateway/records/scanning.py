"""Reading partitions of a topic step by step, through the reader that brokers use too.

A scan holds nothing between two steps but the next offset of each partition. Aborted records, markers and gaps are
crossed. Before a scan says that there is nothing more, it looks at the end of the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.client.reader import without_aborted
from headwater.client.records import Record, decode_batches
from headwater.errors import HeadwaterError, OffsetOutOfRange
from headwater.gateway.services import CATCH_UP_SECONDS, Services, missing
from headwater.log.looking import bound_of
from headwater.log.reader import Want
from headwater.query.lookups.lookups import out_of_range
from headwater.replica.patience import catch_up
from headwater.replica.replica import Replica
from headwater.state.cluster.domain import Topic
from headwater.state.streams.aborted import AbortedTransaction
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.threads import inline
from headwater.types import Buffer, Domain

LARGE = 64 << 10
"""More bytes are decoded in a thread."""
LEAST_BYTES = 16 << 10
"""What each partition may give of a step at least, if several have records."""
MAX_ROUNDS = 16
"""How often a step reads on behind offsets without records before it ends without any."""
RECORD_BYTES = 32
"""What a record counts beside its key, value and headers."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The records at the next offset of a partition were removed, so the scan continues at another."""

    partition: int
    wanted: int
    resumed: int


@dataclass(slots=True)
class Step:
    """What one step has found."""

    records: list[tuple[int, Record]] = field(default_factory=list)
    """With their partitions. Records of a partition are in order."""
    resets: list[Reset] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True, slots=True)
class _Taken:
    records: list[Record]
    position: int
    size: int


class Scan:
    """A reader of some partitions of a topic."""

    def __init__(
        self,
        services: Services,
        topic: Topic,
        positions: Mapping[int, int],
        *,
        ends: Mapping[int, int] | None = None,
        committed: bool = True,
        grows: bool = False,
    ) -> None:
        """With `grows` partitions that the topic gets later are read from their beginning."""
        self._services = services
        self.topic = topic
        self.positions = dict(positions)
        """The next offset of each partition."""
        self.ends = dict(ends or {})
        """Where the scan stops in partitions, at an offset that is left out."""
        self.committed = committed
        self._grows = grows
        self.replica: Replica[StreamsState] = services.domains[Domain(topic.domain)]
        self._turn = 0

    def __repr__(self) -> str:
        return f"<Scan of {self.topic.name!r} at {self.positions}>"

    @property
    def streams(self) -> list[int]:
        """The streams of the partitions."""
        return [self.topic.streams[partition] for partition in self.positions]

    def stream(self, partition: int) -> Stream:
        """The stream of a partition. Raises if the topic was deleted."""
        stream = self.replica.state.streams.get(self.topic.streams[partition])
        if stream is None:
            raise missing("topic", self.topic.name)
        return stream

    def bound(self, partition: int) -> int:
        """Where reading stops at present."""
        bound = bound_of(self.stream(partition), self.committed)
        return min(bound, self.ends.get(partition, bound))

    def grow(self) -> list[int]:
        """Take in partitions that the topic has got meanwhile; returns their streams. Not if the scan has an end."""
        topic = self._services.state.topics.get(self.topic.id) if self._grows and not self.ends else None
        if topic is None:
            return []
        self.topic = topic
        added = [partition for partition in range(topic.ready) if partition not in self.positions]
        self.positions.update({partition: self.stream(partition).log_start for partition in added})
        return [topic.streams[partition] for partition in added]

    @property
    def readable(self) -> bool:
        """Whether there is anything to read, as far as this process knows."""
        return any(position < self.bound(partition) for partition, position in self.positions.items())

    @property
    def over(self) -> bool:
        """Whether all partitions have reached the end that was set for them."""
        return all(position >= self.ends.get(p, position + 1) for p, position in self.positions.items())

    async def look(self) -> None:
        """Read the ledger to its end. Raises `NotReady` if the ledger takes too long."""
        await catch_up(CATCH_UP_SECONDS, self.replica)

    async def check(self, *, lenient: bool = False) -> None:
        """Raise unless all positions are in the log, with what is there; with `lenient`, in it or before its start."""
        if all(self._in_log(partition, lenient) for partition in self.positions):
            return
        await self.look()
        for partition, position in self.positions.items():
            if not self._in_log(partition, lenient):
                raise out_of_range(self.stream(partition), position)

    def _in_log(self, partition: int, lenient: bool) -> bool:
        stream, position = self.stream(partition), self.positions[partition]
        return position <= stream.end and (lenient or stream.log_start <= position)

    async def step(self, records: int, size: int, *, exact: bool = False, look: bool = True) -> Step:
        """Read on, up to about a number of records and of bytes; at least one record, if there is one.

        A step without records does not mean that there are none, unless `readable` is false. With `exact` a step that
        reaches the end that this process knows looks for a later one: another process may have answered its writer.
        Without `look` the end that this process knows is good enough.
        """
        found, looked = Step(), not look
        for _ in range(MAX_ROUNDS):
            if found.resets or len(found.records) >= records or found.size >= size:
                break
            if not self.readable:
                if looked or (found.records and not exact):
                    break
                await self.look()
                looked = True
                if not self.readable:
                    break
            await self._round(found, records - len(found.records), size - found.size)
        return found

    async def _round(self, found: Step, records: int, size: int) -> None:
        """Read each partition once, up to a number of further records and bytes."""
        waiting = [p for p, position in self.positions.items() if position < self.bound(p)]
        turn = self._turn % len(waiting)
        waiting = waiting[turn:] + waiting[:turn]  # no partition is served first for ever
        self._turn += 1
        share = max(size // len(waiting), min(LEAST_BYTES, size), 1)
        rooms = {p: min(share, self._likely_bytes(p, records)) for p in waiting}
        for partition in waiting:
            start = self.stream(partition).log_start
            if self.positions[partition] < start:
                found.resets.append(Reset(partition, self.positions[partition], start))
                self.positions[partition] = start
        if found.resets:
            return
        wants = [
            Want(self.replica, self.topic.streams[p], self.positions[p], rooms[p], self.committed) for p in waiting
        ]
        results = await self._services.reader.read_many(wants, size)
        full, room = len(found.records) + records, found.size + size
        for partition, result in zip(waiting, results, strict=True):
            if isinstance(result, OffsetOutOfRange):
                continue  # the log start has moved; the next round says so
            if isinstance(result, HeadwaterError):
                if found.records:
                    return
                raise result
            if not result.records or len(found.records) >= full or found.size >= room:
                continue
            left = full - len(found.records), room - found.size
            taken = await self._take(partition, result.records, result.aborted, *left)
            self.positions[partition] = taken.position
            found.records += [(partition, record) for record in taken.records]
            found.size += taken.size

    def _likely_bytes(self, partition: int, records: int) -> int:
        """The stored bytes of so many records, if they are as large as those behind the position are on average."""
        stream, position = self.stream(partition), self.positions[partition]
        offsets = max(bound_of(stream, self.committed) - position, 1)
        stored = stream.bytes_from(position, committed=self.committed)
        return max(stored * records // offsets * 5 // 4, LEAST_BYTES)

    async def _take(
        self, partition: int, data: Buffer, aborted: Sequence[AbortedTransaction], records: int, size: int
    ) -> _Taken:
        run = self._services.offload if len(data) > LARGE else inline
        position, end = self.positions[partition], self.ends.get(partition, 1 << 63)
        opened = self._services.settings.limits.opened_batch_bytes
        return await run(_taken, data, aborted, position, end, records, size, opened)


def _taken(
    data: Buffer,
    aborted: Sequence[AbortedTransaction],
    position: int,
    end: int,
    most: int,
    room: int,
    opened: int,
) -> _Taken:
    """The records of fetched bytes from a position on, and the position behind them."""
    found: list[Record] = []
    size = 0
    skipped = [(one.producer, one.first) for one in aborted]
    for batch in without_aborted(decode_batches(data, opened), skipped):
        for record in batch.records:
            if record.offset < position:
                continue
            if record.offset >= end:
                return _Taken(found, end, size)
            if len(found) >= most or (found and size >= room):
                return _Taken(found, record.offset, size)
            found.append(record)
            size += _size(record)
        position = max(position, batch.next_offset)
        if position >= end:
            return _Taken(found, end, size)
    return _Taken(found, position, size)


def _size(record: Record) -> int:
    headers = sum([len(name) + len(value or b"") for name, value in record.headers])
    return RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers
