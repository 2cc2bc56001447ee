"""etcd over gRPC: one connection per member, the next member when one fails, and the meaning of each failure.

Writes are sent once. Reads, and puts that may be done twice, are tried on every member. Requests demand a leader, so
that a member that has lost its cluster refuses them at once and does not let them wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from headwater.clock import Chance
from headwater.errors import ConfigError, HeadwaterError, OutcomeUnknown, StoreFull, StoreUnavailable
from headwater.ledger.etcd.client import Changes, Compacted, Compare, Delete, Found, Get, Pair, Put, Transacted
from headwater.ledger.protobuf import messages

REQUEST_SECONDS = 2.0
PUT_SECONDS = 0.7
"""The time for a `put` on one member. A beat reaches the second member, and then the third, before its session ends."""
CONNECT_SECONDS = 1.0
RECEIVE_BYTES = 96 << 20

_OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 10_000),  # a server ends a connection with more than one ping in 5 s
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 0),  # a server ends a connection with pings while no call is open
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", RECEIVE_BYTES),
)

_m = messages(
    "headwater.etcd",
    {
        "Header": ("int64 revision = 3",),
        "KeyValue": ("bytes key = 1", "int64 create_revision = 2", "int64 mod_revision = 3", "bytes value = 5"),
        "Range": ("bytes key = 1", "bytes range_end = 2", "int64 limit = 3", "int64 revision = 4"),
        "RangeReply": ("Header header = 1", "repeated KeyValue kvs = 2", "bool more = 3"),
        "Put": ("bytes key = 1", "bytes value = 2"),
        "DeleteRange": ("bytes key = 1", "bytes range_end = 2"),
        "Ignored": (),
        "Op": ("Range range = 1", "Put put = 2", "DeleteRange delete_range = 3"),
        "OpReply": ("RangeReply range = 1", "Ignored put = 2", "Ignored delete_range = 3"),
        "Compare": (
            "int32 result = 1",
            "int32 target = 2",
            "bytes key = 3",
            "optional int64 create_revision = 5",
            "optional int64 mod_revision = 6",
        ),
        "Txn": ("repeated Compare compare = 1", "repeated Op success = 2", "repeated Op failure = 3"),
        "TxnReply": ("Header header = 1", "bool succeeded = 2", "repeated OpReply responses = 3"),
        "Compaction": ("int64 revision = 1",),
        "WatchCreate": (
            "bytes key = 1",
            "bytes range_end = 2",
            "int64 start_revision = 3",
            "repeated int32 filters = 5",
            "bool fragment = 8",
        ),
        "WatchRequest": ("WatchCreate create_request = 1",),
        "Event": ("KeyValue kv = 2",),
        "WatchReply": (
            "Header header = 1",
            "bool created = 3",
            "bool canceled = 4",
            "int64 compact_revision = 5",
            "string cancel_reason = 6",
            "bool fragment = 7",
            "repeated Event events = 11",
        ),
        "Authenticate": ("string name = 1", "string password = 2"),
        "AuthenticateReply": ("string token = 2",),
    },
)
_CREATE, _MOD, _EQUAL, _LESS, _NODELETE = 1, 2, 0, 2, 1

_KV, _WATCH, _AUTH = (f"/etcdserverpb.{service}/" for service in ("KV", "Watch", "Auth"))
_UNDONE = (
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "etcdserver: not capable",
    "not supported for learner",
)
"""Errors that etcd returns before it processes a request."""
_REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)
_FULL = (
    "etcd has reached its quota and takes no more writes: compact its history, defragment every member, then clear the "
    "alarm (`etcdctl compact`, `etcdctl defrag --cluster`, `etcdctl alarm disarm`); raise --quota-backend-bytes if it "
    "comes back"
)


@dataclass(frozen=True, slots=True)
class Servers:
    """The addresses of etcd's members, TLS files and credentials."""

    members: tuple[str, ...]
    tls: bool = False
    ca: str = ""
    certificate: str = ""
    key: str = ""
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(eq=False, slots=True)
class _Member:
    address: str
    channel: Any
    range: Any
    txn: Any
    compact: Any
    watch: Any
    authenticate: Any
    streams: set[Any] = field(default_factory=set)
    doubted: bool = False
    """Its last call failed. A stopped member keeps its connection, so a connection alone is no sign of life."""


class EtcdGrpc:
    """See `headwater.ledger.etcd.client.EtcdClient`."""

    def __init__(self, servers: Servers, chance: Chance) -> None:
        self._servers = servers
        self._chance = chance
        self._members: list[_Member] = []
        self._token = ""
        self._closed = False

    def __repr__(self) -> str:
        return f"<EtcdGrpc {','.join(self._servers.members)}>"

    # --- the contract ------------------------------------------------------------------------------

    async def get(self, get: Get) -> Found:
        return _found(await self._call("range", _range(get), writes=False))

    async def transact(
        self,
        compares: Sequence[Compare],
        success: Sequence[Get | Put | Delete],
        failure: Sequence[Get] = (),
    ) -> Transacted:
        request = _m.Txn(
            compare=[_compare(c) for c in compares],
            success=[_op(o) for o in success],
            failure=[_op(o) for o in failure],
        )
        writes = any(not isinstance(operation, Get) for operation in success)
        reply = await self._call("txn", request, writes=writes)
        found = [_found(r.range, reply.header.revision) for r in reply.responses if r.HasField("range")]
        return Transacted(reply.succeeded, reply.header.revision, found)

    async def put(self, put: Put) -> int:
        reply = await self._call("txn", _m.Txn(success=[_op(put)]), writes=False, seconds=PUT_SECONDS)
        return int(reply.header.revision)

    async def compact(self, revision: int) -> None:
        with contextlib.suppress(Compacted):
            await self._call("compact", _m.Compaction(revision=revision), writes=True)

    async def watch(self, key: bytes, end: bytes, start: int) -> AsyncIterator[Changes]:
        create = _m.WatchCreate(key=key, range_end=end, start_revision=start, filters=[_NODELETE], fragment=True)
        member = await self._pick()
        call = member.watch(metadata=await self._metadata(member))
        member.streams.add(call)
        held: list[Pair] = []
        try:
            await call.write(_m.WatchRequest(create_request=create))
            async for reply in call:
                if reply.compact_revision:
                    raise Compacted(
                        f"history before {reply.compact_revision} is compacted; the watch starts at {start}"
                    )
                if reply.canceled:
                    raise StoreUnavailable(f"etcd at {member.address} ended a watch: {reply.cancel_reason}")
                pairs = held + [_pair(event.kv) for event in reply.events]
                held = _last_revision(pairs) if reply.fragment else []
                if pairs := pairs[: len(pairs) - len(held)]:
                    yield Changes(pairs)
        except grpc.aio.AioRpcError as error:
            self._leave(member)
            raise _translated(error, member.address, writes=False) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed or (task is not None and task.cancelling()):
                raise
            raise StoreUnavailable(f"the watch moves from etcd at {member.address} to another member") from None
        finally:
            member.streams.discard(call)
            call.cancel()
            await call.code()
        raise StoreUnavailable(f"etcd at {member.address} ended a watch")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for member in self._members:
            await member.channel.close()

    # --- members -----------------------------------------------------------------------------------

    def _open(self) -> None:
        """Make the channels. They belong to the running loop, so they are made at the first use."""
        credentials = None
        servers = self._servers
        if servers.tls:
            credentials = grpc.ssl_channel_credentials(
                *(_bytes(path) for path in (servers.ca, servers.key, servers.certificate))
            )
        self._members = [_member(address, credentials) for address in servers.members]
        first = int(self._chance.fraction() * len(self._members))
        self._members = self._members[first:] + self._members[:first]

    async def _pick(self) -> _Member:
        """A member with a connection: the current one, if it is connected. Nothing was sent if this raises.

        A member in doubt comes after those that are not, even if these have to be connected first.
        """
        if self._closed:
            raise StoreUnavailable(f"{self!r} is closed")
        if not self._members:
            self._open()
        ready = grpc.ChannelConnectivity.READY
        for member in self._members:
            if member.channel.get_state(try_to_connect=True) is ready and not member.doubted:
                self._prefer(member)
                return member
        for member in sorted(self._members, key=lambda member: member.doubted):
            if await _connected(member.channel):
                self._prefer(member)
                return member
        raise StoreUnavailable(f"no etcd member answers at {', '.join(self._servers.members)}")

    def _prefer(self, member: _Member) -> None:
        if self._members[0] is not member:
            at = self._members.index(member)
            self._members = self._members[at:] + self._members[:at]

    def _leave(self, member: _Member) -> None:
        """Use the next member from now on, also for watches, because this one may be cut off or stopped."""
        if self._members[0] is member and len(self._members) > 1:
            self._members = [*self._members[1:], member]
        member.doubted = True
        for call in list(member.streams):
            call.cancel()

    # --- calls -------------------------------------------------------------------------------------

    async def _call(self, method: str, request: Any, *, writes: bool, seconds: float = REQUEST_SECONDS) -> Any:
        attempts = 1 if writes else len(self._servers.members) + 1
        renewed = False
        while True:
            member = await self._pick()
            attempts -= 1
            try:
                metadata = await self._metadata(member)
                reply = await getattr(member, method)(request, timeout=seconds, metadata=metadata)
                member.doubted = False
                return reply
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._closed or (task is not None and task.cancelling()):
                    raise
                raise (OutcomeUnknown if writes else StoreUnavailable)(f"{self!r} is closed") from None
            except grpc.aio.AioRpcError as error:
                if _token_is_old(error) and self._servers.user and not renewed:
                    renewed, self._token = True, ""
                    attempts += 1
                    continue
                failure = _translated(error, member.address, writes=writes)
                if error.code() in _REFUSED or isinstance(failure, (StoreFull, Compacted)):
                    raise failure from error
                self._leave(member)
                if attempts <= 0:
                    raise failure from error

    async def _metadata(self, member: _Member) -> tuple[tuple[str, str], ...]:
        needed = (("hasleader", "true"),)
        if not self._servers.user:
            return needed
        if not self._token:
            request = _m.Authenticate(name=self._servers.user, password=self._servers.password)
            try:
                reply = await member.authenticate(request, timeout=REQUEST_SECONDS, metadata=needed)
            except grpc.aio.AioRpcError as error:
                self._leave(member)
                raise StoreUnavailable(f"etcd at {member.address} refuses the login: {error.details()}") from error
            self._token = reply.token
        return (*needed, ("token", self._token))


def _member(address: str, credentials: Any) -> _Member:
    if credentials is None:
        channel = grpc.aio.insecure_channel(address, _OPTIONS)
    else:
        channel = grpc.aio.secure_channel(address, credentials, _OPTIONS)

    def unary(name: str, request: Any, reply: Any) -> Any:
        return channel.unary_unary(
            name, request_serializer=request.SerializeToString, response_deserializer=reply.FromString
        )

    return _Member(
        address,
        channel,
        range=unary(f"{_KV}Range", _m.Range, _m.RangeReply),
        txn=unary(f"{_KV}Txn", _m.Txn, _m.TxnReply),
        compact=unary(f"{_KV}Compact", _m.Compaction, _m.Ignored),
        watch=channel.stream_stream(
            f"{_WATCH}Watch",
            request_serializer=_m.WatchRequest.SerializeToString,
            response_deserializer=_m.WatchReply.FromString,
        ),
        authenticate=unary(f"{_AUTH}Authenticate", _m.Authenticate, _m.AuthenticateReply),
    )


async def _connected(channel: Any) -> bool:
    """Whether a channel is connected, or becomes connected within `CONNECT_SECONDS`."""
    states = grpc.ChannelConnectivity
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CONNECT_SECONDS):
            state = channel.get_state(try_to_connect=True)
            while state in (states.IDLE, states.CONNECTING):
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
            return state is states.READY
    return False


def _bytes(path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path} for the connection to etcd: {error.strerror}") from error


# --- what failures mean ------------------------------------------------------------------------------


def _token_is_old(error: Any) -> bool:
    details = error.details() or ""
    return "invalid auth token" in details or "revision of auth store is old" in details


def _translated(error: Any, address: str, *, writes: bool) -> HeadwaterError:
    code, details = error.code(), error.details() or ""
    said = f"etcd at {address}: {details or code.name}"
    if "database space exceeded" in details:
        return StoreFull(f"{said}; {_FULL}")
    if "required revision has been compacted" in details:
        return Compacted(said)
    if "request is too large" in details:
        return StoreUnavailable(f"{said}; etcd needs --max-request-bytes of at least 1572864, its default")
    if not writes or code in _REFUSED or any(known in details for known in _UNDONE):
        return StoreUnavailable(said)
    return OutcomeUnknown(said)


# --- data and messages -------------------------------------------------------------------------------


def _range(get: Get) -> Any:
    return _m.Range(key=get.key, range_end=get.end, limit=get.limit, revision=get.revision)


def _op(operation: Get | Put | Delete) -> Any:
    if isinstance(operation, Get):
        return _m.Op(range=_range(operation))
    if isinstance(operation, Put):
        return _m.Op(put=_m.Put(key=operation.key, value=operation.value))
    return _m.Op(delete_range=_m.DeleteRange(key=operation.key, range_end=operation.end))


def _compare(compare: Compare) -> Any:
    result = _EQUAL if compare.relation == "=" else _LESS
    if compare.field == "created":
        return _m.Compare(result=result, target=_CREATE, key=compare.key, create_revision=compare.revision)
    return _m.Compare(result=result, target=_MOD, key=compare.key, mod_revision=compare.revision)


def _pair(kv: Any) -> Pair:
    return Pair(kv.key, kv.value, kv.create_revision, kv.mod_revision)


def _found(reply: Any, revision: int = 0) -> Found:
    return Found([_pair(kv) for kv in reply.kvs], reply.more, revision or reply.header.revision)


def _last_revision(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs of the newest revision. The next part of a divided message may have more of them."""
    return [pair for pair in pairs if pair.modified == pairs[-1].modified] if pairs else []
