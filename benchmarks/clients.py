"""Client programs as processes: ProducerPerformance, and those that warm up and wait for a go.

A program of ours connects, warms up, prints ``warm``, waits for a line on stdin, measures, and prints one
line of JSON. So the server's CPU time can be read at the very borders of what is measured.
"""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
import psutil

from benchmarks.systems import ROOT, BenchError, java

# kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh give their JVMs this much.
CLIENT_HEAP = ("-Xmx512M",)
_TOTAL = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec .* 99\.9th", re.MULTILINE)
_STEADY = re.compile(r"^(\d+) steady state records sent, ([\d.]+) records/sec ", re.MULTILINE)


class ClientResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a client measured: records and payload bytes moved in so many seconds."""

    records: int
    bytes: int
    seconds: float

    @property
    def mb_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6


class LatencyResult(ClientResult, frozen=True, kw_only=True):
    """What the latency probe measured; the counts include its warm-up, the percentiles do not."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


Result = TypeVar("Result", bound=ClientResult)


class Client:
    """A client process. Leaving the context kills it if it still runs; its stderr is kept in a file."""

    def __init__(self, command: list[str], log: Path, timeout: float) -> None:
        self.command = command
        self.log = log
        self.timeout = timeout

    def __repr__(self) -> str:
        return f"<Client {' '.join(self.command[-6:])}>"

    def __enter__(self) -> Self:
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
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
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def wait_warm(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.strip() != "warm":
            raise self._failed(f"said {line.strip()!r} instead of 'warm'")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def pause(self) -> None:
        """Have it stand still, in the middle of whatever it does."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After a pause."""
        self._signal(signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """User and system time so far of a client that is running."""
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.NoSuchProcess:
            raise self._failed("ended") from None
        return float(times.user + times.system)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is not None:
            raise self._failed("ended")
        self._process.send_signal(number)

    def result(self, kind: type[Result]) -> Result:
        """Waits for the line of JSON; the process may still be closing its connections afterwards."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError:
            raise self._failed(f"said {line.strip()!r} instead of its result") from None

    def output(self) -> str:
        """Waits for the end of a program that needs no go, and returns what it printed."""
        text, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise self._failed("failed")
        return text

    def _failed(self, what: str) -> BenchError:
        self._process.kill()
        code = self._process.wait()
        return BenchError(f"{self!r} {what} and exited with {code} (time limit {self.timeout:.0f} s), see {self.log}")


def producer_performance(
    bootstrap: str, topic: str, records: int, size: int, *, warm: int = 0, patience: float = 0
) -> list[str]:
    """Kafka's own producer benchmark at the defaults of the client.

    The first `warm` records are not in its rate. A client that stands still now and then needs `patience`, in seconds:
    its requests must not time out meanwhile.
    """
    limit = round(patience * 1000)
    patient = (f"request.timeout.ms={limit}", f"delivery.timeout.ms={2 * limit}") if limit else ()
    return java(
        CLIENT_HEAP,
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(records), "--record-size", str(size)),
        *(("--warmup-records", str(warm)) if warm else ()),
        *("--command-property", "acks=all", *patient),
    )


def steady_rate(output: str, records: int) -> float:
    """Records a second of ProducerPerformance in its steady state."""
    total, steady = _TOTAL.search(output), _STEADY.search(output)
    if total is None or steady is None:
        raise BenchError(f"ProducerPerformance printed no summary:\n{output}")
    if int(total[1]) != records:
        raise BenchError(f"ProducerPerformance had {total[1]} of {records} records acknowledged:\n{output}")
    return float(steady[2])
