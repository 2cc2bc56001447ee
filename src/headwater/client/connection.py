"""One connection to one broker: negotiation of versions, log-in, then requests, several of them under way at once."""

from __future__ import annotations

import asyncio
import os
import ssl
import struct
from collections.abc import Callable, Mapping
from typing import Any, cast

from headwater.client.errors import AnswerLost, NotTrusted, ProtocolError, Unreachable, UnsupportedApi, check
from headwater.client.security import ClientSecurity, Conversation
from headwater.errors import ClientError, CorruptFrame, HeadwaterError
from headwater.version import __version__
from headwater.wire.build import build
from headwater.wire.frames import SCRATCH_BYTES, FrameReader
from headwater.wire.messages import (
    api_name,
    decode_response,
    encode_request,
    known_versions,
    request_type,
)

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
RENEW_AFTER = 0.8
"""The share of the lifetime of a log-in after which it is renewed."""
MAX_LOGIN_STEPS = 8
MAX_RESPONSE_BYTES = 128 << 20
MAX_REQUEST_BYTES = 100 << 20
MAX_UNDER_WAY = 256
"""Requests of one connection that wait for an answer. Further ones wait in line."""
CONNECT_SECONDS = 10.0
REQUEST_SECONDS = 30.0

_CORRELATION_AND_ERROR = struct.Struct(">ih")
_UNSUPPORTED_VERSION = 35


class _Sent:
    """A request that waits for its answer."""

    __slots__ = ("answer", "api_key", "version")

    def __init__(self, api_key: int, version: int, answer: asyncio.Future[Any]) -> None:
        self.api_key = api_key
        self.version = version
        self.answer = answer


class Connection(asyncio.BufferedProtocol):
    """Use `connect` to get one."""

    def __init__(self, address: str, client_id: str) -> None:
        self.address = address
        self._client_id = client_id
        self._frames = FrameReader(MAX_RESPONSE_BYTES, memoryview(bytearray(SCRATCH_BYTES)))
        self._transport: asyncio.Transport | None = None
        self._next_id = 0
        self._sent: dict[int, _Sent] = {}
        self._turns = asyncio.Semaphore(MAX_UNDER_WAY)
        self._writable = asyncio.Event()
        self._writable.set()
        self._versions: Mapping[int, int] = {}
        self._failure: ClientError | None = None
        self._security: ClientSecurity | None = None
        self._secrets: Callable[[], ClientSecurity] | None = None
        self._renew_at: float | None = None
        self._renewing = asyncio.Lock()
        self._closed = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Connection {self.address} {state}, {len(self._sent)} requests under way>"

    # --- for callers ---------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._failure is not None

    def version(self, api_key: int) -> int:
        """The highest version of an API that both sides support."""
        if api_key not in self._versions:
            raise UnsupportedApi(
                f"the broker at {self.address} and this client share no version of {api_name(api_key)}"
            )
        return self._versions[api_key]

    async def request(
        self, api_key: int, /, within: float = REQUEST_SECONDS, newest: int | None = None, **fields: Any
    ) -> Any:
        """Send a request in the newest version that both sides support and the caller allows, and wait for its answer.

        Fields that this version does not have are left out. When the time limit passes the connection is closed:
        answers come in order, so the next one would be late too.
        """
        if self._renew_at is not None:
            await self._renew(within)
        version = self.version(api_key)
        return await self._request(api_key, version if newest is None else min(version, newest), within, fields)

    async def close(self) -> None:
        """Close the connection. Requests under way fail."""
        self._end(Unreachable(f"the connection to {self.address} was closed"))
        await asyncio.shield(self._closed)

    # --- requests ------------------------------------------------------------------------------------

    async def _request(self, api_key: int, version: int, within: float, fields: Mapping[str, Any]) -> Any:
        name = api_name(api_key)
        sent = False
        try:
            async with asyncio.timeout(within), self._turns:
                await self._writable.wait()
                answer = self._send(api_key, version, fields)
                sent = True
                return await answer
        except TimeoutError:
            if not sent:
                raise Unreachable(f"{name} to {self.address} waited {within:g} s behind other requests") from None
            error = AnswerLost(f"{name}: no answer from {self.address} within {within:g} s")
            self._end(error)
            raise error from None

    def _send(self, api_key: int, version: int, fields: Mapping[str, Any]) -> asyncio.Future[Any]:
        if self._failure is not None or self._transport is None:
            raise Unreachable(f"the connection to {self.address} is closed") from self._failure
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        request = build(request_type(api_key, version), **fields)
        pieces = encode_request(api_key, version, self._next_id, self._client_id, request)
        size = sum(map(len, pieces))
        if size > MAX_REQUEST_BYTES:
            raise ClientError(f"the request has {size} bytes; the limit is {MAX_REQUEST_BYTES}")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._sent[self._next_id] = _Sent(api_key, version, answer)
        self._transport.writelines(pieces)
        return answer

    async def _handshake(self, within: float) -> None:
        """Ask for the broker's versions. A broker that does not know ours answers in version 0 and is asked again."""
        version = known_versions(API_VERSIONS)[-1]
        fields = {"client_software_name": "headwater", "client_software_version": __version__}
        for _ in range(2):
            response = await self._request(API_VERSIONS, version, within, fields)
            theirs = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
            if response.error_code != _UNSUPPORTED_VERSION:
                break
            version = min(version, theirs.get(API_VERSIONS, (0, 0))[1])
        check(response.error_code, f"the handshake with {self.address}")
        common = {}
        for api_key, (low, high) in theirs.items():
            known = known_versions(api_key)
            if known and max(low, known[0]) <= min(high, known[-1]):
                common[api_key] = min(high, known[-1])
        self._versions = common

    async def _log_in(self, security: ClientSecurity, within: float) -> None:
        """Log in, and note how long the log-in lasts."""
        self._security = security
        began = asyncio.get_running_loop().time()
        what = f"the log-in at {self.address}"
        mechanism = security.mechanism
        response = await self._request(SASL_HANDSHAKE, self.version(SASL_HANDSHAKE), within, {"mechanism": mechanism})
        offered = ", ".join(response.mechanisms)
        message = f"the broker offers {offered or 'no SASL on this listener'}, not {mechanism}"
        check(response.error_code, what, message)
        talk = Conversation(security)
        said: bytes | None = talk.first()
        for _ in range(MAX_LOGIN_STEPS):
            if said is None:
                break
            response = await self._request(
                SASL_AUTHENTICATE, self.version(SASL_AUTHENTICATE), within, {"auth_bytes": said}
            )
            check(response.error_code, what, response.error_message)
            said = talk.answer(bytes(response.auth_bytes))
        lifetime = getattr(response, "session_lifetime", None)
        seconds = lifetime.total_seconds() if lifetime is not None else 0
        self._renew_at = began + seconds * RENEW_AFTER if seconds > 0 else None

    async def _renew(self, within: float) -> None:
        """Renew the log-in before the broker closes the connection."""
        async with self._renewing:
            due = self._renew_at is not None and asyncio.get_running_loop().time() >= self._renew_at
            if due and self._security is not None:
                await self._log_in(self._secrets() if self._secrets is not None else self._security, within)

    def _received(self, frame: memoryview) -> None:
        correlation_id, start_of_body = _CORRELATION_AND_ERROR.unpack_from(frame)
        sent = self._sent.get(correlation_id)
        if sent is None:
            raise CorruptFrame(f"the broker answered request {correlation_id}, which was not sent")
        version = sent.version
        if sent.api_key == API_VERSIONS and start_of_body == _UNSUPPORTED_VERSION:
            version = 0
        _, body = decode_response(sent.api_key, version, frame)
        del self._sent[correlation_id]  # a request whose answer cannot be read fails with the connection
        if not sent.answer.done():
            sent.answer.set_result(body)

    # --- asyncio's side ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # not an instance of it under uvloop

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._received(frame)
        except (HeadwaterError, struct.error) as error:
            self._end(ProtocolError(f"{self.address} does not speak Kafka's protocol: {error}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def eof_received(self) -> bool:
        self._end(AnswerLost(f"{self.address} closed the connection"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(AnswerLost(f"the connection to {self.address} was lost: {exc or 'closed by the broker'}"))
        if not self._closed.done():
            self._closed.set_result(None)

    def _end(self, failure: ClientError) -> None:
        """Close with a failure. The first one is raised by all requests, under way or later."""
        if self._failure is not None:
            return
        self._failure = failure
        under_way, self._sent = self._sent, {}
        for sent in under_way.values():
            if not sent.answer.done():
                lost = failure if not isinstance(failure, Unreachable) else AnswerLost(str(failure))
                sent.answer.set_exception(lost)
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()
        elif not self._closed.done():
            self._closed.set_result(None)


async def connect(
    host: str,
    port: int,
    client_id: str,
    within: float = CONNECT_SECONDS,
    security: ClientSecurity | None = None,
    secrets: Callable[[], ClientSecurity] | None = None,
) -> Connection:
    """An open connection, with versions negotiated and the log-in done if one is configured.

    `secrets` is called now and whenever the log-in is renewed, instead of `security`.
    """
    security = secrets() if secrets is not None else security or ClientSecurity()
    tls = security.context()
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(within):
            _, connection = await loop.create_connection(lambda: Connection(address, client_id), host, port, ssl=tls)
    except TimeoutError:
        raise Unreachable(f"no connection to {address} within {within:g} s") from None
    except ssl.SSLError as error:
        raise NotTrusted(f"no TLS connection to {address}: {error.reason or error}") from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise Unreachable(f"no connection to {address}: {reason}") from error
    connection._secrets = secrets
    try:
        await connection._handshake(within)
        if security.mechanism:
            await connection._log_in(security, within)
    except AnswerLost as error:
        await connection.close()
        raise Unreachable(f"no handshake with {address}: {error}") from error
    except BaseException:
        await connection.close()
        raise
    return connection
