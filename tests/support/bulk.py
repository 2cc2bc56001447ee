"""Whoever appends in bulk, in virtual time, and rows to append."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.lake.bulk import BulkAppend, BulkLimits
from headwater.lake.bulk_input import Records
from headwater.log.segment_rows import plain_schema
from headwater.metadata.cluster import ClusterState, Topic
from headwater.metadata.membership import Membership
from headwater.metadata.replica import Replica
from headwater.metadata.streams import StreamsState
from tests.support.lake import ONE, Crash, Fate, FatedLedger, FatedStore
from tests.support.virtual import FaultyLedger, SeededChance, VirtualClock
from tests.support.virtual_nodes import NodeWorld

Made = tuple[bytes | None, bytes | None, int | None]
"""Key, value, timestamp."""


def rows(made: Sequence[Made], headers: Sequence[tuple[str, bytes | None]] = ()) -> Records:
    """Rows of a file, as they come from it."""
    found = [{"key": name, "value": value} for name, value in headers]
    columns = [{"key": k, "value": v, "timestamp_ms": t, "headers": found} for k, v, t in made]
    return Records(Path("rows.parquet"), 0, pa.RecordBatch.from_pylist(columns, schema=plain_schema()))


def numbered(count: int, first: int = 0, word: bytes = b"bulk") -> Iterator[Records]:
    """Rows that can be told apart, in several pieces."""
    for start in range(first, first + count, 5):
        numbers = range(start, min(start + 5, first + count))
        yield rows([(b"k%d" % i, b"%s-%d" % (word, i), 1_000 + i) for i in numbers])


class Loader:
    """A process that appends in bulk."""

    def __init__(self, world: NodeWorld, number: int = 1, fate: Fate | None = None) -> None:
        self.fate = fate or Fate()
        self.clock, self.chance = VirtualClock(), SeededChance(5_000 + number)
        self.way = FaultyLedger(world.ledger)
        self.store: Any = FatedStore(world.store, self.fate)
        ledger: Any = FatedLedger(self.way, self.fate)
        self.cluster = Replica(ledger, self.store, ClusterState(), self.clock, self.chance)
        self.domain = Replica(ledger, self.store, StreamsState(ONE), self.clock, self.chance)
        self.membership = Membership(ledger, self.cluster, {ONE: self.domain}, self.clock, self.chance)

    async def start(self) -> "Loader":
        await self.cluster.start()
        await self.domain.start()
        await self.membership.join()
        self.membership.start()
        return self

    def bulk(self, topic: Topic, partition: int | None = None, **limits: int) -> BulkAppend:
        return BulkAppend(
            topic,
            self.domain,
            self.store,
            self.clock,
            self.chance,
            limits=BulkLimits(**limits),
            partition=partition,
        )

    async def close(self) -> None:
        await self.membership.leave()
        await self.domain.close()
        await self.cluster.close()

    async def abandon(self) -> None:
        """As after `kill -9`: nothing of it runs any more."""
        self.fate.death.set()
        for task in [self.membership._task, *self.domain._tasks, *self.cluster._tasks]:
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Crash):
                    await task
