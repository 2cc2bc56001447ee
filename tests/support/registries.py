"""A schema registry that answers what a test tells it to, over HTTP or TLS."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.certificates import Pair

ABSENT = (404, {"error_code": 40403, "message": "Schema not found"})


class FakeRegistry(ThreadingHTTPServer):
    """Answers by path, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.failures = 0
        self.wanted = ""
        """The header `Authorization` that callers need."""
        self.scheme = "https" if context is not None else "http"
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}/registry/"

    def has(self, number: int, schema: Any, kind: str = "AVRO") -> None:
        """Let it have a schema."""
        told = {"schema": schema if isinstance(schema, str) else json.dumps(schema), "schemaType": kind, "id": number}
        self.answers[f"/registry/schemas/ids/{number}"] = (200, told)


class _Handler(BaseHTTPRequestHandler):
    server: FakeRegistry

    def do_GET(self) -> None:
        own, told = self.server, self.headers.get("Authorization", "")
        own.asked.append((self.path, told))
        status, body = own.answers.get(self.path, ABSENT)
        if own.wanted and told != own.wanted:
            status, body = 401, {"error_code": 401, "message": "Unauthorized"}
        if own.failures:
            own.failures -= 1
            status, body = 503, {"message": "not now"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def with_certificate(own: Pair, clients_of: Pair | None = None) -> ssl.SSLContext:
    """TLS with a certificate. With an issuer of clients they need a certificate, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    if clients_of is not None:
        context.load_verify_locations(clients_of.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextlib.contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """A registry that answers in a thread."""
    server = FakeRegistry(context)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
