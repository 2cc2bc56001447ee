"""Connections between the processes that share a ledger in a bucket: one appends for all and announces the slots.

For each domain the processes choose a preferred appender, by a rendezvous hash over the live processes. It takes the
records of the others, writes them together into one slot, answers, and pushes the slot to all connected processes. This
only saves requests and time. A process that cannot reach the preferred appender, or chooses another one, appends by
itself; the ring is safe in any case. A record whose answer was lost has an unknown outcome, like a PUT whose reply was
lost.

Peers prove to each other that they know the ledger's secret, which is in the bucket. A process that can read the secret
can read and write the ledger anyway. The connections are not encrypted.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias

import msgspec

from headwater.background import Tasks
from headwater.clock import Chance, Clock
from headwater.descriptors import Seat
from headwater.errors import ConfigError, HeadwaterError, OutcomeUnknown, Overloaded, StoreUnavailable
from headwater.ops.accepting import Accepting, Streams
from headwater.types import Domain, Position
from headwater.wire.peer_handshake import admit, introduce

MAX_FRAME = 8 << 20
MAX_LINKS = 256
MAX_IN_FLIGHT = 1_000
MAX_UNSENT = 16 << 20
CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 4.0
AVOID_SECONDS = 10.0
"""How long a peer that did not answer is avoided."""
MAGIC = b"HWRING1\n"


class Append(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """A request to append a record."""

    number: int
    domain: int
    record: bytes


class Appended(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """The answer if the record is committed."""

    number: int
    position: int


class Failed(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """The answer if the append failed. If `certain` is false, the outcome is unknown."""

    number: int
    certain: bool
    message: str


class Stands(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """The announcement of a written slot, with the bytes of its object."""

    domain: int
    slot: bytes


Message: TypeAlias = Append | Appended | Failed | Stands
_MESSAGES: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class Peers(Protocol):
    """The transport between a ledger and the other processes."""

    async def start(
        self,
        secret: bytes,
        append: Callable[[Domain, bytes], Awaitable[Position]],
        stands: Callable[[Domain, bytes], None],
    ) -> str:
        """Start to serve. Returns the address for the other processes.

        `append` serves their requests. `stands` receives the slots that they announce.
        """

    def know(self, addresses: frozenset[str]) -> None:
        """Set the addresses of the live processes, including this one."""

    async def append(self, domain: Domain, record: bytes) -> Position | None:
        """Let the preferred appender append. `None` if that is this process, or one that cannot be reached."""

    def publish(self, domain: Domain, slot: bytes) -> None:
        """Announce a written slot to the connected processes."""

    def follows(self, domain: Domain) -> bool:
        """Whether the preferred appender announces new slots to this process."""

    async def close(self) -> None:
        """End all connections. Idempotent."""


def preferred(domain: Domain, addresses: frozenset[str]) -> str | None:
    """The preferred appender. All processes that know the same addresses choose the same one."""
    return max(addresses, key=lambda a: hashlib.blake2b(f"{domain} {a}".encode()).digest(), default=None)


class TcpPeers:
    """See `Peers`. Plain TCP between processes that trust their network. A frame is a length and a message."""

    def __init__(self, listen: str, clock: Clock, chance: Chance) -> None:
        host, _, port = listen.rpartition(":")
        if host in ("", "0.0.0.0", "::", "[::]") or not port.isdecimal():
            raise ConfigError(f"peers={listen!r} is not an address that others can reach, of the form HOST:PORT")
        self._host, self._port = host, int(port)
        self._clock = clock
        self._chance = chance
        self._server: Accepting | None = None
        self._own = ""
        self._known: frozenset[str] = frozenset()
        self._secret = b""
        self._links: dict[str, _Link] = {}
        self._avoid: dict[str, float] = {}
        self._guests: set[asyncio.StreamWriter] = set()
        self._tasks = Tasks()
        self.forwarded = 0
        self.served = 0

    def __repr__(self) -> str:
        return f"<TcpPeers at {self._own}: {len(self._known)} known, {len(self._guests)} connected>"

    async def start(
        self,
        secret: bytes,
        append: Callable[[Domain, bytes], Awaitable[Position]],
        stands: Callable[[Domain, bytes], None],
    ) -> str:
        if self._server is None:
            self._secret, self._append, self._stands = secret, append, stands
            self._server = Accepting(lambda seat: Streams(seat, functools.partial(self._serve, seat)))
            self._own = f"{self._host}:{await self._server.open(self._host, self._port)}"
        return self._own

    def know(self, addresses: frozenset[str]) -> None:
        self._known = addresses
        for address in self._links.keys() - addresses:
            self._links.pop(address).close()

    def _leader(self, domain: Domain) -> str | None:
        """The preferred appender, unless that is this process or one to avoid."""
        chosen = preferred(domain, self._known)
        if self._server is None or chosen is None or chosen == self._own:
            return None
        return None if self._avoid.get(chosen, 0.0) > self._clock.monotonic() else chosen

    def follows(self, domain: Domain) -> bool:
        leader = self._leader(domain)
        return leader is not None and leader in self._links

    def publish(self, domain: Domain, slot: bytes) -> None:
        frame = _frame(Stands(domain, slot))
        for writer in list(self._guests):
            if writer.transport.get_write_buffer_size() > MAX_UNSENT:
                writer.transport.abort()  # the peer does not read; it finds the slot in the bucket
            else:
                writer.write(frame)

    # --- asking ----------------------------------------------------------------------------------------

    async def append(self, domain: Domain, record: bytes) -> Position | None:
        leader = self._leader(domain)
        if leader is None:
            return None
        try:
            link = self._links.get(leader) or await self._connect(leader)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            self._avoid[leader] = self._clock.monotonic() + AVOID_SECONDS
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                position = await link.append(domain, record)
        except (OSError, TimeoutError) as error:
            self._avoid[leader] = self._clock.monotonic() + AVOID_SECONDS
            self._drop(leader, link)
            raise OutcomeUnknown(f"{leader} did not answer a request to append a record") from error
        self.forwarded += 1
        return position

    async def _connect(self, address: str) -> _Link:
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                await introduce(reader, writer, MAGIC, self._secret, self._chance)
            except BaseException:
                writer.transport.abort()
                raise
        if (other := self._links.get(address)) is not None:
            writer.transport.abort()
            return other
        link = self._links[address] = _Link(writer)
        self._begin(self._listen(address, link, reader))
        return link

    async def _listen(self, address: str, link: _Link, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                message = await _receive(reader)
                if isinstance(message, Stands):
                    self._stands(Domain(message.domain), message.slot)
                elif isinstance(message, Appended | Failed):
                    link.answered(message)
        except (OSError, asyncio.IncompleteReadError, msgspec.MsgspecError, HeadwaterError):
            self._drop(address, link)

    def _drop(self, address: str, link: _Link) -> None:
        if self._links.get(address) is link:
            del self._links[address]
        link.close()

    # --- serving ---------------------------------------------------------------------------------------

    async def _serve(self, seat: Seat, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._guests) >= MAX_LINKS:
                return
            async with asyncio.timeout(CONNECT_SECONDS):
                await admit(reader, writer, MAGIC, self._secret, self._chance)
            seat.known()
            self._guests.add(writer)
            working: set[asyncio.Task[None]] = set()
            while isinstance(message := await _receive(reader), Append) and len(working) < MAX_IN_FLIGHT:
                task = self._begin(self._answer(message, writer))
                working.add(task)
                task.add_done_callback(working.discard)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, msgspec.MsgspecError):
            return
        finally:
            self._guests.discard(writer)
            writer.transport.abort()

    async def _answer(self, asked: Append, writer: asyncio.StreamWriter) -> None:
        answer: Appended | Failed
        try:
            answer = Appended(asked.number, await self._append(Domain(asked.domain), asked.record))
            self.served += 1
        except (HeadwaterError, ValueError) as error:
            certain = isinstance(error, StoreUnavailable | Overloaded | ValueError)
            answer = Failed(asked.number, certain, str(error))
        with contextlib.suppress(OSError):
            writer.write(_frame(answer))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.spawn(work, "ledger-peer")

    async def close(self) -> None:
        self._known = frozenset()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        for writer in list(self._guests):
            writer.transport.abort()
        for link in self._links.values():
            link.close()
        self._links.clear()
        await self._tasks.close()


class _Link:
    """A connection to a preferred appender, and the open requests to it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._asked: dict[int, asyncio.Future[Position]] = {}
        self._numbers = 0

    async def append(self, domain: Domain, record: bytes) -> Position:
        if len(self._asked) >= MAX_IN_FLIGHT:
            raise Overloaded(f"{MAX_IN_FLIGHT} appends wait for a peer")
        self._numbers += 1
        number = self._numbers
        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            self._writer.write(_frame(Append(number, domain, record)))
            return await future
        finally:
            self._asked.pop(number, None)

    def answered(self, message: Appended | Failed) -> None:
        future = self._asked.get(message.number)
        if future is None or future.done():
            return
        if isinstance(message, Appended):
            future.set_result(Position(message.position))
        elif message.certain:
            future.set_exception(StoreUnavailable(message.message))
        else:
            future.set_exception(OutcomeUnknown(message.message))

    def close(self) -> None:
        self._writer.transport.abort()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(OutcomeUnknown("the connection to the peer ended"))


def _frame(message: Message) -> bytes:
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(4, "big") + data


async def _receive(reader: asyncio.StreamReader) -> Message:
    size = int.from_bytes(await reader.readexactly(4), "big")
    if size > MAX_FRAME:
        raise ConnectionError(f"a frame of {size} bytes is too large")
    return _MESSAGES.decode(await reader.readexactly(size))
