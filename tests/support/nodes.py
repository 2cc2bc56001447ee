"""Brokers without sockets, on a ledger and a store in memory: the real handlers, called directly."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

import msgspec

from headwater.app.node import Node
from headwater.broker import handlers as _registered  # noqa: F401 - fills the registry
from headwater.broker.registry import APIS
from headwater.broker.request import Request
from headwater.clock import SystemChance, SystemClock
from headwater.ledger.contract import Ledger
from headwater.ledger.memory import MemoryLedger
from headwater.objects import ObjectStore
from headwater.objects.memory import MemoryStore
from headwater.settings.settings import INTERNAL, Settings
from headwater.state.commands.cluster import Listener
from headwater.wire.build import build
from headwater.wire.messages import RequestStart, decode_response, encode_response, request_type


class Caller:
    """Calls a node's handlers as a connection would, through the encoded answer."""

    listener = "PLAINTEXT"
    peer = "127.0.0.1:5555"
    software = ("", "")
    principal = "User:ANONYMOUS"
    host = "127.0.0.1"
    login = None
    client_id = "test"

    def __init__(self, node: Node) -> None:
        self.node = node

    async def values(self, key: int, version: int, /, **fields: Any) -> Any:
        """The answer of a handler, before it is encoded."""
        body = build(request_type(key, version), **fields)
        request = Request(RequestStart(key, version, 7), self.client_id, body, self)  # type: ignore[arg-type]
        answer = APIS[key].handle(self.node.broker, request)
        return await answer if isinstance(answer, Awaitable) else answer

    async def __call__(self, key: int, version: int, /, **fields: Any) -> Any:
        answer = await self.values(key, version, **fields)
        if answer is None:
            return None
        frame = b"".join(encode_response(key, version, 7, answer))
        correlation, response = decode_response(key, version, memoryview(frame)[4:])
        assert correlation == 7
        return response


@contextlib.asynccontextmanager
async def cluster(
    count: int = 1,
    settings: Settings | None = None,
    zones: Sequence[str] = ("local",),
    ledger: Ledger | None = None,
    store: ObjectStore | None = None,
) -> AsyncIterator[list[Caller]]:
    """Several nodes that share a ledger and a store, assigned to zones round robin."""
    ledger, store = ledger or MemoryLedger(), store or MemoryStore()
    base = settings or Settings(objects="memory://")
    nodes = [
        Node(
            msgspec.structs.replace(base, node=i, zone=zones[(i - 1) % len(zones)]),
            ledger,
            store,
            SystemClock(),
            SystemChance(),
            listeners=(
                Listener(INTERNAL, f"inside{i}", 7),
                Listener("PLAINTEXT", f"host{i}", 9092),
                Listener("OUTSIDE", f"out{i}", 19092),
            ),
        )
        for i in range(1, count + 1)
    ]
    for node in nodes:
        await node.start()
    try:
        yield [Caller(node) for node in nodes]
    finally:
        for node in nodes:
            await node.stop()
