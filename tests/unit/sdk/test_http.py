"""Requests to a gateway: what is repeated, what is not, and which error each answer becomes."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from headwater.errors import (
    BadInput,
    ConfigError,
    Conflict,
    Damaged,
    Exists,
    HeadwaterError,
    NotAllowed,
    NotFound,
    NotReady,
    OutcomeUnknown,
    Overloaded,
    Retriable,
    StoreFull,
    TooLarge,
)
from headwater.sdk import http as sdk_http
from headwater.sdk.http import Http, Login, problem

Reply = Callable[[BaseHTTPRequestHandler], None]


def told(status: int, **document: Any) -> Reply:
    """An answer with a document."""

    def reply(handler: BaseHTTPRequestHandler) -> None:
        data = json.dumps(document).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return reply


def lost(handler: BaseHTTPRequestHandler) -> None:
    """No answer: the connection ends."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def cut(handler: BaseHTTPRequestHandler) -> None:
    """Half an answer: the gateway dies while it sends it."""
    handler.send_response(200)
    handler.send_header("Content-Length", "7")
    handler.end_headers()
    handler.wfile.write(b'{"n": ')
    handler.close_connection = True


def closing(handler: BaseHTTPRequestHandler) -> None:
    """An answer, and the end of the connection without a word about it."""
    told(200, n=1)(handler)
    handler.close_connection = True


class Fake:
    """A gateway that gives answers in turn; the last one again and again."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                fake.connections += 1

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fake.asked.append((f"{self.command} {self.path}", dict(self.headers), body))
                (fake.replies.pop(0) if len(fake.replies) > 1 else fake.replies[0])(self)

            do_GET = do_POST = do_PUT = _answer

            def log_message(self, *_: object) -> None:
                """Nothing is logged."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def fake(*replies: Reply) -> Iterator[Fake]:
    made = Fake(*replies)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def client(url: str, **options: Any) -> Iterator[Http]:
    made = Http(url, **options)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_http, "FIRST_PAUSE", 0.001)


def test_what_was_refused_without_effect_is_repeated() -> None:
    """Also without a key: the gateway says that nothing was changed."""
    with (
        fake(told(503, type="/problems/unavailable"), told(429), told(200, n=1)) as gateway,
        client(gateway.url) as http,
    ):
        assert http.request("POST", "/x", body=b"b", repeat=False).json() == {"n": 1}
        assert [line for line, _, _ in gateway.asked] == ["POST /x"] * 3 and gateway.connections == 1


@pytest.mark.parametrize("lost", [lost, cut])
def test_a_lost_answer_is_repeated_only_where_that_is_safe(lost: Reply) -> None:
    with fake(lost, told(200, n=1)) as gateway, client(gateway.url) as http:
        with pytest.raises(OutcomeUnknown, match="was lost"):
            http.request("POST", "/x", body=b"b", repeat=False)
        assert len(gateway.asked) == 1
        assert http.request("POST", "/x", body=b"b", repeat=True).json() == {"n": 1}
    with (
        fake(told(504, type="/problems/outcome-unknown"), lost, told(200, n=2)) as gateway,
        client(gateway.url) as http,
    ):
        assert http.request("POST", "/x", body=b"b", repeat=True).json() == {"n": 2}
        assert [body for _, _, body in gateway.asked] == [b"b"] * 3


def test_time_is_up() -> None:
    """An attempt with an unknown outcome is not forgotten when a later one fails for certain."""
    for replies, kind, words in (
        ((lost, told(503, detail="no")), OutcomeUnknown, "earlier attempt may have taken effect; then: no"),
        ((told(503, detail="no"),), NotReady, "no"),
    ):
        with fake(*replies) as gateway, client(gateway.url, timeout=0.2) as http, pytest.raises(kind, match=words):
            http.request("POST", "/x", repeat=True)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with client(url, timeout=0.05) as http, pytest.raises(NotReady, match="no gateway answers at http"):
            http.get("/v1")
        with client(url, timeout=1e9, waits=False) as http:
            with pytest.raises(NotReady, match=r"no gateway answers at http.*; start `headwater up`"):
                http.get("/v1")
            with pytest.raises(NotReady, match="no gateway answers"), http.stream("/v1", {}, {}):
                pass


def test_a_connection_that_was_closed_meanwhile_is_not_used() -> None:
    """Else every request without a key after a pause would have an unknown outcome."""
    with fake(closing, told(200, n=2)) as gateway, client(gateway.url) as http:
        assert http.get("/a") == {"n": 1}
        while gateway.connections and not _readable(http):
            pass
        assert http.request("POST", "/b", repeat=False).json() == {"n": 2}
        assert gateway.connections == 2


def _readable(http: Http) -> bool:
    import select

    [kept] = http._idle
    return bool(select.select([kept.sock], [], [], 0.1)[0])


@pytest.mark.parametrize(
    ("status", "document", "kind"),
    [
        (400, {"detail": "bad"}, BadInput),
        (401, {}, NotAllowed),
        (403, {"detail": "may not"}, NotAllowed),
        (404, {"type": "/problems/not-found"}, NotFound),
        (413, {}, TooLarge),
        (422, {}, BadInput),
        (429, {}, Overloaded),
        (500, {"type": "/problems/damaged"}, Damaged),
        (500, {}, HeadwaterError),
        (503, {"type": "/problems/unavailable"}, NotReady),
        (503, {"type": "/problems/keys-full"}, StoreFull),
        (504, {}, OutcomeUnknown),
        (507, {}, StoreFull),
    ],
)
def test_errors_of_answers(status: int, document: dict[str, Any], kind: type[HeadwaterError]) -> None:
    error = problem(status, json.dumps(document).encode())
    assert type(error) is kind and str(error)
    assert type(problem(status, b"<html>")) in (kind, *kind.__mro__, BadInput, HeadwaterError, NotReady)


def test_conflicts_have_the_present_values() -> None:
    lines = [{"partition": 3, "expected": 1, "present": 7}]
    error = problem(409, json.dumps({"detail": "no", "partitions": lines, "version": {"present": 4}}).encode())
    assert isinstance(error, Conflict) and not isinstance(error, Retriable)
    assert error.present == {3: 7} and error.version == 4
    plain = problem(409, b'{"type": "/problems/conflict"}')
    assert isinstance(plain, Conflict) and plain.present == {} and plain.version is None


def test_what_exists_is_not_a_conflict() -> None:
    """The same error as that of a connection by data directory."""
    error = problem(409, b'{"type": "/problems/already-exists", "detail": "topic t exists"}')
    assert type(error) is Exists and str(error) == "topic t exists"


def test_callers() -> None:
    with fake(told(200)) as gateway:
        for login, header in (
            (Login("alice", "s:1"), "Basic YWxpY2U6czox"),
            (Login(token="abc"), "Bearer abc"),
            (None, None),
        ):
            with client(gateway.url, login=login) as http:
                http.get("/v1")
            assert gateway.asked[-1][1].get("Authorization") == header
    assert "s:1" not in repr(Login("alice", "s:1"))


@pytest.mark.parametrize(
    ("url", "login", "words"),
    [
        ("ftp://h", Login(), "not the URL of a gateway"),
        ("http://", Login(), "not the URL of a gateway"),
        ("http://h:99999", Login(), "Port out of range"),
        ("http://u:p@h", Login(), "does not belong into the URL"),
        ("https://h", Login(user="a"), "give `user` and `password`"),
        ("https://h", Login("a", "b", "c"), "or `token`"),
        ("http://example.org", Login("a", "b"), "unencrypted: use https"),
        ("https://h", Login(ca="/nowhere/ca.pem"), "cannot read the issuers"),
    ],
)
def test_bad_options(url: str, login: Login, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Http(url, login)
