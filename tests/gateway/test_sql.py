"""SQL through a real gateway and its engine: HTTP, the command line and Python, with users and rules.

The commands of `docs/guides/sql.md` run here.
"""

from __future__ import annotations

import http.client
import io
import json
import re
import socket
import struct
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import headwater
from harness.patience import eventually
from harness.ports import free_port
from headwater.errors import QueryFailed, QueryLimit, StatementRefused
from tests.support.running import Running

PROMISES = ("Q1", "S2")

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "sql.md"
BLOCK = re.compile(r"^    ((?:curl|headwater) (?:.*\\\n)*.*)$", re.MULTILINE)
ADMIN, ANN = ("admin", "first"), ("ann", "wonderland")
ORDERS = [{"partition": i % 2, "value": {"user": f"u{i % 3}", "amount": i}} for i in range(300)]
BY_USER = "SELECT value->>'user' AS who, count(*) AS orders FROM orders GROUP BY 1 ORDER BY 1"
COUNTS = [["u0", 100], ["u1", 100], ["u2", 100]]
ENDLESS = (
    "SELECT count(*) FROM orders a, orders b, orders c, orders d, orders e WHERE a.offset + b.offset + e.offset = -1"
)
SETTINGS = """
process_session_ms = 30000
[sql]
niceness = 0
[security]
acls = true
super_users = "User:admin"
[security.listeners.SASL_PLAINTEXT]
mechanisms = "SCRAM-SHA-512"
[security.http]
authentication = "basic"
"""


class Server(Running):
    """A broker and a gateway with users and rules."""

    def call(
        self, method: str, path: str, body: object = None, user: tuple[str, str] = ADMIN
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of an answer. On a busy machine a gateway may ask for another attempt."""
        return eventually(lambda: self._once(method, path, body, user), "an answer other than 503", 120, 0.5)

    def _once(
        self, method: str, path: str, body: object, user: tuple[str, str]
    ) -> tuple[int, bytes, dict[str, str]] | None:
        login = "Basic " + b64encode(":".join(user).encode()).decode()
        connection = http.client.HTTPConnection(self.gateway, timeout=120)
        try:
            headers = {"Authorization": login, "Content-Type": "application/json"}
            connection.request(method, f"/v1{path}", None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            told = answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
            return told if answer.status != 503 else None
        finally:
            connection.close()

    def sql(self, sql: str, user: tuple[str, str] = ANN, **more: Any) -> Any:
        """The document of an answer as JSON."""
        return json.loads(self.call("POST", "/sql", {"sql": sql, **more}, user)[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("sql")
    up = Server(directory, gateway=True, settings=SETTINGS, kafka=f"SASL_PLAINTEXT=127.0.0.1:{free_port()}")
    up.prepare()
    (directory / "admin").write_text(ADMIN[1])
    (directory / "ann").write_text(ANN[1])
    up.cli("user", "add", ADMIN[0], "--config", str(up.config), "--new-password-file", str(directory / "admin"))
    with up:
        for topic in ("orders", "secrets"):
            assert up.call("POST", "/topics", {"name": topic, "partitions": 2})[0] == 201
            assert up.call("POST", f"/topics/{topic}/records", {"records": ORDERS})[0] == 200
        assert up.call("PUT", "/users/ann", {"password": ANN[1]})[0] == 201
        assert up.call("POST", "/topics", {"name": "late"})[0] == 201
        rule = {"resource": "TOPIC", "principal": "User:ann", "operation": "READ"}
        rules = [{**rule, "name": name} for name in ("orders", "late")]
        assert up.call("POST", "/rules", {"rules": rules})[0] == 200
        yield up


def test_over_http(server: Server) -> None:
    """All forms, every record that was acknowledged before, parameters, states of tables, and problems."""
    found = server.sql(BY_USER)
    assert found["rows"] == COUNTS and found["row_count"] == 3 and found["engine"] == "duckdb" and found["reason"]
    assert [column["name"] for column in found["columns"]] == ["who", "orders"]
    for number in range(3):
        assert server.call("POST", "/topics/late/records", {"records": [{"value": f"late {number}"}]})[0] == 200
        assert server.sql("SELECT count(*) FROM late")["rows"] == [[1 + number]]
    one = "SELECT offset, value FROM orders WHERE partition = ? AND offset = ?"
    assert server.sql(one, parameters=[1, 0])["rows"] == [[0, '{"user":"u1","amount":1}']]
    assert server.sql("SELECT count(*) FROM orders", as_of={"offsets": {"0": 10, "1": 5}})["rows"] == [[15]]
    body = {"sql": "SELECT offset FROM orders WHERE partition = 0 AND offset < 3 ORDER BY 1"}
    status, data, headers = server.call("POST", "/sql?format=csv", body, ANN)
    assert (status, data) == (200, b"offset\n0\n1\n2\n") and headers["headwater-engine"] == "duckdb"
    assert server.call("POST", "/sql?format=ndjson", body, ANN)[1] == b'{"offset":0}\n{"offset":1}\n{"offset":2}\n'
    arrow = pa.ipc.open_stream(server.call("POST", "/sql?format=arrow", body, ANN)[1]).read_all()
    file = parquet.read_table(io.BytesIO(server.call("POST", "/sql?format=parquet", body, ANN)[1]))
    assert arrow.to_pydict() == file.to_pydict() == {"offset": [0, 1, 2]}
    for sql, more, kind in (
        ("DELETE FROM orders", {}, "statement-refused"),
        ("SELECT * FROM", {}, "statement-refused"),
        ("SELECT list(partition ORDER BY timestamp)[1] FROM orders", {}, "statement-refused"),
        ("SELECT CAST(value AS INTEGER) FROM orders", {}, "query-failed"),
        ("SELECT * FROM orders", {"limits": {"rows": 5}}, "query-limit"),
        (ENDLESS, {"limits": {"seconds": 0.5}}, "query-limit"),
    ):
        told = server.sql(sql, **more)
        assert told["type"] == f"/problems/{kind}" and told["detail"], (sql, told)


def test_a_topic_without_the_right_to_read_does_not_exist(server: Server) -> None:
    """In every door, with the words that a topic gets which nobody has created."""
    assert server.sql("SELECT count(*) FROM secrets", ADMIN)["rows"] == [[300]]
    hidden, missing = (server.sql(f"SELECT count(*) FROM {name}") for name in ("secrets", "missing"))
    assert hidden["detail"].replace("secrets", "missing") == missing["detail"]
    assert hidden["type"] == missing["type"] == "/problems/statement-refused"
    with (
        headwater.connect(server.gateway_url, user=ANN[0], password=ANN[1]) as cluster,
        pytest.raises(StatementRefused),
    ):
        cluster.sql("SELECT * FROM orders, secrets")
    seen = json.loads(server.call("GET", "/queries", user=ANN)[1])["items"]
    assert {line["asker"] for line in seen} == {"User:ann"}


def test_queries_are_watched_and_cancelled(server: Server) -> None:
    """By another request. A client that leaves cancels its own."""
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(server.sql(ENDLESS)))
    asking.start()
    line = eventually(lambda: _running(server), "the query runs")
    assert line["asker"] == "User:ann" and line["sql"] == ENDLESS and line["phase"] in ("waiting", "running")
    assert server.call("DELETE", f"/queries/{line['id']}", user=ANN)[0] == 204
    asking.join(120)
    assert answers[0]["type"] == "/problems/query-cancelled"
    assert json.loads(server.call("GET", f"/queries/{line['id']}", user=ANN)[1])["phase"] == "cancelled"
    connection = http.client.HTTPConnection(server.gateway, timeout=120)
    login = "Basic " + b64encode(":".join(ANN).encode()).decode()
    headers = {"Authorization": login, "Content-Type": "application/json"}
    connection.request("POST", "/v1/sql", json.dumps({"sql": ENDLESS}), headers)
    line = eventually(lambda: _running(server), "the query runs")
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    connection.close()
    eventually(lambda: _phase(server, line["id"]) == "cancelled", "the query of a client that left is cancelled")


def _running(server: Server) -> Any:
    items = json.loads(server.call("GET", "/queries", user=ANN)[1])["items"]
    return next((line for line in items if line["phase"] in ("waiting", "running")), None)


def _phase(server: Server, query: str) -> str:
    return str(json.loads(server.call("GET", f"/queries/{query}", user=ANN)[1])["phase"])


def test_from_python(server: Server) -> None:
    with headwater.connect(server.gateway_url, user=ANN[0], password=ANN[1]) as cluster:
        with cluster.sql(BY_USER) as result:
            assert result.rows() == [tuple(row) for row in COUNTS] and result.engine == "duckdb"
        sums = cluster.sql("SELECT partition, sum(offset) AS s FROM orders GROUP BY 1", as_of={0: 10, 1: 10})
        assert sums.pandas().sort_values("partition")["s"].tolist() == [45, 45]
        assert cluster.sql("SELECT ? AS a, ? AS b", parameters=["x", 5]).rows() == [("x", 5)]
        rows = sum(batch.num_rows for batch in cluster.sql("SELECT * FROM orders a, orders b").batches())
        assert rows == 300 * 300
        with pytest.raises(QueryFailed):
            cluster.sql("SELECT CAST(value AS INTEGER) FROM orders").rows()
        with pytest.raises(QueryLimit):
            cluster.sql(ENDLESS, timeout=0.5)


def test_the_command_and_the_documentation(server: Server, tmp_path: Path) -> None:
    """Every command of the page works as it is written, for a user with a password."""
    login = f"--user {ANN[0]} --password-file {server.config.parent / 'ann'} --gateway {server.gateway_url}"
    commands = BLOCK.findall(PAGE.read_text())
    assert len(commands) >= 4
    for text in commands:
        if text.startswith("curl"):
            text = text.replace("curl", f"curl -sSf --user {ANN[0]}:{ANN[1]}")
        else:
            text = text.replace("headwater sql", f"{sys.executable} -m headwater sql {login}")
        text = text.replace("http://127.0.0.1:8081", server.gateway_url)
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=120, cwd=tmp_path)
        assert done.returncode == 0 and not done.stderr, (text, done.stderr)
    assert parquet.read_table(tmp_path / "orders.parquet").num_rows == 15
    failed = f"{sys.executable} -m headwater sql {login} 'SELECT * FROM secrets'"
    done = subprocess.run(["sh", "-c", failed], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "secrets" in done.stderr
