"""The listener that other brokers ask for WAL objects. It answers only brokers that know the secret."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence

from headwater.background import Background, Supervised
from headwater.clock import Chance
from headwater.descriptors import Seat
from headwater.errors import HeadwaterError
from headwater.ops.accepting import Accepting, Streams
from headwater.security.tls import CERTIFICATES, Certificates
from headwater.settings.settings import INTERNAL, ListenerSecurity, Peers
from headwater.types import Buffer, WalId
from headwater.wire.peer_frames import ANSWER, MAGIC, QUESTION, Status
from headwater.wire.peer_handshake import Stranger, admit

log = logging.getLogger("headwater.peers")
Look = Callable[[int, WalId], Awaitable[Sequence[Buffer] | None]]
"""Finds an object's bytes by its id, in memory or in the store."""
HANDSHAKE_SECONDS = 5.0
IDLE_SECONDS = 120.0
SEND_SECONDS = 30.0


class PeerServer:
    """Answers other brokers. The number of connections is bounded; each has one request under way."""

    def __init__(
        self, settings: Peers, secret: bytes, chance: Chance, look: Look, background: Background | None = None
    ) -> None:
        self._background = background or Background()
        self._settings = settings
        self._secret = secret
        self._chance = chance
        self._look = look
        self._server: Accepting | None = None
        self._watching: Supervised | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.found = 0
        self.missing = 0
        self.failed = 0
        self.refused = 0

    def __repr__(self) -> str:
        return f"<PeerServer with {len(self._open)} connections>"

    async def listen(self, host: str, port: int, own: ListenerSecurity, reload_seconds: float) -> int:
        """Open the port; returns its number."""
        tls = None
        if own.protocol == "SSL":
            certificates = Certificates(INTERNAL, own)
            tls = certificates.context
            watch = functools.partial(certificates.watch, reload_seconds)
            self._watching = self._background.run(CERTIFICATES, watch, INTERNAL)
        server = self._server = Accepting(
            lambda seat: Streams(seat, functools.partial(self._serve, seat)),
            tls=tls,
            handshake_seconds=HANDSHAKE_SECONDS,
        )
        return await server.open(host, port)

    async def close(self) -> None:
        """Close the listener and all connections."""
        if self._watching is not None:
            await self._watching.stop()
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.close()
        if self._server is not None:
            await self._server.wait_closed()

    async def _serve(self, seat: Seat, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= self._settings.served_connections:
            self.refused += 1
            writer.close()
            return
        self._open.add(writer)
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await admit(reader, writer, MAGIC, self._secret, self._chance)
            seat.known()
            while True:
                await self._answer(reader, writer)
        except Stranger:
            self.refused += 1
            log.warning("a peer without the secret was refused", extra={"peer": str(writer.get_extra_info("peername"))})
        except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the peer closed the connection, or was idle for too long
        finally:
            self._open.discard(writer)
            with contextlib.suppress(OSError):
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(IDLE_SECONDS):
            question = await reader.readexactly(QUESTION.size)
        domain, epoch, sequence = QUESTION.unpack(question)
        try:
            pieces = await self._look(domain, WalId(epoch, sequence))
        except HeadwaterError as error:
            log.info("no answer for another broker", extra={"reason": str(error)})
            self.failed += 1
            writer.write(ANSWER.pack(Status.FAILED, 0))
        else:
            if pieces is None:
                self.missing += 1
                writer.write(ANSWER.pack(Status.MISSING, 0))
            else:
                self.found += 1
                writer.writelines([ANSWER.pack(Status.FOUND, sum(len(piece) for piece in pieces)), *pieces])
        async with asyncio.timeout(SEND_SECONDS):
            await writer.drain()
