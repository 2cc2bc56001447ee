"""What the hot paths cost without a network: ``python -m benchmarks.paths``, or ``make bench-paths``.

The real handlers, writer, replica and state machine: once in one thread, on a ledger in memory and a store that keeps
nothing, and once on the disk. Batches with and without a transaction are measured side by side, in slices that
alternate, because neighbours of a busy machine come and go.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import uvloop
from crc32c import crc32c

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
from headwater.log.batch import CRC_FROM
from headwater.log.kernels import switch
from headwater.objects import ObjectStore, open_store
from headwater.objects.memory import MemoryStore
from headwater.settings.settings import Settings
from headwater.state.commands.base import SetLevel
from headwater.state.commands.cluster import Listener
from headwater.state.commands.streams import (
    AppendUnits,
    AppendWal,
    Chunk,
    CreateStreams,
    Mode,
    StreamConfig,
    Unit,
    UnitChunk,
)
from headwater.state.commands.transactions import EndTransaction, InitTransaction
from headwater.state.machine import LEVEL
from headwater.state.records import Record, encode_command
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
PRODUCE, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 19, 22
ID, PRODUCER, LASTING_MS = "benchmark", 7, 900_000
"""A transaction, which stays open while batches are measured."""
SLICES = 25
CRC_AT, ATTRIBUTES_AT, TRANSACTIONAL = CRC_FROM - 4, CRC_FROM + 1, 0x10
ENDS = 20_000


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


def _frame(number: int, transaction: tuple[int, int] | None = None) -> bytes:
    """A Produce request of a Java client: a full batch for each partition, perhaps of a transaction's producer."""
    records = [ClientRecord(0, STARTED_MS, None, VALUE)] * RECORDS
    producer, epoch = transaction or (1_000, 0)
    data = encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=number * RECORDS)
    if transaction is not None:
        marked = bytearray(data)
        marked[ATTRIBUTES_AT] |= TRANSACTIONAL
        marked[CRC_AT:CRC_FROM] = crc32c(bytes(marked[CRC_FROM:])).to_bytes(4, "big")
        data = bytes(marked)
    partitions = [{"index": p, "records": data} for p in range(PARTITIONS)]
    body = build(
        request_type(PRODUCE, 12),
        transactional_id=ID if transaction is not None else None,
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


async def produce(ledger: Ledger, store: ObjectStore, window: int) -> tuple[float, float]:
    """CPU seconds a batch, from a frame in a buffer to the answer's bytes: without and with a transaction."""
    settings = msgspec.structs.replace(Settings(objects="memory://"), node=1)
    listener = Listener("PLAINTEXT", "localhost", 9092)
    node = Node(settings, ledger, store, SystemClock(), SystemChance(), listeners=(listener,))
    await node.start()
    transport, connection = _Transport(), Connection(Server(node.broker), "PLAINTEXT")
    connection.connection_made(cast(asyncio.Transport, transport))
    topic = {"name": "t", "num_partitions": PARTITIONS, "replication_factor": 1}
    create = build(request_type(CREATE_TOPICS, 7), topics=[topic], timeout=5_000)
    await _exchange(connection, transport, [b"".join(encode_request(CREATE_TOPICS, 7, 0, "benchmark", create))])
    init = build(request_type(INIT_PRODUCER_ID, 4), transactional_id=ID, transaction_timeout=LASTING_MS)
    await _exchange(connection, transport, [b"".join(encode_request(INIT_PRODUCER_ID, 4, 0, "benchmark", init))])
    started = node.broker.transactions.replica.state.transactions.get(ID)
    assert started is not None
    spent: dict[bool, list[float]] = {False: [], True: []}
    for first, transactional in itertools.product(range(0, REQUESTS, window), (False, True)):
        producer = (started.producer, started.epoch) if transactional else None
        frames = [_frame(number, producer) for number in range(first, first + window)]
        before = time.process_time()
        await _exchange(connection, transport, frames)
        if first:  # the first round warms up
            spent[transactional].append((time.process_time() - before) / (window * PARTITIONS))
    assert started.open and len(started.streams) == PARTITIONS
    await node.stop()
    # The neighbours of a busy machine are not ours.
    return statistics.quantiles(spent[False], n=10)[0], statistics.quantiles(spent[True], n=10)[0]


async def _on_disk(directory: str, window: int) -> tuple[float, float]:
    return await produce(
        open_ledger(f"sqlite://{directory}/ledger.db"), open_store(f"file://{directory}/objects"), window
    )


def _streams(names: range) -> StreamsState:
    """A domain with streams and an open transaction."""
    state = StreamsState(Domain(1))
    create = CreateStreams(uuid.UUID(int=1), 0, tuple(names), StreamConfig(append_time=False))
    init = InitTransaction(ID, LASTING_MS, PRODUCER, -1, -1)
    state.apply(Position(1), Record(1, 1, 1, 1, [SetLevel(LEVEL, ""), create, init]))
    return state


def _command(number: int, batches: int, streams: range, transactional: bool) -> AppendWal | AppendUnits:
    """An object with so many batches of one producer, each of another stream."""
    chunks = [
        Chunk(
            streams[(number * batches + i) % len(streams)],
            100 + 1_100 * i,
            [(1_000, 10, 1_700_000_000_000)],
            [(PRODUCER, 0, (number * batches + i) // len(streams) * 10)],
        )
        for i in range(batches)
    ]
    size = 200 + 1_100 * batches
    if not transactional:
        return AppendWal(number + 1, size, 1_700_000_000_000, "zone", chunks)
    joins = bytes([Mode.JOINS])
    unit = Unit([], [UnitChunk(c.stream, c.position, c.batches, c.producers, joins) for c in chunks])
    return AppendUnits(number + 1, size, 1_700_000_000_000, "zone", [unit])


def _side_by_side(batches: int, cost: Callable[[bool, int, int], float]) -> tuple[float, float]:
    """Medians of CPU seconds a batch without and with a transaction, over slices of records that alternate."""
    step = APPLIED // batches // SLICES
    spent: dict[bool, list[float]] = {False: [], True: []}
    for first, transactional in itertools.product(range(0, SLICES * step, step), (False, True)):
        spent[transactional].append(cost(transactional, first, first + step) / (step * batches))
    return statistics.median(spent[False]), statistics.median(spent[True])


def apply(batches: int) -> tuple[float, float]:
    """CPU seconds a batch when records of one object with so many batches are applied, one producer a stream."""
    streams = range(1, 1_001)
    states = {transactional: _streams(streams) for transactional in (False, True)}

    def cost(transactional: bool, first: int, last: int) -> float:
        state = states[transactional]
        records = [
            Record(1, number + 2, 1_700_000_000_000, 1, [_command(number, batches, streams, transactional)])
            for number in range(first, last)
        ]
        began = time.process_time()
        for position, record in enumerate(records, first + 2):
            state.apply(Position(position), record)
        return time.process_time() - began

    return _side_by_side(batches, cost)


def encode(batches: int) -> tuple[float, float]:
    """CPU seconds a batch when the command of an object with so many batches is encoded."""
    commands = {transactional: _command(0, batches, range(1, 1_001), transactional) for transactional in (False, True)}

    def cost(transactional: bool, first: int, last: int) -> float:
        began = time.process_time()
        for _ in range(first, last):
            encode_command(commands[transactional])
        return time.process_time() - began

    return _side_by_side(batches, cost)


def sizes(batches: int) -> tuple[int, int]:
    """Bytes of the command of an object with so many batches."""
    plain, units = (
        len(memoryview(encode_command(_command(0, batches, range(1, 1_001), transactional))))
        for transactional in (False, True)
    )
    return plain, units


def end(streams: int) -> tuple[float, int]:
    """CPU seconds of the end of a transaction with a batch in each of so many streams, and the bytes of its command."""
    names = range(1, streams + 1)
    state = _streams(names)
    spent, command = [], EndTransaction(ID, PRODUCER, 0, True, False, -1)
    for number in range(ENDS // streams):
        append = _command(number, streams, names, True)
        state.apply(Position(2 * number + 2), Record(1, 2 * number + 2, 1_700_000_000_000, 1, [append]))
        record = Record(1, 2 * number + 3, 1_700_000_000_000, 1, [command])
        began = time.process_time()
        state.apply(Position(2 * number + 3), record)
        spent.append(time.process_time() - began)
    return statistics.median(spent), len(memoryview(encode_command(command)))


def _say(title: str, plain: float, transactional: float) -> None:
    ratio = transactional / plain
    print(f"{title}: {plain * 1e6:.2f} us a batch, {transactional * 1e6:.2f} us in a transaction ({ratio:.2f})")


def main() -> None:
    switch.compile_kernels()
    BUILD.mkdir(exist_ok=True)
    for window in WINDOWS:
        title = f"produce, {window * PARTITIONS} batches a flush"
        _say(f"{title}, nothing stored", *uvloop.run(produce(MemoryLedger(), _NoStore(), window)))
        with tempfile.TemporaryDirectory(dir=BUILD) as directory:
            _say(f"{title}, to the disk", *uvloop.run(_on_disk(directory, window)))
    for batches in (1, 12, 50):
        _say(f"apply, {batches} batches a record", *apply(batches))
        _say(f"encode, {batches} batches a record", *encode(batches))
        plain, transactional = sizes(batches)
        print(f"a command with {batches} batches: {plain} bytes, {transactional} bytes in a transaction")
    for streams in (1, 12, 100):
        seconds, size = end(streams)
        print(f"the end of a transaction in {streams} streams: {seconds * 1e6:.1f} us, a command of {size} bytes")


if __name__ == "__main__":
    main()
