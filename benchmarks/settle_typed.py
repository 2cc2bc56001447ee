"""Settling with typed columns, beside untyped topics, an earlier build, and Iceberg's sink with JSON opened.

A part of `make bench-settle`. All take turns, so that other work of the machine meets all of them. Each build runs in a
process of its own (`benchmarks.settle_worker`), with its own ledger, store and Spark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from benchmarks.report import NONE, Facts, Spread, markdown_table
from benchmarks.segments import CASES
from benchmarks.settle_connect import SUBJECTS, TYPED, Connect, produce
from benchmarks.settle_inputs import JSON_CASES, rows_of
from benchmarks.settle_measure import WORKERS, Sample
from benchmarks.settle_ours import SUBJECT
from benchmarks.settle_worker import Order
from benchmarks.systems import BenchError
from benchmarks.typed_inputs import ORDERS, TYPED_CASES
from harness.kafka import Kafka
from harness.tools import ROOT

SECTION = "typed settling"
BEFORE = "before typed tables"
SINK = next(name for name, settings in SUBJECTS.items() if settings is TYPED)
UNTYPED = CASES[0]
WARM_SINKS, WARM_SINK_SHARE = 3, 4
NOT_SLOWER = 0.97
"""What counts as not slower than before: runs of the same code differ by more."""
COLUMNS = ("", "records", "columns", "1,000 records/CPU-s", "of executors", "1,000 records/s", "beside", "wanted")
LEFT = 3

TEXT = """\
## Settling with typed columns

From WAL in the object store to both tables committed, with the fields of values as columns. Beside it: topics without
schemas, the same by the code from before typed tables, and Apache Iceberg's sink for Kafka Connect, which opens JSON
too. Written by `make bench-settle ARGS="--part typed --before DIRECTORY --publish"`.

| | |
|---|---|
| date | {date} |
| machine | {machine} |
| versions | {versions} |
| size | {size} |
| CPU used by others meanwhile | {others} |

Medians, with the lowest and highest run in brackets; more is better. All take turns on `{master}`, in one run.

{table}

- **CPU** is user and system time of all processes: the driver's Python, Spark's JVM, Python workers. *Of executors*
  counts the Python workers alone, which decode and write.
- **Records** have exactly 100 B with the five bytes that name the schema: nine fields as Avro and Protobuf (one of them
  a list, one an enumeration, one a time), six as JSON; 44 to 58 of an Avro record are a text of chance. JSON without a
  schema is inferred. A topic has settled a thousand records before, so its columns are there.
- **{before}** runs the code of another directory in a process of its own.
- **{sink}**: a standalone worker that evolves the table's schema, from one partition of a Kafka that is full before
  it starts. Only the worker's CPU counts. *JSON orders* are what it reads, settled with typed columns.
- After every run DuckDB reads the tables: rows, bytes, places in the log, and the sum of a typed column.
"""


class Side:
    """A process that settles. Leaving the block ends it."""

    def __init__(self, name: str, tree: Path, directory: Path, master: str) -> None:
        self.name = name
        self._tree = tree
        self._directory = directory / name.replace(" ", "-")
        self._master = master
        self._process: subprocess.Popen[str] | None = None

    def __repr__(self) -> str:
        return f"<Side {self.name}, code of {self._tree}>"

    def __enter__(self) -> Self:
        shutil.rmtree(self._directory, ignore_errors=True)
        # Of the tree only the product: the benchmark itself is the same on both sides.
        environment = {**os.environ, "PYTHONPATH": f"{self._tree / 'src'}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "benchmarks.settle_worker", str(self._directory), self._master]
        with (self._directory.parent / f"{self._directory.name}.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=ROOT
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        if kind is None:
            self._process.stdin.close()  # it ends with its input, and ends its JVM
        else:
            self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def wait_ready(self) -> None:
        if (line := self._line()) != "ready":
            raise BenchError(f"{self!r} said {line!r} instead of 'ready', see its log beside {self._directory}")

    def settle(self, order: Order) -> Sample:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(order).decode() + "\n")
            self._process.stdin.flush()
            sample = msgspec.json.decode(self._line(), type=Sample)
        except (BrokenPipeError, msgspec.DecodeError) as error:
            raise BenchError(f"{self!r}: {error}, see its log beside {self._directory}") from error
        return msgspec.structs.replace(sample, subject=self.name)

    def _line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.readline().strip()


@dataclass(frozen=True, slots=True)
class TypedPlan:
    """What is run, and how much of it."""

    master: str
    rows: int
    repeats: int
    before: Path | None
    sink_megabytes: int
    """0: no sink."""
    only: str = ""

    @property
    def cases(self) -> list[str]:
        """The names of what this build settles."""
        return [case.name for case in [UNTYPED, *TYPED_CASES] if self.only in case.name]

    def steps(self) -> int:
        each = len(self.cases) + (self.before is not None) + (self.sink_megabytes > 0)
        return each * self.repeats + (WARM_SINKS if self.sink_megabytes else 0)

    def size(self) -> str:
        text = f"{self.rows:,} records of a case, {self.repeats} runs each"
        return f"{text}; the sink {self.sink_megabytes} MB" if self.sink_megabytes else text


Collect = Callable[[Sample, bool], None]
"""Takes a sample, and whether it counts."""


def run(plan: TypedPlan, directory: Path, collect: Collect, say: Callable[[str], None]) -> None:
    """All turns. Every round has each side and each case once, in an order that moves on."""
    with ExitStack() as stack:
        say("typed settling: start the builds")
        now = stack.enter_context(Side(SUBJECT, ROOT, directory, plan.master))
        before = stack.enter_context(Side(BEFORE, plan.before, directory, plan.master)) if plan.before else None
        sink = stack.enter_context(_Sink(directory)) if plan.sink_megabytes else None
        for side in (now, before):
            if side is not None:
                side.wait_ready()
        turns: list[tuple[str, Callable[[], Sample]]] = []
        for case in plan.cases:
            turns.append((case, _turn(now, Order(case, plan.rows, 1))))
            if case == UNTYPED.name and before is not None:
                turns.append((f"{case}, {BEFORE}", _turn(before, Order(case, plan.rows, 1))))
        if sink is not None:
            for _ in range(WARM_SINKS):
                say(f"{SINK}: warm up")
                collect(sink.run(plan.sink_megabytes // WARM_SINK_SHARE), False)
            turns.append((SINK, lambda: sink.run(plan.sink_megabytes)))
        for _, turn in turns[: len(turns) - (sink is not None)]:  # inputs are made, decoders compiled
            say("typed settling: warm up")
            turn()
        for repeat in range(plan.repeats):
            at = repeat % len(turns)
            for name, turn in [*turns[at:], *turns[:at]]:
                say(f"typed settling: {name}")
                collect(turn(), True)


def _turn(side: Side, order: Order) -> Callable[[], Sample]:
    return lambda: side.settle(order)


class _Sink(ExitStack):
    """A Kafka with JSON, and the worker that reads it."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._loaded: dict[int, str] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._kafka = self.enter_context(Kafka(self._directory / "kafka"))
            self._connect = Connect(self._directory / "connect", self._kafka.bootstrap)
            self.enter_context(self._connect)
        except BaseException:
            self.close()
            raise
        return self

    def run(self, megabytes: int) -> Sample:
        case = JSON_CASES[0]
        rows = rows_of(case, megabytes)
        if rows not in self._loaded:
            self._loaded[rows] = f"orders{len(self._loaded)}"
            produce(self._kafka.bootstrap, self._loaded[rows], case, rows)
        sample = self._connect.run(SINK, self._loaded[rows], case, rows)
        return msgspec.structs.replace(sample, case=ORDERS.name)


# --- the report ---------------------------------------------------------------------------------------------


class TypedResults(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run leaves behind."""

    facts: Facts
    size: str
    master: str
    samples: list[Sample]


@dataclass(frozen=True, slots=True)
class Line:
    """All runs of a subject with a case."""

    subject: str
    case: str
    samples: list[Sample]

    @property
    def per_cpu(self) -> Spread:
        return _spread([s.rows / s.cpu / 1000 for s in self.samples])

    @property
    def per_executor(self) -> Spread | None:
        found = [s.rows / s.cpu_of[WORKERS] / 1000 for s in self.samples if s.cpu_of.get(WORKERS)]
        return Spread.of(found)

    @property
    def wanted(self) -> int:
        """Records a second of CPU, in thousands; 0: there is no aim."""
        found = [case.wanted for case in TYPED_CASES if case.name == self.case and self.subject == SUBJECT]
        return found[0] // 1000 if found else 0


def _spread(values: list[float]) -> Spread:
    found = Spread.of(values)
    assert found is not None
    return found


def lines_of(samples: Sequence[Sample]) -> list[Line]:
    """By subject and case, in the order of first appearance; this build first."""
    groups: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.subject, sample.case), []).append(sample)
    lines = [Line(subject, case, found) for (subject, case), found in groups.items()]
    names = [case.name for case in [UNTYPED, *TYPED_CASES]]
    return sorted(lines, key=lambda line: (names.index(line.case), line.subject != SUBJECT))


def rows(samples: Sequence[Sample]) -> list[list[str]]:
    """The cells of the table."""
    lines, table = lines_of(samples), []
    for line in lines:
        rival = next((one for one in lines if one.case == line.case and one.subject != SUBJECT), None)
        beside = line.per_cpu.median / rival.per_cpu.median if rival and line.subject == SUBJECT else 0.0
        aim = f"{line.wanted}" if line.wanted else NONE
        if line.subject == SUBJECT and line.case == UNTYPED.name and rival:
            aim = "not slower"
        typed = "typed" if line.case != UNTYPED.name else "log's"
        per_second = _spread([s.rows / s.wall / 1000 for s in line.samples])
        table.append(
            [line.subject, line.case, typed, str(line.per_cpu), str(line.per_executor or NONE), str(per_second),
             f"{beside:.2f}" if beside else NONE, aim]
        )  # fmt: skip
    return table


def short_of(samples: Sequence[Sample]) -> list[str]:
    """What was not reached, in words. The aims are of all processes together."""
    lines = lines_of(samples)
    missed = [
        f"{line.case}: {line.per_cpu.median:,.0f} of {line.wanted:,} thousand records a second of CPU"
        for line in lines
        if line.wanted and line.per_cpu.median < line.wanted
    ]
    for line in lines:
        rivals = [one for one in lines if one.case == line.case and one.subject != SUBJECT]
        if line.subject != SUBJECT or not rivals:
            continue
        ratio = line.per_cpu.median / rivals[0].per_cpu.median
        if ratio < NOT_SLOWER:
            missed.append(f"{line.case}: {ratio:.2f} of {rivals[0].subject}")
    return missed


def markdown(results: TypedResults, versions: str, others: float) -> str:
    """The section of `docs/benchmarks/settling.md`."""
    facts = results.facts
    return TEXT.format(
        date=facts.date, machine=facts.machine,
        versions=f"Headwater {facts.commit}, {versions}, Python {facts.python}, Java {facts.java}",
        size=results.size, others=f"{others:.0f} %", master=results.master, before=BEFORE, sink=SINK,
        table=markdown_table(COLUMNS, LEFT, rows(results.samples)),
    )  # fmt: skip
