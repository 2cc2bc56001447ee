"""Why a link does not copy a topic, as the health page of its process says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headwater.app.claims import claimed, owner_of, this_process
from headwater.app.reports import link_reasons
from headwater.settings.settings import Settings

PARTS = [
    {"name": "a/source", "status": "unhealthy", "reason": "no connection", "since_ms": 1},
    {"name": "a/topics", "status": "healthy", "reason": "", "since_ms": 1},
    {"name": "ab/source", "status": "unhealthy", "reason": "of another link", "since_ms": 1},
]


@contextmanager
def serving(status: int, body: bytes) -> Iterator[str]:
    """A port that answers everything alike."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def reasons(settings: Settings) -> dict[str, str] | None:
    return asyncio.run(link_reasons(settings, "a"))


@pytest.mark.parametrize(
    ("status", "page", "wanted"),
    [
        (503, {"components": {"link": "degraded"}, "parts": {"link": PARTS}}, {"source": "no connection"}),
        (200, {"components": PARTS}, {"source": "no connection"}),
        (200, {"components": {"broker-1": "healthy"}}, {}),
        (401, {"components": PARTS}, None),
        (200, [], None),
        (200, None, None),
    ],
)
def test_pages(status: int, page: object, wanted: object, tmp_path: Path) -> None:
    """Of a supervisor and of a link process; one that needs rights, and ones of something else."""
    with serving(status, json.dumps(page).encode() if page is not None else b"<html>") as address:
        assert reasons(Settings(ledger="etcd://127.0.0.1:1/x", http=address)) == wanted


def test_the_owner_of_a_directory_is_asked(tmp_path: Path) -> None:
    """No other process that may listen at the usual port. A dead owner is none, and nothing is created."""
    data = tmp_path / "data"
    with serving(200, json.dumps({"components": PARTS}).encode()) as address:
        settings = Settings(data=str(data), http=address)
        assert reasons(settings) is None and not data.exists()
        owner = this_process("up", "127.0.0.1:1", f"http://{address}/health")
        with claimed(str(data), owner, [1], whole=True):
            assert owner_of(data) == owner and reasons(settings) == {"source": "no connection"}
        assert owner_of(data) is None and reasons(settings) is None
    with claimed(str(data), owner, [1], whole=True):
        assert reasons(settings) is None, "the port is closed"
