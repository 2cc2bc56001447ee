"""Listeners count connections from their acceptance on, and go on after a time without descriptors."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwater.descriptors import Descriptors
from headwater.ops import accepting
from headwater.ops.accepting import Accepting, Streams
from tests.support.promise import promise

PROMISES = ("S4",)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(100))
    writer.close()


async def opened(own: Descriptors, **more: Any) -> tuple[Accepting, int]:
    server = Accepting(lambda seat: Streams(seat, echo), own=own, **more)
    return server, await server.open("127.0.0.1", 0)


async def asked(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"hello")
    answer = await reader.read()
    writer.close()
    return answer


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.001)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


@promise("S4")
def test_silent_connections_leave_room() -> None:
    async def main() -> None:
        own = Descriptors(16, 8)
        server, port = await opened(own)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        await until(lambda: own.closed == 16)
        assert own.count == own.share == 4
        assert await silent[0][0].read() == b"", "the oldest are closed"
        assert await asked(port) == b"hello"
        server.close()
        for _, writer in silent:
            writer.close()
        await until(lambda: own.count == 0)
        await server.wait_closed()

    run(main())


@promise("S4")
def test_a_connection_counts_while_it_negotiates_tls() -> None:
    async def main() -> None:
        own = Descriptors(16, 8)
        server, port = await opened(own, tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), handshake_seconds=600.0)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        await until(lambda: own.closed == 2)
        assert own.count == 4
        assert await silent[0][0].read() == b""
        server.close()
        await server.wait_closed()
        assert own.count == 0
        for _, writer in silent:
            writer.close()

    run(main())


@promise("S4")
def test_without_a_descriptor_the_listener_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "PAUSE_SECONDS", 0.01)
    plain, left = socket.socket.accept, [3]

    def accept(self: socket.socket) -> tuple[socket.socket, Any]:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return plain(self)

    async def main() -> None:
        own = Descriptors(16, 8)
        server, port = await opened(own)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: own.count == 1)
        monkeypatch.setattr(socket.socket, "accept", accept)
        assert await asked(port) == b"hello"
        assert own.spent == 3 and own.closed == 1
        assert await reader.read() == b"", "the silent one made room"
        writer.close()
        server.close()
        await server.wait_closed()

    run(main())


def test_the_page_has_numbers() -> None:
    names = [metric.name for metric in accepting.collect()]
    assert "headwater_descriptors" in names and "headwater_descriptors_limit" in names
    said = accepting.described()
    assert 0 < said["open"] < said["limit"] and said["room"] < said["limit"]
