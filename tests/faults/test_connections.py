"""Thousands of idle connections and hundreds of busy ones on one broker: little memory for each, and a turn for all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest
from kio.schema.errors import ErrorCode

from headwater.client.connection import Connection, connect
from tests.faults.raw import PRODUCE, fresh
from tests.support.running import Running

PROMISES = ("L9",)

IDLE, BUSY, ROUNDS = 2_000, 200, 40
AT_ONCE = 100
MAX_BYTES_PER_IDLE = 100_000
PRODUCE_VERSION = 9
MIN_SHARE = 0.25
"""When half of all requests are answered, everybody has had at least this part of the average."""


async def opened(port: int, count: int) -> list[Connection]:
    """Connections that have done their handshake."""
    made: list[Connection] = []
    while len(made) < count:
        some = min(AT_ONCE, count - len(made))
        made += await asyncio.gather(*(connect("127.0.0.1", port, "crowd", 60) for _ in range(some)))
    return made


async def produce(connection: Connection, value: bytes) -> None:
    parts = [{"name": "busy", "partition_data": [{"index": 0, "records": fresh([value])}]}]
    answer = await connection.request(
        PRODUCE, 60, newest=PRODUCE_VERSION, acks=-1, timeout=30_000, topic_data=parts, transactional_id=None
    )
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none


async def crowd(port: int, broker: psutil.Process) -> tuple[float, list[int]]:
    """The memory that an idle connection takes, and how many turns each busy one had when half were over."""
    busy = await opened(port, BUSY)
    await asyncio.gather(*(produce(connection, b"warm") for connection in busy))
    before = broker.memory_info().rss
    idle = await opened(port, IDLE)
    each = (broker.memory_info().rss - before) / IDLE
    turns = [0] * BUSY
    half: list[int] = []

    async def work(number: int) -> None:
        for _ in range(ROUNDS):
            await produce(busy[number], b"x" * 100)
            turns[number] += 1
            if not half and sum(turns) >= BUSY * ROUNDS // 2:
                half.extend(turns)

    await asyncio.gather(*(work(number) for number in range(BUSY)))
    assert not any(connection.closed for connection in idle), "idle connections stay open"
    for connection in (*busy, *idle):
        await connection.close()
    return each, half


@pytest.mark.timeout(240)
def test_idle_connections_are_cheap_and_busy_ones_get_their_turns(tmp_path: Path) -> None:
    with Running(tmp_path) as server:
        server.create("busy")
        each, half = asyncio.run(crowd(server.port, server.broker(1)))
        print(f"{each / 1000:.1f} kB an idle connection; turns at half time {min(half)} to {max(half)}")
        assert each < MAX_BYTES_PER_IDLE
        assert min(half) >= MIN_SHARE * sum(half) / BUSY
