"""What requests of one connection cost, beside an earlier build: ``python -m benchmarks.connections --before DIR``.

DIR is a work tree of the earlier build. Processes of both alternate, because neighbours of a busy machine come and go.
Each has the real connection, handlers, writer, replica and state machine, on a ledger in memory and a store that keeps
nothing, and measures its own CPU seconds. A ratio is the rate of this build by that of the earlier one: above 1 this
one is faster. It is that of the quickest processes. Only what both builds have is imported.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import uvloop

from headwater.app.node import Node
from headwater.broker import handlers as _registered  # noqa: F401 - fills the registry
from headwater.broker.net.connection import Connection
from headwater.broker.net.server import Server
from headwater.client.records import Record, encode_batch
from headwater.clock import SystemChance, SystemClock
from headwater.ledger.memory import MemoryLedger
from headwater.objects.memory import MemoryStore
from headwater.settings.settings import Settings
from headwater.state.commands.cluster import Listener
from headwater.types import Pieces
from headwater.wire.build import build
from headwater.wire.messages import encode_request, request_type

ROOT = Path(__file__).parent.parent
PARTITIONS = 12
PAIRS = 10
WARM, MEASURED = 40, 200
"""Windows of requests of one process and kind."""
PRODUCE, FETCH, LIST_OFFSETS, METADATA, COMMIT, COMMITTED, COORDINATOR, CREATE_TOPICS = 0, 1, 2, 3, 8, 9, 10, 19
Asked = tuple[int, int, dict[str, Any]]


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


class _NoStore(MemoryStore):
    """Keeps nothing."""

    async def put(self, path: str, pieces: Pieces) -> None: ...


def _append(number: int, partitions: int, value: bytes, records: int) -> Asked:
    batch = [Record(0, SystemClock().wall_ms(), None, value)] * records
    data = encode_batch(batch, producer_id=1_000, producer_epoch=0, base_sequence=number * records)
    parts = [{"index": p, "records": data} for p in range(partitions)]
    return PRODUCE, 9, {"acks": -1, "timeout": 30_000, "topic_data": [{"name": "t", "partition_data": parts}]}


def _of_partition(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "t", "topic": "t", "partitions": [{"partition_index": 1, "partition": 1, **fields}]}]


def _mixed(number: int) -> list[Asked]:
    """What an application that reads, writes and commits asks on one connection."""
    return [
        _append(number, 1, bytes(100), 1),
        (METADATA, 12, {"topics": [{"name": "t", "topic_id": None}], "allow_auto_topic_creation": False}),
        (LIST_OFFSETS, 7, {"topics": _of_partition(timestamp=-1)}),
        (FETCH, 11, {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "session_epoch": -1,
                     "topics": _of_partition(fetch_offset=0, partition_max_bytes=1000)}),
        (COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]}),
        (COMMIT, 8, {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
                     "topics": _of_partition(committed_offset=number)}),
        (COMMITTED, 8, {"groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [1]}]}]}),
    ]  # fmt: skip


def _windows(kind: str) -> Iterator[list[Asked]]:
    """Requests that come in one write."""
    for number in itertools.count():
        match kind:
            case "produce of 12 batches":
                yield [_append(2 * number + i, PARTITIONS, bytes(1024), 15) for i in range(2)]
            case "produce of one record":
                yield [_append(10 * number + i, 1, bytes(100), 1) for i in range(10)]
            case "mixed, in one write":
                yield _mixed(number)
            case "mixed, one at a time":
                yield [_mixed(number // len(MIXED))[number % len(MIXED)]]


MIXED = _mixed(0)
KINDS = ("produce of 12 batches", "produce of one record", "mixed, in one write", "mixed, one at a time")


def _encoded(asked: list[Asked]) -> bytes:
    frames = (encode_request(k, v, 1, "benchmark", build(request_type(k, v), **fields)) for k, v, fields in asked)
    return b"".join(itertools.chain.from_iterable(frames))


async def _exchange(connection: Connection, transport: _Transport, data: bytes) -> None:
    """Send requests in one write and wait until all are answered."""
    at = 0
    while at < len(data):
        buffer = connection.get_buffer(-1)
        size = min(len(buffer), len(data) - at)
        buffer[:size] = data[at : at + size]
        connection.buffer_updated(size)
        at += size
    while not connection.idle:
        transport.answered.clear()
        await transport.answered.wait()


async def _cost(kind: str) -> float:
    """CPU microseconds a request, from bytes in a buffer to the bytes of the answer."""
    settings = msgspec.structs.replace(Settings(objects="memory://"), node=1)
    listener = Listener("PLAINTEXT", "localhost", 9092)
    node = Node(settings, MemoryLedger(), _NoStore(), SystemClock(), SystemChance(), listeners=(listener,))
    await node.start()
    transport, connection = _Transport(), Connection(Server(node.broker), "PLAINTEXT")
    connection.connection_made(cast(asyncio.Transport, transport))
    topic = {"name": "t", "num_partitions": PARTITIONS, "replication_factor": 1}
    await _exchange(connection, transport, _encoded([(CREATE_TOPICS, 7, {"topics": [topic], "timeout": 5_000})]))
    spent = []
    rounds = 1 if kind != KINDS[-1] else len(MIXED)
    for number, asked in enumerate(itertools.islice(_windows(kind), rounds * (WARM + MEASURED))):
        data = _encoded(asked)
        began = time.process_time()
        await _exchange(connection, transport, data)
        if number >= rounds * WARM:
            spent.append((time.process_time() - began) / len(asked))
    await node.stop()
    if rounds > 1:
        spent = [statistics.mean(spent[at : at + rounds]) for at in range(0, len(spent), rounds)]
    return statistics.quantiles(spent, n=10)[0] * 1e6  # the neighbours of a busy machine are not ours


def _child(tree: Path) -> dict[str, float]:
    """The costs of one build, measured by a process of its own."""
    variables = {**os.environ, "PYTHONPATH": str(tree / "src")}
    found = subprocess.run([sys.executable, "-P", __file__], check=True, capture_output=True, env=variables, cwd=tree)
    return cast(dict[str, float], json.loads(found.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="a work tree of the earlier build")
    parser.add_argument("--now", type=Path, default=ROOT, help="a work tree of the later build; by default this one")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="how many processes of each build are run")
    options = parser.parse_args()
    if options.before is None:
        print(json.dumps({kind: uvloop.run(_cost(kind)) for kind in KINDS}))
        return
    trees = [options.before.absolute(), options.now.absolute()]
    costs: dict[Path, list[dict[str, float]]] = {tree: [] for tree in trees}
    for number in range(options.pairs):
        for tree in trees if number % 2 else reversed(trees):
            costs[tree].append(_child(tree))
    for kind in KINDS:
        before, after = ([one[kind] for one in costs[tree]] for tree in trees)
        ratios = sorted(b / a for b, a in zip(before, after, strict=True))
        print(
            f"{kind}: {min(before):.0f} µs of CPU a request before, {min(after):.0f} now; "
            f"rate {min(before) / min(after):.3f} (of pairs {ratios[0]:.3f} to {ratios[-1]:.3f})"
        )


if __name__ == "__main__":
    main()
