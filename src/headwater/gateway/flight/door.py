"""What each call of Flight SQL does: statements become questions to `Asking`, and their batches become messages.

A statement runs when its rows are fetched (DoGet), and only then. Between two calls a gateway keeps nothing of a
client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import INSTEAD_OF_A_COMMIT, BadInput, NotFound, NotReady, TooLarge
from headwater.gateway.flight import tables
from headwater.gateway.flight.encoding import frames, plain, schema_bytes, schema_frame, values_of
from headwater.gateway.flight.errors import Unsupported
from headwater.gateway.flight.messages import flight, pack, parsed, sql, unpack
from headwater.gateway.flight.metrics import FlightStats
from headwater.gateway.flight.parameters import parameters_of
from headwater.gateway.flight.statements import Prepared, Ticket, encode, prepared_of, ticket_of
from headwater.gateway.quotas import Usage
from headwater.gateway.services import Call, Left, Services, without_sql
from headwater.query.asking import Asking, Engine, Query, Question
from headwater.state.cluster.access import AclResource, Operation

if TYPE_CHECKING:
    import pyarrow as pa

STALLED_SECONDS = 600.0
"""How long a message waits for a client that does not read. Its query is cancelled then."""
CANCELLED = 1
CLOSED = 1
INVALID_NAME = 1
MANY_BYTES = 256 << 10
"""Batches with more bytes become messages in a thread."""
ACTIONS = {
    "CreatePreparedStatement": "Prepare a statement.",
    "ClosePreparedStatement": "Forget a prepared statement.",
    "CancelFlightInfo": "Cancel a query.",
    "CancelQuery": "Cancel a query, the former way.",
    "SetSessionOptions": "There are no options: all names are refused.",
    "GetSessionOptions": "There are no options.",
    "CloseSession": "End a session.",
}
_WRITING = ("CommandStatementUpdate", "CommandPreparedStatementUpdate", "CommandStatementIngest")
_TRANSACTIONS = ("BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint")
MAX_ITEMS = 256
"""Endpoints or options in one message."""
MAX_ACTION_BYTES = 1 << 20
"""The size of an action without a statement: it is read on the event loop."""
Send = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A call, and what its headers say."""

    call: Call
    engine: Engine = Engine.AUTO


class Door:
    """See the module."""

    def __init__(self, services: Services, stats: FlightStats) -> None:
        self._services = services
        self._stats = stats
        self._running: dict[str, Query] = {}

    def __repr__(self) -> str:
        return f"<Door of Flight SQL, {len(self._running)} queries>"

    # --- questions -------------------------------------------------------------------------------------

    async def info(self, asked: Asked, descriptor: Any) -> Any:
        """How to fetch the answer to a command: one endpoint, at this address."""
        name, command = unpack(descriptor.cmd)
        known = tables.schema_of(name, command)
        ticket = bytes(descriptor.cmd)
        if known is None:
            statement = self._statement(name, command)
            if not statement.values:
                known = plain(await self._describe(asked, statement))
            mark = self._services.chance.uuid().hex
            ticket = pack("TicketStatementQuery", statement_handle=encode(Ticket(mark, statement)))
        return flight.Info(
            schema=schema_bytes(known) if known is not None else b"",
            flight_descriptor=descriptor,
            endpoint=[flight.Endpoint(ticket=flight.Ticket(ticket=ticket))],
            total_records=-1,
            total_bytes=-1,
        )

    async def schema(self, asked: Asked, descriptor: Any) -> bytes:
        """The schema of the answer to a command."""
        name, command = unpack(descriptor.cmd)
        known = tables.schema_of(name, command)
        if known is None:
            known = plain(await self._describe(asked, self._statement(name, command)))
        return schema_bytes(known)

    async def rows(self, asked: Asked, ticket: bytes, send: Send) -> None:
        """Send the rows of a ticket."""
        name, command = unpack(ticket)
        known = tables.schema_of(name, command)
        if known is not None:
            table = await tables.answer(name, command, asked.call, self._columns)
            await self._send(schema_frame(known), send, asked.call.usage)
            for batch in table.to_batches():
                await self._send_batch(batch, known, send, asked.call.usage)
        elif name == "TicketStatementQuery":
            asked.call.as_stream()
            await self._run(asked, ticket_of(command.statement_handle), send)
        else:
            raise BadInput("fetch the rows with the ticket that GetFlightInfo gives")

    async def _run(self, asked: Asked, ticket: Ticket, send: Send) -> None:
        usage = asked.call.usage
        usage.reads()
        query = await self._services.unless_over(self._asking().ask(self._question(asked, ticket.statement)))
        self._running[ticket.name] = query
        batches = query.batches()
        try:
            shown = plain(query.schema)
            await self._send(schema_frame(shown), send, usage)
            while (batch := await self._services.unless_over(anext(batches, None))) is not None:
                await self._send_batch(batch, shown, send, usage)
        except BaseException as error:
            left = isinstance(error, asyncio.CancelledError | Left)
            await query.cancel("the client has left" if left else str(error))
            raise
        finally:
            self._running.pop(ticket.name, None)
            await _close(batches)

    async def _send_batch(self, batch: pa.RecordBatch, schema: pa.Schema, send: Send, usage: Usage) -> None:
        made = frames(batch, schema)
        while True:
            if batch.nbytes > MANY_BYTES:
                async with self._services.chunks:
                    frame = await self._services.offload(next, made, None)
            else:
                frame = next(made, None)
            if frame is None:
                break
            await self._send(frame, send, usage)
        self._stats.rows += batch.num_rows

    async def _send(self, frame: bytes, send: Send, usage: Usage) -> None:
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await send(frame)
        except TimeoutError:
            raise BadInput(f"the client has not read its rows for {STALLED_SECONDS:.0f} s") from None
        self._stats.sent_bytes += len(frame)
        usage.sent(len(frame))
        if usage.pause_before_sending:
            await self._services.unless_over(asyncio.sleep(usage.pause_before_sending))

    def _statement(self, name: str, command: Any) -> Prepared:
        if name == "CommandStatementQuery":
            _check_alone(command)
            return Prepared(command.query)
        if name == "CommandPreparedStatementQuery":
            return prepared_of(command.prepared_statement_handle)
        raise _unsupported(name)

    def _question(self, asked: Asked, statement: Prepared) -> Question:
        call = asked.call
        return Question(
            sql=statement.sql,
            asker=call.caller.principal,
            account=call.caller.account,
            readable=lambda topic: call.may(Operation.READ, AclResource.TOPIC, topic),
            parameters=statement.values,
            engine=asked.engine,
        )

    def _asking(self) -> Asking:
        found = self._services.asking
        if found is None:
            raise NotReady(without_sql())
        self._services.check_contact()
        return found

    async def _describe(self, asked: Asked, statement: Prepared) -> pa.Schema:
        return await self._asking().describe(self._question(asked, statement))

    async def _columns(self, call: Call, topic: str) -> pa.Schema:
        quoted = topic.replace('"', '""')
        return plain(await self._describe(Asked(call), Prepared(f'SELECT * FROM "{quoted}"')))

    # --- parameters ------------------------------------------------------------------------------------

    async def put(self, asked: Asked, messages: AsyncIterator[Any], most: int) -> bytes:
        """Bind the parameters of a prepared statement. Returns its new handle, for the client to use from now on."""
        first = await anext(messages, None)
        if first is None:
            raise BadInput("the call has no command")
        name, command = unpack(first.flight_descriptor.cmd)
        if name != "CommandPreparedStatementQuery":
            raise _unsupported(name)
        statement = prepared_of(command.prepared_statement_handle)
        pieces, size = [(first.data_header, first.data_body)], 0
        async for message in messages:
            size += len(message.data_header) + len(message.data_body)
            if size > most:
                raise BadInput(f"the parameters have more than {most:,} bytes")
            if message.data_header:
                pieces.append((message.data_header, message.data_body))
        bound = Prepared(statement.sql, await self._services.offload(values_of, pieces))
        result = sql.DoPutPreparedStatementResult(prepared_statement_handle=encode(bound))
        return bytes(result.SerializeToString())

    # --- actions ---------------------------------------------------------------------------------------

    async def act(self, asked: Asked, kind: str, body: bytes) -> list[bytes]:
        """Do an action, and return its results."""
        if kind == "CreatePreparedStatement":
            return [await self._prepare(asked, _inside(body, "ActionCreatePreparedStatementRequest"))]
        if len(body) > MAX_ACTION_BYTES:
            raise TooLarge(
                f"an action of the kind {kind[:40]!r} has {len(body):,} bytes; the most is {MAX_ACTION_BYTES:,}"
            )
        if kind == "ClosePreparedStatement":
            prepared_of(_inside(body, "ActionClosePreparedStatementRequest").prepared_statement_handle)
            return []
        if kind == "CancelFlightInfo":
            status = await self._cancel(asked, parsed(flight.CancelRequest, body).info)
            return [flight.CancelResult(status=status).SerializeToString()]
        if kind == "CancelQuery":
            info = parsed(flight.Info, _inside(body, "ActionCancelQueryRequest").info)
            return [pack("ActionCancelQueryResult", result=await self._cancel(asked, info))]
        if kind == "SetSessionOptions":
            return [_refused_options(parsed(flight.SetOptions, body))]
        if kind == "GetSessionOptions":
            return [b""]
        if kind == "CloseSession":
            return [flight.CloseResult(status=CLOSED).SerializeToString()]
        raise _unsupported(kind)

    async def _prepare(self, asked: Asked, request: Any) -> bytes:
        """Check a statement. Its parameters are all NULL meanwhile; the columns may be others once they are bound."""
        import pyarrow as pa

        _check_alone(request)
        parameters = await self._services.offload(parameters_of, request.query)
        known = await self._describe(asked, Prepared(request.query, (None,) * len(parameters)))
        fields = [pa.field(f"parameter_{i}", kind) for i, kind in enumerate(parameters, 1)]
        return pack(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=encode(Prepared(request.query)),
            dataset_schema=schema_bytes(plain(known)),
            parameter_schema=schema_bytes(pa.schema(fields)) if fields else b"",
        )

    async def _cancel(self, asked: Asked, info: Any) -> int:
        """Cancel the query of an answer to GetFlightInfo, if it is the caller's and runs here."""
        _check_few(info.endpoint, "endpoints")
        names = [_ticket_name(endpoint.ticket.ticket) for endpoint in info.endpoint]
        found = [self._running[name] for name in names if name in self._running]
        own = [query for query in found if query.asker == asked.call.caller.principal]
        if not own:
            raise NotFound("no such query runs at this gateway")
        for query in own:
            await query.cancel(f"{query.asker} has cancelled it")
        return CANCELLED


def _check_few(items: Sized, what: str) -> None:
    """Refuse lists that no driver sends: each of their items takes some time."""
    if len(items) > MAX_ITEMS:
        raise BadInput(f"the message has {len(items):,} {what}: at most {MAX_ITEMS:,} are read")


def _check_alone(request: Any) -> None:
    if request.HasField("transaction_id"):
        raise _unsupported("BeginTransaction")


def _inside(body: bytes, name: str) -> Any:
    """The body of an action, which must be of one kind."""
    found, message = unpack(body)
    if found != name:
        raise BadInput(f"the action needs a message {name}, not {found}")
    return message


def _ticket_name(data: bytes) -> str:
    """The name of the query of a ticket; empty for the tickets of other commands."""
    name, message = unpack(data)
    return ticket_of(message.statement_handle).name if name == "TicketStatementQuery" else ""


def _refused_options(request: Any) -> bytes:
    """The answer that no option is known. The catalog may be set to the only one."""
    _check_few(request.session_options, "options")
    errors = [
        flight.NamedError(key=option.key, value=flight.OptionError(value=INVALID_NAME))
        for option in request.session_options
        if (option.key, option.value.string_value) != ("catalog", tables.CATALOG)
    ]
    return bytes(flight.SetOptionsResult(errors=errors).SerializeToString())


def _unsupported(name: str) -> Unsupported:
    if name in _WRITING:
        return Unsupported(f"SQL only reads. {INSTEAD_OF_A_COMMIT}")
    if name in _TRANSACTIONS:
        return Unsupported("there are no transactions of queries: every query sees one moment, and SQL only reads")
    return Unsupported(f"{name[:100]!r} is not a part of Flight SQL that is served here")


async def _close(batches: AsyncIterator[Any]) -> None:
    close = getattr(batches, "aclose", None)
    if close is not None:
        await close()
