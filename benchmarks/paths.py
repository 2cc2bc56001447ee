"""What the hot paths cost without a network: ``python -m benchmarks.paths``, or ``make bench-paths``.

The real handlers, writer, replica and state machine: once in one thread, on a ledger in memory and a store that keeps
nothing, and once on the disk.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, cast

import msgspec
import uvloop

from headwater.app.node import Node
from headwater.broker import handlers as _registered  # noqa: F401 - fills the registry
from headwater.broker.net.connection import Connection
from headwater.broker.net.server import Server
from headwater.client.records import Record as ClientRecord
from headwater.client.records import encode_batch
from headwater.clock import SystemChance, SystemClock
from headwater.ledger import open_ledger
from headwater.ledger.contract import Ledger
from headwater.ledger.memory import MemoryLedger
from headwater.log.kernels import switch
from headwater.objects import ObjectStore, open_store
from headwater.objects.memory import MemoryStore
from headwater.settings.settings import Settings
from headwater.state.commands.cluster import Listener
from headwater.state.commands.streams import AppendWal, Chunk, CreateStreams, StreamConfig
from headwater.state.records import Record
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Pieces, Position
from headwater.wire.build import build
from headwater.wire.messages import encode_request, request_type

PARTITIONS = 12
RECORDS = 15
VALUE = bytes(1024)
REQUESTS = 2_000
WINDOWS = (2, 5)
"""Requests that come at once, and share a flush."""

STARTED_MS = SystemClock().wall_ms()
"""Records of today: those of long ago would be measured together with their retention."""
APPLIED = 300_000
BUILD = Path(__file__).parent.parent / "build"
PRODUCE, CREATE_TOPICS = 0, 19


class _Transport:
    """Takes answers and throws them away."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()

    def writelines(self, pieces: list[Any]) -> None:
        self.answered.set()

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("benchmark", 0)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        raise AssertionError("the broker closed the connection")


def _frame(number: int) -> bytes:
    """A Produce request of a Java client: a full batch for each partition."""
    records = [ClientRecord(0, STARTED_MS, None, VALUE)] * RECORDS
    data = encode_batch(records, producer_id=1_000, producer_epoch=0, base_sequence=number * RECORDS)
    partitions = [{"index": p, "records": data} for p in range(PARTITIONS)]
    body = build(
        request_type(PRODUCE, 12),
        acks=-1,
        timeout=30_000,
        topic_data=[{"name": "t", "partition_data": partitions}],
    )
    return b"".join(encode_request(PRODUCE, 12, number, "benchmark", body))


async def _exchange(connection: Connection, transport: _Transport, frames: list[bytes]) -> None:
    """Send requests one after another and wait until all are answered."""
    for frame in frames:
        at = 0
        while at < len(frame):
            buffer = connection.get_buffer(-1)
            size = min(len(buffer), len(frame) - at)
            buffer[:size] = frame[at : at + size]
            connection.buffer_updated(size)
            at += size
    while not connection.idle:
        transport.answered.clear()
        await transport.answered.wait()


class _NoStore(MemoryStore):
    """Keeps nothing."""

    async def put(self, path: str, pieces: Pieces) -> None: ...


async def produce(ledger: Ledger, store: ObjectStore, window: int) -> float:
    """CPU seconds a batch, from a frame in a buffer to the answer's bytes."""
    settings = msgspec.structs.replace(Settings(objects="memory://"), node=1)
    listener = Listener("PLAINTEXT", "localhost", 9092)
    node = Node(settings, ledger, store, SystemClock(), SystemChance(), listeners=(listener,))
    await node.start()
    transport, connection = _Transport(), Connection(Server(node.broker), "PLAINTEXT")
    connection.connection_made(cast(asyncio.Transport, transport))
    topic = {"name": "t", "num_partitions": PARTITIONS, "replication_factor": 1}
    create = build(request_type(CREATE_TOPICS, 7), topics=[topic], timeout=5_000)
    await _exchange(connection, transport, [b"".join(encode_request(CREATE_TOPICS, 7, 0, "benchmark", create))])
    spent = []
    for first in range(0, REQUESTS, window):
        frames = [_frame(number) for number in range(first, first + window)]
        before = time.process_time()
        await _exchange(connection, transport, frames)
        if first:  # the first round warms up
            spent.append((time.process_time() - before) / (window * PARTITIONS))
    await node.stop()
    return statistics.quantiles(spent, n=10)[0]  # the neighbours of a busy machine are not ours


async def _on_disk(directory: str, window: int) -> float:
    return await produce(
        open_ledger(f"sqlite://{directory}/ledger.db"), open_store(f"file://{directory}/objects"), window
    )


def apply(batches: int) -> float:
    """CPU seconds a batch when records of one object with so many batches are applied, one producer a stream."""
    state = StreamsState(Domain(1))
    streams = list(range(1, 1_001))
    create = CreateStreams(uuid.UUID(int=1), 0, tuple(streams), StreamConfig(append_time=False))
    state.apply(Position(1), Record(1, 1, 1, [create]))
    records = []
    for number in range(APPLIED // batches):
        chunks = [
            Chunk(
                streams[(number * batches + i) % len(streams)],
                100 + 1_100 * i,
                [(1_000, 10, 1_700_000_000_000)],
                [(7, 0, (number * batches + i) // len(streams) * 10)],
            )
            for i in range(batches)
        ]
        command = AppendWal(number + 1, 200 + 1_100 * batches, 1_700_000_000_000, "zone", chunks)
        records.append(Record(1, number + 2, 1_700_000_000_000, [command]))
    began = time.process_time()
    for position, record in enumerate(records, 2):
        state.apply(Position(position), record)
    return (time.process_time() - began) / (len(records) * batches)


def main() -> None:
    switch.compile_kernels()
    BUILD.mkdir(exist_ok=True)
    for window in WINDOWS:
        title = f"produce, {window * PARTITIONS} batches a flush"
        seconds = uvloop.run(produce(MemoryLedger(), _NoStore(), window))
        print(f"{title}, nothing stored: {seconds * 1e6:.1f} us of CPU a batch")
        with tempfile.TemporaryDirectory(dir=BUILD) as directory:
            seconds = uvloop.run(_on_disk(directory, window))
        print(f"{title}, to the disk: {seconds * 1e6:.1f} us of CPU a batch")
    for batches in (1, 12, 50):
        seconds = apply(batches)
        print(f"apply, {batches} batches a record: {seconds * 1e6:.2f} us a batch, {1 / seconds:,.0f} batches/s")


if __name__ == "__main__":
    main()
