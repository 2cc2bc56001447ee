"""Samples into a table: on the terminal, as Markdown, and as JSON with the facts of the machine."""

from __future__ import annotations

import datetime
import os
import platform
import re
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import msgspec
from rich.table import Table

from benchmarks.systems import KAFKA_LIBS, ROOT, SYSTEMS
from benchmarks.workloads import OTHERS, SESSION, Sample

NONE = "–"
PAGE_FILE = ROOT / "docs" / "benchmarks.md"

SECTION = """\
## Beside Apache Kafka

Headwater and Apache Kafka on the same disk of the same machine, driven by the same clients. The speed of a
shared machine changes from minute to minute, so both servers are up, and whatever is compared is measured with
one right after the other, in an order that alternates; the one whose turn it is not idles. {rounds} rounds, each
with both servers started afresh. Written by `make bench ARGS=--publish`.

| | |
|---|---|
| date | {date} |
| machine | {machine} |
| kernel | {kernel} |
| versions | {versions} |
| size | {size} |

Medians, with the lowest and highest round or turn in brackets; a ratio is Headwater's median over Apache Kafka's.
More is better for throughput; less is better for latency, CPU, memory and startup. MB and GB are powers of
ten and count record values only. CPU s/GB is user and system time of the server's whole process tree.

{table}

- **produce**: Kafka's own `ProducerPerformance` at the defaults of the Java client, acks=all. Each server has a
  client of its own, which is warmed up first (see size: its JVM compiles for ten to twenty seconds) and stands
  still while it is the other's turn. A turn counts what the logs have grown by.
- **consume**: a Java consumer at its defaults, all partitions assigned by hand, reads what was just produced.
- **follow**: the same consumer at the tail while `ProducerPerformance` writes at full speed.
- **librdkafka**: confluent-kafka at its defaults, the consumer with a longer local queue. With small records
  the client's own CPU is the limit, and the ratio leans towards 1.
- **latency**: from the moment a record was due to be sent until the consumer has it, at a fixed rate, both
  Java clients in one JVM. A wait in the producer counts; the warm-up does not.
- **whole session**: all CPU of the server in its start and its steps, with warming up and whatever it puts off
  until after a phase; per GB produced. What others used of the machine meanwhile, the other server's idling
  included, says how far to trust a run.
- Clients and server share the cores: a server that uses less CPU leaves more to its client.
- Apache Kafka runs as its distribution configures it: one node, a heap of 1 GB, and acknowledgements that do
  not wait for the disk. Headwater acknowledges what is on the disk and in the ledger.
- The server is warmed up before the first measured phase, and dirty pages are written back before each.
"""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The machine and the versions of a run."""

    date: str
    cpu: str
    cores: int
    memory_gb: float
    kernel: str
    filesystem: str
    python: str
    java: str
    kafka: str
    librdkafka: str
    commit: str
    load_average: float

    @property
    def machine(self) -> str:
        return f"{self.cores} cores ({self.cpu}), {self.memory_gb:.0f} GB memory, {self.filesystem}"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A step that gave no samples, and why."""

    system: str | None
    """None where all were under way, and the reason says which it was."""
    round: int
    step: str
    reason: str


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run leaves behind."""

    facts: Facts
    arguments: list[str]
    size: str
    rounds: int
    samples: list[Sample]
    failures: list[Failure]


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and the range around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread | None:
        return cls(statistics.median(values), min(values), max(values)) if values else None

    def __str__(self) -> str:
        single = self.low == self.high
        return _number(self.median) if single else f"{_number(self.median)} ({_number(self.low)}..{_number(self.high)})"


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one case for both systems, and the CPU that the case cost each."""

    case: str
    metric: str
    headwater: Spread | None
    kafka: Spread | None
    headwater_cpu: Spread | None
    kafka_cpu: Spread | None
    comparable: bool

    def cells(self) -> list[str]:
        """The text of the columns of ``COLUMNS``."""
        return [
            self.case,
            self.metric,
            _text(self.headwater),
            _text(self.kafka),
            _ratio(self.headwater, self.kafka) if self.comparable else NONE,
            _text(self.headwater_cpu),
            _text(self.kafka_cpu),
            _ratio(self.headwater_cpu, self.kafka_cpu),
        ]


COLUMNS = (
    "case",
    "metric",
    "Headwater",
    "Apache Kafka",
    "ratio",
    "Headwater CPU s/GB",
    "Kafka CPU s/GB",
    "CPU ratio",
)


def rows(samples: Iterable[Sample]) -> list[Row]:
    """One row per case and metric, in the order of first appearance; CPU stands on a case's first row."""
    values: dict[tuple[str, str, str], list[float]] = {}
    metrics: dict[tuple[str, str], Sample] = {}
    for sample in samples:
        values.setdefault((sample.system, sample.case, sample.metric), []).append(sample.value)
        if sample.metric != "CPU":
            metrics.setdefault((sample.case, sample.metric), sample)

    def spread(system: str, case: str, metric: str) -> Spread | None:
        return Spread.of(values.get((system, case, metric), []))

    # A system with more processes than the other adds its rows late: keep the rows of a case together.
    cases = list(dict.fromkeys(case for case, _ in metrics))
    found: list[Row] = []
    for case in cases:
        cpu = (spread("headwater", case, "CPU"), spread("kafka", case, "CPU"))
        for (of_case, metric), sample in metrics.items():
            if of_case == case:
                both = (spread("headwater", case, metric), spread("kafka", case, metric))
                found.append(Row(case, f"{metric}, {sample.unit}", *both, *cpu, sample.comparable))
                cpu = (None, None)
    return found


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _text(spread: Spread | None) -> str:
    return NONE if spread is None else str(spread)


def _ratio(ours: Spread | None, theirs: Spread | None) -> str:
    if ours is None or theirs is None or theirs.median == 0:
        return NONE
    return f"{ours.median / theirs.median:.2f}"


def terminal_table(samples: Iterable[Sample]) -> Table:
    table = Table(title="medians (min..max); ratio = Headwater / Apache Kafka", title_justify="left")
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if index < 2 else "right", overflow="fold")
    shown = ""
    for row in rows(samples):
        cells = row.cells()
        table.add_row(cells[0] if cells[0] != shown else "", *cells[1:])
        shown = cells[0]
    return table


def noise(samples: Iterable[Sample]) -> float:
    """The highest share of the machine, in percent, that others used: in a session, or in the median of turns."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample in samples:
        if sample.metric == OTHERS:
            found[sample.system, sample.case].append(sample.value)
    return max(
        (max(values) if case == SESSION else statistics.median(values) for (_, case), values in found.items()),
        default=0.0,
    )


def markdown_table(columns: Sequence[str], left: int, rows: Iterable[Sequence[str]]) -> str:
    """A table whose first `left` columns are text, the others numbers."""
    rule = "|---" * left + "|---:" * (len(columns) - left) + "|"
    return "\n".join([_line(columns), rule, *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def markdown(results: Results) -> str:
    """The section of ``docs/benchmarks.md``."""
    facts = results.facts
    versions = (
        f"Headwater {facts.commit}, Apache Kafka {facts.kafka}, Python {facts.python}, Java {facts.java}, "
        f"librdkafka {facts.librdkafka}"
    )
    return SECTION.format(
        rounds=results.rounds,
        date=facts.date,
        machine=facts.machine,
        kernel=facts.kernel,
        versions=versions,
        size=results.size,
        table=markdown_table(COLUMNS, 2, (row.cells() for row in rows(results.samples))),
    )


_MARKED = r"<!-- published: {0} -->\n.*?<!-- end: {0} -->\n"


def publish_section(name: str, text: str) -> None:
    """Put a section on the page, in place of the one of that name or at its end."""
    page = PAGE_FILE.read_text() if PAGE_FILE.exists() else "# Benchmarks\n"
    section = f"<!-- published: {name} -->\n{text.rstrip()}\n<!-- end: {name} -->\n"
    old = re.search(_MARKED.format(name), page, re.DOTALL)
    PAGE_FILE.write_text(page.replace(old[0], section) if old else f"{page.rstrip()}\n\n{section}")


def save(results: msgspec.Struct, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2))


def gather_facts(workdir: Path) -> Facts:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    java = re.search(r'version "([^"]+)"', _output(["java", "-version"]))
    jar = next(KAFKA_LIBS.glob("kafka-clients-*.jar"), None)
    return Facts(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        cpu=model[1] if model else platform.machine(),
        cores=os.cpu_count() or 0,
        memory_gb=memory,
        kernel=f"{platform.system()} {platform.release()}",
        filesystem=_output(["findmnt", "-n", "-o", "FSTYPE", "-T", str(workdir)]).strip() or "unknown",
        python=platform.python_version(),
        java=java[1] if java else "unknown",
        kafka=jar.stem.removeprefix("kafka-clients-") if jar else "unknown",
        librdkafka=confluent_kafka.libversion()[0],
        commit=_output(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]).strip() or "unknown",
        load_average=os.getloadavg()[0],
    )


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout or done.stderr) if done.returncode == 0 else ""


def failure_lines(failures: Iterable[Failure]) -> list[str]:
    return [
        f"{f'{SYSTEMS[failure.system].title}, round {failure.round}, ' if failure.system else ''}"
        f"{failure.step}: {failure.reason}"
        for failure in failures
    ]
