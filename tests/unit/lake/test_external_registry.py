"""T6: schemas of an external registry: ids, GUIDs, subjects, references; and everything that is no answer."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headwater.clock import SystemClock
from headwater.lake.external_registry import ExternalRegistry
from headwater.lake.registries import RegistryUnavailable
from headwater.schemas.typing import KnownSchema
from headwater.settings.schema_registry import SchemaRegistry
from headwater.threads import inline

GUID = "00000000-0000-0000-0000-00000000000a"
ABSENT = (404, {"error_code": 40403, "message": "Schema not found"})


class Fake(ThreadingHTTPServer):
    """Answers by path, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.failures = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/registry/"


class Handler(BaseHTTPRequestHandler):
    server: Fake

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization", "")))
        status, body = self.server.answers.get(self.path, ABSENT)
        if self.server.failures:
            self.server.failures -= 1
            status, body = 503, {"message": "not now"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def fake() -> Iterator[Fake]:
    server = Fake()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(fake: Fake, name: str, **settings: Any) -> KnownSchema | None:
    own = SchemaRegistry(url=fake.url, **{"retries": 0} | settings)
    return asyncio.run(ExternalRegistry(own, inline, SystemClock(), {"SECRET": "s3"}).schema(name))


def test_ids_guids_and_subjects(fake: Fake) -> None:
    fake.answers["/registry/schemas/ids/7"] = (200, {"schema": '"long"', "more": 1})
    fake.answers[f"/registry/schemas/guids/{GUID}"] = (200, {"schema": "{}", "schemaType": "JSON"})
    fake.answers["/registry/subjects/a%2Fb/versions/latest"] = (200, {"schema": '"int"', "version": 3, "id": 9})
    assert ask(fake, "7") == KnownSchema(("7",), "AVRO", '"long"', ())
    assert ask(fake, GUID) == KnownSchema((GUID,), "JSON", "{}", ())
    assert ask(fake, "subject:a/b") == KnownSchema(("subject:a/b",), "AVRO", '"int"', ())
    assert ask(fake, "8") is None
    assert fake.asked[0] == ("/registry/schemas/ids/7", "")


def test_references_come_before_those_that_need_them(fake: Fake) -> None:
    def refers(name: str, subject: str) -> dict[str, Any]:
        return {"name": name, "subject": subject, "version": 2}

    schemas = "/registry/subjects/{}/versions/2?deleted=true"
    fake.answers["/registry/schemas/ids/1"] = (
        200,
        {"schema": "top", "references": [refers("b", "B"), refers("c", "C")]},
    )
    fake.answers[schemas.format("B")] = (200, {"schema": "of b", "references": [refers("c", "C")]})
    fake.answers[schemas.format("C")] = (200, {"schema": "of c"})
    found = ask(fake, "1")
    assert found is not None and found.references == (("c", "of c"), ("b", "of b"))
    del fake.answers[schemas.format("C")]
    assert ask(fake, "1") is None


def test_users_and_tokens(fake: Fake, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("t0\n")
    ask(fake, "1", user="u", password_env="SECRET")
    ask(fake, "1", token_file=str(secret))
    assert [header for _, header in fake.asked] == [f"Basic {base64.b64encode(b'u:s3').decode()}", "Bearer t0"]
    with pytest.raises(RegistryUnavailable, match="NONE of the environment is not set"):
        ask(fake, "1", token_env="NONE")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, b"<html>"), "status 404"),
        ((404, {"error_code": 404}), "status 404"),
        ((200, b"<html>"), "answers no schema"),
        ((200, {"schema": 5}), "answers no schema"),
        ((401, {}), "refuses the user"),
        ((500, {"error_code": 50001, "message": "broken"}), "status 500, broken"),
        ((302, []), "status 302"),
        ((200, {"schema": "x" * 2000}), "more than 1000 bytes"),
    ],
)
def test_what_is_no_answer(fake: Fake, answer: tuple[int, Any], words: str) -> None:
    """T6: none of these makes a record a failure: the registry cannot be asked."""
    fake.answers["/registry/schemas/ids/1"] = answer
    with pytest.raises(RegistryUnavailable, match=words):
        ask(fake, "1", answer_bytes=1000)


def test_requests_are_repeated(fake: Fake) -> None:
    fake.answers["/registry/schemas/ids/1"] = (200, {"schema": '"long"'})
    fake.failures = 1
    assert ask(fake, "1", retries=1) is not None
    assert len(fake.asked) == 2


def test_nobody_there() -> None:
    own = SchemaRegistry(url="http://127.0.0.1:1", retries=0)
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        asyncio.run(ExternalRegistry(own, inline, SystemClock()).schema("1"))
