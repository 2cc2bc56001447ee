"""A process that appends in bulk, in virtual time, and rows to append."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.virtual import SeededChance, VirtualClock
from headwater.configs.topics import TopicConfig
from headwater.lake.bulk.append import BulkAppend, BulkLimits
from headwater.lake.bulk.input import Records
from headwater.log.segment.rows import plain_schema
from headwater.replica.domains import Domains
from headwater.state.cluster.domain import Topic
from tests.support.faulty import FaultyLedger
from tests.support.lake import ONE, Fate, FatedLedger, FatedStore
from tests.support.virtual_nodes import NodeWorld

Made = tuple[bytes | None, bytes | None, int | None]
"""Key, value, timestamp."""


def rows(made: Sequence[Made], headers: Sequence[tuple[str, bytes | None]] = ()) -> Records:
    """Rows as they are read from a file."""
    found = [{"key": name, "value": value} for name, value in headers]
    columns = [{"key": k, "value": v, "timestamp_ms": t, "headers": found} for k, v, t in made]
    return Records(Path("rows.parquet"), 0, pa.RecordBatch.from_pylist(columns, schema=plain_schema()))


def numbered(count: int, first: int = 0, word: bytes = b"bulk") -> Iterator[Records]:
    """Numbered rows, in several pieces."""
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
        self.domains = Domains(ledger, self.store, self.clock, self.chance)
        self.cluster, self.domain = self.domains.cluster, self.domains[ONE]
        self.membership, self.background = self.domains.membership, self.domains.background

    async def start(self) -> "Loader":
        await self.domains.follow()
        await self.domains.join()
        return self

    def bulk(self, topic: Topic, partition: int | None = None, **limits: int) -> BulkAppend:
        return BulkAppend(
            topic,
            self.domain,
            self.store,
            self.clock,
            self.chance,
            config=TopicConfig.of(topic.configs, self.domains.cluster.state.resources.common),
            limits=BulkLimits(**limits),
            partition=partition,
        )

    async def close(self) -> None:
        await self.domains.leave()

    async def abandon(self) -> None:
        """End the process as `kill -9` does: nothing of it runs any more."""
        self.fate.death.set()
        await self.background.close()
