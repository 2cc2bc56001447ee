"""Batches of 2 KB that open to 60 MB each: what other clients notice, and what memory it takes.

python -m tests.soak.bombs --attackers 4 --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from contextlib import suppress
from typing import Any

import psutil
import uvloop

from headwater.client.client import Client
from headwater.client.model import NewTopic
from headwater.client.records import Record, encode_batch
from headwater.wire.build import build
from headwater.wire.codecs import ZSTD
from headwater.wire.messages import decode_response, encode_request, request_type
from tests.soak.common import Verdict, progress, workplace
from tests.support.running import Running

PROMISES = ("S4",)

PRODUCE, METADATA = 0, 3
BATCHES = 100
OPENED = 60 << 20
NORMAL_RECORDS = 100
EVERY_S = 0.02
QUIET_S = 15.0
P99_S = 0.5
"""Of other clients, on two cores that also run the attackers and the two threads that open."""
LONGEST_S = 3.0
GROWTH = 512 << 20
"""What memory may grow by: a huge batch and its copy in a codec, requests under way, and what the allocator keeps."""


class Peer:
    """A connection that sends requests one after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._number = 0

    @classmethod
    async def open(cls, bootstrap: str) -> Peer:
        host, port = bootstrap.rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port)))

    async def call(self, key: int, version: int, **fields: Any) -> Any:
        self._number += 1
        body = build(request_type(key, version), **fields)
        self._writer.writelines(encode_request(key, version, self._number, "soak", body))
        await self._writer.drain()
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return decode_response(key, version, memoryview(await self._reader.readexactly(size)))[1]

    def close(self) -> None:
        self._writer.close()


def produce_fields(topic: str, data: bytes, partitions: int) -> dict[str, Any]:
    parts = [{"index": i, "records": data} for i in range(partitions)]
    return {"acks": -1, "timeout": 30_000, "topic_data": [{"name": topic, "partition_data": parts}]}


async def attack(bootstrap: str, opened: list[int]) -> None:
    """Bombs, request after request."""
    now = int(time.time() * 1000)
    bomb = encode_batch([Record(0, now, None, bytes(OPENED))], codec=ZSTD)
    fields = produce_fields("bombs", bomb, BATCHES)
    while True:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            peer = await Peer.open(bootstrap)
            while True:
                answer = await peer.call(PRODUCE, 9, **fields)
                opened[0] += sum(not p.error_code.value for p in answer.responses[0].partition_responses)


async def normal(bootstrap: str, seconds: float) -> list[float]:
    """How long the requests of a usual client took: compressed batches, and metadata."""
    peer = await Peer.open(bootstrap)
    found: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        now = int(time.time() * 1000)
        records = [Record(0, now, b"key", b"value of a usual client, %d" % i) for i in range(NORMAL_RECORDS)]
        data = encode_batch(records, codec=ZSTD)
        for key, fields in ((PRODUCE, produce_fields("usual", data, 1)), (METADATA, {"topics": [{"name": "usual"}]})):
            began = time.perf_counter()
            answer = await peer.call(key, 9, **fields)
            found.append(time.perf_counter() - began)
            if key == PRODUCE:
                [result] = answer.responses[0].partition_responses
                assert not result.error_code.value, result
        await asyncio.sleep(EVERY_S)
    peer.close()
    return found


def p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]


async def soak(server: Running, attackers: int, seconds: float, verdict: Verdict) -> None:
    bootstrap = server.bootstrap.split(",")[0]
    client = Client(bootstrap)
    try:
        await client.create_topics([NewTopic("bombs", BATCHES), NewTopic("usual", 1)])
    finally:
        await client.close()
    memory = psutil.Process(server.broker(1).pid).memory_info
    with progress() as bar:
        task = bar.add_task("phases", total=2, now="quiet")
        await normal(bootstrap, QUIET_S / 3)
        quiet = await normal(bootstrap, QUIET_S)
        before = most = memory().rss
        bar.update(task, advance=1, now="attack")
        opened = [0]
        attacks = [asyncio.create_task(attack(bootstrap, opened)) for _ in range(attackers)]
        attacked = asyncio.create_task(normal(bootstrap, seconds))
        while not attacked.done():
            most = max(most, memory().rss)
            await asyncio.sleep(0.2)
        for one in attacks:
            one.cancel()
        await asyncio.gather(*attacks, return_exceptions=True)
        bar.update(task, advance=1, now="done")
    disturbed = await attacked
    verdict.fact("bombs that were opened", opened[0])
    verdict.fact("p99 before, s", p99(quiet))
    verdict.rule("p99 during the attack, s", p99(disturbed), P99_S)
    verdict.rule("longest request of another client, s", max(disturbed), LONGEST_S)
    verdict.rule("memory grew by, MB", (most - before) / 1e6, GROWTH / 1e6)
    verdict.floor("bombs", float(opened[0]), 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attackers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    verdict = Verdict(f"{options.attackers} connections that send batches of {OPENED >> 20} MB in 2 KB")
    with workplace("bombs") as directory, Running(directory) as server:
        uvloop.run(soak(server, options.attackers, options.seconds, verdict))
    verdict.leave()


if __name__ == "__main__":
    main()
