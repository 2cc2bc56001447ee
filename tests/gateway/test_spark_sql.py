"""Spark answers through a real gateway: by the caller's choice, or because of the size, and the answer says why."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.headwater import Headwater
from harness.jvm import ALL_SHORT_LIVED
from harness.patience import eventually
from headwater import landlock
from headwater.query.engines.spark.runner import MODULE

PROMISES = ("Q1",)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
SETTINGS = "process_session_ms = 30000\n[sql]\nniceness = 0\nspark_bytes = 5000"
ENDLESS = "SELECT count(*) FROM range(100000000) a CROSS JOIN range(100000000) b WHERE a.id * b.id % 7 = 3"
WIDE = "SELECT a.offset FROM large a, large b, large c"
TOTAL = "SELECT count(*), sum(length(value)), max(value->>'n') FROM large"


class Server(Headwater):
    """A broker and a gateway."""

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The document of an answer, also of a refusal. On a busy machine a gateway may ask for another attempt."""
        found = eventually(lambda: self._once(method, path, body), "an answer other than 503", 240, 0.5)
        assert found is not None
        return found[0]

    def _once(self, method: str, path: str, body: object) -> list[Any] | None:
        data = None if body is None else json.dumps(body).encode()
        url, headers = f"{self.gateway_url}/v1{path}", {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, data, headers, method=method), timeout=300
            ) as answer:
                return [json.loads(answer.read() or b"null")]
        except urllib.error.HTTPError as error:
            with error:
                return None if error.code == 503 else [json.loads(error.read())]

    def sql(self, sql: str, **more: Any) -> Any:
        return self.call("POST", "/sql", {"sql": sql, **more})


def test_over_http(tmp_path: Path) -> None:
    with Server(tmp_path, gateway=True, settings=SETTINGS, variables=ALL_SHORT_LIVED) as server:
        for topic, count in (("small", 3), ("large", 300)):
            server.call("POST", "/topics", {"name": topic, "partitions": 2})
            records = [{"partition": i % 2, "value": {"n": f"{i:03}", "pad": "x" * 20}} for i in range(count)]
            server.call("POST", f"/topics/{topic}/records", {"records": records})
        _chosen(server)
        _refused(server)
        _cancelled(server)
        java = _confined(server)
        _java_dies(server, java)


def _chosen(server: Server) -> None:
    for sql, engine, by, why in (
        ("SELECT count(*) FROM small", "auto", "duckdb", "DuckDB answers fastest, and "),
        ("SELECT count(*) FROM small", "spark", "spark", "The caller has chosen it."),
        (TOTAL, "duckdb", "duckdb", "The caller has chosen it."),
        (TOTAL, "auto", "spark", " bytes; from 5000 on (sql.spark_bytes) Spark answers."),
        ("SELECT count(*) FROM large WHERE list_unique([1]) = 1", "auto", "duckdb", "Spark would refuse the statement"),
    ):
        found = server.sql(sql, engine=engine)
        assert found["engine"] == by and why in found["reason"], found
        expected = [[300, 300 * 40, "299"]] if sql == TOTAL else [[3 if "small" in sql else 300]]
        assert found["rows"] == expected, found


def _refused(server: Server) -> None:
    for sql, kind in (
        ("SELECT * FROM text.`/etc/passwd`", "statement-refused"),
        ("SELECT reflect('java.lang.System', 'getenv')", "statement-refused"),
        ("SELECT 1 / (offset - offset) FROM small", "query-failed"),
    ):
        assert server.sql(sql, engine="spark")["type"] == f"/problems/{kind}", sql


def _cancelled(server: Server) -> None:
    """By an id of the client's own, before the answer has begun."""
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(server.sql(ENDLESS, engine="spark", id="my-own")))
    asking.start()
    eventually(lambda: server.call("GET", "/queries/my-own").get("phase") == "running", "the query runs", 240)
    assert server.sql("SELECT 1", id="my-own")["type"] == "/problems/already-exists"
    assert server.call("DELETE", "/queries/my-own") is None
    asking.join(240)
    assert answers[0]["type"] == "/problems/query-cancelled"
    assert server.sql("SELECT count(*) FROM small", engine="spark")["rows"] == [[3]]


def _confined(server: Server) -> list[psutil.Process]:
    """All processes of Spark have given up their rights, Java too. Returns those of Java."""
    [worker] = [child for child in server.gateway_process().children() if MODULE in child.cmdline()]
    below = worker.children(recursive=True)
    java = [child for child in below if "java" in child.name()]
    assert java
    for process in (worker, *below) if landlock.version() else ():
        tasks = [task / "status" for task in Path(f"/proc/{process.pid}/task").iterdir()]
        assert all("NoNewPrivs:\t1" in task.read_text() for task in tasks), process
    return java


def _java_dies(server: Server, java: list[psutil.Process]) -> None:
    """The executor is lost in the middle of an answer. The answer says that it is not whole."""
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(server.sql(WIDE, engine="spark", id="dies")))
    asking.start()
    eventually(lambda: server.call("GET", "/queries/dies").get("rows"), "the query gives rows", 240)
    for process in java:
        process.kill()
    asking.join(240)
    assert "row_count" not in answers[0] and answers[0]["error"]["type"] == "/problems/no-engine"
    assert len(answers[0]["rows"]) < 300**3
