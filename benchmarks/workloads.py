"""What is measured: a session drives one server through all phases and records samples.

Units: MB and GB are powers of ten, of record values only. A server's CPU per GB counts the payload that the
phase wrote or, where it only read, the payload that it read.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.clients import (
    CLIENT_HEAP,
    Client,
    ClientResult,
    LatencyResult,
    producer_performance,
    steady_rate,
)
from benchmarks.systems import BenchError, System, busy_seconds, java
from benchmarks.topics import Topics, quiet

PHASES = ("startup", "produce", "consume", "librdkafka", "latency")
WARM_TOPIC = "warm"
WARM_SIZE = 1024
LATENCY_BYTES_PER_SECOND = 20_000_000
SESSION = "whole session"
OTHERS = "machine's CPU used by others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one run measures, and with how much data."""

    phases: frozenset[str]
    sizes: tuple[int, ...]
    partitions: tuple[int, ...]
    records_mb: int
    warmup_mb: int
    warm_seconds: float
    turns: int
    turn_seconds: float
    idle_seconds: int
    latency_seconds: int
    latency_warmup_seconds: int
    linger: str

    def size(self) -> str:
        return (
            f"the Java producer in {self.turns} turns of {self.turn_seconds:g} s, after {self.warm_seconds:g} s; "
            f"{self.records_mb} MB a throughput phase of all else, after {self.warmup_mb} MB; "
            f"latency over {self.latency_seconds} s, after {self.latency_warmup_seconds} s"
        )

    def records(self, size: int) -> int:
        return self.records_mb * 1_000_000 // size


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One value of one round. The metric ``CPU`` is the server's CPU seconds per GB of payload.

    Not comparable is what has no counterpart in the other system, so that a ratio would say nothing.
    """

    system: str
    round: int
    case: str
    metric: str
    unit: str
    value: float
    comparable: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a session that can fail without spoiling the rest."""

    label: str
    run: Callable[[], None]


def size_label(size: int) -> str:
    return f"{size // 1024} KB" if size % 1024 == 0 else f"{size} B"


class Session:
    """One start of one server, and all that is measured of it, step by step."""

    def __init__(self, server: System, plan: Plan, number: int, logs: Path, collect: Callable[[Sample], None]) -> None:
        self.server = server
        self.plan = plan
        self.number = number
        self.logs = logs
        self._collect = collect
        self._topics = Topics(server)
        self._produced = 0
        self._used = server.cpu_seconds()
        """CPU of the server in its own steps, and in its start; that of others meanwhile; and how long they took."""
        self._used_by_others = self._seconds = 0.0

    def __repr__(self) -> str:
        return f"<Session {self.number} of {self.server!r}>"

    @property
    def startup(self) -> Step:
        """To be taken before anything else is started."""
        return Step("startup and idle", self._startup)

    def steps(self) -> list[Step]:
        """What comes after the start."""
        plan, phases, wide = self.plan, self.plan.phases, max(self.plan.partitions)
        if not phases - {"startup", "produce"}:
            return []
        steps = [Step("warm-up", self._warm_up)]
        if "consume" in phases:
            for size in plan.sizes:
                for count in plan.partitions:
                    label = f"{size_label(size)} × {count}"
                    steps.append(Step(f"Java {label}", partial(self._java, size, count, label)))
            steps.append(Step("follow the tail", partial(self._follow, max(plan.sizes), wide)))
        if "librdkafka" in phases:
            for size in plan.sizes:
                steps.append(Step(f"librdkafka {size_label(size)}", partial(self._librdkafka, size, wide)))
        if "latency" in phases:
            steps.append(Step("latency", partial(self._latency, max(plan.sizes), wide)))
        steps.append(Step("totals", self._totals))
        return steps

    @contextmanager
    def counted(self) -> Iterator[None]:
        """A step of this session, whose use of the machine counts in its totals."""
        used, others, began = self.server.cpu_seconds(), self._others_seconds(), time.monotonic()
        try:
            yield
        finally:
            self._used += self.server.cpu_seconds() - used
            self._used_by_others += self._others_seconds() - others
            self._seconds += time.monotonic() - began

    # -- phases ------------------------------------------------------------------------------------------

    def _startup(self) -> None:
        if "startup" not in self.plan.phases:
            return
        self._record("startup", "to the ready line", "s", self.server.startup_seconds)
        time.sleep(2)  # what a server does once after its start is not its idle load
        before, began = self.server.cpu_seconds(), time.monotonic()
        time.sleep(self.plan.idle_seconds)
        used, elapsed = self.server.cpu_seconds() - before, time.monotonic() - began
        self._record("idle", "CPU of one core", "%", 100 * used / elapsed)
        self._memory("idle", each=True)

    def _warm_up(self) -> None:
        """Compiles the server's hot paths, and leaves a topic for the consumers to warm up with."""
        records = self.plan.warmup_mb * 1_000_000 // WARM_SIZE
        self._topics.create(WARM_TOPIC, max(self.plan.partitions))
        self._produce(WARM_TOPIC, records, WARM_SIZE)
        self._consume(WARM_TOPIC, records)

    def _java(self, size: int, partitions: int, label: str) -> None:
        """Our assigned Java consumer reads what ProducerPerformance has just written."""
        topic, records = f"java-{size}-{partitions}", self.plan.records(size)
        self._topics.create(topic, partitions)
        self._produce(topic, records, size)
        self._check_end(topic, partitions, records)
        quiet()
        result = self._consume(topic, records, case=f"consume {label}")
        self._check_read(result, records, size)
        self._record(f"consume {label}", "throughput", "MB/s", result.mb_per_second)

    def _follow(self, size: int, partitions: int) -> None:
        """A consumer at the tail while ProducerPerformance writes at full speed."""
        case, topic, records = f"follow {size_label(size)} × {partitions}", "follow", self.plan.records(size)
        self._topics.create(topic, partitions)
        with self._assigned_consumer(topic, records, "end") as consumer:
            consumer.wait_warm()
            quiet()
            with self._cpu("consume", case, records * size):
                consumer.go()
                rate = self._produce(topic, records, size)
                result = consumer.result(ClientResult)
        self._check_read(result, records, size)
        self._record(case, "produced meanwhile", "MB/s", rate * size / 1e6)
        self._record(case, "consumed", "MB/s", result.mb_per_second)

    def _librdkafka(self, size: int, partitions: int) -> None:
        label, topic, records = (
            f"{size_label(size)} × {partitions}",
            f"librdkafka-{size}",
            self.plan.records(size),
        )
        self._topics.create(topic, partitions)
        for mode in ("produce", "consume"):
            case = f"librdkafka {mode} {label}"
            with self._librdkafka_client(mode, topic, records, size) as client:
                client.wait_warm()
                quiet()
                with self._cpu("librdkafka", case, records * size):
                    client.go()
                    result = client.result(ClientResult)
            if mode == "produce":
                self._check_end(topic, partitions, records)
                self._produced += (records + self._warm_records()) * size
            self._check_read(result, records, size)
            self._record(case, "throughput", "MB/s", result.mb_per_second)

    def _latency(self, size: int, partitions: int) -> None:
        plan, topic, rate = self.plan, "latency", LATENCY_BYTES_PER_SECOND // size
        case = f"latency at {LATENCY_BYTES_PER_SECOND // 1_000_000} MB/s, {size_label(size)} × {partitions}"
        self._topics.create(topic, partitions)
        seconds = plan.latency_warmup_seconds + plan.latency_seconds
        numbers = [rate, size, plan.latency_warmup_seconds, plan.latency_seconds]
        command = java(CLIENT_HEAP, "LatencyProbe", self.server.bootstrap, topic, *map(str, numbers), plan.linger)
        with self._client(command, seconds * LATENCY_BYTES_PER_SECOND) as probe:
            probe.wait_warm()
            quiet()
            with self._cpu("latency", case, seconds * rate * size):
                probe.go()
                result = probe.result(LatencyResult)
        self._produced += result.bytes
        self._record(case, "p50", "ms", result.p50_ms)
        self._record(case, "p99", "ms", result.p99_ms)
        self._record(case, "p99.9", "ms", result.p999_ms)
        self._record(case, "achieved rate", "MB/s", result.mb_per_second)

    def _totals(self) -> None:
        """The CPU of all steps: with that of warming up, of what is done between phases, and put off until then."""
        self._record(SESSION, "server CPU per GB produced", "s/GB", self._used / (self._produced / 1e9))
        capacity = self._seconds * (os.cpu_count() or 1)
        self._record(SESSION, OTHERS, "%", 100 * self._used_by_others / capacity, comparable=False)
        self._memory("after the load", each=False)

    # -- parts -------------------------------------------------------------------------------------------

    def _record(self, case: str, metric: str, unit: str, value: float, *, comparable: bool = True) -> None:
        sample = Sample(
            system=self.server.name,
            round=self.number,
            case=case,
            metric=metric,
            unit=unit,
            value=value,
            comparable=comparable,
        )
        self._collect(sample)

    def _memory(self, case: str, *, each: bool) -> None:
        processes = self.server.memory()
        self._record(case, "RSS, all processes", "MB", sum(process.rss_mb for process in processes))
        self._record(case, "PSS, all processes", "MB", sum(process.pss_mb for process in processes))
        if each:
            for index, process in enumerate(processes, start=1):
                self._record(case, f"RSS, process {index}", "MB", process.rss_mb, comparable=False)

    def _others_seconds(self) -> float:
        """CPU time of the machine that is neither the server's nor ours; clients are reaped between steps."""
        ours = os.times()
        return busy_seconds() - self.server.cpu_seconds() - sum(ours[:4])

    @contextmanager
    def _cpu(self, phase: str, case: str, payload: int) -> Iterator[None]:
        """Records the server's CPU per GB of the enclosed work, when that phase was asked for."""
        before = self.server.cpu_seconds()
        yield
        used = self.server.cpu_seconds() - before
        if phase in self.plan.phases:
            self._record(case, "CPU", "s/GB", used / (payload / 1e9))

    def _client(self, command: list[str], payload: int) -> Client:
        """A client that is given up at 2 MB/s."""
        return Client(command, self.logs / f"{self.server.name}-clients.log", 60 + payload / 2e6)

    def _warm_records(self) -> int:
        return self.plan.warmup_mb * 1_000_000 // WARM_SIZE // 2

    def _assigned_consumer(self, topic: str, records: int, position: str) -> Client:
        numbers = [WARM_TOPIC, str(self._warm_records()), topic, str(records), position]
        command = java(CLIENT_HEAP, "AssignedConsumer", self.server.bootstrap, *numbers)
        return self._client(command, self.plan.records_mb * 1_000_000)

    def _librdkafka_client(self, mode: str, topic: str, records: int, size: int) -> Client:
        module = [sys.executable, "-m", "benchmarks.librdkafka", mode, self.server.bootstrap]
        command = [*module, topic, str(records), str(size), WARM_TOPIC, str(self._warm_records())]
        return self._client(command, self.plan.records_mb * 1_000_000)

    def _produce(self, topic: str, records: int, size: int) -> float:
        """Runs ProducerPerformance; its rate leaves out the first fifth of the records."""
        command = producer_performance(self.server.bootstrap, topic, records, size, warm=records // 5)
        with self._client(command, records * size) as client:
            rate = steady_rate(client.output(), records)
        self._produced += records * size
        return rate

    def _consume(self, topic: str, records: int, case: str | None = None) -> ClientResult:
        with self._assigned_consumer(topic, records, "beginning") as client:
            client.wait_warm()
            before = self.server.cpu_seconds()
            client.go()
            result = client.result(ClientResult)
            used = self.server.cpu_seconds() - before
        if case is not None:
            self._record(case, "CPU", "s/GB", used / (result.bytes / 1e9))
        return result

    def _check_read(self, result: ClientResult, records: int, size: int) -> None:
        if (result.records, result.bytes) != (records, records * size):
            raise BenchError(f"{self.server.title}: expected {records} records of {size} B, got {result}")

    def _check_end(self, topic: str, partitions: int, records: int) -> None:
        """The log ends of a topic must add up to what was acknowledged."""
        total = self._topics.records(topic, partitions)
        if total != records:
            raise BenchError(f"{self.server.title}: {topic} holds {total} records, {records} were acknowledged")
