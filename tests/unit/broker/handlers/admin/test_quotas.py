"""Quotas are set and told as in Apache Kafka, and hold."""

from __future__ import annotations

import asyncio
import contextlib
import math
import struct
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from headwater.broker.net.server import Server
from headwater.settings.settings import Quotas, Settings
from headwater.state.commands.cluster import AlterQuota
from headwater.wire.build import build
from headwater.wire.messages import decode_response, encode_request, request_type
from tests.support.batches import batch
from tests.support.nodes import Caller, cluster
from tests.support.promise import promise
from tests.unit.broker.calling import CREATE, create, recs, run

PROMISES = ("K14",)

DESCRIBE, ALTER, DELETE, PARTITIONS, METADATA = 48, 49, 20, 37, 3
RATE = "producer_byte_rate"
NONE, INVALID = ErrorCode.none, ErrorCode.invalid_request
Named = list[tuple[str, str | None]]


async def alter(node: Caller, entity: Named, *operations: tuple[str, float | None], dry: bool = False) -> Any:
    """Set quotas, or remove those without a value."""
    wanted = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in operations],
    }
    [answer] = (await node(ALTER, 1, entries=[wanted], validate_only=dry)).entries
    return answer


async def describe(node: Caller, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    wanted = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
    response = await node(DESCRIBE, 1, components=wanted, strict=strict)
    if response.error_code is not NONE:
        assert response.entries is None
        return response.error_code
    return {
        tuple((e.entity_type, e.entity_name) for e in entry.entity): {v.key: v.value for v in entry.values}
        for entry in response.entries
    }


@promise("K14")
def test_set_described_and_removed() -> None:
    """With Kafka's filters; every broker knows them."""

    async def test(one: Caller, two: Caller) -> None:
        entities: list[Named] = [
            [("user", "u")],
            [("user", None)],
            [("client-id", "c"), ("user", "u")],
            [("client-id", None), ("user", "u")],
            [("client-id", "c")],
        ]
        for i, entity in enumerate(entities):
            assert (await alter(one, entity, (RATE, i + 1.0))).error_code is NONE
        assert (await alter(one, [("ip", "127.0.0.1")], ("connection_creation_rate", 10.0))).error_code is NONE
        everything = await describe(two)
        assert everything == {
            **{tuple(entity): {RATE: i + 1.0} for i, entity in enumerate(entities)},
            (("ip", "127.0.0.1"),): {"connection_creation_rate": 10.0},
        }
        assert len(await describe(two, ("user", 0, "u"))) == 3
        assert list(await describe(two, ("user", 0, "u"), strict=True)) == [(("user", "u"),)]
        assert list(await describe(two, ("user", 1, None))) == [(("user", None),)]
        assert len(await describe(two, ("user", 2, None), strict=True)) == 2
        both = await describe(two, ("client-id", 2, None), ("user", 0, "u"), strict=True)
        assert sorted(both.values(), key=str) == [{RATE: 3.0}, {RATE: 4.0}]
        assert await describe(two, strict=True) == {}
        assert await describe(two, ("user", 0, "nobody")) == {}
        await alter(one, [("user", "u")], (RATE, 9.0), ("request_percentage", 1.5))
        assert await describe(two, ("user", 0, "u"), strict=True) == {
            (("user", "u"),): {RATE: 9.0, "request_percentage": 1.5}
        }
        await alter(one, [("user", "u")], (RATE, None), ("request_percentage", None), ("no", None))
        assert await describe(two, ("user", 0, "u"), strict=True) == {}
        await alter(one, [("user", "dry")], (RATE, 1.0), dry=True)
        assert await describe(two, ("user", 0, "dry")) == {}

    run(test, 2)


@promise("K14")
@pytest.mark.parametrize(
    ("entity", "operations", "text"),
    [
        ([("ip", "127.0.0.1")], [(RATE, 1.0)], "Invalid configuration key producer_byte_rate"),
        ([("ip", "nope")], [("connection_creation_rate", 1.0)], "nope is not a valid IP or resolvable host."),
        ([("ip", "10.0.0.1"), ("user", "u")], [("connection_creation_rate", 1.0)], "Invalid quota entity combination"),
        ([("user", "u")], [("connection_creation_rate", 1.0)], "Invalid configuration key connection_creation_rate"),
        ([("user", "u")], [("no", 1.0)], "Invalid configuration key no"),
        ([("user", "u")], [(RATE, -1.0)], "Quota producer_byte_rate must be greater than 0"),
        ([("user", "u")], [(RATE, math.nan)], "Quota producer_byte_rate must be greater than 0"),
        ([("user", "u")], [(RATE, 1.5)], "producer_byte_rate cannot be a fractional value."),
        ([("user", "u")], [(RATE, 1e30)], "Proposed value for producer_byte_rate is too large for a LONG."),
        ([("user", "u")], [("request_percentage", math.inf)], "too large"),
        ([("user", "")], [(RATE, 1.0)], "Empty user not supported"),
        ([("user", "u" * 1001)], [(RATE, 1.0)], "more than 1000 characters"),
        ([("group", "u")], [(RATE, 1.0)], "Unhandled client quota entity type: group"),
        ([], [(RATE, 1.0)], "Invalid empty client quota entity"),
        ([("user", "u")], [(RATE, 1.0), (RATE, 2.0)], "Duplicate"),
    ],
)
def test_refused_quotas(entity: Named, operations: list[tuple[str, float]], text: str) -> None:
    """And nothing is changed."""

    async def test(one: Caller) -> None:
        answer = await alter(one, entity, *operations)
        assert answer.error_code is INVALID
        assert text in answer.error_message
        assert one.node.cluster.state.resources.quotas == {}

    run(test)


@promise("K14")
@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", 0, "u"), ("user", 0, "v")], INVALID),
        ([("no", 0, "u")], ErrorCode.unsupported_version),
        ([("user", 9, "u")], INVALID),
        ([("user", 0, None)], INVALID),
        ([("user", 1, "u")], INVALID),
        ([("user", 2, "u")], INVALID),
        ([("", 0, "u")], INVALID),
        ([("ip", 2, None), ("user", 2, None)], INVALID),
    ],
)
def test_refused_filters(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    async def test(one: Caller) -> None:
        assert await describe(one, *components) is code

    run(test)


@promise("K14")
def test_changes_of_topics_are_limited() -> None:
    """Clients that know of it are refused (KIP-599), older ones only slowed down."""

    async def test(one: Caller) -> None:
        assert (await alter(one, [("client-id", "test")], ("controller_mutation_rate", 1.0))).error_code is NONE

        async def make(name: str, count: int, version: int = 7) -> tuple[ErrorCode, int]:
            wanted = [{"name": name, "num_partitions": count, "replication_factor": 1}]
            response = await one(CREATE, version, topics=wanted)
            return response.topics[0].error_code, response.throttle_time.total_seconds()

        assert await make("a", 5) == (NONE, 0)
        code, wait = await make("b", 100)
        assert code is NONE and wait > 0, "what is begun within the limit may go beyond it"
        code, wait = await make("c", 1)
        assert code is ErrorCode.throttling_quota_exceeded and wait > 0
        assert "c" not in one.node.cluster.state.names
        grown = await one(PARTITIONS, 3, topics=[{"name": "a", "count": 9, "assignments": None}], timeout=1000)
        assert grown.results[0].error_code is ErrorCode.throttling_quota_exceeded
        gone = await one(DELETE, 6, topics=[{"name": "a", "topic_id": None}], timeout=1000)
        assert gone.responses[0].error_code is ErrorCode.throttling_quota_exceeded
        assert len(one.node.cluster.state.names["a"].streams) == 5
        code, wait = await make("d", 1, version=5)
        assert code is NONE and wait > 0

    run(test)


# --- over sockets --------------------------------------------------------------------------------------------


class Link:
    """A client's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sent = 0

    def send(self, key: int, version: int, **fields: Any) -> None:
        self._sent += 1
        body = build(request_type(key, version), **fields)
        self._writer.writelines(encode_request(key, version, self._sent, "test", body))

    async def answer(self, key: int, version: int) -> Any:
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return decode_response(key, version, memoryview(await self._reader.readexactly(size)))[1]

    async def ask(self, key: int, version: int, **fields: Any) -> Any:
        self.send(key, version, **fields)
        return await self.answer(key, version)

    async def ended(self) -> bool:
        with contextlib.suppress(ConnectionError):
            return await self._reader.read() == b""
        return True

    def close(self) -> None:
        self._writer.close()


class Served:
    """A broker with sockets."""

    def __init__(self, caller: Caller, server: Server, port: int) -> None:
        self.caller = caller
        self.server = server
        self._port = port
        self._links: list[Link] = []

    async def connect(self) -> Link:
        link = Link(*await asyncio.open_connection("127.0.0.1", self._port))
        self._links.append(link)
        return link

    async def quota(self, key: str, value: float, kind: str = "client-id") -> None:
        await self.caller.node.cluster.submit([AlterQuota(((kind, None),), {key: repr(value)}, ())])

    def close(self) -> None:
        for link in self._links:
            link.close()


@contextlib.asynccontextmanager
async def served(**limits: int) -> AsyncIterator[Served]:
    settings = Settings(objects="memory://")
    settings = msgspec.structs.replace(settings, limits=msgspec.structs.replace(settings.limits, **limits))
    async with cluster(1, settings) as [caller], asyncio.timeout(30):
        server = Server(caller.node.broker)
        found = Served(caller, server, await server.listen("PLAINTEXT", "127.0.0.1", 0))
        try:
            yield found
        finally:
            found.close()
            await server.drain(1)


def produced(data: bytes, acks: int = -1) -> dict[str, Any]:
    parts = [{"name": "t", "partition_data": [{"index": 0, "records": data}]}]
    return {"acks": acks, "timeout": 10_000, "topic_data": parts}


async def muted(server: Server) -> bool:
    """Whether some client is not heard now."""
    return any(connection.muted for connection in server.connections)


@promise("K14")
def test_a_client_that_writes_too_much_is_told_and_not_heard() -> None:
    """The answer comes at once, what the client sends next is read after its throttle time (KIP-219)."""

    async def main() -> None:
        async with served() as broker:
            await create(broker.caller)
            link = await broker.connect()
            answer = await link.ask(0, 9, **produced(batch(recs(b"x" * 10_300))))
            assert not answer.throttle_time and not await muted(broker.server), "no quota, no throttling"
            await broker.quota(RATE, 1000.0)
            answer = await link.ask(0, 9, **produced(batch(recs(b"x" * 10_300))))
            assert answer.responses[0].partition_responses[0].error_code is NONE
            assert answer.throttle_time.total_seconds() > 0
            link.send(METADATA, 12, topics=[])
            assert (await link.answer(METADATA, 12)).brokers
            assert not await muted(broker.server), "it was heard again before that answer"
            stats = broker.caller.node.broker.stats
            assert stats.throttled_requests == 1 and stats.throttle_seconds > 0
            link.send(0, 9, **produced(batch(recs(b"x" * 1_000)), acks=0))
            assert (await link.ask(METADATA, 12, topics=[])).brokers
            assert stats.throttled_requests == 2, "without an answer it is silenced all the same"
            answer = await link.ask(0, 9, **produced(batch(recs(b"x" * 900_000))))
            assert answer.throttle_time.total_seconds() > 100
            assert await muted(broker.server)

    asyncio.run(main())


@promise("K14")
def test_a_client_that_reads_too_much() -> None:
    """It gets what it asked for, and is then silent; by another connection it gets nothing meanwhile."""

    async def main() -> None:
        async with served() as broker:
            await create(broker.caller)
            link, other = await broker.connect(), await broker.connect()
            await link.ask(0, 9, **produced(batch(recs(b"x" * 900_000))))
            await broker.quota("consumer_byte_rate", 1000.0)
            partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
            wanted = {
                "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": 0,
                "topics": [{"topic": "t", "partitions": [partition]}],
            }  # fmt: skip
            first = await link.ask(1, 11, **wanted)
            assert len(first.responses[0].partitions[0].records) > 900_000
            assert first.throttle_time.total_seconds() > 0
            second = await other.ask(1, 11, **wanted)
            assert second.throttle_time.total_seconds() > 0
            assert (second.responses, second.session_id, second.error_code) == ((), 0, NONE)
            assert len(broker.caller.node.broker.sessions) == 1

    asyncio.run(main())


@promise("K14")
def test_time_spent_on_requests() -> None:
    """In percent of a thread."""

    async def main() -> None:
        async with served() as broker:
            await create(broker.caller)
            await broker.quota("request_percentage", 0.000001)
            link = await broker.connect()
            for _ in range(2):
                answer = await link.ask(METADATA, 12, topics=None)
                assert 0 < answer.throttle_time.total_seconds() <= Quotas().sample_ms / 1000

    asyncio.run(main())


@promise("K14")
def test_connections_are_limited() -> None:
    """One too many is ended; one that goes makes room."""

    async def main() -> None:
        async with served(connections_per_address=2) as broker:
            links = [await broker.connect() for _ in range(2)]
            for link in links:
                assert (await link.ask(METADATA, 12, topics=[])).brokers
            assert await (await broker.connect()).ended()
            assert sum(broker.caller.node.broker.stats.refusals.values()) == 1
            links[0].close()
            while len(broker.server.connections) > 1:
                await asyncio.sleep(0)
            assert (await (await broker.connect()).ask(METADATA, 12, topics=[])).brokers

    asyncio.run(main())


@promise("K14")
def test_an_address_that_connects_too_often_is_kept_out() -> None:
    async def main() -> None:
        async with served() as broker:
            await broker.quota("connection_creation_rate", 1.0, kind="ip")
            links = [await broker.connect() for _ in range(60)]
            ended = [asyncio.create_task(link.ended()) for link in links]
            done, _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
            assert all(task.result() for task in done)
            refused, taken = sum(broker.caller.node.broker.stats.refusals.values()), len(broker.server.connections)
            assert refused > 0 and taken >= 10 and refused + taken == 60
            for task in ended:
                task.cancel()

    asyncio.run(main())
