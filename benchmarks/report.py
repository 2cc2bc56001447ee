"""What reports of all benchmarks share: facts of the machine, spreads, tables, sections of docs/benchmarks."""

from __future__ import annotations

import datetime
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import msgspec

from harness.kafka import LIBS as KAFKA_LIBS
from harness.tools import ROOT

NONE = "–"
PAGES = ROOT / "docs" / "benchmarks"

NOISY_PERCENT = 10
"""A share of the machine used by other processes from which on figures are not to be trusted."""


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

    def differences(self, before: Facts) -> str:
        """What makes figures of two runs differ, in words; empty if nothing does."""
        names = [name for name in self.__struct_fields__ if name not in ("date", "load_average")]
        changed = [name for name in names if getattr(self, name) != getattr(before, name)]
        return ", ".join(f"{name} was {getattr(before, name)}, is {getattr(self, name)}" for name in changed)


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
        return number(self.median) if single else f"{number(self.median)} ({number(self.low)}..{number(self.high)})"


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def markdown_table(columns: Sequence[str], left: int, rows: Iterable[Sequence[str]]) -> str:
    """A table whose first `left` columns are text, the others numbers."""
    rule = "|---" * left + "|---:" * (len(columns) - left) + "|"
    return "\n".join([_line(columns), rule, *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


_MARKED = r"<!-- published: {0} -->\n.*?<!-- end: {0} -->\n"


def publish_section(name: str, text: str) -> Path:
    """Replace a section on the page of `docs/benchmarks` that has it; a new one goes to the end of the index.

    Returns the page.
    """
    section = f"<!-- published: {name} -->\n{text.rstrip()}\n<!-- end: {name} -->\n"
    for page in sorted(PAGES.glob("*.md")):
        content = page.read_text()
        if old := re.search(_MARKED.format(name), content, re.DOTALL):
            page.write_text(content.replace(old[0], section))
            return page
    page = PAGES / "README.md"
    page.write_text(f"{page.read_text().rstrip()}\n\n{section}")
    return page


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
