"""SQL over HTTP, with answers that are written down: forms, problems, rights, cancelling, clients that leave."""

from __future__ import annotations

import asyncio
import io
import json
from base64 import b64encode
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyarrow import parquet

from headwater.errors import Exists, NoEngine, QueryFailed, QueryLimit
from headwater.gateway import services
from headwater.query.asking import AsOf, Engine, Limits
from headwater.settings.settings import Gateway, Settings
from headwater.state.cluster.access import THE_CLUSTER, AclResource, Operation
from tests.support.gateways import ALICE, InGateway, gateway, listening, secured
from tests.support.queries import NOTED, NOTES, REASON, WrittenAnswers
from tests.support.rules import rule

PROMISES = ("H2",)

ROWS = pa.record_batch({"user": ["ann", "bob"], "orders": [3, None], "raw": [b"a", b"\xff"]})
LISTENING = Settings(gateway=Gateway(http="127.0.0.1:0"))
MANY = pa.record_batch({"n": list(range(20_000))})


async def _ask(world: InGateway, sql: str, user: str = "", query: str = "", **more: Any) -> httpx.Response:
    headers = more.pop("headers", {})
    return await world.ask("POST", f"/v1/sql{query}", user, json={"sql": sql, **more}, headers=headers)


def _answers(world: InGateway) -> WrittenAnswers:
    written = WrittenAnswers()
    world.services.asking = written
    return written


def test_forms() -> None:
    async def main() -> None:
        async with gateway() as world:
            _answers(world).write("s", ROWS, ROWS).write(NOTED, ROWS)
            answer = await _ask(world, "s")
            assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
            found = answer.json()
            assert found["rows"] == [["ann", 3, "a"], ["bob", None, {"base64": "/w=="}]] * 2
            assert (found["query"], found["engine"], found["reason"]) == ("q0", "duckdb", REASON)
            assert found["versions"] == {"orders": 3} and found["row_count"] == 4
            assert found["columns"][0] == {"name": "user", "type": "string"}
            assert answer.headers["headwater-query"] == "q0" and answer.headers["headwater-engine"] == "duckdb"
            assert answer.headers["headwater-versions"] == "orders=3"
            assert "notes" not in found and "headwater-notes" not in answer.headers
            noted = await _ask(world, NOTED)
            assert noted.json()["notes"] == list(NOTES) and noted.headers["headwater-notes"] == " ".join(NOTES)
            lines = await _ask(world, "s", headers={"Accept": "application/x-ndjson"})
            assert json.loads(lines.text.splitlines()[1]) == {"user": "bob", "orders": None, "raw_base64": "/w=="}
            text = await _ask(world, "s", headers={"Accept": "text/csv, application/json;q=0.5"})
            assert text.headers["content-type"] == "text/csv" and text.text.startswith("user,orders,raw\nann,3,a\n")
            arrow = await _ask(world, "s", query="?format=arrow")
            assert pa.ipc.open_stream(arrow.content).read_all() == pa.Table.from_batches([ROWS, ROWS])
            table = await _ask(world, "s", query="?format=parquet")
            assert parquet.read_table(io.BytesIO(table.content)).num_rows == 4
            refused = await _ask(world, "s", headers={"Accept": "image/png"})
            assert refused.status_code == 406 and "text/csv" in refused.json()["detail"]
            assert (await _ask(world, "s", query="?format=xml")).status_code == 400

    asyncio.run(main())


def test_a_question_arrives_as_it_was_asked() -> None:
    async def main() -> None:
        async with gateway() as world:
            written = _answers(world).write("s", ROWS)
            values = [1, 2.5, "x", True, None, {"base64": b64encode(b"\xff").decode()}]
            more = {"engine": "spark", "limits": {"rows": 10}, "as_of": {"tag": "2026-11-17T22", "offsets": {"1": 7}}}
            assert (await _ask(world, "s", parameters=values, **more)).status_code == 200
            [question] = written.questions
            assert question.parameters == (1, 2.5, "x", True, None, b"\xff") and question.engine is Engine.SPARK
            assert question.as_of == AsOf(tag="2026-11-17T22", offsets={1: 7})
            assert isinstance(question.limits, Limits) and question.limits.rows == 10
            assert (await _ask(world, "s", as_of={"time": "2026-01-31T12:00:00Z"})).status_code == 200
            assert (await _ask(world, "s", as_of={"time": 1_769_860_800_000})).status_code == 200
            assert [one.as_of.at_ms for one in written.questions[1:]] == [1_769_860_800_000] * 2
            assert written.questions[1].limits is None and written.questions[1].engine is Engine.AUTO
            assert (await _ask(world, "s", id="my-own-1")).status_code == 200
            assert [one.id for one in written.questions] == ["", "", "", "my-own-1"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"sql": ""}, "sql"),
        ({"sql": "s", "engine": "presto"}, "engine"),
        ({"sql": "s", "as_of": {"version": 1, "tag": "x"}}, "exclude each other"),
        ({"sql": "s", "as_of": {"time": "yesterday"}}, "as_of.time"),
        ({"sql": "s", "as_of": {"offsets": {"x": 1}}}, "offsets"),
        ({"sql": "s", "limits": {"seconds": 0}}, "seconds"),
        ({"sql": "s", "parameters": [{"base64": "?"}]}, "not base64"),
        ({"sql": "s", "parameters": [[1]]}, "parameters"),
        ({"sql": "s", "parameters": [1 << 64]}, "parameters"),
        ({"sql": "x" * 100_001}, "sql"),
        ({"sql": "s", "more": 1}, "more"),
        ({"sql": "s", "id": "../../etc"}, "id"),
        ({"sql": "s", "id": "x" * 65}, "id"),
    ],
)
def test_bad_requests(body: dict[str, Any], words: str) -> None:
    async def main() -> None:
        async with gateway() as world:
            written = _answers(world).write("s", ROWS)
            answer = await world.ask("POST", "/v1/sql", json=body)
            assert answer.status_code == 400 and words in answer.text, answer.text
            assert written.questions == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (None, 400, "statement-refused"),
        (QueryFailed("Conversion Error: 'x' is no number"), 422, "query-failed"),
        (QueryLimit("more than 10 rows (sql.rows)"), 422, "query-limit"),
        (NoEngine("every place is taken"), 503, "no-engine"),
        (Exists("there is a query my-own-1 already"), 409, "already-exists"),
    ],
)
def test_failures_are_problems(error: Exception | None, status: int, kind: str) -> None:
    """Before the first row, and behind the first ones too: little is held back."""

    async def main() -> None:
        async with gateway() as world:
            written = _answers(world)
            for batches in ([], [ROWS]):
                if error is not None:
                    written.write("s", *batches, error=error)
                for form in ("json", "csv", "arrow"):
                    answer = await _ask(world, "s", query=f"?format={form}")
                    assert answer.status_code == status, answer.text
                    assert answer.headers["content-type"] == "application/problem+json"
                    assert answer.json()["type"] == f"/problems/{kind}"
                    assert error is None or answer.json()["detail"] == str(error)
                    assert (await world.get(answer.json()["type"])).status_code == 200
            assert world.services.streams.count == 0

    asyncio.run(main())


def test_late_failures_do_not_look_like_whole_results() -> None:
    async def main() -> None:
        async with gateway(LISTENING) as world, listening(world) as server:
            _answers(world).write("s", *[MANY] * 5, error=QueryLimit("more than 100,000 rows"))
            async with httpx.AsyncClient(base_url=server.url) as client:
                answer = await client.post("/v1/sql", json={"sql": "s"})
                assert answer.status_code == 200
                assert answer.json()["error"]["type"] == "/problems/query-limit" and "row_count" not in answer.json()
                for form in ("ndjson", "csv", "arrow"):
                    got = b""
                    with pytest.raises(httpx.RemoteProtocolError):
                        async with client.stream("POST", f"/v1/sql?format={form}", json={"sql": "s"}) as stream:
                            async for chunk in stream.aiter_raw():
                                got += chunk
                    if form == "ndjson":
                        last = json.loads(got.splitlines()[-1])
                        assert last["error"]["type"] == "/problems/query-limit"
                        assert json.loads(got.splitlines()[0]) == {"n": 0}
                file = await client.post("/v1/sql?format=parquet", json={"sql": "s"})
                assert file.status_code == 422  # its first row group was not full

    asyncio.run(main())


def test_a_client_that_leaves_cancels_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it waits for an engine, and between two batches."""
    monkeypatch.setattr("headwater.gateway.server.HALF_CLOSED_SECONDS", 0.05)

    async def main() -> None:
        async with gateway(LISTENING) as world, listening(world) as server:
            written = _answers(world).write("s", MANY, MANY, held=True)
            async with httpx.AsyncClient(base_url=server.url) as client:
                async with client.stream("POST", "/v1/sql", json={"sql": "s"}) as stream:
                    await anext(stream.aiter_raw())
                await asyncio.wait_for(written.queries[0].cancelled.wait(), 30)
                assert written.queries[0].reasons == ["the client has left"]
                asked = asyncio.create_task(client.post("/v1/sql", json={"sql": "wait"}))
                await asyncio.wait_for(written.waiting.wait(), 30)
                asked.cancel()
            async with asyncio.timeout(30):
                while world.services.streams.count:
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def test_queries_are_listed_and_cancelled() -> None:
    async def main() -> None:
        async with gateway() as world:
            written = _answers(world).write("s", ROWS, ROWS, held=True)
            assert (await world.get("/v1/queries")).json() == {"items": []}
            asked = asyncio.create_task(_ask(world, "s"))
            async with asyncio.timeout(30):
                while not written.queries or not written.queries[0].taken:
                    await asyncio.sleep(0)
            [line] = (await world.get("/v1/queries")).json()["items"]
            assert line == (await world.get("/v1/queries/q0")).json()
            assert (line["id"], line["sql"], line["phase"], line["rows"], line["files"]) == ("q0", "s", "running", 2, 2)
            assert (await world.ask("DELETE", "/v1/queries/q0")).status_code == 204
            answer = await asked
            assert answer.status_code == 409 and answer.json()["type"] == "/problems/query-cancelled"
            assert "User:ANONYMOUS has cancelled it" in answer.json()["detail"]
            assert (await world.get("/v1/queries/q0")).json()["phase"] == "cancelled"
            assert (await world.get("/v1/queries/none")).status_code == 404
            assert (await world.ask("DELETE", "/v1/queries/none")).status_code == 404

    asyncio.run(main())


def test_rights() -> None:
    """A caller sees its own queries. What it may READ goes with the question."""

    async def main() -> None:
        async with gateway(secured(), users=True) as world:
            written = _answers(world).write("s" * 2_000, ROWS)
            await world.topic("orders")
            await world.allow(rule(ALICE, Operation.READ, "orders"))
            assert (await _ask(world, "s" * 2_000, "alice")).status_code == 200
            [question] = written.questions
            assert question.asker == ALICE and question.readable("orders") and not question.readable("others")
            assert (await world.get("/v1/queries", "bob")).json() == {"items": []}
            assert (await world.get("/v1/queries/q0", "bob")).status_code == 404
            assert (await world.ask("DELETE", "/v1/queries/q0", "bob")).status_code == 404
            [line] = (await world.get("/v1/queries", "alice")).json()["items"]
            assert len(line["sql"]) == 1_000 and line["asker"] == ALICE
            assert (await world.get("/v1/queries/q0", "alice")).json()["sql"] == "s" * 2_000
            await world.allow(rule("User:bob", Operation.DESCRIBE, THE_CLUSTER, AclResource.CLUSTER))
            assert len((await world.get("/v1/queries", "bob")).json()["items"]) == 1
            assert (await world.ask("DELETE", "/v1/queries/q0", "bob")).status_code == 403
            assert (await world.ask("DELETE", "/v1/queries/q0", "alice")).status_code == 204
            await world.allow(rule("User:bob", Operation.ALTER, THE_CLUSTER, AclResource.CLUSTER))
            assert (await world.ask("DELETE", "/v1/queries/q0", "bob")).status_code == 204

    asyncio.run(main())


@pytest.mark.parametrize(
    ("installed", "why"),
    [
        (True, "`sql.enabled` is off in its settings"),
        (False, "its libraries are not installed: pip install 'headwater[sql]'"),
    ],
)
def test_a_gateway_without_sql(monkeypatch: pytest.MonkeyPatch, installed: bool, why: str) -> None:
    """It says why, and what to do."""

    async def main() -> None:
        monkeypatch.setattr(services, "has", lambda extra: installed)
        async with gateway() as world:
            answer = await _ask(world, "s")
            assert answer.status_code == 404
            assert answer.json()["detail"] == f"this gateway answers no SQL: {why}"
            assert (await world.get("/v1/queries")).status_code == 404

    asyncio.run(main())


def test_a_gateway_that_stops_breaks_off() -> None:
    async def main() -> None:
        async with gateway() as world:
            written = _answers(world).write("s", ROWS, ROWS, held=True)
            asked = asyncio.create_task(_ask(world, "s"))
            async with asyncio.timeout(30):
                while not written.queries or not written.queries[0].taken:
                    await asyncio.sleep(0)
            world.services.stopping.set()
            answer = await asked
            assert answer.status_code == 503 and "stops" in answer.json()["detail"]
            assert written.queries[0].cancelled.is_set()

    asyncio.run(main())
