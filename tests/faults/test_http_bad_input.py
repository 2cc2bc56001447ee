"""Bad input over HTTP gets a problem document, changes nothing, and does not disturb other clients."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.faults.appending import Poster
from tests.support.running import Running

PROMISES = ("H1",)

WITHIN = 20.0
BY_DESIGN = (503, 504)
SETTINGS = "[gateway]\nbody_bytes = 4000000\nidle_ms = 800\nconnections = 900\n"
SLOW = 250
GOOD = {"records": [{"partition": 0, "value": "good"}]}
JSON = "Content-Type: application/json"
ALL_KINDS = (JSON, "Content-Type: application/x-ndjson", "Content-Type: application/octet-stream")
DEEP = 100_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("http-input"), gateway=True, settings=SETTINGS) as running:
        pid = running.gateway_process().pid
        yield running
        assert running.gateway_process().pid == pid, "the gateway died"
        failures = [line for line in running.log_lines() if line["message"] == "a request failed"]
        assert not failures, failures[0]


@pytest.fixture
def topic(server: Running) -> Iterator[str]:
    """A topic, which has the one good record of the next client after the test, and nothing else."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    server.create(name, 2)
    yield name
    with Poster([server.gateway], 0) as poster:
        told = poster.post(name, {**GOOD, "expected_offsets": {"0": 0, "1": 0}})
        assert told.status == 200, told.body


def asked(server: Running, data: bytes) -> list[int]:
    """The statuses of all answers to these bytes, until the gateway closes the connection."""
    host, _, port = server.gateway.partition(":")
    got = b""
    with socket.create_connection((host, int(port)), timeout=WITHIN) as connection:
        try:
            connection.sendall(data)
            while piece := connection.recv(1 << 16):
                got += piece
        except ConnectionError:
            pass  # it was refused before all of it was sent
    return [int(line.split()[1]) for line in got.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def post(topic: str, body: bytes, *headers: str, path: str = "", length: bool = True) -> bytes:
    """A request that appends, as bytes. It closes its connection."""
    lines = [f"POST {path or f'/v1/topics/{topic}/records'} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += headers or (JSON,)
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def records(one: bytes) -> bytes:
    return b'{"records":[' + one + b"]}"


def expecting(partitions: int) -> bytes:
    expected = {str(partition): 0 for partition in range(partitions)}
    return json.dumps({**GOOD, "expected_offsets": expected}).encode()


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "half a document": b'{"records":[{"value":"x"',
    "deep lists": b"[" * DEEP,
    "deep objects": b'{"records":' * DEEP,
    "a value of deep lists": records(b'{"value":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    "a key of deep objects": records(b'{"value":1,"key":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}"),
    "bad UTF-8": records(b'{"value":"\xff\xfe"}'),
    "bad UTF-8 in a name": records(b'{"val\xc3":"x"}'),
    "half a surrogate": records(rb'{"value":"\ud800"}'),
    "half a surrogate in a header": records(rb'{"value":"x","headers":[{"name":"\udc00","value":"x"}]}'),
    "UTF-16": json.dumps(GOOD).encode("utf-16"),
    "NUL bytes": b"\0" * 1_000,
    "no records": b'{"records":[]}',
    "too many records": records(b",".join([b'{"value":1}'] * 10_001)),
    "too many headers": records(b'{"value":"x","headers":[' + b",".join([b'{"name":"a"}'] * 1_001) + b"]}"),
    "a partition that there is not": records(b'{"partition":2,"value":"x"}'),
    "a partition beyond all": records(b'{"partition":' + b"9" * 400 + b',"value":"x"}'),
    "a negative partition": records(b'{"partition":-1,"value":"x"}'),
    "a time beyond all": records(b'{"value":"x","timestamp":9223372036854775807}'),
    "a number of many digits": records(b'{"value":"x","timestamp":' + b"1" * 100_000 + b"}"),
    "base64 that is not": records(b'{"value_base64":"****"}'),
    "a record that is too large": records(b'{"value":"' + b"x" * 1_200_000 + b'"}'),
    "offsets of ten partitions": expecting(10),
    "offsets of thousands of partitions": expecting(5_000),
    "offsets of many thousands": expecting(200_000),
    "an offset beyond all": b'{"records":[{"value":"x"}],"expected_offset":99999999999999999999}',
    "a field twice and unknown": b'{"records":[{"value":1,"value":2,"evil":3}]}',
    "infinity": records(b'{"value":"x","timestamp":1e999}'),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_wrong_body(server: Running, topic: str, name: str) -> None:
    [status] = asked(server, post(topic, BODIES[name]))
    assert 400 <= status < 500


@pytest.mark.parametrize("kind", ALL_KINDS[:2])
def test_noise(server: Running, topic: str, kind: str) -> None:
    [status] = asked(server, post(topic, bytes(range(256)) * 400, kind))
    assert status == 400


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_body_beyond_the_limit(server: Running, topic: str, kind: str) -> None:
    """With a length it is refused before it is read, without one when it has come to the limit."""
    huge = b"x" * 4_100_000
    assert set(asked(server, post(topic, huge, kind))) <= {413}
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(huge), huge)
    assert set(asked(server, post(topic, chunked, kind, "Transfer-Encoding: chunked", length=False))) <= {413}
    with Poster([server.gateway], 0) as poster:
        assert poster.ask("POST", f"/v1/topics/{topic}/records", huge, {"Content-Type": kind[14:]}).status in (0, 413)


def chunks(*parts: str) -> bytes:
    return "".join(parts).encode("latin-1")


BODY = json.dumps({"records": [{"value": "x"}], "expected_offset": 7}).encode().decode()
"""A good body, whose condition does not hold."""
SIZE = f"{len(BODY):x}"
CHUNKS: dict[str, bytes] = {
    "an extension": chunks(f"{SIZE};a=b\r\n{BODY}\r\n0\r\n\r\n"),
    "a long extension": chunks(f"{SIZE};{'a' * 200_000}\r\n{BODY}\r\n0\r\n\r\n"),
    "many extensions": chunks(*(f"1;{'e' * 1_000}\r\n{c}\r\n" for c in BODY), "0\r\n\r\n"),
    "a quoted extension with a line": chunks(f'{SIZE};a="\r\n{BODY}\r\n0\r\n\r\n'),
    "a bare line feed in an extension": chunks(f"{SIZE};a\n{BODY}\r\n0\r\n\r\n"),
    "a size that is not": chunks(f"zz\r\n{BODY}\r\n0\r\n\r\n"),
    "a negative size": chunks(f"-1\r\n{BODY}\r\n0\r\n\r\n"),
    "a size beyond all": chunks(f"{'f' * 17}\r\n{BODY}\r\n0\r\n\r\n"),
    "a size of many digits": chunks(f"{'0' * 100_000}{SIZE}\r\n{BODY}\r\n0\r\n\r\n"),
    "no end": chunks(f"{SIZE}\r\n{BODY}\r\n"),
    "a chunk that is cut": chunks(f"ff\r\n{BODY}"),
    "no line behind a chunk": chunks(f"{SIZE}\r\n{BODY}0\r\n\r\n"),
    "trailers": chunks(f"{SIZE}\r\n{BODY}\r\n0\r\n", *(f"X-{n}: y\r\n" for n in range(5_000)), "\r\n"),
    "single bytes": chunks(*(f"1\r\n{c}\r\n" for c in BODY), "0\r\n\r\n"),
}


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks(server: Running, topic: str, name: str) -> None:
    """At most one answer: what is behind a chunk is never taken for another request."""
    data = post(topic, CHUNKS[name], JSON, "Transfer-Encoding: chunked", length=False)
    statuses = asked(server, data)
    assert len(statuses) <= 1 and all(400 <= status < 500 for status in statuses)


HEADS: dict[str, Callable[[str], bytes]] = {
    "two lengths": lambda t: post(t, BODY.encode(), JSON, "Content-Length: 1"),
    "a length and chunks": lambda t: post(t, BODY.encode(), JSON, "Transfer-Encoding: chunked"),
    "a length that is not": lambda t: post(t, BODY.encode(), JSON, "Content-Length: +5", length=False),
    "a length beyond all": lambda t: post(t, b"", JSON, f"Content-Length: {'9' * 30}", length=False),
    "an unknown encoding": lambda t: post(t, BODY.encode(), JSON, "Transfer-Encoding: gzip", length=False),
    "half a body": lambda t: post(t, b'{"records"', JSON, "Content-Length: 500", length=False),
    "a key of controls": lambda t: post(t, BODY.encode(), JSON, "Idempotency-Key: a\x01b"),
    "a key that is too long": lambda t: post(t, BODY.encode(), JSON, f"Idempotency-Key: {'k' * 256}"),
    "a key of other letters": lambda t: post(t, BODY.encode(), JSON, "Idempotency-Key: \xff\xfe"),
    "a kind of other letters": lambda t: post(t, BODY.encode(), "Content-Type: \xff\xfe"),
    "a wrong query": lambda t: post(t, b"x", ALL_KINDS[2], path=f"/v1/topics/{t}/records?partition=%ff"),
    "a key in the query": lambda t: post(
        t, b"x", ALL_KINDS[2], path=f"/v1/topics/{t}/records?key=%ff%00&expected_offset=7&partition=0"
    ),
    "a topic of other bytes": lambda t: post(t, BODY.encode(), JSON, path="/v1/topics/%ff%fe%00/records"),
    "a topic above": lambda t: post(t, BODY.encode(), JSON, path="/v1/topics/..%2f..%2fetc/records"),
    "an unknown method": lambda t: post(t, BODY.encode()).replace(b"POST", b"BREW", 1),
    "a body of nobody": lambda t: post(t, BODY.encode(), path="/v1/nothing"),
    "wrong credentials": lambda t: post(t, BODY.encode(), JSON, "Authorization: Basic \xff"),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads(server: Running, topic: str, name: str) -> None:
    statuses = asked(server, HEADS[name](topic))
    assert len(statuses) <= 1 and all(400 <= status < 500 for status in statuses), statuses


READS = (
    "offset=-1", "offset=99999999999999999999", "offset=%ff", "from=%00", "from=99999999999999999999999", "limit=0",
    "limit=99999999999999999999", "max_bytes=-1", "next=%ff%ff", f"next={'A' * 20_000}", "next=e30", "format=xml",
    "until=x", "isolation=none", "follow=maybe", "offset=0&from=0&next=x", "offset=7",
)  # fmt: skip


def test_reads(server: Running, topic: str) -> None:
    with Poster([server.gateway], 0) as poster:
        for query in READS:
            told = poster.ask("GET", f"/v1/topics/{topic}/partitions/0/records?{query}")
            assert 400 <= told.status < 500, (query, told)
        for accept in ("text/event-stream", "application/vnd.apache.arrow.stream", "a/b", "\xff"):
            path = f"/v1/topics/{topic}/partitions/0/records?offset=7"
            assert 400 <= poster.ask("GET", path, None, {"Accept": accept}).status < 500


def test_clients_that_send_half_a_body(server: Running, topic: str) -> None:
    """Hundreds of them wait in heads and bodies; another client is served all the while, and they are closed."""
    host, _, port = server.gateway.partition(":")
    half = [post(topic, b'{"records":', JSON, "Content-Length: 1000", length=False), b"POST /v1/topics/"]
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection((host, int(port)), timeout=WITHIN)) for _ in range(SLOW)]
        for number, connection in enumerate(slow):
            connection.sendall(half[number % 2])
        with Poster([server.gateway], 0) as poster:
            served = [poster.post(topic, {**GOOD, "expected_offset": 7}).status for _ in range(50)]
        assert set(served) <= {409, 429, *BY_DESIGN} and served.count(409) > len(served) // 2
        ended = [_until_closed(connection) for connection in slow]
        assert set(ended[1::2]) == {b""}, "half a head has no answer"
        assert {answer[:12] for answer in ended[::2]} <= {b"HTTP/1.1 408", b"HTTP/1.1 429", b""}


def _until_closed(connection: socket.socket) -> bytes:
    got = b""
    try:
        while piece := connection.recv(1 << 16):
            got += piece
    except ConnectionError:
        pass
    return got
