"""A proxy in front of a broker that can lose answers: the broker has done what was asked, the client never hears."""

import asyncio
import struct
from types import TracebackType
from typing import Self

from headwater.client.client import Client
from headwater.client.connection import Connection
from headwater.settings.settings import parse_address


class Proxy:
    """Every connection of its clients goes through it, whatever address the metadata names."""

    def __init__(self, bootstrap: str) -> None:
        self._broker = parse_address(bootstrap.split(",")[0])
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._api_key = -1
        self._to_lose = 0
        self.lost = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        await asyncio.gather(*self._tasks)

    def lose_answers(self, to: int, count: int) -> None:
        """The next answers to an API are lost, and their connections end."""
        self._api_key, self._to_lose = to, count

    def client(self) -> Client:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()

        class ViaProxy(Client):
            async def connection_to(self, *_: object) -> Connection:
                return await super().connection_to(host, port)

        return ViaProxy(f"{host}:{port}")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        broker_reader, broker_writer = await asyncio.open_connection(*self._broker)
        asked: asyncio.Queue[int] = asyncio.Queue()
        try:
            async with asyncio.TaskGroup() as group:
                answers = group.create_task(self._answers(broker_reader, writer, asked))
                await self._requests(reader, broker_writer, asked)
                answers.cancel()
        finally:
            for one in (writer, broker_writer):
                one.close()

    async def _requests(
        self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter, asked: asyncio.Queue[int]
    ) -> None:
        while (frame := await _frame(reader)) is not None:
            asked.put_nowait(struct.unpack_from(">h", frame, 4)[0])
            broker.write(frame)

    async def _answers(
        self, broker: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: asyncio.Queue[int]
    ) -> None:
        while (frame := await _frame(broker)) is not None:
            if await asked.get() == self._api_key and self._to_lose:
                self._to_lose -= 1
                self.lost += 1
                writer.close()
                return
            writer.write(frame)


async def _frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame with its size; nothing at the end."""
    try:
        size = await reader.readexactly(4)
        return size + await reader.readexactly(*struct.unpack(">i", size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
