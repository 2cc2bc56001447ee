"""What tests see of brokers that run as real processes, however they were started: addresses, pages, logs, records."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from headwater.client.client import Client
from headwater.client.model import EARLIEST, LATEST, NewTopic
from headwater.client.reader import Reader

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 40.0
PORTS = range(20_000, 32_000)
"""Below the ports that the kernel gives to clients, so that no client can take one while its broker is down."""
_LOG_CHARACTERS = 6_000

T = TypeVar("T")


def free_ports(count: int) -> int:
    """The first of some consecutive TCP ports that nobody listens on right now."""
    for _ in range(1_000):
        first = random.SystemRandom().randrange(PORTS.start, PORTS.stop - count)
        if all(_is_free(first + i) for i in range(count)):
            return first
    raise OSError(f"no {count} consecutive free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def headwater(
    *arguments: str, timeout: float = 60.0, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with these variables in its environment."""
    return subprocess.run(
        [sys.executable, "-m", "headwater", *arguments],
        capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT, env=environment(more),
    )  # fmt: skip


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without settings that a developer may have set."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
    return {**own, **(more or {})}


def needs(what: str, there: bool) -> None:
    """Skip the test, or fail it under CI, where a missing thing would hide a missing test."""
    if not there and os.environ.get("CI") == "true":
        pytest.fail(f"needs {what}", pytrace=False)
    if not there:
        pytest.skip(f"needs {what}")


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)


def alive(process: psutil.Process) -> bool:
    """Whether a process runs; one that ended and was not collected does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def get_page(address: str, path: str, within: float = 30) -> tuple[int, str]:
    """Status and body of a page."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=within) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metric_of(page: str, name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(map(float, re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", page, re.MULTILINE)))


class Serving(ABC):
    """Brokers on consecutive ports of the loopback address, and what clients and operators get to know of them."""

    port: int
    brokers: int
    log: Path

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + i}" for i in range(self.brokers))

    @abstractmethod
    def broker(self, node: int) -> psutil.Process:
        """The process of a broker."""

    @abstractmethod
    def page(self, path: str, within: float = 30) -> tuple[int, str]:
        """Status and body of a page about all brokers."""

    # --- logs and pages ------------------------------------------------------------------------------

    def end_of_log(self) -> str:
        return self.log.read_text()[-_LOG_CHARACTERS:]

    def log_lines(self) -> Iterator[dict[str, Any]]:
        """The log so far, line by line."""
        for line in self.log.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                yield json.loads(line)

    def epochs(self) -> dict[int, int]:
        """Each broker's epoch, as its metrics tell."""
        found = re.findall(r'^headwater_epoch\{node="(\d+)"\} (\d+)$', self.page("/metrics")[1], re.MULTILINE)
        return {int(node): int(epoch) for node, epoch in found}

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 while nobody tells it."""
        return metric_of(self.page("/metrics")[1], name)

    # --- as a client ---------------------------------------------------------------------------------

    def client(self, *nodes: int) -> Client:
        """A client that starts at some of the brokers, or at any."""
        return Client(",".join(f"127.0.0.1:{self.port + node - 1}" for node in nodes) or self.bootstrap)

    def nodes(self, *ask: int) -> list[int]:
        """The brokers that the metadata names, as some of them tell."""

        async def look() -> list[int]:
            async with self.client(*ask) as client:
                return sorted(b.node for b in (await client.cluster()).brokers)

        return run(look())

    def ask(self, question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """What a client gets to know."""

        async def ask() -> T:
            async with self.client() as client:
                return await question(client)

        return run(ask())

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        self.ask(lambda client: client.create_topics([NewTopic(topic, partitions, configs=configs)]))

    def leaders(self, topic: str) -> list[int]:
        """The node that leads each partition."""

        return [partition.leader for partition in self.ask(lambda client: client.topic(topic)).partitions]

    def read(self, topic: str, partitions: Sequence[int] = (0,)) -> dict[int, list[tuple[int, bytes]]]:
        """Offsets and values of all records."""

        async def read() -> dict[int, list[tuple[int, bytes]]]:
            async with self.client() as client:
                ends = {
                    p: f.offset
                    for p, f in (await client.list_offsets(topic, dict.fromkeys(partitions, LATEST))).items()
                }
                starts = await client.list_offsets(topic, dict.fromkeys(partitions, EARLIEST))
                reader = Reader(client, topic, {p: f.offset for p, f in starts.items()}, ends)
                found: dict[int, list[tuple[int, bytes]]] = {p: [] for p in partitions}
                async for chunk in reader.chunks():
                    found[chunk.partition] += [(r.offset, r.value or b"") for r in chunk.records]
                return found

        return run(read())
