"""The OpenAPI document and a real gateway: examples get the answers that they show, and no answer breaks it."""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import confluent_kafka
import jsonschema_rs
import pytest

from harness.patience import eventually
from harness.ports import free_port
from headwater.gateway.description.sample import Sample
from headwater.gateway.description.samples import NEXT, QUERY, SAMPLES
from tests.support.described import probe
from tests.support.running import Running

PROMISES = ("H2",)

ADMIN, PASSWORD = "admin", "first"
LOGIN = {"Authorization": "Basic " + b64encode(f"{ADMIN}:{PASSWORD}".encode()).decode()}
TIMEOUT = 60
UNAVAILABLE = "/problems/unavailable"
MOST_REPEATS = 3
"""Examples that may be sent again, all in all, because the gateway lost contact on a busy machine."""
SETTINGS = """
process_session_ms = 30000
[sql]
niceness = 0
[links]
secret_directories = ["/etc/headwater"]
[security]
acls = true
super_users = "User:admin"
[security.listeners.SASL_PLAINTEXT]
mechanisms = "SCRAM-SHA-512"
[security.http]
authentication = "basic"
"""


@contextmanager
def serving(directory: Path) -> Iterator[Running]:
    """A gateway of an empty cluster."""
    up = Running(directory, gateway=True, settings=SETTINGS, kafka=f"SASL_PLAINTEXT=127.0.0.1:{free_port()}")
    up.prepare()
    (directory / "password").write_text(PASSWORD)
    up.cli("user", "add", ADMIN, "--config", str(up.config), "--new-password-file", str(directory / "password"))
    with up:
        yield up


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """For random requests: they leave topics behind, among them those that the document's examples name."""
    with serving(tmp_path_factory.mktemp("described")) as up:
        yield up


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Running]:
    with serving(tmp_path) as up:
        yield up


@pytest.fixture(scope="module")
def document(server: Running) -> dict[str, Any]:
    status, data, _ = ask(server, "GET", "/openapi.json")
    assert status == 200
    found: dict[str, Any] = json.loads(data)
    return found


def ask(
    server: Running, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes, str]:
    """Status, body and media type of an answer."""
    connection = http.client.HTTPConnection(server.gateway, timeout=TIMEOUT)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("content-type", "").partition(";")[0]
    finally:
        connection.close()


def operation(document: dict[str, Any], name: str) -> tuple[str, str, dict[str, Any]]:
    """Path, method and description of a call."""
    [found] = [
        (path, method, call)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
        if call["operationId"] == name
    ]
    return found


def send(
    server: Running,
    document: dict[str, Any],
    sample: Sample,
    position: str,
    query: str,
    schema: int,
    repeats: list[str],
) -> tuple[int, bytes, str]:
    """The answer to an example. `position`, `query` and `schema` are of the cluster, instead of those that it shows.

    `repeats` gets what was answered with 503. Only lost contact with the cluster is a reason for another attempt.
    """
    path, method, _ = operation(document, sample.call)
    for name, value in sample.path.items():
        own = query if value == QUERY else schema if name == "schema_id" else value
        path = path.replace(f"{{{name}}}", quote(str(own), safe=""))
    headers = {**LOGIN, **sample.headers}
    body = None
    if sample.body is not None:
        headers["Content-Type"] = sample.media
        text = sample.body if isinstance(sample.body, str) else json.dumps(sample.body)
        body = text.replace(NEXT, position).encode()
    target = f"{path}?{urlencode(sample.query)}" if sample.query else path

    def answered() -> tuple[int, bytes, str] | None:
        """None where the gateway asks for another attempt. Nothing was changed then."""
        told = ask(server, method.upper(), target, body, headers)
        if told[0] != 503:
            return told
        repeats.append(f"{sample.call}: {told[1].decode()}")
        assert json.loads(told[1])["type"] == UNAVAILABLE and len(repeats) <= MOST_REPEATS, repeats
        return None

    return eventually(answered, f"an answer to {sample.call} other than 503", TIMEOUT, 0.2)


def same_shape(shown: Any, found: Any, at: str = "answer") -> None:
    """Raise unless an answer has the members and types of an example. Lists may have any length, null is a value."""
    if shown is None or found is None:
        return
    numbers = isinstance(shown, int | float) and isinstance(found, int | float)
    assert numbers or type(shown) is type(found), f"{at}: {found!r} instead of {shown!r}"
    if (
        isinstance(shown, dict)
        and shown
        and not at.endswith(("configs", "ends", "addresses", "mechanisms", "versions", "options"))
    ):
        assert set(shown) == set(found), f"{at}: {found}"
        for name, value in shown.items():
            same_shape(value, found[name], f"{at}.{name}")
    if isinstance(shown, list) and shown:
        for number, value in enumerate(found):
            same_shape(shown[0], value, f"{at}[{number}]")


def test_every_example_gets_the_answer_that_it_shows(empty: Running, document: dict[str, Any]) -> None:
    """All examples, one after the other, on an empty cluster. One of them aborts a transaction, which is begun here."""
    position, query, schema, producer = "", "", 0, None
    repeats: list[str] = []
    for sample in SAMPLES:
        if sample.call == "listTransactions":
            producer = begin_transaction(empty, "payments-1")
        status, data, media = send(empty, document, sample, position, query, schema, repeats)
        assert status == sample.status, (sample.call, sample.title, status, data)
        if status == 204:
            assert data == b""
            continue
        assert media == sample.answer_media, (sample.call, sample.title)
        assert data
        if sample.answer is None:
            continue
        if isinstance(sample.answer, str):
            same_shape(json.loads(sample.answer), json.loads(data))
            continue
        found = json.loads(data)
        same_shape(sample.answer, found, sample.call)
        promised = operation(document, sample.call)[2]["responses"][str(status)]["content"][media]["schema"]
        jsonschema_rs.Draft202012Validator({**promised, "components": document["components"]}).validate(found)
        if sample.call == "readAsGroup":
            position = found["next"]
        if sample.call == "registerSchema" and sample.title == "registered":
            schema = found["id"]
        if sample.call == "askSql":
            query = found["query"]
    assert producer is not None


def begin_transaction(server: Running, name: str) -> confluent_kafka.Producer:
    """Begin a transaction and leave it open. Its producer must be kept meanwhile: it ends slowly."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server.options[server.options.index("--kafka") + 1].partition("=")[2],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": ADMIN,
            "sasl.password": PASSWORD,
            "transactional.id": name,
        }
    )
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    producer.produce("orders", b"paid", partition=0)
    assert producer.flush(TIMEOUT) == 0
    return producer


def test_random_requests_get_no_answer_that_breaks_the_document(server: Running, document: dict[str, Any]) -> None:
    new = json.dumps({"name": "probed", "partitions": 2}).encode()
    assert ask(server, "POST", "/v1/topics", new, {**LOGIN, "Content-Type": "application/json"})[0] == 201
    statuses = probe(document, server.gateway_url, 6, LOGIN, "probed")
    assert statuses[200] and statuses[404]


def test_random_requests_of_nobody(server: Running, document: dict[str, Any]) -> None:
    statuses = probe(document, server.gateway_url, 2, {}, "probed")
    assert statuses[401] > statuses[200]
