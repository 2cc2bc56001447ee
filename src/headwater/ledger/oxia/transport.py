"""The calls of `ledger/oxia/store.py` to real servers, over gRPC.

Any server reports which server leads which shard, now and after each change. Each shard has one stream of writes to its
leader (`ledger/oxia/write_stream.py`). Reads go to the leader too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from headwater.background import spawn
from headwater.errors import Retriable, StoreUnavailable
from headwater.ledger.oxia.messages import MESSAGES as M
from headwater.ledger.oxia.messages import SERVICE, item_of, write_message, written_of
from headwater.ledger.oxia.shards import Shard, find_shard
from headwater.ledger.oxia.store import Item, Write, Written
from headwater.ledger.oxia.url import Servers
from headwater.ledger.oxia.write_stream import WriteStream

CALL_SECONDS = 1.0
"""How long a call that had no effect is retried. Usually a new leader is elected sooner."""
CONNECT_SECONDS = 2.0
READ_SECONDS = 4.0
PAUSE_SECONDS = 0.05
PAUSE_LIMIT_SECONDS = 0.5
MESSAGE_BYTES = 8 << 20
"""The largest message. A server sends a scan in parts of about 2 MiB, each with at most one record of 1 MiB more."""
_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
]
_LOWER = 3
_DECIDED = (
    grpc.ChannelConnectivity.READY,
    grpc.ChannelConnectivity.TRANSIENT_FAILURE,
    grpc.ChannelConnectivity.SHUTDOWN,
)

_T = TypeVar("_T")


class GrpcOxia:
    """See `headwater.ledger.oxia.store.OxiaStore`."""

    def __init__(self, servers: Servers) -> None:
        self._addresses = list(servers.addresses)
        self._namespace = servers.namespace
        self._credentials = _credentials(servers)
        self._servers: dict[str, _Server] = {}
        self._shards: list[Shard] | None = None
        self._resolving: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._streams: dict[int, WriteStream] = {}
        self._sequences: dict[Any, Shard] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<Oxia {','.join(self._addresses)}/{self._namespace}>"

    # --- the contract --------------------------------------------------------------------------------

    async def write(self, route: str, write: Write) -> Written:
        message = write_message(route, write)

        async def once() -> Written:
            stream = await self._stream(await self._shard(route))
            message.shard = stream.shard
            try:
                return written_of(write, await stream.send(message), stream.leader)
            finally:
                if stream.broken:
                    self._doubt()

        return await self._repeated(once)

    async def get(self, route: str, key: str, *, lower: bool = False, leader: str | None = None) -> Item | None:
        request = M.ReadRequest(gets=[M.GetRequest(key=key, include_value=not lower)])
        if lower:
            request.gets[0].comparison_type = _LOWER
        [found] = await self._read(route, leader, "read", request, 1, MESSAGE_BYTES)
        return item_of(found, key)

    async def scan(
        self, route: str, start: str, end: str, *, limit: int, limit_bytes: int, leader: str | None = None
    ) -> list[Item]:
        request = M.RangeScanRequest(start_inclusive=start, end_exclusive=end)
        found = await self._read(route, leader, "scan", request, limit, limit_bytes)
        return [item for item in (item_of(record, "") for record in found) if item is not None]

    async def sequence(self, route: str, prefix: str) -> AsyncIterator[str]:
        shard = await self._shard(route)
        server = await self._ready(shard.leader)
        call = server.sequence(M.GetSequenceUpdatesRequest(shard=shard.number, key=prefix))
        self._sequences[call] = shard
        try:
            async for update in call:
                yield update.highest_sequence_key
        except grpc.aio.AioRpcError as error:
            self._doubt()
            raise _unavailable(shard.leader, error) from error
        except asyncio.CancelledError:
            _raise_if_cancelled()
            raise StoreUnavailable(f"{shard.leader} no longer leads shard {shard.number}") from None
        finally:
            self._sequences.pop(call, None)
            call.cancel()

    async def close(self) -> None:
        self._closed = True
        tasks = [task for task in (self._resolving, self._following) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for stream in list(self._streams.values()):
            await stream.close()
        for call in list(self._sequences):
            call.cancel()
        for server in list(self._servers.values()):
            await server.channel.close()
        self._servers.clear()

    # --- calls ---------------------------------------------------------------------------------------

    async def _repeated(self, once: Callable[[], Awaitable[_T]]) -> _T:
        """Retry a call while it raises `StoreUnavailable`, which means that it had no effect, for `CALL_SECONDS`."""
        loop, pause = asyncio.get_running_loop(), PAUSE_SECONDS
        deadline = loop.time() + CALL_SECONDS
        while True:
            if self._closed:
                raise StoreUnavailable(f"{self} is closed")
            try:
                return await once()
            except StoreUnavailable:
                if loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_LIMIT_SECONDS)

    async def _read(
        self, route: str, leader: str | None, method: str, request: Any, limit: int, limit_bytes: int
    ) -> list[Any]:
        async def once() -> list[Any]:
            shard = await self._shard(route)
            request.shard = shard.number
            address = leader or shard.leader
            server = await self._ready(address)
            call = getattr(server, method)(request, timeout=READ_SECONDS)
            try:
                return await _gathered(call, limit, limit_bytes)
            except grpc.aio.AioRpcError as error:
                self._doubt()
                raise _unavailable(address, error) from error
            except asyncio.CancelledError:
                _raise_if_cancelled()
                raise StoreUnavailable(f"the connection to {address} was closed") from None
            finally:
                call.cancel()

        return await (once() if leader else self._repeated(once))

    async def _stream(self, shard: Shard) -> WriteStream:
        stream = self._streams.get(shard.number)
        if stream is not None and not stream.broken and stream.leader == shard.leader:
            return stream
        server = await self._ready(shard.leader)
        again = self._streams.get(shard.number)
        if again is not stream and again is not None and not again.broken:
            return again
        if stream is not None:
            await stream.close()
        metadata = (("namespace", self._namespace), ("shard-id", str(shard.number)))
        opened = WriteStream(server.write(metadata=metadata), shard.number, shard.leader)
        self._streams[shard.number] = opened
        return opened

    # --- leaders -------------------------------------------------------------------------------------

    async def _shard(self, route: str) -> Shard:
        if self._shards is None:
            if self._resolving is None or self._resolving.done():
                self._resolving = spawn(self._resolve(), "oxia-resolve")
            await asyncio.wait([self._resolving])
        if self._shards is None:
            raise StoreUnavailable(f"none of {', '.join(self._addresses)} reports the leaders of {self._namespace!r}")
        return find_shard(self._shards, route)

    async def _resolve(self) -> None:
        """Ask one server after the other, and follow the first that answers."""
        for address in list(self._addresses):
            if self._following is not None:
                self._following.cancel()
            first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._following = spawn(self._follow(address, first), "oxia-assignments")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    await first
            if self._shards is not None:
                return

    async def _follow(self, address: str, first: asyncio.Future[None]) -> None:
        try:
            server = await self._ready(address)
            call = server.assignments(M.ShardAssignmentsRequest(namespace=self._namespace))
            try:
                async for update in call:
                    self._assigned([shard for entry in update.namespaces for shard in entry.value.assignments])
                    if not first.done():
                        first.set_result(None)
            finally:
                call.cancel()
        except (grpc.aio.AioRpcError, Retriable):
            pass  # the next call asks the next server
        finally:
            if not first.done():
                first.set_result(None)
            if self._following is asyncio.current_task():
                self._shards = None

    def _assigned(self, found: Sequence[Any]) -> None:
        self._shards = [
            Shard(s.shard, s.leader, s.int32_hash_range.min_hash_inclusive, s.int32_hash_range.max_hash_inclusive)
            for s in found
        ]
        leaders = {shard.number: shard.leader for shard in self._shards}
        for stream in self._streams.values():
            if leaders.get(stream.shard) != stream.leader:
                stream.abandon(f"{stream.leader} no longer leads shard {stream.shard}")
        for call, shard in list(self._sequences.items()):
            if leaders.get(shard.number) != shard.leader:
                call.cancel()
        for address in set(leaders.values()) - set(self._addresses):
            self._addresses.append(address)

    def _doubt(self) -> None:
        """After a failed call to a leader, ask another server for the leaders."""
        self._shards = None
        self._addresses.append(self._addresses.pop(0))

    async def _ready(self, address: str) -> _Server:
        """A connected server. If this raises, nothing was sent. A call that fails later may have reached the server."""
        if self._closed:
            raise StoreUnavailable(f"{self} is closed")
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = _Server(address, self._credentials)
        if not await server.connected():
            self._doubt()
            raise StoreUnavailable(f"no connection to Oxia at {address}")
        return server


class _Server:
    """A connection and the calls on it."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        else:
            self.channel = grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
        self.write = self._method("stream_stream", "WriteStream", M.WriteRequest, M.WriteResponse)
        self.read = self._method("unary_stream", "Read", M.ReadRequest, M.ReadResponse)
        self.scan = self._method("unary_stream", "RangeScan", M.RangeScanRequest, M.RangeScanResponse)
        self.sequence = self._method(
            "unary_stream", "GetSequenceUpdates", M.GetSequenceUpdatesRequest, M.GetSequenceUpdatesResponse
        )
        self.assignments = self._method(
            "unary_stream", "GetShardAssignments", M.ShardAssignmentsRequest, M.ShardAssignments
        )

    async def connected(self) -> bool:
        """Wait for the connection. False if it was refused, or takes too long."""
        state = self.channel.get_state(try_to_connect=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                while state not in _DECIDED:
                    await self.channel.wait_for_state_change(state)
                    state = self.channel.get_state(try_to_connect=True)
        return state is grpc.ChannelConnectivity.READY

    def _method(self, kind: str, name: str, request: Any, response: Any) -> Any:
        return getattr(self.channel, kind)(
            f"/{SERVICE}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )


def _credentials(servers: Servers) -> grpc.ChannelCredentials | None:
    if not servers.tls:
        return None
    ca, key, certificate = (
        Path(file).read_bytes() if file else None for file in (servers.ca, servers.key, servers.certificate)
    )
    return grpc.ssl_channel_credentials(ca, key, certificate)


async def _gathered(call: Any, limit: int, limit_bytes: int) -> list[Any]:
    """The records of a stream of answers, up to a limit."""
    found: list[Any] = []
    size = 0
    async for part in call:
        for record in part.records:
            if found and size + len(record.value) > limit_bytes:
                return found
            found.append(record)
            size += len(record.value)
            if len(found) >= limit:
                return found
    return found


def _unavailable(address: str, error: grpc.aio.AioRpcError) -> StoreUnavailable:
    return StoreUnavailable(f"Oxia at {address}: {error.details() or error.code()}")


def _raise_if_cancelled() -> None:
    """Raise if the current task was cancelled. gRPC raises the same error if only the call was cancelled."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise asyncio.CancelledError
