"""A dozen brokers on a cloud's object store, in virtual time: ``python -m benchmarks.scale``, or ``make bench-scale``.

The brokers' own write path, replicas and state machine run as they are; the network, the object store and the ledger's
server are models with latencies drawn from written distributions. Nothing waits for real time and nothing depends on
this machine's speed: the CPU that a broker would need is not modelled, so the load per broker is one that a broker's
core was measured to take.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from harness.virtual import EPOCH_MS, SeededChance, VirtualClock, run
from headwater.app.node import Node
from headwater.client.records import Record, encode_batch
from headwater.errors import HeadwaterError
from headwater.ledger.contract import Entry
from headwater.ledger.memory import MemoryLedger
from headwater.log.batch import Batch, BatchRules, check_batch
from headwater.log.write.part import Outcome, Part
from headwater.objects.memory import MemoryStore
from headwater.objects.store import ObjectInfo
from headwater.replica.placement import choose
from headwater.settings.settings import Cache, Housekeeping, Settings
from headwater.state.commands.cluster import Listener
from headwater.types import Domain, Pieces, Position

MB = 1_000_000
Z99 = 2.3263478740408408
"""The 99th percentile of the normal distribution, in standard deviations."""
QUIET = Housekeeping(interval_ms=1 << 40)
RULES = BatchRules(
    1 << 26, 1 << 26, timestamp_before_ms=1 << 50, timestamp_after_ms=1 << 50, append_time=False, compacted=False
)
LOADS = (10, 25, 50, 100)
"""MB/s per broker. 100 is what one broker's core was measured to take with Kafka's own client."""


@dataclass(frozen=True, slots=True)
class Latency:
    """A lognormal distribution by two of its percentiles, of which a share is slower by a factor."""

    p50: float
    p99: float
    slow_share: float = 0.0
    slow_factor: float = 1.0

    def draw(self, chance: random.Random) -> float:
        """Seconds."""
        found = self.p50 * math.exp(chance.gauss(0.0, math.log(self.p99 / self.p50) / Z99))
        return found * self.slow_factor if chance.random() < self.slow_share else found


PUT = Latency(0.060, 0.400, slow_share=0.01, slow_factor=5.0)
"""Until the first byte of the answer; the object's own way comes on top."""
PUT_BYTES_PER_SECOND = 90 * MB
"""One connection's share."""
COMMIT = Latency(0.003, 0.015)
"""An append, there and back, with the store's own replication."""
COMMIT_SECONDS = 1 / 1_900
"""The ledger's server does one append after another. One node of etcd gave so many a second with eight writers; three
on a busy machine a third of that, which is still three times what the highest load here needs."""
NOTICE = Latency(0.001, 0.005)


class ModelStore(MemoryStore):
    """An object store that takes its time and keeps sizes only."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.sizes: dict[str, int] = {}
        self.puts = 0

    async def put(self, path: str, pieces: Pieces) -> None:
        size = sum(map(len, pieces))
        self.puts += 1
        await asyncio.sleep(PUT.draw(self._chance) + size / PUT_BYTES_PER_SECOND)
        self.sizes[path] = size

    async def scan(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for path, size in self.sizes.items():
            if path.startswith(prefix):
                yield ObjectInfo(path, size)


@dataclass(slots=True)
class LedgerServer:
    """What all brokers' ways to the ledger share."""

    chance: random.Random
    free_at: float = 0.0
    appends: int = 0
    inner: MemoryLedger = field(default_factory=MemoryLedger)


class ModelLedger(MemoryLedger):
    """One broker's way to the ledger."""

    def __init__(self, server: LedgerServer) -> None:
        super().__init__()
        self._server = server
        self._logs = server.inner._logs
        self._beats = server.inner._beats

    async def append(self, domain: Domain, record: bytes) -> Position:
        server, loop = self._server, asyncio.get_running_loop()
        there = COMMIT.draw(server.chance)
        await asyncio.sleep(there / 2)
        server.free_at = max(server.free_at, loop.time()) + COMMIT_SECONDS
        await asyncio.sleep(server.free_at - loop.time())
        position = self.append_now(domain, record)
        server.appends += 1
        await asyncio.sleep(there / 2)
        return position

    async def read(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        await asyncio.sleep(NOTICE.draw(self._server.chance))
        return await super().read(domain, after, limit)

    async def last(self, domain: Domain) -> Position:
        await asyncio.sleep(COMMIT.draw(self._server.chance))
        return await super().last(domain)

    async def watch(self, domain: Domain, after: Position) -> Position:
        position = await super().watch(domain, after)
        await asyncio.sleep(NOTICE.draw(self._server.chance))
        return position


class Published:
    """The latencies of all batches, and what else became of any."""

    def __init__(self, from_time: float) -> None:
        self._from = from_time
        self.seconds: list[float] = []
        self.refused = 0
        self.sent = 0

    def accepted(self, number: int, offset: int, log_start: int, append_ms: int) -> None:
        began = number / 1e6
        if began >= self._from:
            self.seconds.append(asyncio.get_running_loop().time() - began)

    def decided(self, number: int, outcome: Outcome | HeadwaterError) -> None:
        self.refused += 1


@dataclass(frozen=True, slots=True)
class Run:
    """What one load gave."""

    load: float
    seconds: list[float]
    commits_a_second: float
    puts_a_second: float
    object_bytes: float
    refused: int
    took: float

    def percentile(self, share: float) -> float:
        return self.seconds[min(len(self.seconds) - 1, int(len(self.seconds) * share))]


async def simulate(options: argparse.Namespace, load: float) -> Run:
    """One load on one cluster."""
    chance = random.Random(options.seed)
    server, store = LedgerServer(chance), ModelStore(chance)
    nodes = {number: await _node(number, server, store) for number in range(1, options.brokers + 1)}
    made = await nodes[1].broker.topics.create("scale", options.partitions, {})
    await asyncio.sleep(1.0)
    loop = asyncio.get_running_loop()
    start, published = loop.time(), Published(loop.time() + options.warmup)
    batch = _batch(options.batch_kb * 1000)
    sending = [
        asyncio.create_task(_send(nodes, load, options, batch, published, random.Random(chance.random()), streams))
        for streams in _by_node(made.streams, list(nodes))
    ]
    await asyncio.sleep(options.warmup)
    appends, puts, written = server.appends, store.puts, sum(store.sizes.values())
    real = time.perf_counter()
    await asyncio.gather(*sending)
    span = loop.time() - start - options.warmup
    counted = server.appends - appends, store.puts - puts, sum(store.sizes.values()) - written
    while published.sent > len(published.seconds) + published.refused and loop.time() < start + options.seconds + 60:
        await asyncio.sleep(0.1)
    assert published.sent == len(published.seconds) + published.refused, "batches were never answered"
    return Run(
        load,
        sorted(published.seconds),
        counted[0] / span,
        counted[1] / span,
        counted[2] / counted[1],
        published.refused,
        time.perf_counter() - real,
    )


async def _node(number: int, server: LedgerServer, store: ModelStore) -> Node:
    settings: dict[str, Any] = {"node": number, "objects": "s3://model", "housekeeping": QUIET}
    node = Node(
        Settings(**settings, cache=Cache(wal_bytes=1)),
        ModelLedger(server),
        store,
        VirtualClock(),
        SeededChance(number),
        listeners=(Listener("PLAINTEXT", f"broker{number}", 9092),),
    )
    await node.start()
    return node


def _batch(size: int) -> Batch:
    return check_batch(encode_batch([Record(0, EPOCH_MS, None, bytes(1_000))] * max(1, size // 1_000)), RULES, EPOCH_MS)


def _by_node(streams: Sequence[int], nodes: list[int]) -> list[tuple[int, list[int]]]:
    """Each broker's partitions, as clients are told."""
    found: dict[int, list[int]] = {node: [] for node in nodes}
    for stream in streams:
        found[choose(stream, nodes)].append(stream)
    return list(found.items())


async def _send(
    nodes: dict[int, Node],
    load: float,
    options: argparse.Namespace,
    batch: Batch,
    published: Published,
    chance: random.Random,
    whose: tuple[int, list[int]],
) -> None:
    """Batches for one broker's partitions, at random moments, whether or not earlier ones are answered."""
    node, streams = whose
    writer, loop = nodes[node].writers.of(1, "cost"), asyncio.get_running_loop()
    rate = load * MB * options.brokers / options.partitions * len(streams) / len(batch.data)
    until = loop.time() + options.seconds
    while loop.time() < until:
        await asyncio.sleep(chance.expovariate(rate))
        now = loop.time()
        published.sent += now >= published._from
        writer.append(Part(chance.choice(streams), batch, published, int(now * 1e6)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=12)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="virtual seconds of load, warm-up included")
    parser.add_argument("--warmup", type=float, default=5.0)
    parser.add_argument("--batch-kb", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loads", type=float, nargs="*", default=LOADS, help="MB/s per broker")
    options = parser.parse_args()
    runs = []
    with Progress(console=Console(stderr=True)) as progress:
        for load in progress.track(options.loads, description="virtual time"):
            runs.append(run(simulate(options, load)))
    print_table(options, runs)


def print_table(options: argparse.Namespace, runs: list[Run]) -> None:
    table = Table(title=f"{options.brokers} brokers, {options.partitions} partitions, virtual time")
    for name in (
        "MB/s a broker",
        "MB/s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "commits/s",
        "PUTs/s",
        "KB an object",
        "refused",
    ):
        table.add_column(name, justify="right")
    for each in runs:
        table.add_row(
            f"{each.load:g}",
            f"{each.load * options.brokers:g}",
            *(f"{each.percentile(share) * 1000:.0f}" for share in (0.5, 0.99, 0.999)),
            f"{each.commits_a_second:.0f}",
            f"{each.puts_a_second:.0f}",
            f"{each.object_bytes / 1000:.0f}",
            str(each.refused),
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
