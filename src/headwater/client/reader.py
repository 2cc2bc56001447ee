"""Records of the partitions of a topic, from given offsets, to given ends or without end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kio.schema.errors import ErrorCode

from headwater.background import launch
from headwater.client.client import Client
from headwater.client.errors import KafkaError, ProtocolError, RetriableKafkaError
from headwater.client.model import EARLIEST, LATEST, Fetched
from headwater.client.records import Batch, Record, decode_batches
from headwater.client.routing import all_of

MAX_PARTITIONS = 10_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one partition, in order."""

    partition: int
    records: list[Record]


@dataclass(frozen=True, slots=True)
class Reset:
    """A partition no longer has the next offset, so the reader continues at another."""

    partition: int
    wanted: int
    resumed: int


def without_aborted(batches: Iterable[Batch], aborted: Iterable[tuple[int, int]]) -> Iterator[Batch]:
    """The batches, those of aborted transactions without their records.

    `aborted` has producer ids and first offsets, as a fetch answers them. A transaction ends at its control batch.
    """
    coming = sorted(aborted, key=lambda one: one[1], reverse=True)
    running: set[int] = set()
    for batch in batches:
        while coming and coming[-1][1] < batch.next_offset:
            running.add(coming.pop()[0])
        if batch.control and batch.aborts:
            running.discard(batch.producer)
        yield replace(batch, records=()) if batch.producer in running else batch


class Reader:
    """Reads partitions, one request per leader at a time.

    It continues behind records that retention removed, and calls `on_reset`. With `committed` it leaves out the
    records of aborted transactions, and waits where an open one begins.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        starts: Mapping[int, int],
        ends: Mapping[int, int] | None = None,
        *,
        max_wait_s: float = 0.5,
        partition_bytes: int = 1 << 20,
        committed: bool = False,
        on_reset: Callable[[Reset], None] | None = None,
    ) -> None:
        if len(starts) > MAX_PARTITIONS:
            raise ValueError(f"{len(starts)} partitions are too many; a reader takes {MAX_PARTITIONS}")
        self._client = client
        self._topic = topic
        self.positions = dict(starts)
        """The next offset of every partition."""
        self._ends = ends
        self._max_wait_s = max_wait_s
        self._partition_bytes = partition_bytes
        self._committed = committed
        self._on_reset = on_reset

    def __repr__(self) -> str:
        return f"<Reader of {self._topic!r} at {self.positions}>"

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """Records until all ends are reached. Close the iterator when leaving it early."""
        running: dict[asyncio.Task[dict[int, Fetched]], list[int]] = {}
        try:
            while True:
                busy = {p for group in running.values() for p in group}
                for group in await self._idle(busy):
                    running[launch(self._fetch(group))] = group
                if not running:
                    return
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del running[task]
                    for partition, fetched in task.result().items():
                        if records := self._take(partition, fetched):
                            yield Chunk(partition, records)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _idle(self, busy: set[int]) -> list[list[int]]:
        """Partitions that have more to read and no request under way, by leader."""
        idle = [p for p in self.positions if p not in busy and not self._finished(p)]
        if not idle:
            return []
        groups = await self._client.retrying(lambda: self._client.by_leader(self._topic, idle), topic=self._topic)
        return [group for _, _, group in groups]

    def _finished(self, partition: int) -> bool:
        return self._ends is not None and self.positions[partition] >= self._ends[partition]

    async def _fetch(self, group: list[int]) -> dict[int, Fetched]:
        """The batches of some partitions. A failure is raised only if no partition has any."""

        async def attempt() -> dict[int, Fetched]:
            answers = await self._client.fetch_many(
                self._topic,
                {p: self.positions[p] for p in group},
                max_wait_s=self._max_wait_s,
                partition_bytes=self._partition_bytes,
                committed=self._committed,
            )
            found: dict[int, Fetched] = {}
            failed: list[KafkaError] = []
            for partition, answer in answers.items():
                if isinstance(answer, Fetched):
                    found[partition] = answer
                elif answer.code is ErrorCode.offset_out_of_range:
                    if not await self._reset(partition):
                        failed.append(RetriableKafkaError(answer.code, f"topic {self._topic!r}"))
                elif isinstance(answer, RetriableKafkaError):
                    failed.append(answer)
                else:
                    raise answer
            if failed:
                self._client.forget(self._topic)
                if not any(fetched.data for fetched in found.values()):
                    raise failed[0]
            return found

        return await self._client.retrying(attempt, topic=self._topic)

    async def _reset(self, partition: int) -> bool:
        """Move a position into the log; returns whether it changed."""
        first, last = await all_of(
            self._client.list_offsets(self._topic, {partition: which}) for which in (EARLIEST, LATEST)
        )
        wanted = self.positions[partition]
        resumed = min(max(wanted, first[partition].offset), last[partition].offset)
        if resumed == wanted:
            return False
        self.positions[partition] = resumed
        if self._on_reset is not None:
            self._on_reset(Reset(partition, wanted, resumed))
        return True

    def _take(self, partition: int, fetched: Fetched) -> list[Record]:
        """The records from the position on. The position moves behind them."""
        position = self.positions[partition]
        end = None if self._ends is None else self._ends[partition]
        taken: list[Record] = []
        for batch in without_aborted(decode_batches(fetched.data), fetched.aborted):
            if batch.next_offset <= position:
                continue
            if end is not None and batch.base_offset >= end:
                position = end
                break
            for record in batch.records:
                if record.offset >= position and (end is None or record.offset < end):
                    taken.append(record)
            position = batch.next_offset
        if fetched.data and position == self.positions[partition]:
            raise ProtocolError(f"partition {partition} of topic {self._topic!r}: the fetch lacks offset {position}")
        self.positions[partition] = position
        return taken
