"""Connections on a real listener: idle ones end, unread answers have a budget, refusals are counted."""

import asyncio

import pytest

from headwater.broker.net import server as net_server
from headwater.broker.net.connection import Connection
from tests.support.batches import batch
from tests.unit.broker.calling import create, produce, recs
from tests.unit.broker.handlers.admin.test_quotas import METADATA, Link, Served, served

PROMISES = ("S4",)

FETCH = 1
MB = 1 << 20


def test_idle_connections_are_closed_and_waiting_ones_are_not() -> None:
    """`connections.max.idle.ms`: a client that waits for records is not idle."""

    async def main() -> None:
        async with served(idle_ms=300) as broker:
            await create(broker.caller)
            idle, waiting = await broker.connect(), await broker.connect()
            waiting.send(FETCH, 11, **fetching(max_wait=20_000))
            assert (await idle.ask(METADATA, 12, topics=[])).brokers
            assert await idle.ended()
            assert broker.caller.node.broker.stats.refusals == {"idle": 1}
            await produce(broker.caller, batch(recs(b"x")))
            answer = await waiting.answer(FETCH, 11)
            assert answer.responses[0].partitions[0].records

    asyncio.run(main())


def fetching(**more: int) -> dict[str, object]:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 8 * MB}
    topics = [{"topic": "t", "partitions": [wanted]}]
    limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 8 * MB, "session_epoch": -1}
    return {"topics": topics, **limits, **more}


async def unread(broker: Served, count: int) -> list[Link]:
    """Clients that ask for much and read nothing."""
    links = []
    for _ in range(count):
        link = await broker.connect()
        for _ in range(4):
            link.send(FETCH, 11, **fetching())
        links.append(link)
    return links


def test_clients_that_do_not_read_are_closed_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net_server, "SLOW_PAUSE_SECONDS", 0.01)
    most = 0
    measure = Connection.measure

    def measured(connection: Connection) -> None:
        nonlocal most
        measure(connection)
        most = max(most, connection._responses.bytes)

    monkeypatch.setattr(Connection, "measure", measured)

    async def main() -> None:
        async with served(broker_response_bytes=8 * MB, stalled_ms=300) as broker:
            await create(broker.caller, max_message_bytes=str(4 * MB))
            for _ in range(2):
                await produce(broker.caller, batch(recs(b"x" * 3 * MB)))
            responses = broker.caller.node.broker.responses
            slow = await unread(broker, 12)
            while not responses.level:
                await asyncio.sleep(0)
            reader = await broker.connect()
            answer = await reader.ask(FETCH, 11, **fetching())
            assert answer.responses[0].partitions[0].records
            while responses.level:
                await asyncio.sleep(0.01)  # the time-out of stalled connections is short
            refusals = broker.caller.node.broker.stats.refusals
            assert refusals["response_bytes"] >= 1
            assert (await reader.ask(METADATA, 12, topics=[])).brokers
            assert most <= 2 * 8 * MB + 12 * 4 * MB, "one answer each beyond the limit"
            for link in slow:
                link.close()

    asyncio.run(main())
