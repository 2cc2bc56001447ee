"""Kafka's own producer against every server in turn: a few seconds each, many times.

How fast a shared machine is changes from minute to minute, and a Java producer is fully compiled only after ten or
twenty seconds. So each server has one client of its own, which warms up once and then stands still (SIGSTOP) whenever
it is another's turn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException

from benchmarks.clients import Client, producer_performance
from benchmarks.systems import BenchError, System, busy_seconds
from benchmarks.topics import Topics, quiet
from benchmarks.workloads import OTHERS, Plan, Sample, size_label

TOPIC = "turns"
ENDLESS = 1_000_000_000
SETTLE_SECONDS = 0.3
"""After a client goes on, before it is measured: its requests were answered while it stood still."""


class _Seen(NamedTuple):
    """How far things were at a moment."""

    records: int
    server: float
    """Its CPU time, in seconds."""
    others: float
    """CPU time of the machine that was neither the server's nor its client's nor ours."""
    at: float


class _Line:
    """One server, and its client."""

    def __init__(self, server: System, client: Client, topics: Topics, size: int, partitions: int) -> None:
        self._server = server
        self._client = client
        self._topics = topics
        self._size = size
        self._partitions = partitions
        self._case = f"produce {size_label(size)} × {partitions}"

    def __repr__(self) -> str:
        return f"<{self._case} of {self._server!r}>"

    def measure(self, number: int, seconds: float, collect: Callable[[Sample], None]) -> None:
        """Let the client go on for so long."""
        quiet()
        self._client.go_on()
        time.sleep(SETTLE_SECONDS)
        before = self._seen()
        time.sleep(seconds)
        after = self._seen()
        self._client.pause()
        payload = (after.records - before.records) * self._size
        if not payload:
            raise BenchError(f"{self._server.title}: nothing was produced in {seconds:g} s")
        elapsed = after.at - before.at
        capacity = elapsed * (os.cpu_count() or 1)
        for metric, unit, value in (
            ("CPU", "s/GB", (after.server - before.server) / (payload / 1e9)),
            ("throughput", "MB/s", payload / elapsed / 1e6),
            (OTHERS, "%", 100 * (after.others - before.others) / capacity),
        ):
            sample = Sample(
                system=self._server.name,
                round=number,
                case=self._case,
                metric=metric,
                unit=unit,
                value=value,
                comparable=metric != OTHERS,
            )
            collect(sample)

    def _seen(self) -> _Seen:
        try:
            records = self._topics.records(TOPIC, self._partitions)
        except KafkaException as error:
            raise BenchError(f"{self._server.title}: {error}") from error
        server = self._server.cpu_seconds()
        ours = server + self._client.cpu_seconds() + sum(os.times()[:2])
        return _Seen(records, server, busy_seconds() - ours, time.monotonic())


def produce_in_turns(
    servers: Sequence[System], plan: Plan, size: int, partitions: int, logs: Path, collect: Callable[[Sample], None]
) -> None:
    """Measure one case on servers that were just started.

    The order changes with every turn. Whoever goes first has been running just before, and may be quicker for it: an
    even number of turns gives each server as many of those.
    """
    patience = 120 + len(servers) * (plan.warm_seconds + plan.turns * (plan.turn_seconds + 30))
    lines: list[_Line] = []
    with ExitStack() as clients:
        for server in servers:
            topics = Topics(server)
            topics.create(TOPIC, partitions)
            command = producer_performance(server.bootstrap, TOPIC, ENDLESS, size, patience=patience)
            client = clients.enter_context(Client(command, logs / f"{server.name}-clients.log", patience))
            time.sleep(plan.warm_seconds)
            client.pause()
            lines.append(_Line(server, client, topics, size, partitions))
        for number in range(1, plan.turns + 1):
            for line in lines if number % 2 else reversed(lines):
                line.measure(number, plan.turn_seconds, collect)
