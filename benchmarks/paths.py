"""What the hot paths cost without a disk or a network: ``python -m benchmarks.paths``, or ``make bench-paths``.

The real handlers, writer, replica and state machine, on a ledger and a store in memory, in one thread.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any, cast

import msgspec
import uvloop

from headwater.app.node import Node
from headwater.broker import handlers as _registered  # noqa: F401 - fills the registry
from headwater.broker.server import Connection, Server
from headwater.client.records import Record as ClientRecord
from headwater.client.records import encode_batch
from headwater.clock import SystemChance, SystemClock
from headwater.config import Settings
from headwater.log import kernels
from headwater.metadata.commands import AppendWal, Chunk, CreateStreams, Listener, Record, StreamConfig
from headwater.metadata.memory import MemoryLedger
from headwater.metadata.streams import StreamsState
from headwater.objects.memory import MemoryStore
from headwater.types import Domain, Position
from headwater.wire.build import build
from headwater.wire.messages import encode_request, request_type

PARTITIONS = 12
RECORDS = 15
VALUE = bytes(1024)
REQUESTS = 2_000
WINDOW = 5
"""Requests that a producer keeps in flight."""

APPLIED = 300_000
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

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        raise AssertionError("the broker closed the connection")


def _frame(number: int) -> bytes:
    """A Produce request of a Java client: a full batch for each partition."""
    records = [ClientRecord(0, 1_700_000_000_000, None, VALUE)] * RECORDS
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


async def produce() -> float:
    """CPU seconds a batch, from a frame in a buffer to the answer's bytes."""
    settings = msgspec.structs.replace(Settings(objects="memory://"), node=1)
    listener = Listener("PLAINTEXT", "localhost", 9092)
    node = Node(settings, MemoryLedger(), MemoryStore(), SystemClock(), SystemChance(), listeners=(listener,))
    await node.start()
    transport, connection = _Transport(), Connection(Server(node.broker), "PLAINTEXT")
    connection.connection_made(cast(asyncio.Transport, transport))
    topic = {"name": "t", "num_partitions": PARTITIONS, "replication_factor": 1}
    create = build(request_type(CREATE_TOPICS, 7), topics=[topic], timeout=5_000)
    await _exchange(connection, transport, [b"".join(encode_request(CREATE_TOPICS, 7, 0, "benchmark", create))])
    spent = 0.0
    for first in range(0, REQUESTS, WINDOW):
        frames = [_frame(number) for number in range(first, first + WINDOW)]
        before = time.process_time()
        await _exchange(connection, transport, frames)
        if first:  # the first round warms up
            spent += time.process_time() - before
    await node.stop()
    return spent / ((REQUESTS - WINDOW) * PARTITIONS)


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
    kernels.compile_kernels()
    print(f"produce, {PARTITIONS} partitions: {1e6 * uvloop.run(produce()):.1f} us of CPU a batch")
    for batches in (1, 12, 50):
        seconds = apply(batches)
        print(f"apply, {batches} batches a record: {seconds * 1e6:.2f} us a batch, {1 / seconds:,.0f} batches/s")


if __name__ == "__main__":
    main()
