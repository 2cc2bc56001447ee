"""What a cluster asks of its stores per GB, and what that costs: ``python -m benchmarks.cost``, or ``make bench-cost``.

Three brokers and a compactor on a real S3 server, at the rate of the Ursa paper's workload (25 MB/s as clients send it,
six partitions), with a consumer that follows. Requests are counted by the S3 server's own access log, so that those of
Spark's workers are among them, and appends to the ledger by the brokers. The paper's setting is then priced with these.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from harness.headwater import Headwater
from harness.pages import metric_of
from harness.s3 import S3Server
from headwater.cli.common import Output
from headwater.cli.cost import show
from headwater.ops.cost import URSA, Prices, Requests, Workload, bills

BUILD = Path(__file__).parent.parent / "build" / "bench"
MB = 1_000_000
TOPIC, PARTITIONS, BROKERS = "cost", 6, 3
VALUE_BYTES = 1_000
PUTS = ("s3_PutObject", "s3_UploadPart", "s3_CreateMultipartUpload", "s3_CompleteMultipartUpload", "s3_ListObjectsV2")
GETS = ("s3_GetObject", "s3_HeadObject")
LINE = re.compile(r"\s(s3_[A-Za-z0-9]+) (\S+) ")
SETTINGS = """
[housekeeping]
interval_ms = 2000
dead_object_grace_ms = 5000
"""


@dataclass(frozen=True, slots=True)
class Counted:
    """What was seen so far."""

    requests: Counter[tuple[str, str]]
    """By operation and what it was for."""
    appends: float
    written: float
    read: float

    def __sub__(self, before: Counted) -> Counted:
        return Counted(
            self.requests - before.requests,
            self.appends - before.appends,
            self.written - before.written,
            self.read - before.read,
        )

    def of(self, operations: tuple[str, ...]) -> int:
        return sum(count for (operation, _), count in self.requests.items() if operation in operations)


class Load:
    """A producer at a fixed rate, and a consumer that follows."""

    def __init__(self, bootstrap: str, rate: float) -> None:
        self._bootstrap = bootstrap
        self._rate = rate
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=t) for t in (self._produce, self._consume)]
        self.failures: list[str] = []

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._bootstrap, "linger.ms": 50, "batch.size": 1 << 20}
        )
        value, began, sent = os.urandom(VALUE_BYTES), time.monotonic(), 0
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self._rate / VALUE_BYTES)
            while sent < due:
                try:
                    producer.produce(TOPIC, value, partition=sent % PARTITIONS, on_delivery=self._told)
                    sent += 1
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0.01)
        if producer.flush(60):
            self.failures.append("not everything was acknowledged")

    def _consume(self) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._bootstrap, "group.id": "unused"})
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
        while not self._stop.is_set():
            consumer.consume(10_000, timeout=0.5)
        consumer.close()


def look(server: Headwater, access_log: Path) -> Counted:
    """Everything that was counted up to now."""
    requests: Counter[tuple[str, str]] = Counter()
    for line in access_log.read_text(errors="replace").splitlines():
        if found := LINE.search(line):
            requests[found[1], _purpose(found[2])] += 1
    page = server.page("/metrics")[1]
    return Counted(
        requests,
        metric_of(page, "headwater_ledger_commits_total"),
        metric_of(page, "headwater_produced_bytes_total"),
        metric_of(page, "headwater_fetched_bytes_total"),
    )


def _purpose(key: str) -> str:
    for part, purpose in (
        ("/wal/", "log"),
        ("/_data/", "segments"),
        ("/_delta_log", "Delta"),
        ("/_iceberg/", "Iceberg"),
    ):
        if part in f"/{key}":
            return purpose
    return "other"


def measure(options: argparse.Namespace, directory: Path) -> Counted:
    """One run."""
    access_log = directory / "access.log"
    with S3Server(directory, ["--access-log", str(access_log)]) as store:
        objects, own = f"{store.url}/cost", store.environment
        with Headwater(
            directory / "headwater", brokers=BROKERS, lake=True, settings=SETTINGS, objects=objects, variables=own
        ) as server:
            server.create(TOPIC, PARTITIONS)
            with Load(server.bootstrap, options.rate * MB) as load, Progress(console=Console(stderr=True)) as progress:
                task = progress.add_task("load", total=options.warmup + options.seconds)
                _wait(progress, task, options.warmup)
                before = look(server, access_log)
                _wait(progress, task, options.seconds)
                counted = look(server, access_log) - before
            assert not load.failures, load.failures[:3]
            return counted


def _wait(progress: Progress, task: Any, seconds: float) -> None:
    for _ in range(int(seconds)):
        time.sleep(1)
        progress.advance(task)


def report(counted: Counted) -> None:
    """Per GB, and what the paper's workload would cost with it."""
    console, gb = Console(width=110), counted.written / 1e9
    table = Table(title=f"requests per GB written ({gb:.2f} GB written, {counted.read / 1e9:.2f} GB read)")
    purposes = sorted({purpose for _, purpose in counted.requests})
    for column in ("operation", *purposes, "all"):
        table.add_column(column, justify="left" if column == "operation" else "right")
    for operation in sorted({operation for operation, _ in counted.requests}):
        each = [counted.requests[operation, purpose] / gb for purpose in purposes]
        table.add_row(operation.removeprefix("s3_"), *(f"{count:.0f}" for count in each), f"{sum(each):.0f}")
    table.add_row("ledger appends", *([""] * len(purposes)), f"{counted.appends / gb:.0f}")
    console.print(table)
    requests = Requests(counted.of(PUTS) / gb, counted.of(GETS) / gb)
    console.print(
        f"{requests.puts:.0f} PUTs and LISTs, {requests.gets:.0f} GETs and HEADs per GB written; the paper's workload:"
    )
    show(
        [*bills(Workload(), requests, Prices())[:1], *bills(Workload(), URSA, Prices(), "Ursa (paper)")],
        Output.TEXT,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=25.0, help="MB/s that clients send")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--warmup", type=float, default=40.0, help="until Spark has settled for the first time")
    options = parser.parse_args()
    directory = BUILD / "cost"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    report(measure(options, directory))


if __name__ == "__main__":
    main()
