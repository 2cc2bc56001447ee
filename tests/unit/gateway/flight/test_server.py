"""Flight SQL through ADBC's driver: tables, rows, parameters, errors, cancelling, limits and an orderly end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import grpc.aio
import pyarrow as pa
import pyarrow.flight
import pytest

from headwater.errors import ConfigError
from headwater.gateway.flight.messages import SERVICE, flight, pack, parsed, sql, unpack
from headwater.gateway.flight.server import MAX_REQUEST_BYTES, FlightServer, host_of
from headwater.gateway.flight.statements import Prepared, encode
from headwater.gateway.quotas import Usage
from headwater.query.asking import Phase
from headwater.security.quotas import Meter
from headwater.settings.settings import Gateway, Settings
from headwater.state.commands.cluster import AlterQuota
from tests.support.flights import ENDLESS, ROWS, SILENT, FakeAsking, Flying, flying, orders

PROMISES = ("Q7",)

ROW = '{"n": 1}'


def told(work: Callable[[Any], Any], uri: str, **options: Any) -> Any:
    """What a client finds out with a cursor."""
    with adbc.connect(uri, autocommit=True, **options) as connection, connection.cursor() as cursor:
        return work(cursor)


async def ask(found: Flying, work: Callable[[Any], Any], **options: Any) -> Any:
    return await asyncio.to_thread(told, work, found.uri, **options)


def rows(cursor: Any, text: str, *values: Any) -> Any:
    cursor.execute(text, values or None)
    return cursor.fetchall()


def run(story: Callable[[Flying], Awaitable[None]], settings: Settings | None = None, **tables: pa.Table) -> None:
    async def whole() -> None:
        async with flying(settings, FakeAsking(**tables) if tables else None) as found:
            await story(found)

    asyncio.run(whole())


class Raw:
    """Calls of the protocol, one by one."""

    def __init__(self, found: Flying) -> None:
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{found.server.port}")

    async def close(self) -> None:
        await self._channel.close()

    async def info(self, command: bytes) -> Any:
        call = self._channel.unary_unary(f"/{SERVICE}/GetFlightInfo")
        return parsed(flight.Info, await call(flight.Descriptor(type=2, cmd=command).SerializeToString()))

    def get(self, ticket: bytes) -> Any:
        return self._channel.unary_stream(f"/{SERVICE}/DoGet")(flight.Ticket(ticket=ticket).SerializeToString())

    async def act(self, kind: str, body: bytes = b"") -> list[bytes]:
        call = self._channel.unary_stream(f"/{SERVICE}/DoAction")
        request = flight.Action(type=kind, body=body).SerializeToString()
        return [parsed(flight.Result, result).body async for result in call(request)]

    async def put(self, *messages: Any) -> list[bytes]:
        call = self._channel.stream_stream(f"/{SERVICE}/DoPut")
        return [part async for part in call(iter([message.SerializeToString() for message in messages]))]


async def refused(work: Awaitable[Any]) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await work
    return failed.value.code().name, failed.value.details() or ""


def test_rows_and_parameters() -> None:
    async def story(found: Flying) -> None:
        def work(cursor: Any) -> None:
            assert rows(cursor, "SELECT count(*) FROM orders") == [(3,)]
            assert rows(cursor, 'SELECT value FROM orders WHERE partition = ? AND "offset" < ?', 1, 5) == [(ROW,)]
            assert rows(cursor, "SELECT value FROM orders WHERE key = ?", b"k1") == [(ROW,)]
            assert rows(cursor, "SELECT ?, ?", None, "text") == [(None, "text")]
            cursor.execute("SELECT * FROM orders LIMIT 0")
            assert cursor.fetch_arrow_table().schema.equals(orders().schema)
            with pytest.raises(adbc_driver_manager.Error, match="one set of parameters at a time, not 2"):
                cursor.execute("SELECT ?", pa.table({"parameter_1": [1, 2]}))
            with pytest.raises(adbc_driver_manager.NotSupportedError, match="SQL only reads"):
                cursor.executemany("SELECT ?", [(1,), (2,)])

        await ask(found, work)
        assert found.server.stats.calls["DoPut", "OK"] == 3 and found.server.stats.under_way == 0
        names = {metric.name for metric in found.server.metrics()}
        assert "headwater_flight_calls_total" in names and found.server.stats.rows > 0

    run(story)


def test_large_answers_come_in_small_messages() -> None:
    """Rows of 1 MB each, and a batch with columns of a dictionary."""

    async def story(found: Flying) -> None:
        def work(cursor: Any) -> Any:
            cursor.execute("SELECT * FROM large")
            return cursor.fetch_arrow_table()

        table = await ask(found, work)
        assert table.num_rows == 40 and table.column("word").to_pylist() == ["x" * (1 << 20)] * 40

    run(story, large=pa.table({"word": ["x" * (1 << 20)] * 40}))


def test_tables() -> None:
    async def story(found: Flying) -> None:
        def work(cursor: Any) -> None:
            connection = cursor.connection
            [catalog] = connection.adbc_get_objects(depth="all").read_all().to_pylist()
            [schema] = catalog["catalog_db_schemas"]
            assert (catalog["catalog_name"], schema["db_schema_name"]) == ("headwater", "topics")
            assert [table["table_name"] for table in schema["db_schema_tables"]] == ["orders", "secret"]
            columns = [column["column_name"] for column in schema["db_schema_tables"][0]["table_columns"]]
            assert columns == ["partition", "offset", "key", "value"]
            assert connection.adbc_get_table_types() == ["TABLE"]
            assert connection.adbc_get_table_schema("orders").names == columns
            assert connection.adbc_get_info()["vendor_name"] == "Headwater"
            filtered = connection.adbc_get_objects(depth="tables", table_name_filter="ord%").read_all().to_pylist()
            assert [t["table_name"] for t in filtered[0]["catalog_db_schemas"][0]["db_schema_tables"]] == ["orders"]

        await ask(found, work)

    run(story)


def test_errors() -> None:
    async def story(found: Flying) -> None:
        def work(cursor: Any) -> None:
            with pytest.raises(adbc_driver_manager.ProgrammingError, match="nothing"):
                cursor.execute("SELECT nothing FROM orders")
            with pytest.raises(adbc_driver_manager.ProgrammingError, match="not closed"):
                cursor.execute("SELECT 'x")
            with pytest.raises(adbc_driver_manager.NotSupportedError, match="produce to the topic"):
                cursor.adbc_ingest("orders", orders(), mode="append")
            assert rows(cursor, "SELECT 1") == [(1,)]

        await ask(found, work)

    run(story)


def test_commands_that_are_not_served() -> None:
    async def story(found: Flying) -> None:
        raw = Raw(found)
        update = pack("CommandStatementUpdate", query="DELETE FROM orders")
        put = flight.Data(flight_descriptor=flight.Descriptor(type=2, cmd=update))
        code, text = await refused(raw.put(put))
        assert code == "UNIMPLEMENTED" and "produce to the topic" in text
        for kind in ("BeginTransaction", "BeginSavepoint"):
            code, text = await refused(raw.act(kind))
            assert code == "UNIMPLEMENTED" and "transactions" in text
        statement = pack("CommandStatementQuery", query="SELECT 1", transaction_id=b"x")
        assert (await refused(raw.info(statement)))[0] == "UNIMPLEMENTED"
        assert (await refused(raw.info(pack("CommandStatementSubstraitPlan"))))[0] == "UNIMPLEMENTED"
        assert (await refused(raw.act("Dance")))[0] == "UNIMPLEMENTED"
        await raw.close()

    run(story)


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"\x0a\x03abc", sql.Any(type_url="x/y").SerializeToString()])
def test_bytes_that_are_no_messages(data: bytes) -> None:
    async def story(found: Flying) -> None:
        raw = Raw(found)
        assert (await refused(raw.info(data)))[0] == "INVALID_ARGUMENT"
        assert (await refused(raw.get(data).read()))[0] == "INVALID_ARGUMENT"
        assert (await refused(raw.act("CreatePreparedStatement", data)))[0] == "INVALID_ARGUMENT"
        handle = pack("CommandPreparedStatementQuery", prepared_statement_handle=data)
        assert (await refused(raw.info(handle)))[0] == "INVALID_ARGUMENT"
        ticket = pack("TicketStatementQuery", statement_handle=data)
        assert (await refused(raw.get(ticket).read()))[0] == "INVALID_ARGUMENT"
        bound = pack("CommandPreparedStatementQuery", prepared_statement_handle=encode(Prepared("SELECT ?")))
        given = flight.Data(flight_descriptor=flight.Descriptor(type=2, cmd=bound), data_header=data, data_body=data)
        assert (await refused(raw.put(given)))[0] == "INVALID_ARGUMENT"
        await raw.close()

    run(story)


def test_requests_have_a_limit() -> None:
    async def story(found: Flying) -> None:
        raw = Raw(found)
        large = pack("CommandStatementQuery", query="x" * (MAX_REQUEST_BYTES + 1))
        assert (await refused(raw.info(large)))[0] == "RESOURCE_EXHAUSTED"
        bound = pack("CommandPreparedStatementQuery", prepared_statement_handle=encode(Prepared("SELECT ?")))
        first = flight.Data(flight_descriptor=flight.Descriptor(type=2, cmd=bound))
        part = flight.Data(data_header=b"x", data_body=bytes(MAX_REQUEST_BYTES // 2))
        code, text = await refused(raw.put(first, part, part))
        assert code == "INVALID_ARGUMENT" and "more than" in text
        await raw.close()

    run(story)


def test_calls_at_once_and_rates_have_limits() -> None:
    async def story(found: Flying) -> None:
        raw = Raw(found)
        taken = found.gateway.services.requests.enter("another")
        code, text = await refused(raw.act("GetSessionOptions"))
        assert code == "RESOURCE_EXHAUSTED" and "already" in text
        taken.release()
        codes = [await raw.act("GetSessionOptions") for _ in range(2)]
        assert codes == [[b""], [b""]]
        assert (await refused(raw.act("GetSessionOptions")))[0] == "RESOURCE_EXHAUSTED"
        await raw.close()

    run(story, Settings(gateway=Gateway(flight="127.0.0.1:0", requests=1, requests_per_second=1)))


def test_quotas_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are fetched count as bytes read. A caller over its quota gets none."""
    counted: list[int] = []
    monkeypatch.setattr(Usage, "sent", lambda usage, size: counted.append(size))

    async def story(found: Flying) -> None:
        own = found.gateway.services
        limits = {"consumer_byte_rate": "1000"}
        await found.gateway.core.cluster.submit([AlterQuota((("user", None),), limits, ())])
        raw = Raw(found)
        query = await raw.info(pack("CommandStatementQuery", query="SELECT 1"))
        ticket = query.endpoint[0].ticket.ticket
        frames = [frame async for frame in raw.get(ticket)]
        assert counted and sum(counted) == sum(map(len, frames))
        own.quotas.charge("consumer_byte_rate", Meter("ANONYMOUS", ""), 1_000_000)
        code, text = await refused(raw.get(ticket).read())
        assert code == "RESOURCE_EXHAUSTED" and "consumer_byte_rate" in text
        await raw.close()

    run(story)


def test_sessions_of_drivers() -> None:
    async def story(found: Flying) -> None:
        raw = Raw(found)
        options = [
            flight.Option(key="catalog", value=flight.OptionValue(string_value="headwater")),
            flight.Option(key="schema", value=flight.OptionValue(string_value="topics")),
        ]
        [answer] = await raw.act("SetSessionOptions", flight.SetOptions(session_options=options).SerializeToString())
        assert [error.key for error in parsed(flight.SetOptionsResult, answer).errors] == ["schema"]
        [closed] = await raw.act("CloseSession")
        assert parsed(flight.CloseResult, closed).status == 1
        await raw.close()
        client = await asyncio.to_thread(pyarrow.flight.connect, found.uri)
        names = [action.type for action in await asyncio.to_thread(client.list_actions)]
        assert "CreatePreparedStatement" in names
        assert await asyncio.to_thread(lambda: list(client.list_flights())) == []
        client.close()

    run(story)


def test_a_reader_that_does_not_read_stops_the_engine() -> None:
    """And a reader that leaves cancels its query."""

    async def story(found: Flying) -> None:
        raw = Raw(found)
        info = await raw.info(pack("CommandStatementQuery", query=ENDLESS))
        stream = raw.get(info.endpoint[0].ticket.ticket)
        assert parsed(flight.Data, await stream.read()).data_header
        [query] = found.asking.asked
        before = -1
        while query.given != before:  # the windows of the connection fill up, then nothing moves
            before = query.given
            await asyncio.sleep(0.3)
        assert query.given < 64 and not query.cancelled.is_set()
        for _ in range(3):
            assert parsed(flight.Data, await stream.read()).data_body
        stream.cancel()
        await asyncio.wait_for(query.cancelled.wait(), 30)
        assert query.why == "the client has left"
        await raw.close()

    run(story)


@pytest.mark.parametrize("kind", ["CancelFlightInfo", "CancelQuery"])
def test_cancelling_by_another_call(kind: str) -> None:
    async def story(found: Flying) -> None:
        raw = Raw(found)
        info = await raw.info(pack("CommandStatementQuery", query=SILENT))
        asked = flight.CancelRequest(info=info).SerializeToString()
        if kind == "CancelQuery":
            asked = pack("ActionCancelQueryRequest", info=info.SerializeToString())
        assert (await refused(raw.act(kind, asked)))[0] == "NOT_FOUND"
        stream = raw.get(info.endpoint[0].ticket.ticket)
        assert parsed(flight.Data, await stream.read()).data_header
        [answer] = await raw.act(kind, asked)
        result = parsed(flight.CancelResult, answer).status if kind == "CancelFlightInfo" else unpack(answer)[1].result
        assert result == 1
        code, text = await refused(stream.read())
        assert "anonymous has cancelled it" in text.lower() and code == "CANCELLED"
        await raw.close()

    run(story)


def test_adbc_cancels() -> None:
    async def story(found: Flying) -> None:
        def work(cursor: Any) -> Any:
            cursor.execute(ENDLESS)
            reader = cursor.fetch_record_batch()
            assert reader.read_next_batch().num_rows <= ROWS
            cursor.adbc_cancel()
            with pytest.raises((adbc_driver_manager.Error, pa.ArrowException, OSError)):
                while True:
                    reader.read_next_batch()

        await ask(found, work)
        [query] = found.asking.asked
        await asyncio.wait_for(query.cancelled.wait(), 30)
        assert query.progress.phase is Phase.CANCELLED

    run(story)


def test_a_gateway_that_stops_ends_its_answers() -> None:
    async def story(found: Flying) -> None:
        raw = Raw(found)
        info = await raw.info(pack("CommandStatementQuery", query=SILENT))
        stream = raw.get(info.endpoint[0].ticket.ticket)
        await stream.read()
        found.gateway.services.stopping.set()
        code, text = await refused(stream.read())
        assert code == "UNAVAILABLE" and "stops" in text
        assert found.asking.asked[0].cancelled.is_set()
        await raw.close()

    run(story)


def test_a_gateway_without_sql() -> None:
    async def story(found: Flying) -> None:
        found.gateway.services.asking = None
        raw = Raw(found)
        code, text = await refused(raw.info(pack("CommandStatementQuery", query="SELECT 1")))
        assert code == "UNAVAILABLE" and "no SQL" in text
        await raw.close()

    run(story)


def test_the_engine_of_a_header() -> None:
    async def story(found: Flying) -> None:
        header = "adbc.flight.sql.rpc.call_header.headwater-engine"
        await ask(found, lambda cursor: rows(cursor, "SELECT 1"), db_kwargs={header: "spark"})
        assert [query.engine for query in found.asking.asked] == ["spark"]
        with pytest.raises(adbc_driver_manager.Error, match="there is no engine 'oracle'"):
            await ask(found, lambda cursor: rows(cursor, "SELECT 1"), db_kwargs={header: "oracle"})

    run(story)


def test_a_port_that_is_taken() -> None:
    async def story(found: Flying) -> None:
        settings = Settings(gateway=Gateway(flight=f"127.0.0.1:{found.server.port}"))
        found.gateway.services.own = settings.gateway
        with pytest.raises(ConfigError, match="cannot listen"):
            await FlightServer(found.gateway.services).open()

    run(story)


@pytest.mark.parametrize(
    ("peer", "host"),
    [("ipv4:127.0.0.1:5000", "127.0.0.1"), ("ipv6:%5B::1%5D:5000", "::1"), ("unix:/tmp/x", ""), ("", "")],
)
def test_hosts(peer: str, host: str) -> None:
    assert host_of(peer) == host
