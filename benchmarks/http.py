"""Appends and reads over HTTP: ``python -m benchmarks.http``, or ``make bench-http``.

Clients with a connection each ask one gateway, which has processor time of its own: a figure per second of it does not
depend on how fast the clients are, nor on what else the machine does. In the end the gateway is started once more with
a profiler, and the functions in which it spends most are listed.
"""

from __future__ import annotations

import http.client
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import psutil
import typer

from benchmarks.report import gather_facts, markdown_table, number, publish_section
from benchmarks.systems import LOOK_SECONDS, busy_seconds, cpu_of
from harness.headwater import Headwater
from harness.ports import free_port
from harness.process import Process

TOPIC, PARTITIONS = "bench", 4
VALUE = "v" * 1_000
MANY = 1_000
CLIENTS = 16
WARM_SECONDS = 2.0
IDLE_SECONDS = 3.0
TIMEOUT_SECONDS = 60.0
SETTINGS = "[gateway]\nrequests_per_second = 1000000\n"
"""All clients come from one address, which is one caller."""
PROFILER = """import atexit, collections, json, os, signal, sys, threading
found = collections.Counter()

def look(number, frame):
    for ident, frame in {**sys._current_frames(), threading.main_thread().ident: frame}.items():
        names = []
        while frame is not None and len(names) < 60:
            code = frame.f_code
            names.append((code.co_filename, code.co_name))
            frame = frame.f_back
        found[tuple(names)] += 1

def tell():
    signal.setitimer(signal.ITIMER_PROF, 0)
    with open(os.environ["BENCH_PROFILE"], "w") as file:
        json.dump([[count, names] for names, count in found.items()], file)

atexit.register(tell)
signal.signal(signal.SIGPROF, look)
signal.setitimer(signal.ITIMER_PROF, 0.002, 0.002)
"""
"""Runs in the gateway before its program does: every 2 ms of processor time it notes where threads are."""
WAITING = ("threading.py", "queue.py", "thread.py", "selectors.py", "runners.py", "threads.py")
"""Files in which a thread has nothing to do, or is in code that is not Python."""
STARTING = ("_find_and_load", "build")
"""Functions that are under way when the program starts only."""
PROFILED = 12


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request."""

    name: str
    method: str
    path: Callable[[int], str]
    """By the number of the request."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    records: int = 0


@dataclass(slots=True)
class Measured:
    """What a case did in its time."""

    requests: int
    seconds: float
    cpu: float
    """Processor time of the gateway."""
    received: int
    others: float
    """What processes outside the benchmark took of the machine, in percent."""
    p50_ms: float
    p99_ms: float

    def row(self, case: Case) -> list[str]:
        cpu = max(self.cpu, 1e-6)
        moved = self.requests * case.records * len(VALUE) / 1e6
        return [
            case.name,
            number(self.requests / self.seconds),
            number(self.requests / cpu),
            number(self.requests * case.records / cpu) if case.records else "",
            number(moved / cpu) if case.records else "",
            number(self.p50_ms),
            number(self.p99_ms),
            number(self.others),
        ]


COLUMNS = (
    "request", "a second", "per CPU second", "records per CPU second", "MB per CPU second", "p50 ms", "p99 ms",
    "other processes, %",
)  # fmt: skip


def cases() -> list[Case]:
    """All kinds of requests, appends before reads."""
    records = [{"value": VALUE} for _ in range(MANY)]
    append, as_json = f"/v1/topics/{TOPIC}/records", {"Content-Type": "application/json"}
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)

    def read(name: str, accept: str) -> Case:
        path = f"/v1/topics/{TOPIC}/partitions/%d/records?offset=%d&limit={MANY}&max_bytes=16000000"
        return Case(
            f"read 1,000, {name}", "GET",
            lambda number: path % (number % PARTITIONS, number % 8 * MANY), {"Accept": accept}, records=MANY,
        )  # fmt: skip

    return [
        Case("health", "GET", lambda _: "/v1/health"),
        Case("append 1, JSON", "POST", lambda _: append, as_json, json.dumps({"records": records[:1]}).encode(), 1),
        Case(
            "append 1, bytes", "POST", lambda _: append, {"Content-Type": "application/octet-stream"},
            VALUE.encode(), 1,
        ),
        Case(
            "append 1,000, JSON", "POST", lambda number: append, {**as_json, "Prefer": "return=minimal"},
            json.dumps({"records": records}).encode(), MANY,
        ),
        Case(
            "append 1,000, NDJSON", "POST", lambda _: append,
            {"Content-Type": "application/x-ndjson", "Prefer": "return=minimal"}, lines, MANY,
        ),
        read("JSON", "application/json"),
        read("NDJSON", "application/x-ndjson"),
        read("Arrow", "application/vnd.apache.arrow.stream"),
    ]  # fmt: skip


class Client(threading.Thread):
    """Asks again and again over one connection."""

    def __init__(self, address: str, case: Case, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._address, self._case, self._number, self._stopping = address, case, number, stop
        self.waited: list[float] = []
        self.received = 0
        self.failed = ""

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_SECONDS)
        case, count = self._case, self._number
        while not self._stopping.is_set():
            began = time.perf_counter()
            connection.request(case.method, case.path(count), case.body or None, case.headers)
            answer = connection.getresponse()
            got = answer.read()
            if answer.status != 200:
                self.failed = f"{case.name}: {answer.status} {got[:300]!r}"
                break
            self.waited.append(time.perf_counter() - began)
            self.received += len(got)
            count += 1
        connection.close()


def measure(address: str, gateway: psutil.Process, ours: list[psutil.Process], case: Case, seconds: float) -> Measured:
    """Ask for some time. Processes of `ours` are no others."""
    run(address, case, min(WARM_SECONDS, seconds))
    cpu, family, busy, began = cpu_of([gateway]), cpu_of(ours), busy_seconds(), time.monotonic()
    clients = run(address, case, seconds)
    passed = time.monotonic() - began
    waited = sorted(one for client in clients for one in client.waited)
    others = (busy_seconds() - busy) - (cpu_of(ours) - family)
    return Measured(
        requests=len(waited),
        seconds=passed,
        cpu=cpu_of([gateway]) - cpu,
        received=sum(client.received for client in clients),
        others=max(0.0, others) * 100 / passed / (os.cpu_count() or 1),
        p50_ms=1_000 * waited[len(waited) // 2],
        p99_ms=1_000 * waited[len(waited) * 99 // 100],
    )


def run(address: str, case: Case, seconds: float) -> list[Client]:
    """Clients that ask for some time, and have ended."""
    stop = threading.Event()
    clients = [Client(address, case, number, stop) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    time.sleep(seconds)
    stop.set()
    for client in clients:
        client.join(TIMEOUT_SECONDS)
        if client.failed or client.is_alive() or not client.waited:
            raise RuntimeError(client.failed or f"{case.name}: a client got no answer")
    return clients


@contextmanager
def gateway(server: Headwater, name: str, variables: dict[str, str]) -> Iterator[tuple[str, Process]]:
    """A gateway of its own, with its address."""
    address, log = f"127.0.0.1:{free_port()}", server.directory / f"{name}.log"
    options = ["--http", "127.0.0.1:0", "--gateway-http", address]
    said = log.with_suffix(".out")
    process = Process("gateway", server.config, log, {**server.variables, **variables}, options=options, said=said)
    process.launch()
    try:
        process.wait_until_ready(LOOK_SECONDS)
        yield address, process
    finally:
        process.kill()


def profile(server: Headwater, case: Case, seconds: float) -> list[str]:
    """The functions of a gateway's event loop with the most time of their own, and the packages."""
    place, file = server.directory / "profiler", server.directory / f"{case.name}.profile"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(PROFILER)
    variables = {"PYTHONPATH": str(place), "BENCH_PROFILE": str(file)}
    with gateway(server, "profiled", variables) as (address, process):
        run(address, case, seconds)
        process.stop()
    return told_by(file)


def told_by(file: Path) -> list[str]:
    """A profile in lines of text: by package, where threads were; then, which functions were under way."""
    inside: Counter[str] = Counter()
    under_way: Counter[str] = Counter()
    for count, names in json.loads(file.read_text()):
        if Path(names[0][0]).name in WAITING or any(name in STARTING for _, name in names):
            continue
        inside[_package(names[0][0])] += count
        for line in {f"{_package(path)}: {Path(path).stem}.{name}" for path, name in names if _is_work(path)}:
            under_way[line] += count
    whole = max(inside.total(), 1)
    lines = [f"{100 * count / whole:5.1f} %  {name}" for name, count in inside.most_common(PROFILED)]
    lines += ["", *(f"{100 * count / whole:5.1f} %  {name}" for name, count in under_way.most_common(PROFILED))]
    return lines


def _is_work(path: str) -> bool:
    return _package(path).startswith("headwater.") and _package(path) not in (
        "headwater.cli", "headwater.__main__", "headwater.app", "headwater.threads",
    )  # fmt: skip


def _package(path: str) -> str:
    parts = Path(path).parts
    if "headwater" in parts:
        return ".".join(["headwater", *parts[parts.index("headwater") + 1 :][:1]]).removesuffix(".py")
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1]
    return f"python: {Path(path).stem}"


def main(
    seconds: Annotated[float, typer.Option(min=0.5, help="How long each kind of request is made.")] = 8.0,
    profiled: Annotated[bool, typer.Option(help="Run a gateway with a profiler in the end.")] = True,
    publish: Annotated[bool, typer.Option(help="Write the section of docs/benchmarks/queries.md.")] = False,
) -> None:
    """Measure appends and reads over HTTP, start time and idle memory of a gateway, and profile it."""
    with tempfile.TemporaryDirectory(prefix="headwater-http-") as name:
        directory = Path(name)
        facts = gather_facts(directory)
        with Headwater(directory, settings=SETTINGS) as server:
            server.create(TOPIC, PARTITIONS)
            rows, started, idle, idle_cpu = [], 0.0, 0.0, 0.0
            with gateway(server, "measured", {}) as (address, process):
                started = time.monotonic() - process.launched
                them = psutil.Process(process.pid)
                spent = cpu_of([them])
                time.sleep(IDLE_SECONDS)
                idle_cpu = 100 * (cpu_of([them]) - spent) / IDLE_SECONDS
                idle = them.memory_info().rss / 1e6
                ours = [psutil.Process(), them, *server.processes()]
                for case in cases():
                    rows.append(measure(address, them, ours, case, seconds).row(case))
                    print("  ".join(rows[-1]), flush=True)
                loaded = them.memory_info().rss / 1e6
            told = [
                f"The gateway says ready {started:.2f} s after it was launched. Idle, it has {idle:.0f} MB (RSS) and "
                f"takes {idle_cpu:.1f} % of a core; after the run it had {loaded:.0f} MB."
            ]
            for case in [case for case in cases() if case.name in ("append 1, JSON", "read 1,000, JSON")]:
                if profiled:
                    text = "\n".join(profile(server, case, seconds))
                    told += [
                        "",
                        f"Where the gateway was, {case.name}: by package, then functions with all that they call:",
                        "",
                        "```text",
                        text,
                        "```",
                    ]
    head = [
        "## HTTP", "", f"`make bench-http`: {CLIENTS} clients, each with a connection, and one gateway beside one "
        f"broker, values of {len(VALUE):,} bytes, {PARTITIONS} partitions. {facts.machine}, {facts.date}, Headwater "
        f"{facts.commit}, load average before it {facts.load_average:.1f}.",
        "",
    ]  # fmt: skip
    text = "\n".join([*head, markdown_table(COLUMNS, 1, rows), "", *told])
    print(text)
    if publish:
        publish_section("http", text)


if __name__ == "__main__":
    typer.run(main)
