"""Records over HTTP beside Kafka's own clients: the same topic, written and read both ways; commands of the docs."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from kio.schema.errors import ErrorCode

from harness.patience import eventually
from headwater.client.connection import connect
from tests.gateway.consuming import consumed
from tests.support.running import Running

PROMISES = ("H1",)

ROOT = Path(__file__).resolve().parents[2]
JSON = {"Content-Type": "application/json"}
ALTER_CLIENT_QUOTAS = 49


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("records"), gateway=True) as running:
        yield running


def ask(
    server: Running, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer; status 0 while no gateway listens."""
    connection = http.client.HTTPConnection(server.gateway, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    except OSError:
        return 0, {}, b""
    finally:
        connection.close()


def post(server: Running, topic: str, body: dict[str, Any], **headers: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    status, _, data = ask(server, "POST", f"/v1/topics/{topic}/records", json.dumps(body).encode(), {**JSON, **named})
    return status, json.loads(data) if data else None


def test_both_ways_byte_for_byte(server: Running) -> None:
    server.create("both", 1)
    blob = bytes(range(256))
    status, _, _ = ask(
        server, "POST", "/v1/topics/both/records?key=k", blob, {"Content-Type": "application/octet-stream"}
    )
    assert status == 200
    headers = [{"name": "h", "value": "ü"}, {"name": "n", "value": None}]
    status, told = post(
        server,
        "both",
        {
            "records": [
                {"value": {"a": 1.0}, "timestamp": 1_700_000_000_000, "headers": headers},
                {"key": "k", "value": None},
            ]
        },
    )
    assert status == 200 and [line["offset"] for line in told["records"]] == [1, 2]
    got = consumed(server, "both", 0, 3)
    assert [(m.key(), m.value()) for m in got] == [(b"k", blob), (None, b'{"a":1.0}'), (b"k", None)]
    assert got[1].headers() == [("h", "ü".encode()), ("n", None)] and got[1].timestamp()[1] == 1_700_000_000_000

    producer = Producer({"bootstrap.servers": server.bootstrap, "compression.type": "lz4"})
    producer.produce("both", blob, key=b"\xff", headers=[("x", b"\x00")], timestamp=5)
    assert producer.flush(60) == 0
    status, _, data = ask(server, "GET", "/v1/topics/both/partitions/0/records?offset=3&format=base64")
    [line] = json.loads(data)["records"]
    assert status == 200 and line["key_base64"] == "/w==" and line["timestamp"] == 5
    assert line["headers"] == [{"name": "x", "value_base64": "AA=="}]


def test_large_requests(server: Running) -> None:
    """Threads encode and decode them. Health is answered meanwhile."""
    server.create("large", 2)
    values = [f"{i:05}" + "x" * 1000 for i in range(8_000)]
    lines = "\n".join(json.dumps({"key": value[:5], "value": value}) for value in values).encode()
    more = {"Content-Type": "application/x-ndjson", "Prefer": "return=minimal"}
    status, _, data = ask(server, "POST", "/v1/topics/large/records", lines, more)
    ranges = json.loads(data)["partitions"]
    assert status == 200 and sum(line["last_offset"] + 1 for line in ranges) == len(values)
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    status, headers, data = ask(server, "GET", "/v1/topics/large/records?limit=10000&max_bytes=16000000", None, arrow)
    table = pa.ipc.open_stream(data).read_all()
    assert sorted(value.decode() for value in table["value"].to_pylist()) == values
    _, headers, data = ask(server, "GET", f"/v1/topics/large/records?next={headers['headwater-next']}")
    assert json.loads(data)["caught_up"]
    assert ask(server, "GET", "/v1/health")[0] == 200


def test_aborted_records_never_appear(server: Running) -> None:
    server.create("ended", 1)
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "t"})
    producer.init_transactions(60)
    for value, commit in ((b"lost", False), (b"kept", True)):
        producer.begin_transaction()
        producer.produce("ended", value)
        producer.flush(60)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
    producer.begin_transaction()
    producer.produce("ended", b"open")
    assert producer.flush(60) == 0
    _, _, data = ask(server, "GET", "/v1/topics/ended/records")
    told = json.loads(data)
    assert [line["value"] for line in told["records"]] == ["kept"] and told["caught_up"]
    _, _, data = ask(server, "GET", "/v1/topics/ended/records?isolation=uncommitted")
    assert [line["value"] for line in json.loads(data)["records"]] == ["lost", "kept", "open"]
    producer.abort_transaction(60)
    _, _, data = ask(server, "GET", f"/v1/topics/ended/records?next={told['next']}")
    assert json.loads(data)["records"] == []


class Events:
    """A client of server-sent events, as browsers have it."""

    def __init__(self, server: Running, path: str, last: str = "") -> None:
        self._connection = http.client.HTTPConnection(server.gateway, timeout=60)
        more = {"Last-Event-ID": last} if last else {}
        self._connection.request("GET", path, headers={"Accept": "text/event-stream", **more})
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        self.last = last

    def next(self) -> Any:
        """The next record. Raises `OSError` or `EOFError` if the stream ends."""
        while True:
            line = self._answer.readline()
            if not line:
                raise EOFError
            if line.startswith(b"id: "):
                self.last = line[4:].strip().decode()
            if line.startswith(b"data: "):
                return json.loads(line[6:])

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def test_events_resume_after_the_gateway_was_killed(server: Running) -> None:
    server.create("followed", 2)
    sent = [{"value": str(i), "partition": i % 2} for i in range(6)]
    assert post(server, "followed", {"records": sent[:4]})[0] == 200
    events = Events(server, "/v1/topics/followed/records")
    got = [events.next()["value"] for _ in range(3)]
    server.gateway_process().kill()
    with pytest.raises((OSError, EOFError, http.client.HTTPException)):
        while True:
            got.append(events.next()["value"])
    events.close()
    eventually(lambda: ask(server, "GET", "/v1/health")[0] == 200, "a new gateway answers")
    assert post(server, "followed", {"records": sent[4:]})[0] == 200
    again = Events(server, "/v1/topics/followed/records", events.last)
    while len(got) < 6:
        got.append(again.next()["value"])
    again.close()
    assert sorted(got) == [str(i) for i in range(6)]


def test_a_key_is_used_once_through_a_kill(server: Running) -> None:
    server.create("paid", 2)
    body = {"records": [{"key": "a", "value": 1}, {"value": 2}], "expected_offsets": {"0": 0, "1": 0}}
    first = post(server, "paid", body, Idempotency_Key="payment-1")
    assert first[0] == 200
    assert post(server, "paid", body)[0] == 409
    server.gateway_process().kill()
    eventually(lambda: ask(server, "GET", "/v1/health")[0] == 200, "a new gateway answers")
    assert post(server, "paid", body, Idempotency_Key="payment-1") == first
    assert post(server, "paid", {"records": [{"value": 3}]}, Idempotency_Key="payment-1")[0] == 422


def commands(page: str) -> list[str]:
    """The `curl` commands of a page."""
    text = (ROOT / "docs" / page).read_text().replace("\\\n", " ")
    return [line.strip() for line in re.findall(r"^    (curl [^\n]*)$", text, re.MULTILINE)]


@pytest.mark.parametrize("page", ["http.md", "conditional-appends.md", "reading-over-http.md"])
def test_commands_of_the_docs(server: Running, page: str, tmp_path: Path) -> None:
    listed = json.loads(ask(server, "GET", "/v1/topics")[2])["items"]
    for name in {"orders", "accounts"} - {line["name"] for line in listed}:
        server.create(name, 1)
    if page == "http.md":
        schema = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "long"}]}
        body = json.dumps({"schema": json.dumps(schema)}).encode()
        assert ask(server, "POST", "/subjects/orders-value/versions", body)[0] == 200
        (tmp_path / "orders.ndjson").write_text('{"value": {"amount": 7}}\n')
    if page == "reading-over-http.md":
        assert post(server, "orders", {"records": [{"key": "c1", "value": "5"}]})[0] == 200
    position = json.loads(ask(server, "GET", "/v1/topics/orders/records")[2])["next"]
    found = [command for command in commands(page) if " -N " not in command]
    assert len(found) >= 2
    for command in found:
        command = command.replace("kwAA…", position)
        command = command.replace("http://127.0.0.1:8081", server.gateway_url)
        done = subprocess.run(
            ["bash", "-c", f"{command} --silent --show-error --fail-with-body"],
            capture_output=True,
            timeout=60,
            cwd=tmp_path,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert not done.stdout.startswith(b'{"type":"/problems/'), done.stdout


def test_quotas_that_kafka_clients_set(server: Running) -> None:
    """A quota that a broker has taken holds at the gateway, until it is removed."""
    server.create("limited", 1)
    record, large = {"records": [{"value": "x"}]}, {"records": [{"value": "x" * 50_000}]}
    asyncio.run(_limit(server, 1_000.0))
    try:
        told = eventually(lambda: _refused(post(server, "limited", large)), "a refusal")
        assert told["type"] == "/problems/over-quota" and "producer_byte_rate" in told["detail"]
    finally:
        asyncio.run(_limit(server, None))
    eventually(lambda: post(server, "limited", record)[0] == 200, "an append without a quota")


def _refused(told: tuple[int, Any]) -> Any:
    return told[1] if told[0] == 429 else None


async def _limit(server: Running, rate: float | None) -> None:
    """Set the quota of all users for appended bytes, or remove it."""
    host, _, port = server.bootstrap.partition(":")
    broker = await connect(host, int(port), "test")
    change = {"key": "producer_byte_rate", "value": rate or 0.0, "remove": rate is None}
    entry = {"entity": [{"entity_type": "user", "entity_name": None}], "ops": [change]}
    [answer] = (await broker.request(ALTER_CLIENT_QUOTAS, entries=[entry], validate_only=False)).entries
    await broker.close()
    assert answer.error_code == ErrorCode.none, answer.error_message
