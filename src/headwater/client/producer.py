"""An idempotent producer: batches by size and time, one request under way per partition, each record once and in order.

The batches of a partition are delivered one after another: a batch is answered or retried before the next one is sent.
When a batch is given up, it is not known whether it is in the log. The producer then continues with the next epoch,
which also makes a broker refuse a copy that is still on its way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kio.schema.errors import ErrorCode

from headwater.background import spawn
from headwater.client.client import Client
from headwater.client.errors import KafkaError, Undelivered
from headwater.client.model import Produced, ProducerIdentity
from headwater.client.partitioner import Sticky, partition_of_key
from headwater.client.records import MAX_BATCH_BYTES, MAX_RECORDS, Headers, Record, encode_batch
from headwater.client.routing import in_doubt
from headwater.errors import ConfigError, HeadwaterError, Retriable, TooLarge
from headwater.wire.codecs import written_codec

_LAST_EPOCH = 32_766
_SEQUENCES = 1 << 31
_RECORD_OVERHEAD = 24
_NEW_TOPIC_S = 10.0
"""How long a topic may take from its first appearance in metadata until it accepts records."""
_SEQUENCE_ERRORS = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
    }
)
"""Errors that say that the broker's state of the producer differs from ours."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How records are gathered and how long they are retried."""

    linger_s: float = 0.005
    batch_bytes: int = 64 << 10
    """A batch with this many bytes before compression is sent at once."""
    buffer_bytes: int = 32 << 20
    """`send` waits while this many bytes are not delivered yet."""
    delivery_s: float = 120.0
    codec: str = "none"
    create_topics: bool = False
    """Whether brokers may create a topic that does not exist."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Partition and offset of a record. The offset is -1 if the broker only says that it already has the record."""

    partition: int
    offset: int


class _Pending:
    """A batch that still takes records."""

    __slots__ = ("deadline", "futures", "leaves_at", "ready", "records", "size")

    def __init__(self, leaves_at: float, deadline: float) -> None:
        self.records: list[Record] = []
        self.futures: list[asyncio.Future[Delivered]] = []
        self.size = 0
        self.leaves_at = leaves_at
        self.deadline = deadline
        self.ready = asyncio.Event()

    def __repr__(self) -> str:
        return f"<_Pending, {len(self.records)} records, {self.size} bytes>"


class _Lane:
    """The batches of one partition and their sequence numbers."""

    __slots__ = ("identity", "partition", "queue", "sequence", "task", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.queue: deque[_Pending] = deque()
        self.task: asyncio.Task[None] | None = None
        self.identity: ProducerIdentity | None = None
        self.sequence = 0

    def __repr__(self) -> str:
        return f"<_Lane {self.topic}-{self.partition}, {len(self.queue)} batches, sequence {self.sequence}>"


class Producer:
    """Use as `async with Producer(client) as producer`. Leaving the block delivers the remaining records."""

    def __init__(self, client: Client, settings: ProducerSettings | None = None) -> None:
        self._client = client
        self._settings = settings or ProducerSettings()
        if not 0 < self._settings.batch_bytes <= MAX_BATCH_BYTES:
            raise ConfigError(f"batch_bytes must be between 1 and {MAX_BATCH_BYTES}")
        self._codec = written_codec(self._settings.codec)
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._sticky: dict[str, Sticky] = {}
        self._identity: ProducerIdentity | None = None
        self._identity_lock = asyncio.Lock()
        self._buffered = 0
        self._room = asyncio.Event()
        self._failure: HeadwaterError | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Producer {self._identity}, {self._buffered} bytes under way>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abort()

    # --- for callers ---------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[Delivered]:
        """Put a record into a batch; waits for room if necessary. The future has its partition and offset.

        The futures may be ignored: `flush` raises the first failure.
        """
        size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(data or b"") + 4 for name, data in headers)
        if size > MAX_BATCH_BYTES:
            raise TooLarge(f"a record has {size} bytes; the limit of the client is {MAX_BATCH_BYTES}")
        partition = await self._choose(topic, key, partition)
        while self._buffered >= self._settings.buffer_bytes and not self._closed:
            self._room.clear()
            await self._room.wait()
        if self._closed:
            raise Undelivered("the producer is closed")
        at = self._client.clock.wall_ms() if timestamp is None else timestamp
        future, full = self._append(topic, partition, Record(-1, at, key, value, headers), size)
        if full:
            await asyncio.sleep(0)  # a caller in a tight loop must not keep batches from being sent
        return future

    async def flush(self) -> None:
        """Deliver all records that were sent before; raises the first failure since the last flush."""
        while tasks := [lane.task for lane in self._lanes.values() if lane.task is not None]:
            for lane in self._lanes.values():
                for pending in lane.queue:
                    pending.ready.set()
            done, _ = await asyncio.wait(tasks)
            for task in done:
                if not task.cancelled():
                    task.result()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Deliver the remaining records, then accept no more."""
        try:
            await self.flush()
        finally:
            await self.abort()

    async def abort(self) -> None:
        """Drop the records that are not delivered yet."""
        self._closed = True
        self._room.set()
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in self._lanes.values():
            while lane.queue:
                error = Undelivered("the producer was closed before the record was sent")
                self._give_up(lane.queue.popleft(), error)

    @property
    def failure(self) -> HeadwaterError | None:
        """The first failure since the last flush."""
        return self._failure

    # --- batches -------------------------------------------------------------------------------------

    async def _choose(self, topic: str, key: bytes | None, partition: int | None) -> int:
        known = await self._client.topic(topic, create=self._settings.create_topics)
        if partition is not None:
            if not 0 <= partition < len(known.partitions):
                raise ConfigError(f"topic {topic!r} has no partition {partition}, only {len(known.partitions)}")
            return partition
        if key is not None:
            return partition_of_key(key, len(known.partitions))
        if topic not in self._sticky:
            self._sticky[topic] = Sticky(self._client.chance)
        return self._sticky[topic].choose(known.led or range(len(known.partitions)))

    def _append(self, topic: str, partition: int, record: Record, size: int) -> tuple[asyncio.Future[Delivered], bool]:
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane(topic, partition)
        pending = lane.queue[-1] if lane.queue else None
        if pending is None or pending.ready.is_set() or pending.size + size > self._settings.batch_bytes:
            if pending is not None:
                self._ready(lane, pending)
            now = self._client.clock.monotonic()
            pending = _Pending(now + self._settings.linger_s, now + self._settings.delivery_s)
            lane.queue.append(pending)
        future: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()
        pending.records.append(record)
        pending.futures.append(future)
        pending.size += size
        self._buffered += size
        if pending.size >= self._settings.batch_bytes or len(pending.records) >= MAX_RECORDS:
            self._ready(lane, pending)
        if lane.task is None:
            lane.task = spawn(self._run(lane), f"produce-{topic}-{partition}")
        return future, pending.ready.is_set()

    def _ready(self, lane: _Lane, pending: _Pending) -> None:
        pending.ready.set()
        if lane.topic in self._sticky:
            self._sticky[lane.topic].closed(lane.partition)

    async def _run(self, lane: _Lane) -> None:
        """Deliver the batches of a partition until there are none."""
        try:
            while lane.queue:
                pending = lane.queue[0]
                left = pending.leaves_at - self._client.clock.monotonic()
                if not pending.ready.is_set() and left > 0:
                    try:
                        await asyncio.wait_for(pending.ready.wait(), left)
                    except TimeoutError:
                        pass
                self._ready(lane, pending)
                lane.queue.popleft()
                try:
                    await self._deliver(lane, pending)
                except HeadwaterError as error:
                    self._give_up(pending, error)
                except Exception as error:
                    self._give_up(pending, Undelivered(f"sending the record failed: {error!r}"))
                    raise
        finally:
            lane.task = None

    # --- delivery ------------------------------------------------------------------------------------

    async def _deliver(self, lane: _Lane, pending: _Pending) -> None:
        try:
            produced = await self._send(lane, pending)
        except asyncio.CancelledError:
            self._next_epoch(lane)
            self._give_up(pending, Undelivered("the producer was closed while the record was under way"))
            raise
        except KafkaError as error:
            if error.code is not ErrorCode.message_too_large or len(pending.records) == 1:
                raise
            # Certainly not written, so the halves take its place and its sequence numbers.
            for half in reversed(_halves(pending)):
                lane.queue.appendleft(half)
            return
        for index, future in enumerate(pending.futures):
            if not future.done():
                offset = -1 if produced.base_offset < 0 else produced.base_offset + index
                future.set_result(Delivered(lane.partition, offset))
        self._release(pending)

    async def _send(self, lane: _Lane, pending: _Pending) -> Produced:
        """Send a batch until it is answered or its time is up."""
        clock = self._client.clock
        for fresh in (False, True):
            identity = await self._identify(lane, pending.deadline - clock.monotonic())
            batch = encode_batch(
                pending.records,
                codec=self._codec,
                producer_id=identity.id,
                producer_epoch=identity.epoch,
                base_sequence=lane.sequence,
            )
            doubt = False

            async def attempt(data: bytes = batch) -> Produced:
                nonlocal doubt
                left = pending.deadline - clock.monotonic()
                if left <= 0:
                    raise Undelivered("the time limit passed before the batch was sent")
                try:
                    return await self._client.produce_once(lane.topic, lane.partition, data, within=left)
                except Retriable as error:
                    doubt = doubt or in_doubt(error)
                    raise

            try:
                produced = await self._client.retrying(
                    attempt,
                    topic=lane.topic,
                    within=pending.deadline - clock.monotonic(),
                    impatient_s=_NEW_TOPIC_S,
                )
            except HeadwaterError as error:
                lost = isinstance(error, KafkaError) and error.code in _SEQUENCE_ERRORS
                if doubt or lost:
                    self._next_epoch(lane)
                if doubt:
                    what = f"{len(pending.records)} records for partition {lane.partition} of {lane.topic!r}"
                    raise Undelivered(f"{what} may or may not be in the log: {error}") from error
                if lost and not fresh:
                    continue  # nothing of this batch is in the log: retry it as a new producer
                raise
            lane.sequence = (lane.sequence + len(pending.records)) % _SEQUENCES
            return produced
        raise AssertionError("the second round returns or raises")

    async def _identify(self, lane: _Lane, within: float) -> ProducerIdentity:
        """Producer id and epoch of the lane: first those of the producer, later with an epoch of its own."""
        if lane.identity is None:
            async with self._identity_lock:
                if self._identity is None:
                    self._identity = await self._client.init_producer_id(within=within)
            lane.identity = self._identity
            lane.sequence = 0
        if lane.identity.epoch > _LAST_EPOCH:
            lane.identity = await self._client.init_producer_id(within=within)
            lane.sequence = 0
        return lane.identity

    def _next_epoch(self, lane: _Lane) -> None:
        if lane.identity is not None:
            lane.identity = ProducerIdentity(lane.identity.id, lane.identity.epoch + 1)
            lane.sequence = 0

    def _give_up(self, pending: _Pending, error: HeadwaterError) -> None:
        self._failure = self._failure or error
        for future in pending.futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks it as seen: `flush` raises it
        self._release(pending)

    def _release(self, pending: _Pending) -> None:
        self._buffered -= pending.size
        self._room.set()


def _halves(pending: _Pending) -> tuple[_Pending, _Pending]:
    """Two batches in place of one that was too large."""
    middle = len(pending.records) // 2
    halves = (_Pending(0, pending.deadline), _Pending(0, pending.deadline))
    for half, part in zip(halves, (slice(0, middle), slice(middle, None)), strict=True):
        half.records = pending.records[part]
        half.futures = pending.futures[part]
        half.size = pending.size * len(half.records) // len(pending.records)
        half.ready.set()
    halves[1].size = pending.size - halves[0].size
    return halves
