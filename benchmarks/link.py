"""Copying a topic of Apache Kafka: ``python -m benchmarks.link``, or ``make bench-link``.

Four subjects read the same topic of the same Kafka. A link copies it into a log here. MirrorMaker 2 copies it into a
broker here, whose CPU is not counted: the link stores the records itself. A link and a compactor bring it into a table.
Iceberg's sink in Kafka Connect does the same, with the values as they are. Figures are per CPU second of the processes
that do the work; Kafka's own are not counted. Every subject is warm: it has read a small topic before. At last records
come at a steady rate, and are timed until they are seen (`benchmarks/link_freshness.py`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import psutil
import typer
from confluent_kafka import Consumer, TopicPartition

from benchmarks import link_freshness
from benchmarks.mirror_maker import MirrorMaker
from benchmarks.report import gather_facts, markdown_table, number, publish_section
from benchmarks.segments import Case
from benchmarks.settle_connect import RAW, SUBJECTS, Connect, produce
from benchmarks.settle_inputs import JSON_CASES, rows_of
from benchmarks.systems import BenchError, busy_seconds, cpu_of
from harness.headwater import Headwater
from harness.kafka import Kafka
from harness.patience import eventually

WARM, LINK = "warm", "bench"
WARM_ROWS = 20_000
PATIENCE = 600.0
LOOK_SECONDS = 0.05
SETTINGS = """
[links]
metadata_ms = 1000
"""
COLUMNS = ["subject", "records", "CPU s", "records/CPU s", "MB/CPU s", "s", "CPU s of others"]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one subject."""

    subject: str
    records: int
    value_bytes: int
    cpu: float
    wall: float
    others: float
    """CPU seconds that the rest of the machine used meanwhile, Kafka included."""

    @property
    def row(self) -> list[str]:
        """The cells of a table."""
        rate = self.records / self.cpu
        cells = [f"{self.records:,}", number(self.cpu), f"{rate:,.0f}", number(rate * self.value_bytes / 1e6)]
        return [self.subject, *cells, number(self.wall), number(self.others)]


class Meter:
    """CPU seconds of some processes, from the moment it is made."""

    def __init__(self, processes: Iterable[psutil.Process]) -> None:
        self._processes = list(processes)
        self._cpu, self._wall, self._busy = self._spent(), time.perf_counter(), busy_seconds()

    def read(self, subject: str, case: Case, records: int) -> Sample:
        """What was spent since then."""
        cpu, wall = self._spent() - self._cpu, time.perf_counter() - self._wall
        others = max(0.0, busy_seconds() - self._busy - cpu)
        return Sample(subject=subject, records=records, value_bytes=case.value_bytes, cpu=cpu, wall=wall, others=others)

    def _spent(self) -> float:
        """With all descendants, those that have exited included."""
        return cpu_of([found for one in self._processes for found in (one, *one.children(recursive=True))])


def copied(bootstrap: str, topic: str) -> int:
    """The end of a topic with one partition; 0 while there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks", "log_level": 0})
    try:
        if topic not in consumer.list_topics(timeout=10).topics:
            return 0
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
    finally:
        consumer.close()


def link(server: Headwater, source: str, topic: str, records: int) -> None:
    """Copy a topic by a link of its own, and wait for its end."""
    command = ("link", "create", f"{LINK}-{topic}", "--source", source, "--topics", topic)
    server.cli(*command, "--config", str(server.config))
    eventually(lambda: copied(server.bootstrap, topic) >= records, f"{topic} is copied", PATIENCE, LOOK_SECONDS)


@contextmanager
def linked(directory: Path, source: str, *, lake: bool) -> Iterator[Headwater]:
    """A Headwater whose link process, and compactor, are warm."""
    with Headwater(directory, lake=lake, gateway=False, settings=SETTINGS) as server:
        link(server, source, WARM, WARM_ROWS)
        if lake:
            server.table("settle", WARM, "--timeout", str(int(PATIENCE)))
        yield server


def to_log(directory: Path, source: str, topic: str, case: Case, records: int) -> Sample:
    """From the source into a log here."""
    with linked(directory, source, lake=False) as server:
        meter = Meter([server.link_process()])
        link(server, source, topic, records)
        return meter.read("link, into a log", case, records)


def by_mirror(directory: Path, source: str, topic: str, case: Case, records: int) -> Sample:
    """From the source into a broker here, by MirrorMaker 2, from its first records on: a connector starts slowly."""
    with (
        Headwater(directory, gateway=False) as server,
        MirrorMaker(directory / "mirror", source, server.bootstrap) as maker,
    ):

        def reaches(copy: str, expected: int) -> int:
            look = partial(copied, server.bootstrap, copy)
            eventually(lambda: look() >= expected, f"{copy} has {expected:,} records", PATIENCE, LOOK_SECONDS)
            return look()

        reaches(maker.mirror(WARM), WARM_ROWS)
        maker.forget(WARM)
        copy = maker.mirror(topic)
        first = reaches(copy, 1)
        meter = Meter([maker.worker()])
        reaches(copy, records)
        return meter.read("MirrorMaker 2, into a broker", case, records - first)


def to_table(directory: Path, source: str, topic: str, case: Case, records: int) -> Sample:
    """From the source into Iceberg and Delta tables."""
    with linked(directory, source, lake=True) as server:
        meter = Meter([server.link_process(), server.compactor_process()])
        link(server, source, topic, records)
        server.table("settle", topic, "--timeout", str(int(PATIENCE)))
        sample = meter.read("link and compactor, into tables", case, records)
        rows = server.table("describe", topic, "--output", "json")["rows"]
        if rows != records:
            raise BenchError(f"the table has {rows:,} of {records:,} records")
        return sample


def by_sink(directory: Path, source: str, topic: str, case: Case, records: int) -> Sample:
    """From the source into an Iceberg table, by Iceberg's sink."""
    subject = next(name for name, config in SUBJECTS.items() if config is RAW)
    with Connect(directory, source) as connect:
        connect.run(subject, WARM, JSON_CASES[0], WARM_ROWS)
        found = connect.run(subject, topic, case, records)
    return Sample(
        subject=subject, records=found.rows, value_bytes=case.value_bytes, cpu=found.cpu, wall=found.wall,
        others=found.others,
    )  # fmt: skip


def main(
    megabytes: Annotated[int, typer.Option(min=1, help="Size of the topic's values.")] = 400,
    sink: Annotated[bool, typer.Option(help="Run Iceberg's sink, too.")] = True,
    mirror: Annotated[bool, typer.Option(help="Run MirrorMaker 2, too.")] = True,
    tables: Annotated[bool, typer.Option(help="Bring the topic into tables, too.")] = True,
    copies: Annotated[bool, typer.Option(help="Measure copies at all, beside freshness.")] = True,
    fresh: Annotated[float, typer.Option(min=0, help="Seconds for which freshness is measured; 0: not at all.")] = 60,
    rate: Annotated[float, typer.Option(min=1, help="Records per second meanwhile.")] = 1_000,
    publish: Annotated[bool, typer.Option(help="Write the section of docs/benchmarks/links.md.")] = False,
) -> None:
    """Copy a topic of Apache Kafka into a log and into tables, beside MirrorMaker 2 and Iceberg's sink."""
    rows: list[list[str]] = []
    chosen = ((to_log, True), (by_mirror, mirror), (to_table, tables), (by_sink, sink))
    with tempfile.TemporaryDirectory(prefix="headwater-link-") as name:
        directory = Path(name)
        facts = gather_facts(directory)
        with Kafka(directory / "kafka") as kafka:
            if copies:
                produce(kafka.bootstrap, WARM, JSON_CASES[0], WARM_ROWS)
            for place, case in enumerate(JSON_CASES if copies else ()):
                topic, records = f"json{place}", rows_of(case, megabytes)
                produce(kafka.bootstrap, topic, case, records)
                for run in (run for run, wanted in chosen if wanted):
                    there = directory / f"{run.__name__}-{place}"
                    sample = run(there, kafka.bootstrap, topic, case, records)
                    rows.append([case.name, *sample.row])
                    print("  ".join(rows[-1]), flush=True)
            times = link_freshness.measure(directory / "fresh", kafka.bootstrap, rate, fresh) if fresh else []
    where = f"{facts.machine}, {facts.date}, Headwater {facts.commit}, load average before it {facts.load_average:.1f}."
    sections: dict[str, str] = {}
    if rows:
        head = (
            f"`make bench-link`: a topic of Apache Kafka with one partition and {megabytes} MB of values, read by a "
            f"link, MirrorMaker 2 and Iceberg's sink. {where}"
        )
        sections["links"] = "\n".join(["## Links", "", head, "", markdown_table(["records", *COLUMNS], 2, rows)])
    if times:
        head = (
            f"`make bench-link`: {rate:,.0f} records of 1 KB a second for {fresh:.0f} s, into a topic of Apache Kafka "
            f"with one partition, which a link copies. The time of the question counts. {where}"
        )
        table = markdown_table(link_freshness.COLUMNS, 1, times)
        sections["link freshness"] = "\n".join(["## Freshness of linked topics", "", head, "", table])
    for section, text in sections.items():
        print(text)
        if publish:
            publish_section(section, text)


if __name__ == "__main__":
    typer.run(main)
