"""Client programs as processes: ProducerPerformance, and those that take turns.

A program of ours connects and prints ``ready``. Then it takes one turn for every line on stdin: two numbers, the
milliseconds in which the load does not count and those in which it does, and a word if it knows several ways of load.
It answers with one line of JSON. So a program that runs for the whole of a step is started and compiled once.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from benchmarks.systems import BenchError, Measured
from harness.kafka import java
from harness.tools import ROOT

# kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh give their JVMs this much.
CLIENT_HEAP = ("-Xmx512M",)
ENDLESS = 1_000_000_000
PATIENCE_MS = 3_600_000
"""Requests of a client that stands still must not time out meanwhile."""


class ClientResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a client measured in a turn: records and payload bytes moved in so many seconds."""

    records: int
    bytes: int
    seconds: float
    total_bytes: int
    """Payload of the whole turn, that before the counted time included."""

    @property
    def mb_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6


class LatencyResult(ClientResult, frozen=True, kw_only=True):
    """What the latency probe measured."""

    p50_ms: float
    p99_ms: float
    p999_ms: float


class TransactionsResult(ClientResult, frozen=True, kw_only=True):
    """What a producer with or without transactions measured. The times are those of EndTxn."""

    transactions: int
    p50_ms: float
    p99_ms: float


Result = TypeVar("Result", bound=ClientResult)


class Client(Measured):
    """A client process. Leaving the block kills it if it still runs; its stderr is kept in a file."""

    _stdout = subprocess.PIPE

    def __init__(self, command: list[str], log: Path, timeout: float) -> None:
        self.command = command
        self.log = log
        self.timeout = timeout
        self._process: subprocess.Popen[str] | None = None

    def __repr__(self) -> str:
        return f"<Client {' '.join(self.command[-6:])}>"

    @property
    def process(self) -> subprocess.Popen[str] | None:
        return self._process

    def __enter__(self) -> Self:
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=self._stdout,
                stderr=errors,
                text=True,
                cwd=ROOT,
            )
        self._watchdog = threading.Timer(self.timeout, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watchdog.cancel()
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def wait_ready(self) -> None:
        """Waits until the program is connected."""
        line = self._line()
        if line != "ready":
            raise self._failed(f"said {line!r} instead of 'ready'")

    def begin(self, lead: float, counted: float, way: str = "") -> None:
        """Begin a turn: so many seconds of load that do not count, then so many that do."""
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(f"{round(lead * 1000)} {round(counted * 1000)} {way}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed("ended") from None

    def result(self, kind: type[Result]) -> Result:
        """Waits for the end of a turn."""
        line = self._line()
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError:
            raise self._failed(f"said {line!r} instead of its result") from None

    def turn(self, kind: type[Result], lead: float, counted: float, way: str = "") -> Result:
        """Take a whole turn."""
        self.begin(lead, counted, way)
        return self.result(kind)

    def _line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _failed(self, what: str) -> BenchError:
        assert self._process is not None
        self._process.kill()
        code = self._process.wait()
        return BenchError(f"{self!r} {what} and exited with {code} (time limit {self.timeout:.0f} s), see {self.log}")


class ProducerPerformance(Client):
    """Kafka's own producer benchmark at the defaults of the client, without an end.

    It sends at full speed from its start, except while it is paused. It has no turns: the log's growth is measured.
    """

    _stdout = subprocess.DEVNULL

    def __init__(self, bootstrap: str, topic: str, size: int, log: Path, timeout: float) -> None:
        patient = (f"request.timeout.ms={PATIENCE_MS}", f"delivery.timeout.ms={2 * PATIENCE_MS}")
        command = java(
            CLIENT_HEAP,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "-1"),
            *("--num-records", str(ENDLESS), "--record-size", str(size)),
            *("--command-property", "acks=all", *patient),
        )
        super().__init__(command, log, timeout)

    def pause(self) -> None:
        """Stop it in the middle of its work."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After a pause."""
        self._signal(signal.SIGCONT)

    def check(self) -> None:
        """Raise an error if it has ended."""
        if not self.alive():
            raise self._failed("ended")

    def _signal(self, number: signal.Signals) -> None:
        self.check()
        assert self._process is not None
        self._process.send_signal(number)
