"""Clients of the HTTP API for tests under kills: each asks one of several gateways, and knows what it cannot know."""

from __future__ import annotations

import functools
import http.client
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.patience import eventually
from harness.ports import free_port
from harness.process import Process
from tests.support.running import Running

REFUSED = (429, 503, 507)
"""Answers after which nothing was appended and the same request may succeed."""


@dataclass(frozen=True, slots=True)
class Told:
    """An answer. Without one the status is 0: the request may or may not have taken effect."""

    status: int
    body: bytes = b""
    replayed: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def unknown(self) -> bool:
        """Whether the request may have taken effect although it was not answered with 200."""
        return self.status in (0, 504)


class Poster(AbstractContextManager["Poster"]):
    """One client. It keeps a connection, and goes to another gateway when it loses it."""

    def __init__(self, gateways: Sequence[str], seed: int) -> None:
        self._gateways = list(gateways)
        self._chance = random.Random(seed)
        self._connection: http.client.HTTPConnection | None = None

    def post(self, topic: str, body: dict[str, Any], key: str = "") -> Told:
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        return self.ask("POST", f"/v1/topics/{topic}/records", json.dumps(body).encode(), headers)

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Told:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._chance.choice(self._gateways), timeout=30)
        try:
            self._connection.request(method, path, body, headers or {})
            answer = self._connection.getresponse()
            return Told(answer.status, answer.read(), answer.getheader("Idempotency-Replayed") == "true")
        except (OSError, http.client.HTTPException):
            self.close()
            return Told(0)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def another_gateway(server: Running, directory: Path) -> Iterator[Process]:
    """A gateway beside the one of `headwater up`; its address is in `Process.options`."""
    address = f"127.0.0.1:{free_port()}"
    log = directory / "second-gateway.log"
    options = ["--http", "127.0.0.1:0", "--gateway-http", address]
    second = Process("gateway", server.config, log, server.variables, options=options, said=log.with_suffix(".out"))
    second.launch()
    try:
        second.wait_until_ready()
        yield second
    finally:
        second.kill()


def address_of(gateway: Process) -> str:
    """Where a second gateway listens."""
    return gateway.options[-1]


def serves(address: str) -> bool:
    with Poster([address], 0) as poster:
        return poster.ask("GET", "/v1/health").status == 200


def until_served(*addresses: str) -> None:
    """Wait until all of these gateways answer."""
    for address in addresses:
        eventually(functools.partial(serves, address), f"the gateway {address} answers")
