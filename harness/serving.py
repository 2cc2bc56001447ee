"""The outside view of brokers that run as real processes: addresses, pages, logs, records."""

from __future__ import annotations

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from harness.pages import metric_of
from harness.process import LOG_CHARACTERS
from headwater.client.client import Client
from headwater.client.model import EARLIEST, LATEST, NewTopic
from headwater.client.reader import Reader

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)


class Serving(ABC):
    """Brokers on consecutive ports of the loopback address, as clients and operators see them."""

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
        """The status and body of a page about all brokers."""

    # --- logs and pages ------------------------------------------------------------------------------

    def end_of_log(self) -> str:
        return self.log.read_text()[-LOG_CHARACTERS:]

    def log_lines(self) -> Iterator[dict[str, Any]]:
        """The log so far, line by line."""
        for line in self.log.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                yield json.loads(line)

    def epochs(self) -> dict[int, int]:
        """The epoch of each broker, from its metrics."""
        found = re.findall(r'^headwater_epoch\{node="(\d+)"\} (\d+)$', self.page("/metrics")[1], re.MULTILINE)
        return {int(node): int(epoch) for node, epoch in found}

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 while no process reports it."""
        return metric_of(self.page("/metrics")[1], name)

    # --- as a client ---------------------------------------------------------------------------------

    def client(self, *nodes: int) -> Client:
        """A client that bootstraps from some of the brokers; from all if none is named."""
        return Client(",".join(f"127.0.0.1:{self.port + node - 1}" for node in nodes) or self.bootstrap)

    def nodes(self, *ask: int) -> list[int]:
        """The brokers in the metadata that some of the brokers send."""

        async def look() -> list[int]:
            async with self.client(*ask) as client:
                return sorted(b.node for b in (await client.cluster()).brokers)

        return run(look())

    def ask(self, question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """The result of a coroutine that uses a client."""

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
