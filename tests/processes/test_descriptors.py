"""A cluster whose processes may have 256 descriptors each outlives idle connections, and goes on to serve."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Producer

from harness import process
from harness.headwater import Headwater
from tests.support.promise import promise

PROMISES = ("S4",)
IDLE = 400
LIMITED = ("/bin/sh", "-c", 'ulimit -n 256 && exec "$@"', "sh")
"""Soft and hard limit."""


def filled(address: str, held: ExitStack) -> None:
    """Open connections that send nothing. Some are closed by the server meanwhile."""
    host, _, port = address.rpartition(":")
    for _ in range(IDLE):
        held.enter_context(socket.create_connection((host, int(port)), timeout=30))


@promise("S4")
def test_idle_connections_end_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than a process may have; then a producer and an append over HTTP work, in the same processes."""
    monkeypatch.setattr(process, "PROGRAM", (*LIMITED, *process.PROGRAM))
    with Headwater(tmp_path, gateway=True) as server, ExitStack() as held:
        server.create("t")
        before = (server.broker(1).pid, server.gateway_process().pid)
        for address in (server.bootstrap, server.gateway):
            filled(address, held)
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": server.bootstrap, "message.timeout.ms": 60_000})
        for n in range(10):
            producer.produce("t", str(n), on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0 and errors == [None] * 10
        body = json.dumps({"records": [{"value": "over HTTP"}]}).encode()
        request = Request(f"{server.gateway_url}/v1/topics/t/records", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as answer:
            assert answer.status in (200, 201)
        assert len(server.read("t")[0]) == 11
        assert (server.broker(1).pid, server.gateway_process().pid) == before
        assert server.metric("headwater_descriptors_limit") == 2 * 256, "of both"
        assert server.metric("headwater_descriptors_turned_away_total") > 2 * (IDLE - 128)
