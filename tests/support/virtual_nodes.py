"""Nodes in virtual time over a ledger and a store in memory, and helpers to use them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from harness.virtual import EPOCH_MS, SeededChance, VirtualClock
from headwater.app.node import Node
from headwater.errors import HeadwaterError
from headwater.ledger.memory import MemoryLedger
from headwater.log.batch import Batch, BatchRules, check_batch
from headwater.log.write.part import Outcome, Part
from headwater.objects.memory import MemoryStore
from headwater.settings.settings import Housekeeping, Settings
from headwater.state.cluster.domain import Topic
from headwater.state.commands.base import Tick
from headwater.state.commands.cluster import Listener
from headwater.state.results import Verdict
from headwater.types import Domain, Pieces
from tests.support.faulty import FaultyLedger

ONE = Domain(1)
QUIET = Housekeeping(interval_ms=1 << 40)
"""Housekeeping only when a test asks for a round."""
FAR = 1 << 50
LAX = BatchRules(1 << 26, 1 << 26, timestamp_before_ms=FAR, timestamp_after_ms=FAR, append_time=False, compacted=False)


class CountingStore(MemoryStore):
    """Counts calls. A test can make it wait before a put, and fail."""

    def __init__(self) -> None:
        super().__init__()
        self.puts = 0
        self.reads = 0
        self.put_errors: list[HeadwaterError] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.put_seconds = 0.0

    async def put(self, path: str, pieces: Pieces) -> None:
        self.puts += 1
        await self.gate.wait()
        if self.put_seconds:
            await asyncio.sleep(self.put_seconds)
        if self.put_errors:
            raise self.put_errors.pop(0)
        await super().put(path, pieces)

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        self.reads += len(paths)
        await asyncio.sleep(0.001)
        return await super().get_many(paths)


class NodeWorld:
    """The ledger and the store that several nodes share."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.store = CountingStore()
        self._nodes: list[Node] = []

    async def node(self, number: int = 1, **settings: Any) -> Node:
        """A node that has joined."""
        chosen: dict[str, Any] = {"node": number, "objects": "memory://", "housekeeping": QUIET} | settings
        way = FaultyLedger(self.ledger)
        node = Node(
            Settings(**chosen),
            way,
            self.store,
            VirtualClock(),
            SeededChance(number),
            listeners=(Listener("PLAINTEXT", "localhost", 9092 + number),),
        )
        node.way = way  # type: ignore[attr-defined]
        await node.start()
        self._nodes.append(node)
        return node

    async def let_deletions_go_on(self) -> None:
        """Write a checkpoint of the streams, as a broker does, so that what died before may be deleted."""
        for node in self._nodes:
            if node.domains[ONE].epoch and way_of(node).error is None:
                await node.domains[ONE].submit([Tick()])
                await node.checkpoint_here(ONE)
                return

    def wal_paths(self) -> list[str]:
        return sorted(path for path in self.store.objects if path.startswith("wal/"))


def way_of(node: Node) -> FaultyLedger:
    """The faulty ledger of a node."""
    way = node.way  # type: ignore[attr-defined]
    assert isinstance(way, FaultyLedger)
    return way


async def topic(node: Node, name: str = "t", partitions: int = 1, **configs: str) -> Topic:
    """A new topic. Underscores in config names are replaced by dots."""
    made = await node.broker.topics.create(name, partitions, {k.replace("_", "."): v for k, v in configs.items()})
    await asyncio.sleep(0.01)
    return made


class One:
    """Waits for one batch's outcome."""

    def __init__(self) -> None:
        self.done: asyncio.Future[Outcome | HeadwaterError] = asyncio.get_running_loop().create_future()

    def accepted(self, number: int, offset: int, log_start: int, append_ms: int) -> None:
        self.done.set_result(Outcome(Verdict.ACCEPTED, offset, log_start, append_ms))

    def decided(self, number: int, outcome: Outcome | HeadwaterError) -> None:
        self.done.set_result(outcome)


def send(
    node: Node, stream: int, data: bytes | Batch, profile: str = "latency", *, joins: bool = False
) -> "asyncio.Future[Outcome | HeadwaterError]":
    """Append one batch; returns a future of its outcome."""
    caller = One()
    checked = data if isinstance(data, Batch) else check_batch(data, LAX, EPOCH_MS)
    node.writers.of(1, profile).append(Part(stream, checked, caller, 0, joins))
    return caller.done


async def sent(
    node: Node, stream: int, data: bytes | Batch, profile: str = "latency", *, joins: bool = False
) -> Outcome:
    """Append one batch and wait for its outcome. Raises if it is an error."""
    outcome = await send(node, stream, data, profile, joins=joins)
    if isinstance(outcome, HeadwaterError):
        raise outcome
    return outcome


async def read(node: Node, stream: int, offset: int = 0, max_bytes: int = 1 << 20, first_whole: bool = True) -> bytes:
    """The bytes that a consumer gets."""
    result = await node.broker.reader.read(node.domains[ONE], stream, offset, max_bytes, first_whole)
    return bytes(result.records)
