"""One group of steps on servers that are warm: clients, turns, and what each turn used of the machine.

How fast a shared machine is changes from minute to minute, so the systems take turns of a few seconds, in an order that
changes. Each has clients of its own, which run for the whole of a step and wait while another system has its turn.

MB and GB are powers of ten, of record values only.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.clients import (
    CLIENT_HEAP,
    ENDLESS,
    Client,
    ClientResult,
    LatencyResult,
    ProducerPerformance,
    TransactionsResult,
)
from benchmarks.plan import RATE_BYTES, WRITES, Group, Kind, Plan, Step, Way, order
from benchmarks.results import THROUGHPUT, Sample
from benchmarks.systems import BenchError, Measured, System, busy_seconds, stolen_seconds
from benchmarks.topics import Topics, quiet
from harness.kafka import java

CPU = "CPU"
STOLEN, FOREIGN, IDLING = "stolen", "other processes", "the other servers"
"""Shares of the machine that a turn did not have."""
SETTLED = "settled after"
RUNS_SECONDS = 0.3
"""After a producer goes on, before its log is looked at: its requests were answered while it was paused. Also after a
pause: what it had sent is appended within that time."""
LOOK_SECONDS = 0.2
DRAIN_LOOK_SECONDS = 1.0

Values = list[tuple[str, str, float]]
"""Metrics with their units and values."""


class Deadline:
    """The time limit of a step."""

    def __init__(self, seconds: float, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._seconds = seconds
        self._what = what

    def __repr__(self) -> str:
        return f"<Deadline of {self._what}, {self.left:.0f} s left>"

    @property
    def passed(self) -> float:
        return self._clock() - self._began

    @property
    def left(self) -> float:
        return self._seconds - self.passed

    def check(self, needed: float = 0.0) -> None:
        """Raise an error if less than so many seconds are left."""
        if self.left <= needed:
            raise BenchError(f"{self._what} was given up at its limit of {self._seconds:.0f} s; --resume continues")


@dataclass(frozen=True, slots=True)
class Use:
    """CPU seconds so far: of the machine, of its hypervisor, of a server, of the other servers, of us and clients."""

    at: float
    busy: float
    stolen: float
    server: float
    idling: float
    ours: float

    @staticmethod
    def look(server: System, servers: Sequence[System], clients: Sequence[Measured]) -> Use:
        idling = sum(other.cpu_seconds() for other in servers if other is not server)
        ours = sum(client.cpu_seconds() for client in clients) + sum(os.times()[:2])
        return Use(time.monotonic(), busy_seconds(), stolen_seconds(), server.cpu_seconds(), idling, ours)

    def shares_since(self, before: Use, cores: int) -> Values:
        """What others had of the machine, in percent of all cores."""
        capacity = max(self.at - before.at, 1e-9) * cores
        stolen, idling = self.stolen - before.stolen, self.idling - before.idling
        foreign = self.busy - before.busy - stolen - idling - (self.server - before.server) - (self.ours - before.ours)
        shares = ((STOLEN, stolen), (FOREIGN, max(foreign, 0.0)), (IDLING, idling))
        return [(metric, "%", 100 * seconds / capacity) for metric, seconds in shares]


@dataclass(frozen=True, slots=True)
class Load:
    """What a load of one turn showed."""

    values: Values
    counted: int
    """Records or bytes that count; 0 if nothing was moved."""
    payload: int
    """Bytes of the whole turn."""


class Bench:
    """One group on running servers. Leaving the block ends its clients and deletes its topics."""

    def __init__(self, group: Group, plan: Plan, servers: Mapping[str, System], logs: Path, name: str) -> None:
        self._group = group
        self._plan = plan
        self._all = tuple(servers.values())
        self._servers = {name: servers[name] for name in group.systems}
        self._logs = logs
        self._topic = "-".join([name, str(group.size), str(group.partitions)])
        self._transactions = f"{self._topic}-transactions"
        self._topics = {name: Topics(server) for name, server in self._servers.items()}
        self._producers: dict[str, ProducerPerformance] = {}
        self._clients: list[Measured] = []
        self._stack = ExitStack()

    def __repr__(self) -> str:
        return f"<Bench {self._group.label}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def warm_up(self, *, payload: int, seconds: float, limit: float, client_limit: float) -> None:
        """Start a producer for every server, one after the other, and pause it when it has sent enough for long enough.

        Groups whose clients write all that they read get no producer.
        `limit` is for each of them, `client_limit` for as long as the group may need them.
        """
        for name, server in self._servers.items():
            deadline = Deadline(limit, f"{server.title}: the warm-up with {self._group.label}")
            topics = self._topics[name]
            for topic in (self._topic, self._transactions) if self._group.fills_itself else (self._topic,):
                topics.create(topic, self._group.partitions)
                self._stack.callback(topics.delete, topic)
            if self._group.fills_itself:
                continue
            log = self._log(server)
            client = ProducerPerformance(server.bootstrap, self._topic, self._group.size, log, client_limit)
            self._producers[name] = self._stack.enter_context(client)
            self._clients.append(client)
            first = None  # when the first record was in the log: its JVM starts for seconds
            while first is None or deadline.passed - first < seconds or self._payload(name) < payload:
                deadline.check()
                client.check()
                time.sleep(LOOK_SECONDS)
                if first is None and self._records(name):
                    first = deadline.passed
            client.pause()
            self._drain(server, max(deadline.left, self._plan.drain_limit_seconds))

    def read_once(self) -> None:
        """Read what the warm-up has written, so that reading is warm too."""
        for server in self._servers.values():
            with self._client(Kind.CATCH_UP, server, self._plan.warm_limit_seconds) as client:
                client.wait_ready()
                client.turn(ClientResult, self._plan.short_lead_seconds, self._plan.short_measure_seconds)

    def run(self, step: Step, first: int, limit: float, collect: Callable[[list[Sample]], None]) -> None:
        """All turns of a step from `first` on, within a limit. After each one its samples are collected."""
        deadline = Deadline(limit, step.label)
        with ExitStack() as stack:
            clients: dict[str, Client | None] = dict.fromkeys(step.systems)
            if step.kind is not Kind.PRODUCE:
                for name in step.systems:
                    client = stack.enter_context(self._client(step.kind, self._servers[name], deadline.left))
                    client.wait_ready()
                    self._clients.append(client)
                    stack.callback(self._clients.remove, client)
                    clients[name] = client
                    self._warm(step, name, client, deadline)
            for turn in range(first, step.turns):
                samples = []
                for name in order(step.systems, turn):
                    for way in order(step.ways, turn) if step.ways else (None,):
                        deadline.check(step.lead_seconds + step.counted_seconds)
                        samples += self._turn(step, way, name, clients[name], turn, deadline)
                collect(samples)

    # --- a turn ----------------------------------------------------------------------------------------

    def _turn(
        self, step: Step, way: Way | None, name: str, client: Client | None, turn: int, deadline: Deadline
    ) -> list[Sample]:
        server = self._servers[name]
        server.check()
        quiet()
        parts, before = server.cpu_parts(), Use.look(server, self._all, self._clients)
        load = self._load(step, way, name, client)
        after = Use.look(server, self._all, self._clients)
        if not load.counted:
            raise BenchError(f"{server.title}: no record was moved in {step.counted_seconds:g} s")
        values = [*load.values, *after.shares_since(before, os.cpu_count() or 1)]
        if server.settles and step.kind in WRITES:
            values.append((SETTLED, "s", self._settle(server, deadline)))
        used = {part: seconds - parts.get(part, 0.0) for part, seconds in server.cpu_parts().items()}
        server.check()
        gigabytes = load.payload / 1e9
        values += [(f"{CPU} {part}", "s/GB", seconds / gigabytes) for part, seconds in used.items()]
        values.append((CPU, "s/GB", sum(used.values()) / gigabytes))
        case = step.case(way) if way is not None else step.label
        return [
            Sample(system=name, case=case, turn=turn, metric=metric, unit=unit, value=value)
            for metric, unit, value in values
        ]

    def _warm(self, step: Step, name: str, client: Client, deadline: Deadline) -> None:
        """A turn that warms a client up. Nothing of it counts, and a slow client may have moved nothing."""
        for way in step.ways or (None,):
            self._load(step, way, name, client)
            self._settle(self._servers[name], deadline)

    def _settle(self, server: System, deadline: Deadline) -> float:
        return self._drain(server, min(self._plan.drain_limit_seconds, deadline.left))

    def _load(self, step: Step, way: Way | None, name: str, client: Client | None) -> Load:
        lead, counted = step.lead_seconds, step.counted_seconds
        if client is None or step.kind is Kind.TAIL:
            return self._produce(name, lead, counted, client)
        if way is not None:
            return self._way(step, way, client)
        before = self._records(name)
        result = client.turn(LatencyResult if step.kind is Kind.LATENCY else ClientResult, lead, counted)
        if step.kind in WRITES:
            self._check_growth(name, before, result.total_bytes)
        values: Values = [(THROUGHPUT, "MB/s", result.mb_per_second)]
        if isinstance(result, LatencyResult):
            values = [("p50", "ms", result.p50_ms), ("p99", "ms", result.p99_ms), ("p99.9", "ms", result.p999_ms)]
            values.append(("achieved rate", "MB/s", result.mb_per_second))
        return Load(values, result.bytes, result.total_bytes)

    def _way(self, step: Step, way: Way, client: Client) -> Load:
        """One way of a step that has several. The client counts what was acknowledged, or what it has read."""
        lead, counted = step.lead_seconds, step.counted_seconds
        if step.kind is not Kind.TRANSACTIONS:
            read = client.turn(ClientResult, lead, counted, way.word)
            return Load([(THROUGHPUT, "MB/s", read.mb_per_second)], read.bytes, read.total_bytes)
        result = client.turn(TransactionsResult, lead, counted, way.word)
        values: Values = [(THROUGHPUT, "MB/s", result.mb_per_second)]
        if result.transactions:
            values += [("transactions", "1/s", result.transactions / result.seconds)]
            values += [("EndTxn p50", "ms", result.p50_ms), ("EndTxn p99", "ms", result.p99_ms)]
        return Load(values, result.bytes, result.total_bytes)

    def _produce(self, name: str, lead: float, counted: float, follower: Client | None) -> Load:
        """The Java producer at full speed, by what the log grows; perhaps with a consumer at its end."""
        producer, size = self._producers[name], self._group.size
        first = self._records(name)
        producer.go_on()
        time.sleep(RUNS_SECONDS)
        if follower is not None:
            follower.begin(lead, counted)
        time.sleep(lead)
        began, before = time.monotonic(), self._records(name)
        time.sleep(counted)
        after, ended = self._records(name), time.monotonic()
        read = follower.result(ClientResult) if follower is not None else None
        producer.pause()
        time.sleep(RUNS_SECONDS)
        rate = (after - before) * size / (ended - began) / 1e6
        payload = (self._records(name) - first) * size
        if read is None:
            return Load([(THROUGHPUT, "MB/s", rate)], after - before, payload)
        return Load([("produced", "MB/s", rate), ("consumed", "MB/s", read.mb_per_second)], read.bytes, payload)

    def _check_growth(self, name: str, before: int, payload: int) -> None:
        grown = (self._records(name) - before) * self._group.size
        if grown != payload:
            raise BenchError(f"{self._servers[name].title}: {payload} B were acknowledged, the log has {grown} B more")

    def _drain(self, server: System, limit: float) -> float:
        """Waits until nothing is left to settle, so that the next turn has the machine. Returns how long."""
        deadline = Deadline(limit, f"{server.title}: settling after a turn")
        while server.unsettled():
            deadline.check()
            server.check()
            time.sleep(DRAIN_LOOK_SECONDS)
        return deadline.passed

    # --- parts -----------------------------------------------------------------------------------------

    def _records(self, name: str) -> int:
        return self._topics[name].records(self._topic, self._group.partitions)

    def _payload(self, name: str) -> int:
        return self._records(name) * self._group.size

    def _log(self, server: System) -> Path:
        return self._logs / f"{server.name}-clients.log"

    def _client(self, kind: Kind, server: System, timeout: float) -> Client:
        where, size = (server.bootstrap, self._topic), str(self._group.size)
        module = (sys.executable, "-m", "benchmarks.librdkafka")
        commands: dict[Kind, Callable[[], list[str]]] = {
            Kind.TAIL: lambda: java(CLIENT_HEAP, "AssignedConsumer", *where, "end"),
            Kind.CATCH_UP: lambda: java(CLIENT_HEAP, "AssignedConsumer", *where, "beginning"),
            Kind.LATENCY: lambda: java(
                CLIENT_HEAP, "LatencyProbe", *where, str(RATE_BYTES // self._group.size), size, self._plan.linger
            ),
            Kind.TRANSACTIONS: lambda: java(
                CLIENT_HEAP, "TransactionalProducer", *where, self._transactions, str(self._group.partitions), size
            ),
            Kind.ISOLATION: lambda: java(
                CLIENT_HEAP, "AssignedConsumer", server.bootstrap, self._transactions, "beginning"
            ),
            Kind.RDKAFKA_PRODUCE: lambda: [*module, *where, str(ENDLESS), size],
            Kind.RDKAFKA_CATCH_UP: lambda: [*module, *where, str(ENDLESS)],
        }
        return Client(commands[kind](), self._log(server), timeout)
