"""A broker with sockets in this process, on a ledger in memory and a clock that tests can move."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

from headwater.app.node import Node
from headwater.broker import handlers as _registered  # noqa: F401 - fills the registry
from headwater.broker.net.server import Server
from headwater.clock import SystemChance, SystemClock
from headwater.ledger.memory import MemoryLedger
from headwater.objects.memory import MemoryStore
from headwater.replica.users import put_user
from headwater.settings.settings import Settings
from headwater.state.commands.cluster import Listener
from headwater.wire.build import build
from headwater.wire.messages import decode_response, encode_request, request_type

PASSWORDS = {"alice": "wonder=land,", "bob": "pâsswörd"}
"""Users that every broker here has."""


class MovingClock(SystemClock):
    """The machine's clock plus the time by which a test has moved it."""

    moved = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.moved

    def wall_ms(self) -> int:
        return super().wall_ms() + int(self.moved * 1000)


class InProcess:
    """A broker with open listeners."""

    def __init__(self, node: Node, server: Server, clock: MovingClock) -> None:
        self.node = node
        self.server = server
        self.clock = clock
        self.ports: dict[str, int] = {}

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"


@contextlib.asynccontextmanager
async def running(settings: Settings, *listeners: str) -> AsyncIterator[InProcess]:
    """A broker with some listeners on loopback."""
    clock = MovingClock()
    node = Node(settings, MemoryLedger(), MemoryStore(), clock, SystemChance(), listeners=())
    server = Server(node.broker)
    found = InProcess(node, server, clock)
    told = []
    for name in listeners:
        found.ports[name] = await server.listen(name, "127.0.0.1", 0)
        told.append(Listener(name, "127.0.0.1", found.ports[name]))
    node.membership.listeners = tuple(told)
    await node.start()
    for name, password in PASSWORDS.items():
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            await put_user(node.cluster, SystemChance(), name, mechanism, password, 4096)
    try:
        yield found
    finally:
        await server.drain(0)
        await node.stop()


class Raw:
    """A connection on which a test sends exactly the requests that it wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, key: int, version: int, **fields: Any) -> None:
        request = build(request_type(key, version), **fields)
        self._writer.writelines(encode_request(key, version, 7, "raw", request))
        await self._writer.drain()

    async def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def ask(self, key: int, version: int, **fields: Any) -> Any:
        """Send a request; returns the answer, or `None` if the connection ends instead."""
        try:
            await self.send(key, version, **fields)
            return await self.receive(key, version)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def receive(self, key: int, version: int) -> Any:
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return decode_response(key, version, memoryview(await self._reader.readexactly(size)))[1]

    async def ended(self) -> bool:
        """Wait for the other side to close the connection."""
        try:
            return await self._reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self._writer.close()


@contextlib.asynccontextmanager
async def raw(broker: InProcess, listener: str) -> AsyncIterator[Raw]:
    """A raw connection to a listener."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports[listener])
    connection = Raw(reader, writer)
    try:
        yield connection
    finally:
        connection.close()
