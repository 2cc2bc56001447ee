"""No request of a corpus of attacks keeps a gateway's event loop: what takes long is done in threads and children."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from pytest import MonkeyPatch

from headwater.errors import HeadwaterError, NoEngine
from headwater.gateway.callers import Caller
from headwater.gateway.flight.door import Asked, Door
from headwater.gateway.flight.messages import flight, pack, unpack
from headwater.gateway.flight.metrics import FlightStats
from headwater.gateway.flight.server import MAX_REQUEST_BYTES
from headwater.gateway.flight.statements import Prepared, encode
from headwater.gateway.flight.tables import answer
from headwater.gateway.services import Call
from headwater.query.asking import Engine
from headwater.query.engines.contract import Answer, EngineTask
from headwater.query.holding import Holding
from headwater.query.queries import Queries
from headwater.settings.settings import Sql
from headwater.threads import Threads, Turns
from tests.soak.hostile import doubled
from tests.support.gateways import ALICE, InGateway, gateway
from tests.support.promise import promise

MOST_MS = 5.0
RUNS = 3
"""The least of several runs counts: the first one imports, and others may meet a slow moment of the machine."""
DRAFT = "https://json-schema.org/draft/2020-12/schema"
MANY = {f"field_{number:05}": {"type": "string", "description": "x" * 20} for number in range(12_000)}


def nested(depth: int) -> Any:
    schema: Any = {"properties": {"a": {}}}
    for _ in range(depth):
        schema = {"unevaluatedProperties": False, "allOf": [schema]}
    return {"$schema": DRAFT, **schema}


def schema(text: str, kind: str = "AVRO") -> bytes:
    return json.dumps({"schema": text, "schemaType": kind}).encode()


def sql(text: str) -> tuple[str, bytes]:
    return "/v1/sql", json.dumps({"sql": text}).encode()


REQUESTS: dict[str, tuple[str, bytes]] = {
    "show": sql("SHOW TABLES" + " " * 65_000 + "x"),
    "brackets": sql("SELECT " + "(" * 20_000),
    "operators": sql("SELECT " + " + ".join(["1"] * 9_000)),
    "quotes": sql("SELECT " + "'" * 60_001),
    "defaults": ("/subjects/a/versions", schema(json.dumps(doubled(30, default=None)))),
    "encoded": ("/v1/topics/t/records?value_schema=ok", b'{"records": [{"value": {}}]}'),
    "all-of": ("/subjects/b/versions", schema(json.dumps(nested(30)), "JSON")),
    "large": ("/subjects/c/versions", schema(json.dumps({"properties": MANY}), "JSON")),
    "spaces": ("/subjects/d/versions", schema("syntax" + " " * 60_000 + "?", "PROTOBUF")),
    "messages": ("/subjects/e/versions", schema("message A {" * 5_000, "PROTOBUF")),
    "deep": ("/v1/topics/t/records", b'{"records": [{"value": ' + b"[" * 100_000),
    "records": ("/v1/topics/t/records", json.dumps({"records": [{"value": "x" * 100}] * 9_000}).encode()),
    "lines": ("/v1/topics/t/records", json.dumps({"records": [{"value": "x" * 8_000_000}]}).encode()),
}


ACTIONS: dict[str, bytes] = {
    "CreatePreparedStatement": pack(
        "ActionCreatePreparedStatementRequest", query="SELECT 1 WHERE 1 IN (" + ",".join("?" * 1_000) + ")"
    ),
    "CancelFlightInfo": flight.CancelRequest(
        info=flight.Info(endpoint=[flight.Endpoint(ticket=flight.Ticket(ticket=b"x" * 40))] * 60_000)
    ).SerializeToString(),
}


class NoProcess:
    """An engine that takes no query. Statements are parsed before it is asked."""

    async def run(self, task: EngineTask) -> Answer:
        raise NoEngine("the test has none")


class Steps:
    """The CPU time of the loop's thread in the longest callback, in milliseconds."""

    def __init__(self) -> None:
        self.longest = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        run = asyncio.events.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            self.longest = max(self.longest, 1_000 * (time.thread_time() - began))

        with MonkeyPatch.context() as patch:
            patch.setattr(asyncio.events.Handle, "_run", timed)
            yield


async def least(attack: Callable[[], Awaitable[Any]]) -> float:
    found = []
    for _ in range(RUNS):
        await asyncio.sleep(0)
        steps = Steps()
        with steps.counted():
            await asyncio.create_task(attack())  # type: ignore[arg-type]
        found.append(steps.longest)
    return min(found)


async def judged(found: InGateway) -> dict[str, float]:
    await found.topic("t")
    body = schema(json.dumps(doubled(11, default=None)))
    assert (await found.ask("POST", "/subjects/ok/versions", content=body)).status_code == 200

    async def send(path: str, body: bytes) -> None:
        told = await found.ask("POST", path, content=body, headers={"Content-Type": "application/json"})
        assert told.status_code != 500, told.text

    async def tables() -> None:
        kind, command = unpack(pack("CommandGetTables", table_name_filter_pattern="%_" * 900 + "x"))
        await answer(kind, command, Call(found.services, Caller(ALICE, "h"), "1"), None)  # type: ignore[arg-type]

    door = Door(found.services, FlightStats())
    asked = Asked(Call(found.services, Caller(ALICE, "h"), "1"))

    async def act(kind: str, body: bytes) -> None:
        with suppress(HeadwaterError):
            await door.act(asked, kind, body)

    slow = {name: await least(lambda: send(path, body)) for name, (path, body) in REQUESTS.items()}  # noqa: B023
    slow |= {kind: await least(lambda: act(kind, body)) for kind, body in ACTIONS.items()}  # noqa: B023
    sent = wide()

    async def bind() -> None:
        async def given() -> AsyncIterator[Any]:
            for one in sent:
                yield one

        with suppress(HeadwaterError):
            await door.put(asked, given(), MAX_REQUEST_BYTES)

    return {**slow, "filter": await least(tables), "bound": await least(bind)}


def wide() -> list[Any]:
    """The messages that bind parameters, in thousands of columns."""
    row = pa.table({f"column_{number}": [number] for number in range(8_000)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_table(row)
    handle = encode(Prepared("SELECT 1"))
    descriptor = flight.Descriptor(cmd=pack("CommandPreparedStatementQuery", prepared_statement_handle=handle))
    return [
        flight.Data(
            flight_descriptor=descriptor,
            data_header=one.metadata.to_pybytes(),
            data_body=one.body.to_pybytes() if one.body is not None else b"",
        )
        for one in pa.ipc.MessageReader.open_stream(sink.getvalue())
    ]


@promise("S4")
def test_no_callback_takes_long() -> None:
    async def story() -> dict[str, float]:
        threads = Threads(2, "callers", Turns())
        async with gateway(offload=threads.run) as found:
            own = found.services
            engines: dict[Engine, Any] = {Engine.DUCKDB: NoProcess()}
            own.asking = queries = Queries(own.domains, Holding(own.domains), Sql(), engines, threads.run)
            slow = await judged(found)
            await queries.close()
        await threads.close()
        return slow

    gc.collect()
    gc.disable()
    try:
        slow = asyncio.run(story())
    finally:
        gc.enable()
    assert {name: took for name, took in slow.items() if took > MOST_MS} == {}
