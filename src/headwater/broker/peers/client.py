"""Asking other brokers for WAL objects: a few connections to each broker, one request at a time per connection."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable

from headwater.clock import Chance
from headwater.log.wal.zone_cache import PeerFailed
from headwater.settings.settings import Peers
from headwater.types import WalId
from headwater.wire.peer_frames import ANSWER, MAGIC, QUESTION, Status
from headwater.wire.peer_handshake import introduce

MAX_PEERS = 64
"""Connections to this many brokers are kept. Beyond that, the least recently used ones are closed."""
_BROKEN = (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError)
_Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Peer:
    """The connections to one broker."""

    def __init__(self, connections: int) -> None:
        self.turns = asyncio.Semaphore(connections)
        self.idle: list[_Line] = []
        self.failures = 0
        """How often the broker has failed. Callers that waited for a connection during a failure do not try again."""

    def line(self) -> _Line | None:
        """A connection that is open and free."""
        while self.idle:
            line = self.idle.pop()
            if not line[0].at_eof() and not line[1].is_closing():
                return line
            _close(line)
        return None


class PeerConnections:
    """See `PeerTransport`."""

    def __init__(
        self,
        settings: Peers,
        secret: bytes,
        chance: Chance,
        *,
        max_bytes: int,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._settings = settings
        self._secret = secret
        self._chance = chance
        self._max_bytes = max_bytes
        self._tls = tls
        self._peers: dict[tuple[str, int], _Peer] = {}

    def __repr__(self) -> str:
        return f"<PeerConnections to {len(self._peers)} brokers>"

    async def ask(self, address: tuple[str, int], domain: int, object_id: WalId) -> bytes | None:
        """See `PeerTransport`."""
        peer = self._peer(address)
        before = peer.failures
        async with peer.turns:
            if peer.failures != before:
                raise PeerFailed(f"{address[0]}:{address[1]} does not answer")
            line: _Line | None = None
            try:
                async with asyncio.timeout(self._settings.timeout_ms / 1000):
                    line = peer.line() or await self._connect(address)
                    answer = await self._exchange(line, QUESTION.pack(domain, object_id.epoch, object_id.sequence))
            except (*_BROKEN, PeerFailed) as error:
                peer.failures += 1
                _close(line)
                raise PeerFailed(f"{address[0]}:{address[1]} does not answer: {type(error).__name__}") from error
            except BaseException:  # cancelled half way: the next answer on this connection would be an old one
                _close(line)
                raise
            peer.idle.append(line)
            return answer

    def _peer(self, address: tuple[str, int]) -> _Peer:
        peer = self._peers.pop(address, None) or _Peer(self._settings.connections)
        self._peers[address] = peer
        if len(self._peers) > MAX_PEERS:
            oldest = next(iter(self._peers))
            for line in self._peers.pop(oldest).idle:
                _close(line)
        return peer

    async def _connect(self, address: tuple[str, int]) -> _Line:
        context = self._tls() if self._tls is not None else None
        reader, writer = await asyncio.open_connection(*address, ssl=context)
        try:
            await introduce(reader, writer, MAGIC, self._secret, self._chance)
        except BaseException:
            writer.close()
            raise
        return reader, writer

    async def _exchange(self, line: _Line, question: bytes) -> bytes | None:
        reader, writer = line
        writer.write(question)
        status, length = ANSWER.unpack(await reader.readexactly(ANSWER.size))
        if length > self._max_bytes:
            raise PeerFailed(f"an answer of {length} bytes")
        data = await reader.readexactly(length)
        if status not in (Status.FOUND, Status.MISSING):
            raise PeerFailed("the other broker could not read the object")
        return data if status == Status.FOUND else None

    async def close(self) -> None:
        """End all connections."""
        for peer in self._peers.values():
            for line in peer.idle:
                _close(line)
        self._peers.clear()


def _close(line: _Line | None) -> None:
    if line is not None:
        with contextlib.suppress(OSError):
            line[1].close()
