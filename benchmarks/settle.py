"""Settling end to end, WAL in the object store to both tables committed: ``make bench-settle``.

Beside it a plain PySpark append of the same rows and, for JSON values, Iceberg's sink for Kafka Connect. Then topics
with typed columns (`--part typed`). How it is measured stands in `settle_report.TEXT` and `settle_typed.TEXT`.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyspark
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import settle_typed
from benchmarks.report import NOISY_PERCENT, gather_facts, publish_section, save
from benchmarks.segments import CASES, Case
from benchmarks.settle_connect import COMMIT_MS, LIBS, SUBJECTS, Connect, produce
from benchmarks.settle_inputs import JSON_CASES, Input, make_input, rows_of
from benchmarks.settle_measure import Sample
from benchmarks.settle_ours import open_bench
from benchmarks.settle_plain import JARS, open_plain
from benchmarks.settle_report import SECTION, Results, markdown, noise, terminal_table
from benchmarks.settle_typed import TypedPlan, TypedResults
from benchmarks.systems import BenchError
from benchmarks.typed_inputs import VALUE_BYTES
from harness.kafka import Kafka
from harness.process import ServerFailed
from harness.tools import ROOT

PARTS = ("all", "untyped", "typed")
STREAMS = (1, 64)
BESIDE_PLAIN = (CASES[0], CASES[2])
WARM_RUNS, WARM_APPENDS, WARM_SINKS = 2, 4, 4
WARM_JOBS, WARM_INPUT, WARM_STREAMS = 10, (CASES[0], 20_000), 4
"""Small jobs let the JVM compile what every job does."""
WARM_SINK_SHARE = 4
"""The sink warms up on a topic that is so many times smaller."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run, and how much of it."""

    masters: list[str]
    cases: list[Case]
    plain: bool
    sink: bool
    megabytes: int
    sink_megabytes: int
    repeats: int

    def cells(self) -> list[tuple[Case, int]]:
        """What a master settles: every case on one and on many streams; JSON as the sink reads it."""
        return [(case, n) for case in self.cases for n in (STREAMS if case in CASES else STREAMS[:1])]

    def beside_plain(self) -> list[Case]:
        return [case for case in BESIDE_PLAIN if case in self.cases and self.plain]

    def beside_sink(self) -> list[Case]:
        return [case for case in JSON_CASES if case in self.cases and self.sink]

    def steps(self) -> int:
        settles = len(self.cells()) * self.repeats
        appends = len(self.beside_plain()) * (WARM_APPENDS + self.repeats)
        sinks = WARM_SINKS + len(self.beside_sink()) * len(SUBJECTS) if self.beside_sink() else 0
        return len(self.masters) * (settles + appends) + sinks

    def size(self) -> str:
        text = f"{self.megabytes} MB of values, a quarter in batches of one, {self.repeats} runs each"
        return f"{text}; the sink {self.sink_megabytes} MB, one run" if self.beside_sink() else text

    def input(self, case: Case) -> Input:
        return make_input(case, rows_of(case, self.megabytes))


class Run:
    """All of a plan, one thing after the other; keeps the results on disk after each."""

    def __init__(self, plan: Plan, typed: TypedPlan, workdir: Path, console: Console, progress: Progress) -> None:
        self._plan = plan
        self._typed = typed
        self._workdir = workdir
        self._console = console
        self._progress = progress
        self._task: TaskID = progress.add_task("make the records", total=plan.steps())
        self._facts = gather_facts(workdir)
        self._samples: list[Sample] = []
        self._typed_samples: list[Sample] = []

    def run_typed(self) -> TypedResults:
        """The part with typed columns."""
        self._progress.update(self._task, total=self._typed.steps(), completed=0)
        with self._scratch() as directory:
            settle_typed.run(self._typed, directory, self._collect_typed, self._say)
        return self.typed_results()

    def typed_results(self) -> TypedResults:
        return TypedResults(
            facts=self._facts, size=self._typed.size(), master=self._typed.master, samples=self._typed_samples
        )

    def _collect_typed(self, sample: Sample, count: bool) -> None:
        self._show(sample, count)
        if count:
            self._typed_samples.append(sample)
            save(self.typed_results(), self._workdir / "settle-typed.json")

    def results(self) -> Results:
        return Results(facts=self._facts, size=self._plan.size(), samples=self._samples)

    def run(self) -> Results:
        for case in self._plan.cases:
            self._plan.input(case)
        gc.collect()
        gc.freeze()  # they are no part of a compactor, so looking through them must not count as its work
        for master in self._plan.masters:
            with self._scratch() as directory:
                sources = asyncio.run(self._settle(master, directory))
                if sources:
                    self._append(master, directory, sources)
        if self._plan.beside_sink():
            self._sink()
        return self.results()

    async def _settle(self, master: str, directory: Path) -> dict[Case, list[Path]]:
        """Every cell; answers where the rows lie that are appended the plain way."""
        sources: dict[Case, list[Path]] = {}
        async with open_bench(directory, master) as bench:
            self._say(f"{master}: warm up")
            whole = self._plan.input(self._plan.cases[0])
            for number, data in enumerate([make_input(*WARM_INPUT)] * WARM_JOBS + [whole] * WARM_RUNS):
                await bench.settle(await bench.write(f"warm-{number}", data, WARM_STREAMS), data, WARM_STREAMS)
            for i, (case, streams) in enumerate(self._plan.cells()):
                for repeat in range(self._plan.repeats):
                    self._say(f"{master}: {case.name}, {streams} streams")
                    topic = await bench.write(f"t{i}-{repeat}", self._plan.input(case), streams)
                    self._collect(await bench.settle(topic, self._plan.input(case), streams))
                    if case in self._plan.beside_plain():
                        sources.setdefault(case, bench.segments(topic))
        return sources

    def _append(self, master: str, directory: Path, sources: dict[Case, list[Path]]) -> None:
        with open_plain(directory / "warehouse", master) as plain:
            for i, (case, segments) in enumerate(sources.items()):
                self._say(f"{master}: plain append, {case.name}")
                runs = plain.append(f"t{i}", self._plan.input(case), segments, WARM_APPENDS + self._plan.repeats)
                for number, sample in enumerate(runs):
                    self._collect(sample, count=number >= WARM_APPENDS)

    def _sink(self) -> None:
        self._say("Iceberg sink: start Kafka and Connect")
        kafka = Kafka(self._workdir / "kafka")
        with kafka, Connect(self._workdir / "connect", kafka.bootstrap) as connect:
            cases, megabytes = self._plan.beside_sink(), self._plan.sink_megabytes
            self._load(kafka, "warm", cases[0], rows := rows_of(cases[0], megabytes // WARM_SINK_SHARE))
            for subject in itertools.islice(itertools.cycle(SUBJECTS), WARM_SINKS):
                self._say("Iceberg sink: warm up")
                self._collect(connect.run(subject, "warm", cases[0], rows), count=False)
            for i, case in enumerate(cases):
                self._load(kafka, topic := f"json{i}", case, rows := rows_of(case, megabytes))
                for subject in SUBJECTS:
                    self._say(f"{subject}: {case.name}")
                    self._collect(connect.run(subject, topic, case, rows))

    def _load(self, kafka: Kafka, topic: str, case: Case, rows: int) -> None:
        self._say(f"Iceberg sink: produce {case.name}")
        produce(kafka.bootstrap, topic, case, rows)

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        directory = self._workdir / "settle"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _say(self, what: str) -> None:
        self._progress.update(self._task, description=what)

    def _collect(self, sample: Sample, *, count: bool = True) -> None:
        self._show(sample, count)
        if count:
            self._samples.append(sample)
            save(self.results(), self._workdir / "settle.json")

    def _show(self, sample: Sample, count: bool) -> None:
        self._progress.advance(self._task)
        shares = ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in sample.cpu_of.items())
        self._console.print(
            f"[dim]{'' if count else 'warm-up '}{sample.master}[/] {sample.subject}, {sample.case}, {sample.streams} "
            f"streams: {sample.rows / sample.cpu:,.0f} records/CPU-s, {sample.rows / sample.wall:,.0f}/s "
            f"[dim]({sample.rows:,} records, {sample.files} files of {sample.file_bytes / sample.files / 1e6:.1f} MB, "
            f"CPU {sample.cpu:.2f} s{': ' if shares else ''}{shares}, others {sample.others:.2f})[/]",
            highlight=False,
        )


def _versions() -> str:
    iceberg = next(JARS.glob("iceberg-spark-runtime-*.jar"), None)
    connect = next(LIBS.glob("connect-runtime-*.jar"), None)
    found = [f"Spark {pyspark.__version__}"]
    found += [f"Iceberg {iceberg.stem.rpartition('-')[2]}"] if iceberg else []
    return ", ".join(found + ([f"Kafka Connect {connect.stem.rpartition('-')[2]}"] if connect else []))


def main(
    megabytes: Annotated[int, typer.Option(min=1, help="Values a case, in MB.")] = 200,
    sink_megabytes: Annotated[int, typer.Option(min=1, help="Values that the sink reads, in MB.")] = 720,
    repeats: Annotated[int, typer.Option(min=1, help="Measured runs of each case.")] = 3,
    masters: Annotated[str, typer.Option(help="Spark masters, local ones.")] = "local[1],local[2]",
    only: Annotated[str, typer.Option(help="Cases whose name contains this.")] = "",
    plain: Annotated[bool, typer.Option(help="The plain PySpark append.")] = True,
    sink: Annotated[bool, typer.Option(help="Iceberg's sink for Kafka Connect.")] = True,
    part: Annotated[str, typer.Option(help="`untyped`, `typed` columns, or `all`.")] = "all",
    before: Annotated[Path | None, typer.Option(help="A tree with an earlier build, for the typed part.")] = None,
    workdir: Annotated[Path, typer.Option(help="Data, logs and settle.json.")] = Path("build/bench"),
    quick: Annotated[bool, typer.Option("--quick", help="Little of everything, once, to see that it works.")] = False,
    publish: Annotated[
        bool, typer.Option("--publish", help="Write the section in docs/benchmarks/settling.md.")
    ] = False,
) -> None:
    """Measures settling beside its peers and prints records per second of CPU and of time."""
    plan = Plan(
        masters=masters.split(",") if not quick else masters.split(",")[-1:],
        cases=[case for case in [*CASES, *JSON_CASES] if only in case.name],
        plain=plain,
        sink=sink,
        megabytes=min(megabytes, 20) if quick else megabytes,
        sink_megabytes=min(sink_megabytes, 60) if quick else sink_megabytes,
        repeats=1 if quick else repeats,
    )
    typed = TypedPlan(
        master=masters.split(",")[0],
        rows=plan.megabytes * 1_000_000 // VALUE_BYTES,
        repeats=1 if quick else repeats,
        before=before.resolve() if before is not None else None,
        sink_megabytes=plan.sink_megabytes if sink else 0,
        only=only,
    )
    if part not in PARTS:
        raise typer.BadParameter(f"{part} is no part: {', '.join(PARTS)}")
    if before is not None and not (before / "src" / "headwater").is_dir():
        raise typer.BadParameter(f"{before} has no src/headwater")
    if not plan.cases and part != "typed":
        raise typer.BadParameter(f"no case is called {only}: {', '.join(c.name for c in [*CASES, *JSON_CASES])}")
    console = Console(width=None if sys.stdout.isatty() else 200)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # unwinds, so servers are stopped
    workdir = workdir.resolve()
    workdir.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console) as progress:
            runner = Run(plan, typed, workdir, console, progress)
            results = runner.run() if part != "typed" else None
            typed_results = runner.run_typed() if part != "untyped" else None
    except (BenchError, ServerFailed) as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(1) from None
    sections: dict[str, str] = {}
    if results is not None:
        console.print(terminal_table(results.samples))
        _tell_noise(console, noise(results.samples, results.facts.cores))
        sections[SECTION] = markdown(results, _versions(), COMMIT_MS / 1000)
    if typed_results is not None:
        others = noise(typed_results.samples, typed_results.facts.cores)
        _tell_typed(console, typed_results.samples)
        _tell_noise(console, others)
        sections[settle_typed.SECTION] = settle_typed.markdown(typed_results, _versions(), others)
    console.print(f"raw results: {workdir}", highlight=False)
    for name, text in sections.items() if publish else ():
        page = publish_section(name, text)
        console.print(f"written: {name} in {page.relative_to(ROOT)}", highlight=False)


def _tell_noise(console: Console, others: float) -> None:
    if others > NOISY_PERCENT:
        console.print(f"others used {others:.0f} % of the machine: do not trust these figures", style="yellow")


def _tell_typed(console: Console, samples: list[Sample]) -> None:
    table = Table(*settle_typed.COLUMNS, title="typed settling: medians (min..max)", title_justify="left")
    for row in settle_typed.rows(samples):
        table.add_row(*row)
    console.print(table)
    for missed in settle_typed.short_of(samples):
        console.print(f"less than wanted: {missed}", style="yellow", highlight=False)


if __name__ == "__main__":
    typer.run(main)
