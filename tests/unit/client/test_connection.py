"""One connection, against brokers that misbehave."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from kio.schema.errors import ErrorCode

from harness.ports import free_port
from headwater.client.client import Client
from headwater.client.connection import Connection, connect
from headwater.client.errors import AnswerLost, ProtocolError, Unreachable, UnsupportedApi
from headwater.client.routing import ClientSettings
from headwater.client.security import ClientSecurity
from headwater.wire.messages import decode_request, encode_response, read_start

API_VERSIONS, METADATA = 18, 3
Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[bool]]
"""Answers a request; False ends the connection."""


@asynccontextmanager
async def broker(answer: Answer) -> AsyncIterator[int]:
    """A server that reads frames; tells its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                if not await answer(await reader.readexactly(size), writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def reply(writer: asyncio.StreamWriter, request: bytes, version: int | None = None, **fields: object) -> None:
    start = read_start(memoryview(request))
    at = start.version if version is None else version
    writer.writelines(encode_response(start.api_key, at, start.correlation_id, fields))


def versions(*rows: tuple[int, int, int]) -> list[dict[str, int]]:
    return [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in rows]


async def polite(request: bytes, writer: asyncio.StreamWriter) -> bool:
    """Does the handshake and nothing else."""
    start = read_start(memoryview(request))
    if start.api_key == API_VERSIONS:
        decode_request(start, memoryview(request))
        reply(writer, request, api_keys=versions((API_VERSIONS, 0, 4), (METADATA, 0, 99), (999, 0, 1), (19, 50, 60)))
    return True


async def open_to(port: int) -> Connection:
    return await connect("127.0.0.1", port, "test", within=5)


def test_an_answer_that_cannot_be_read_fails_its_request() -> None:
    """At once, not when the time limit passes."""

    async def spoilt(request: bytes, writer: asyncio.StreamWriter) -> bool:
        start = read_start(memoryview(request))
        if start.api_key == API_VERSIONS:
            return await polite(request, writer)
        writer.write(struct.pack(">iiB", 5, start.correlation_id, 0))
        return True

    async def main() -> None:
        async with broker(spoilt) as port:
            connection = await open_to(port)
            with pytest.raises(ProtocolError):
                await connection.request(METADATA, within=3600, topics=None)
            await connection.close()

    asyncio.run(main())


def test_the_highest_common_version_is_used() -> None:
    async def main() -> None:
        async with broker(polite) as port:
            connection = await open_to(port)
            assert connection.version(METADATA) == 13
            for unknown in (19, 0):
                with pytest.raises(UnsupportedApi):
                    connection.version(unknown)
            await connection.close()
            assert connection.closed

    asyncio.run(main())


def test_a_broker_that_does_not_know_our_handshake_is_asked_again_in_its_version() -> None:
    asked: list[int] = []

    async def old(request: bytes, writer: asyncio.StreamWriter) -> bool:
        version = read_start(memoryview(request)).version
        asked.append(version)
        rows = versions((API_VERSIONS, 0, 2), (METADATA, 0, 5))
        if version > 2:
            reply(writer, request, 0, error_code=ErrorCode.unsupported_version, api_keys=rows[:1])
        else:
            reply(writer, request, api_keys=rows)
        return True

    async def main() -> None:
        async with broker(old) as port:
            connection = await open_to(port)
            assert asked == [4, 2]
            assert connection.version(METADATA) == 5
            await connection.close()

    asyncio.run(main())


def test_no_answer_in_time_ends_the_connection() -> None:
    async def main() -> None:
        async with broker(polite) as port:
            connection = await open_to(port)
            others = asyncio.create_task(connection.request(METADATA, topics=[]))
            with pytest.raises(AnswerLost, match=r"within 0\.05 s"):
                await connection.request(METADATA, within=0.05, topics=[])
            with pytest.raises(AnswerLost):
                await others
            with pytest.raises(Unreachable):
                await connection.request(METADATA, topics=[])
            await connection.close()

    asyncio.run(main())


def test_answers_that_come_late_or_mixed_up_reach_who_asked() -> None:
    waiting: list[bytes] = []

    async def shuffling(request: bytes, writer: asyncio.StreamWriter) -> bool:
        if read_start(memoryview(request)).api_key == API_VERSIONS:
            return await polite(request, writer)
        waiting.append(request)
        if len(waiting) == 3:
            for one in reversed(waiting):
                correlation = read_start(memoryview(one)).correlation_id
                reply(writer, one, cluster_id=str(correlation))
        return True

    async def main() -> None:
        async with broker(shuffling) as port:
            connection = await open_to(port)
            given_up = asyncio.create_task(connection.request(METADATA, topics=[]))
            await asyncio.sleep(0)
            given_up.cancel()
            answers = await asyncio.gather(*(connection.request(METADATA, topics=[]) for _ in range(2)))
            assert [answer.cluster_id for answer in answers] == ["3", "4"]
            assert repr(connection).endswith("open, 0 requests under way>")
            await connection.close()

    asyncio.run(main())


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">ii", 100, 77) + bytes(96)])
def test_what_is_not_kafka_is_told_so(garbage: bytes) -> None:
    async def rude(request: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(garbage)
        return True

    async def main() -> None:
        async with broker(rude) as port:
            with pytest.raises(ProtocolError, match="does not speak Kafka"):
                await open_to(port)

    asyncio.run(main())


def test_a_broker_that_hangs_up_is_unreachable() -> None:
    async def hang_up(request: bytes, writer: asyncio.StreamWriter) -> bool:
        return False

    async def main() -> None:
        async with broker(hang_up) as port:
            with pytest.raises(Unreachable, match="no handshake"):
                await open_to(port)

    asyncio.run(main())


def test_a_client_without_brokers_gives_up_soon_and_names_them() -> None:
    ports = free_port(), free_port()

    async def main() -> None:
        settings = ClientSettings(impatient_s=0.05)
        async with Client(",".join(f"127.0.0.1:{port}" for port in ports), settings=settings) as client:
            with pytest.raises(Unreachable) as caught:
                await client.list_topics()
            assert all(str(port) in str(caught.value) for port in ports)

    asyncio.run(main())


def test_a_log_in_is_renewed_with_the_secrets_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that was read when the connection began has expired by then."""
    used: list[str] = []

    async def log_in(self: Connection, security: ClientSecurity, within: float) -> None:
        used.append(security.token)

    monkeypatch.setattr(Connection, "_log_in", log_in)
    tokens = iter(("first", "second"))

    def secrets() -> ClientSecurity:
        return ClientSecurity(mechanism="OAUTHBEARER", token=next(tokens))

    async def story() -> None:
        async with broker(polite) as port:
            connection = await connect("127.0.0.1", port, "test", 5, None, secrets)
            connection._security, connection._renew_at = ClientSecurity(), 0.0
            with pytest.raises(UnsupportedApi):
                await connection.request(0)
            await connection.close()

    asyncio.run(story())
    assert used == ["first", "second"]
