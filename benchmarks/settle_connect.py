"""The peer: Apache Iceberg's sink in a standalone Kafka Connect worker, from Apache Kafka into an Iceberg table.

The worker's CPU counts, Kafka's does not. A topic is there in full before a connector starts to read it, and every run
is a connector of its own, with a consumer group and a table of its own, in a worker that has run others before.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer

from benchmarks.segments import Case
from benchmarks.settle_inputs import json_value, key
from benchmarks.settle_measure import ICEBERG, Sample, check, files_below, newest_metadata, sync
from benchmarks.systems import BenchError, Measured, busy_seconds
from harness.daemon import Daemon
from harness.kafka import JVM_OPTIONS, LOGGING
from harness.tools import TOOLS

LIBS = TOOLS / "connect" / "libs"
COMMIT_MS = 5_000
"""Its default is five minutes. With two seconds it was seen to commit nothing before its time-out of half a minute."""
PATIENCE = 180.0
LOOK = 0.02

TYPED: Mapping[str, str] = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "iceberg.tables.evolve-schema-enabled": "true",
}
_TRANSFORMS = "org.apache.kafka.connect.transforms"
RAW: Mapping[str, str] = {
    "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "transforms": "hoist,place",
    "transforms.hoist.type": f"{_TRANSFORMS}.HoistField$Value",
    "transforms.hoist.field": "value",
    "transforms.place.type": f"{_TRANSFORMS}.InsertField$Value",
    "transforms.place.partition.field": "partition",
    "transforms.place.offset.field": "offset",
    "transforms.place.timestamp.field": "timestamp",
}
SUBJECTS = {"Iceberg sink, JSON opened": TYPED, "Iceberg sink, raw values": RAW}
"""What the sink is made for, and the work that settling does: values as they are, with their place in the log."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """A commit, and what it had cost by then."""

    rows: int
    cpu: float
    wall: float
    busy: float


class Connect(Daemon, Measured):
    """A standalone worker with the settings that its distribution ships, on the loopback address."""

    name = "connect"
    title = "Kafka Connect"
    ready_text = "Kafka Connect started"

    # `offset.flush.interval.ms` is also how often an idle sink looks whether it is time to commit: a minute by default.
    SETTINGS = """\
bootstrap.servers={kafka}
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.converters.ByteArrayConverter
offset.storage.file.filename={directory}/offsets
offset.flush.interval.ms=1000
listeners=http://127.0.0.1:{port}
plugin.discovery=only_scan
"""

    def __init__(self, directory: Path, kafka: str) -> None:
        super().__init__(directory)
        self._kafka = kafka
        self._runs = 0

    def prepare(self) -> None:
        if not any(LIBS.glob("iceberg-kafka-connect-*.jar")):
            raise BenchError("Iceberg's sink is missing under .tools/connect/libs: run scripts/setup-tools connect")
        settings = self.SETTINGS.format(kafka=self._kafka, directory=self.directory, port=self.port)
        (self.directory / "worker.properties").write_text(settings)

    def command(self) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={LOGGING}"
        options = ("-Xms256M", "-Xmx2G", *JVM_OPTIONS, logging, "-Dbench.log=INFO", "-Dbench.target=SYSTEM_OUT")
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        return ["java", *options, "-cp", f"{LIBS}/*", main, str(self.directory / "worker.properties")]

    def run(self, subject: str, topic: str, case: Case, rows: int) -> Sample:
        """Read a whole topic into a new table."""
        self._runs += 1
        name = f"{topic}_{self.directory.name}_{self._runs}".replace("-", "_")  # its group is new to this Kafka
        table = self.directory / "warehouse" / "db" / name
        self._call("PUT", f"/connectors/{name}/config", self._config(name, topic, subject))
        try:
            marks = self._watch(name, table, rows)
        finally:
            self._call("DELETE", f"/connectors/{name}")
        files = {path for path in files_below(table / "data") if path.suffix == ".parquet"}
        began = time.perf_counter()
        sync(files_below(table))
        synced = time.perf_counter() - began
        self._verify(subject, table, case, rows)
        # The last commit holds what was left over, and has mostly waited for its turn.
        first, last = marks[0], marks[-2] if len(marks) > 2 else marks[-1]
        share = last.rows / rows
        cpu = last.cpu - first.cpu
        return Sample(
            subject=subject, master="", case=case.name, streams=1, rows=last.rows, value_bytes=case.value_bytes,
            files=len(files), file_bytes=sum(path.stat().st_size for path in files), cpu=cpu,
            wall=last.wall - first.wall + synced * share, others=max(0.0, last.busy - first.busy - cpu),
        )  # fmt: skip

    def _config(self, name: str, topic: str, subject: str) -> dict[str, str]:
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": "1",
            "topics": topic,
            "consumer.override.auto.offset.reset": "earliest",
            "iceberg.tables": f"db.{name}",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.auto-create-props.write.parquet.compression-codec": "zstd",
            "iceberg.tables.auto-create-props.write.parquet.compression-level": "1",
            "iceberg.catalog.type": "hadoop",
            "iceberg.catalog.warehouse": (self.directory / "warehouse").as_uri(),
            "iceberg.control.topic": f"control-{name}",
            "iceberg.control.commit.interval-ms": str(COMMIT_MS),
            **SUBJECTS[subject],
        }

    def _call(self, method: str, path: str, body: object = None) -> None:
        data = msgspec.json.encode(body) if body is not None else None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.bootstrap}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=90):
                return
        except (urllib.error.URLError, TimeoutError) as error:
            raise BenchError(f"{method} {path} of Kafka Connect: {error}, {self.where()}") from error

    def _watch(self, name: str, table: Path, rows: int) -> list[_Mark]:
        """The table's creation, which is when the first record has come, and every commit."""
        marks: list[_Mark] = []
        deadline = time.monotonic() + PATIENCE
        while not marks or marks[-1].rows < rows:
            found = _committed(table)
            if found is not None and (not marks or found > marks[-1].rows):
                marks.append(_Mark(found, self.cpu_seconds(), time.perf_counter(), busy_seconds()))
            if not self.alive() or time.monotonic() > deadline:
                got = marks[-1].rows if marks else 0
                raise BenchError(f"{name}: {got:,} of {rows:,} records were committed, {self.where()}")
            time.sleep(LOOK)
        return marks

    def _verify(self, subject: str, table: Path, case: Case, rows: int) -> None:
        source = f"iceberg_scan('{newest_metadata(table)}')"
        if SUBJECTS[subject] is RAW:
            sums = 'count(*), sum(octet_length("value")), count(DISTINCT "offset")'
            check(subject, source, ICEBERG, sums, (rows, rows * case.value_bytes, rows))
        else:
            check(
                subject,
                source,
                ICEBERG,
                "count(*), sum(id), count(DISTINCT note)",
                (rows, rows * (rows - 1) // 2, rows),
            )


def _committed(table: Path) -> int | None:
    """The rows of a table's newest version; None as long as there is no table."""
    newest = newest_metadata(table)
    if newest is None:
        return None
    metadata: dict[str, Any] = json.loads(newest.read_text())
    for snapshot in metadata.get("snapshots", ()):
        if snapshot["snapshot-id"] == metadata.get("current-snapshot-id"):
            return int(snapshot["summary"]["total-records"])
    return 0


def produce(bootstrap: str, topic: str, case: Case, rows: int) -> None:
    """The JSON values of a case, by librdkafka, into one partition."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.num.messages": case.batch_rows, "acks": "all"}
    )
    failed: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    for number in range(rows):
        while True:
            try:
                producer.produce(topic, json_value(number, case.value_bytes), key(number), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 100_000 == 0:
            producer.poll(0)
    left = producer.flush(60)
    if failed or left:
        raise BenchError(f"{len(failed) + left} records of {topic} did not reach Kafka: {failed[:1]}")
