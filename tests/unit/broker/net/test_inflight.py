"""Bytes of Produce requests count until every batch is decided, also after a time-out or a lost connection."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, cast
from unittest.mock import Mock

import pytest

from headwater.app.node import Node
from headwater.broker.net.connection import Connection
from headwater.broker.net.server import Server
from headwater.log.write.writer import Writer
from headwater.settings.settings import Limits, Profile, Settings, Wal
from headwater.wire.build import build
from headwater.wire.messages import encode_request, request_type
from tests.support.batches import Rec, batch, values
from tests.support.nodes import Caller, cluster
from tests.support.promise import promise
from tests.support.virtual_nodes import CountingStore
from tests.unit.broker.calling import NOW, create, fetch

PROMISES = ("S4",)

PRODUCE = 0
KB = 1 << 10
PROFILE = Profile(object_bytes=64 * KB, min_interval_ms=0, gather_ms=0, flushes=2)
LIMIT = 1024 * KB
SETTINGS = Settings(
    objects="memory://", limits=Limits(broker_inflight_bytes=LIMIT), wal=Wal(latency=PROFILE, cost=PROFILE)
)


def run(test: Callable[[Caller, CountingStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = CountingStore()
        async with cluster(1, SETTINGS, store=store) as [one]:
            try:
                async with asyncio.timeout(30):
                    await test(one, store)
            finally:
                store.gate.set()

    asyncio.run(main())


def frame(number: int, size: int = 60 * KB, acks: int = -1, timeout: int = 20, topic: str = "t") -> bytes:
    records = batch([Rec(b"%d-" % number + bytes(size), timestamp=NOW)])
    parts = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    body = build(request_type(PRODUCE, 9), acks=acks, timeout=timeout, topic_data=parts)
    return b"".join(encode_request(PRODUCE, 9, number, "test", body))


def opened(server: Server) -> tuple[Connection, Mock]:
    transport = Mock(**{"is_closing.return_value": False, "get_write_buffer_size.return_value": 0})
    transport.get_extra_info.return_value = ("192.0.2.7", 4711)
    connection = Connection(server, "PLAINTEXT")
    connection.connection_made(cast(asyncio.Transport, transport))
    return connection, transport


def send(connection: Connection, data: bytes) -> None:
    at = 0
    while at < len(data):
        buffer = connection.get_buffer(-1)
        size = min(len(buffer), len(data) - at)
        buffer[:size] = data[at : at + size]
        connection.buffer_updated(size)
        at += size


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition; the time limit of `run` bounds the wait."""
    while not condition():
        await asyncio.sleep(0.001)


def held(node: Node) -> int:
    """The bytes of batches that the writers really have."""

    def of(writer: Writer) -> int:
        flushing = [task.get_coro().cr_frame for task in writer._flushes]  # type: ignore[union-attr]
        stored = sum(running.f_locals["flush"].size for running in flushing if running is not None)
        return stored + sum(len(part.batch.data) for part in writer._queue)

    return sum(of(writer) for writer in node.writers.all())


async def numbers(one: Caller) -> list[int]:
    found = await fetch(one, 0)
    return [int(v.split(b"-")[0]) for _, v in values(found.records or b"") if v is not None]


def test_requests_that_time_out_against_a_stalled_store() -> None:
    """What was answered is dropped; what is being stored counts until the store goes on."""

    async def test(one: Caller, store: CountingStore) -> None:
        await create(one)
        budget, node = one.node.broker.budget, one.node
        connection, _ = opened(Server(one.node.broker))
        store.gate.clear()
        for number in range(6):
            send(connection, frame(number, timeout=400))
            await asyncio.sleep(0)
            assert budget.used == sum(len(frame(n)) - 4 for n in range(number + 1))
        await until(lambda: connection.idle)
        assert budget.used == held(node) > 100 * KB, "two objects are on their way"
        send(connection, frame(6))
        await until(lambda: connection.idle)
        assert budget.used == held(node) < 130 * KB
        store.gate.set()
        await until(lambda: not budget.used)
        assert await numbers(one) == [0, 1]

    run(test)


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_lost_connection_is_no_answer(acks: int) -> None:
    """Its batches are written all the same, long after the time limit of the request; until then they count."""

    async def test(one: Caller, store: CountingStore) -> None:
        await create(one)
        budget = one.node.broker.budget
        connection, _ = opened(Server(one.node.broker))
        store.gate.clear()
        for number in range(5):
            send(connection, frame(number, acks=acks, timeout=1))
        connection.connection_lost(None)
        for _ in range(20):
            await asyncio.sleep(0.001)
            assert budget.used == held(one.node) > 5 * 60 * KB
        store.gate.set()
        await until(lambda: not budget.used)
        assert await numbers(one) == list(range(5))

    run(test)


def test_a_request_that_waits_for_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts meanwhile, and goes on without its connection; after its time limit it does not."""

    async def test(one: Caller, store: CountingStore) -> None:
        budget, cluster_replica = one.node.broker.budget, one.node.cluster
        waiting = asyncio.Event()
        barrier = cluster_replica.barrier

        async def slow() -> None:
            await waiting.wait()
            await barrier()

        monkeypatch.setattr(cluster_replica, "barrier", slow)
        connection, _ = opened(Server(one.node.broker))
        send(connection, frame(0, timeout=5))
        await until(lambda: connection.idle)
        assert budget.used > 60 * KB, "the answered request is still in memory"
        send(connection, frame(1, acks=0))
        connection.connection_lost(None)
        assert budget.used > 120 * KB
        waiting.set()
        await create(one)
        await until(lambda: not budget.used)
        assert await numbers(one) in ([], [1]), "written if the topic came in time"

    run(test)


@promise("K3")
def test_no_request_overtakes_one_that_waits_for_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic becomes known before the first request goes on."""

    async def test(one: Caller, store: CountingStore) -> None:
        budget, replica = one.node.broker.budget, one.node.cluster
        waiting, barrier = asyncio.Event(), replica.barrier

        async def slow() -> None:
            await waiting.wait()
            await barrier()

        connection, _ = opened(Server(one.node.broker))
        with monkeypatch.context() as patched:
            patched.setattr(replica, "barrier", slow)
            for number in range(3):
                send(connection, frame(number, 100, timeout=20_000))
            await asyncio.sleep(0)
        await create(one)
        for number in range(3, 6):
            send(connection, frame(number, 100, timeout=20_000))
        await asyncio.sleep(0)
        waiting.set()
        await until(lambda: connection.idle and not one.node.broker.deferred)
        assert await numbers(one) == list(range(6)) and budget.used == 0

    run(test)


def test_counted_and_real_bytes_never_exceed_the_limit() -> None:
    """Clients that send again after each time-out, over real sockets, to a store that hangs."""

    async def test(one: Caller, store: CountingStore) -> None:
        await create(one)
        budget, node = one.node.broker.budget, one.node
        server = Server(one.node.broker)
        port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
        store.gate.clear()
        size, sent, most = len(frame(0)), 0, 0

        async def client(first: int) -> None:
            nonlocal sent
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for number in range(first, first + 40):
                last = number % 8 == 7
                writer.write(frame(number, acks=0 if last else -1))
                sent += size
                await writer.drain()
                if last:  # of this connection; then comes its successor
                    writer.close()
                    with contextlib.suppress(ConnectionError):
                        await writer.wait_closed()
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                else:
                    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            writer.close()

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, budget.used, held(node))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        clients = [asyncio.create_task(client(1000 * i)) for i in range(8)]
        await until(lambda: budget.exceeded or all(task.done() for task in clients))
        assert held(node) <= budget.used
        store.gate.set()
        await asyncio.gather(*clients)
        await until(lambda: not held(node))
        watching.cancel()
        await server.drain(0)
        assert sent > 4 * LIMIT
        assert LIMIT // 2 < most <= LIMIT + 2 * size, "reading stops at the limit, with a request in hand"
        assert budget.used == 0

    run(test)
