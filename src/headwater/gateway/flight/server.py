"""The Flight SQL server: gRPC on the gateway's event loop, with the users, limits and certificates of the HTTP API.

Flight is a gRPC service of ten calls. It is served by gRPC itself and not by pyarrow's server, which has threads of its
own, sets no limit on requests, and does not say who knocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio

from headwater import descriptors
from headwater.errors import ConfigError, HeadwaterError
from headwater.gateway.callers import Caller
from headwater.gateway.flight.door import ACTIONS, Asked, Door, Send
from headwater.gateway.flight.errors import told
from headwater.gateway.flight.messages import SERVICE, flight, parsed
from headwater.gateway.flight.metrics import FlightStats, collect
from headwater.gateway.flight.sessions import Sessions
from headwater.gateway.flight.tls import Pem, PemFiles
from headwater.gateway.limits import Rates
from headwater.gateway.problems import BAD_REQUEST, Refusal
from headwater.gateway.services import Call, Left, Services
from headwater.ops.metrics import Metric
from headwater.query.asking import Engine
from headwater.security.logins import network_of
from headwater.settings.settings import parse_address
from headwater.threads import CALLER

log = logging.getLogger("headwater.flight")
MAX_REQUEST_BYTES = 4 << 20
"""Bytes of a message of a client, and of the parameters of a statement."""
MAX_HEAD_BYTES = 64 << 10
MAX_TEXT = 2_000
"""Characters of an error. More would not fit into the trailers of some clients."""
ENGINE_HEADER = "headwater-engine"
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", MAX_HEAD_BYTES),
    ("grpc.max_concurrent_streams", 100),
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)
Context = Any
"""A `grpc.aio.ServicerContext`; gRPC has no types."""


class FlightServer:
    """Serves Flight SQL until it is closed."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.stats = FlightStats()
        self._door = Door(services, self.stats)
        self._sessions = Sessions(services.settings.security, services.logins)
        self._rates = Rates(services.own.requests_per_second, services.clock)
        own = services.settings.security.http
        self._pem = PemFiles(own) if own.certificate else None
        self._server: grpc.aio.Server | None = None
        self.host = ""
        self.port = 0

    def __repr__(self) -> str:
        return f"<FlightServer on {self.host}:{self.port}, {self.stats.under_way} calls>"

    async def open(self) -> None:
        """Listen at the address of the settings."""
        self.host, port = parse_address(self._services.own.flight)
        most = descriptors.of_process().set_aside()
        server = grpc.aio.server(options=(*_OPTIONS, ("grpc.max_allowed_incoming_connections", most)))
        server.add_generic_rpc_handlers((self._handlers(),))
        address = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
        try:
            if self._pem is None:
                self.port = server.add_insecure_port(address)
            else:
                self.port = server.add_secure_port(address, _credentials(self._pem))
        except RuntimeError as error:
            raise ConfigError(f"cannot listen on {self.host}:{port} (gateway.flight): is the port taken?") from error
        await server.start()
        self._server = server

    async def close(self, seconds: float) -> None:
        """Take no new calls, let those under way finish for some time, then end the others."""
        if self._server is not None:
            await self._server.stop(seconds)
            self._server = None

    def metrics(self) -> list[Metric]:
        """The metrics of this server."""
        return collect(self.stats)

    def _handlers(self) -> grpc.GenericRpcHandler:
        whole, parts = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        both = grpc.stream_stream_rpc_method_handler
        calls = {
            "Handshake": (both, self._handshake, flight.Handshake),
            "ListFlights": (parts, self._list_flights, flight.Criteria),
            "GetFlightInfo": (whole, self._get_flight_info, flight.Descriptor),
            "GetSchema": (whole, self._get_schema, flight.Descriptor),
            "DoGet": (parts, self._do_get, flight.Ticket),
            "DoPut": (both, self._do_put, flight.Data),
            "DoAction": (parts, self._do_action, flight.Action),
            "ListActions": (parts, self._list_actions, flight.Empty),
        }
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                name: make(self._guarded(name, handle, kind, iterates=make is both))
                for name, (make, handle, kind) in calls.items()
            },
        )

    # --- every call ------------------------------------------------------------------------------------

    def _guarded(self, name: str, handle: Callable[..., Awaitable[Any]], kind: Any, *, iterates: bool) -> Any:
        """A handler with what every call has: limits, a caller, counts, and errors as gRPC has them."""

        async def answer(request: Any, context: Context) -> Any:
            own, code = self._services, grpc.StatusCode.OK
            began = own.clock.monotonic()
            self.stats.under_way += 1
            try:
                async with self._let_in(name, context) as asked:
                    given = _parsed(request, kind) if iterates else parsed(kind, request)
                    return await asked.call.usage.timed(handle(asked, given, context))
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            except Left:
                code = grpc.StatusCode.CANCELLED
                return None
            except Exception as error:  # noqa: BLE001 - it becomes an answer, and is logged there
                code, text = _told(name, error)
            finally:
                self.stats.under_way -= 1
                self.stats.answered(name, code.name, own.clock.monotonic() - began)
            return await context.abort(code, text)

        return answer

    @contextlib.asynccontextmanager
    async def _let_in(self, name: str, context: Context) -> AsyncIterator[Asked]:
        own, call = self._services, None
        own.load.check()
        host = host_of(context.peer())
        place = own.requests.enter(network_of(host))
        try:
            head = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
            authorization = head.get("authorization", "")
            certified = self._certified(context)
            if name == "Handshake":
                authorization = await self._sessions.begin(host, authorization, certified)
                await context.send_initial_metadata((("authorization", authorization),))
            caller = Caller(await self._sessions.who(host, authorization, certified), host)
            place.move(caller.account)
            self._rates.take(caller.account)
            CALLER.set(caller.account)
            call = Call(own, caller, own.chance.uuid().hex, [place])
            call.usage.check_time()
            yield Asked(call, _engine(head.get(ENGINE_HEADER, "")))
        finally:
            for taken in call.places if call is not None else [place]:
                taken.release()

    def _certified(self, context: Context) -> str:
        """The principal of the client's certificate; empty if it has shown none."""
        if self._pem is None:
            return ""
        shown = context.auth_context().get("x509_pem_cert", ())
        return self._pem.principal(bytes(shown[0])) if shown else ""

    # --- the calls -------------------------------------------------------------------------------------

    async def _handshake(self, asked: Asked, requests: AsyncIterator[Any], context: Context) -> None:
        """The answer is in the headers."""

    async def _list_flights(self, asked: Asked, criteria: Any, context: Context) -> None:
        """Flight SQL has no use for it: tables are listed by commands."""

    async def _get_flight_info(self, asked: Asked, descriptor: Any, context: Context) -> bytes:
        return _bytes(await self._door.info(asked, descriptor))

    async def _get_schema(self, asked: Asked, descriptor: Any, context: Context) -> bytes:
        return _bytes(flight.SchemaResult(schema=await self._door.schema(asked, descriptor)))

    async def _do_get(self, asked: Asked, ticket: Any, context: Context) -> None:
        await self._door.rows(asked, ticket.ticket, _writer(context))

    async def _do_put(self, asked: Asked, messages: AsyncIterator[Any], context: Context) -> None:
        bound = await self._door.put(asked, messages, MAX_REQUEST_BYTES)
        await _writer(context)(_bytes(flight.PutResult(app_metadata=bound)))

    async def _do_action(self, asked: Asked, action: Any, context: Context) -> None:
        write = _writer(context)
        for body in await self._door.act(asked, action.type, action.body):
            await write(_bytes(flight.Result(body=body)))

    async def _list_actions(self, asked: Asked, nothing: Any, context: Context) -> None:
        write = _writer(context)
        for name, text in ACTIONS.items():
            await write(_bytes(flight.ActionType(type=name, description=text)))


def _credentials(pem: PemFiles) -> grpc.ServerCredentials:
    """Certificates that are looked at again at every handshake."""

    def configuration(found: Pem) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(found.key, found.chain)], found.client_ca)

    def newer() -> grpc.ServerCertificateConfiguration | None:
        found = pem.changed()
        return configuration(found) if found is not None else None

    return grpc.dynamic_ssl_server_credentials(configuration(pem.current), newer, pem.required)


def _writer(context: Context) -> Send:
    """Sends messages. It waits while the client does not read."""

    async def write(data: bytes) -> None:
        try:
            await context.write(data)
        except grpc.aio.BaseError as error:
            raise Left("the client has left") from error

    return write


async def _parsed(requests: AsyncIterator[bytes], kind: Any) -> AsyncIterator[Any]:
    async for request in requests:
        yield parsed(kind, request)


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _told(name: str, error: Exception) -> tuple[grpc.StatusCode, str]:
    if not isinstance(error, HeadwaterError):
        log.error("a call of Flight SQL failed", extra={"call": name}, exc_info=error)
    status, text = told(error)
    return grpc.StatusCode[status], text[:MAX_TEXT]


def _engine(text: str) -> Engine:
    try:
        return Engine(text.lower() or Engine.AUTO)
    except ValueError:
        known = ", ".join(Engine)
        raise Refusal(BAD_REQUEST, f"there is no engine {text[:40]!r} ({ENGINE_HEADER}): {known}") from None


def host_of(peer: str) -> str:
    """The address in gRPC's name of a client, such as `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""
