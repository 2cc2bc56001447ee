"""Headwater beside Apache Kafka: ``python -m benchmarks.peer``, or ``make bench``."""

from __future__ import annotations

import itertools
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from benchmarks.report import (
    PAGE_FILE,
    Failure,
    Results,
    failure_lines,
    gather_facts,
    markdown,
    noise,
    publish_section,
    save,
    terminal_table,
)
from benchmarks.systems import ROOT, SYSTEMS, BenchError, Kafka, compile_java
from benchmarks.turns import produce_in_turns
from benchmarks.workloads import PHASES, Plan, Sample, Session, Step, size_label

NOISY_PERCENT = 10


class Run:
    """Alternating rounds over the systems; keeps the results on disk after every one."""

    def __init__(self, plan: Plan, names: list[str], rounds: int, workdir: Path, console: Console) -> None:
        self.plan = plan
        self.names = names
        self.rounds = rounds
        self.workdir = workdir
        self.console = console
        self._facts = gather_facts(workdir)
        self._samples: list[Sample] = []
        self._failures: list[Failure] = []

    def results(self) -> Results:
        return Results(
            facts=self._facts,
            arguments=sys.argv[1:],
            size=self.plan.size(),
            rounds=self.rounds,
            samples=self._samples,
            failures=self._failures,
        )

    def run(self) -> Results:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task("starting", total=None)
            if "produce" in self.plan.phases:
                self._turns(progress, task)
            for number in range(1, self.rounds + 1) if self.plan.phases - {"produce"} else ():
                self._round(number, progress, task)
                save(self.results(), self.workdir / "results.json")
        return self.results()

    def _turns(self, progress: Progress, task: TaskID) -> None:
        """The Java producer, in turns; every case with servers that are started afresh."""
        for size, partitions in itertools.product(self.plan.sizes, self.plan.partitions):
            label = f"produce {size_label(size)} × {partitions}"
            progress.update(task, description=label)
            try:
                with ExitStack() as started:
                    servers = [started.enter_context(SYSTEMS[name](self.workdir / name)) for name in self.names]
                    produce_in_turns(servers, self.plan, size, partitions, self.workdir, self._collect)
            except (BenchError, KafkaException) as error:
                self._fail(None, 0, label, error)
            save(self.results(), self.workdir / "results.json")

    def _round(self, number: int, progress: Progress, task: TaskID) -> None:
        """Start every system, then take each step with one after the other.

        How fast a shared machine is changes from minute to minute: what is compared has to be measured in succession.
        The order alternates, so that what one system leaves behind does not always meet the other.
        """
        with ExitStack() as servers:
            sessions = []
            for name in self.names if number % 2 else reversed(self.names):
                progress.update(task, description=f"round {number}/{self.rounds} {SYSTEMS[name].title}: start")
                try:
                    server = servers.enter_context(SYSTEMS[name](self.workdir / name))
                except BenchError as error:
                    self._fail(name, number, "start", error)
                    continue
                session = Session(server, self.plan, number, self.workdir, self._collect)
                self._step(session, session.startup)
                sessions.append(session)
            together = [*zip(*(session.steps() for session in sessions), strict=True)]
            progress.update(task, total=len(together) * self.rounds)
            for steps in together:
                progress.update(task, description=f"round {number}/{self.rounds}: {steps[0].label}")
                for session, step in zip(sessions, steps, strict=True):
                    self._step(session, step)
                progress.advance(task)

    def _step(self, session: Session, step: Step) -> None:
        """Runs one step; its failure is a result too, and the next steps go on while the server lives."""
        server = session.server
        try:
            if not server.alive():
                raise BenchError(f"the server is gone, {server.where()}")
            with session.counted():
                step.run()
        except (BenchError, KafkaException) as error:
            self._fail(server.name, session.number, step.label, error)

    def _collect(self, sample: Sample) -> None:
        self._samples.append(sample)
        where = f"[dim]round {sample.round}[/] {SYSTEMS[sample.system].title:12}"
        self.console.print(
            f"{where}  {sample.case}, {sample.metric}: {sample.value:.2f} {sample.unit}", highlight=False
        )

    def _fail(self, name: str | None, number: int, step: str, error: Exception) -> None:
        failure = Failure(system=name, round=number, step=step, reason=str(error))
        self._failures.append(failure)
        self.console.print(*failure_lines([failure]), style="red", markup=False)


def _choice(text: str, allowed: tuple[str, ...], option: str) -> list[str]:
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    if not chosen or not set(chosen) <= set(allowed):
        raise typer.BadParameter(f"{option} takes a comma-separated list of {', '.join(allowed)}")
    return chosen


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"{option} takes a comma-separated list of positive integers")
    return numbers


def _terminated(number: int, frame: FrameType | None) -> None:
    """SIGTERM unwinds the stack, so that the servers are stopped."""
    raise SystemExit(128 + number)


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the order of the systems alternates.")] = 5,
    records_mb: Annotated[int, typer.Option(min=1, help="Payload of each throughput phase, in MB.")] = 300,
    seconds: Annotated[int, typer.Option(min=1, help="Measured length of the latency phase.")] = 15,
    warmup_mb: Annotated[int, typer.Option(min=1, help="Payload that warms a server up, in MB.")] = 1_000,
    turns: Annotated[int, typer.Option(min=1, help="Turns of the Java producer with each system; even.")] = 10,
    turn_seconds: Annotated[float, typer.Option(min=1, help="Measured length of a turn.")] = 3,
    warm_seconds: Annotated[float, typer.Option(min=1, help="For how long the Java producer warms up.")] = 20,
    only: Annotated[str, typer.Option(help="Phases to run.")] = ",".join(PHASES),
    sizes: Annotated[str, typer.Option(help="Record sizes in bytes.")] = "100,1024",
    partitions: Annotated[str, typer.Option(help="Partition counts.")] = "1,12",
    systems: Annotated[str, typer.Option(help="Systems to run.")] = ",".join(SYSTEMS),
    linger: Annotated[str, typer.Option(help="linger.ms of the latency probe, or 'default'.")] = "default",
    workdir: Annotated[Path, typer.Option(help="Data of both systems, logs and results.json.")] = Path("build/bench"),
    kafka_syncs: Annotated[bool, typer.Option("--kafka-syncs", help="Kafka syncs what it appends, as we do.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="One small round, to see that it works.")] = False,
    publish: Annotated[bool, typer.Option("--publish", help="Put the table on docs/benchmarks.md.")] = False,
) -> None:
    """Measures Headwater and Apache Kafka side by side and prints medians and ratios."""
    plan = Plan(
        phases=frozenset(_choice(only, PHASES, "--only")),
        sizes=_numbers(sizes, "--sizes"),
        partitions=_numbers(partitions, "--partitions"),
        records_mb=min(records_mb, 30) if quick else records_mb,
        warmup_mb=min(warmup_mb, 40) if quick else warmup_mb,
        warm_seconds=min(warm_seconds, 4) if quick else warm_seconds,
        turns=2 if quick else turns,
        turn_seconds=min(turn_seconds, 1) if quick else turn_seconds,
        idle_seconds=5 if quick else 10,
        latency_seconds=min(seconds, 4) if quick else seconds,
        latency_warmup_seconds=3 if quick else 5,
        linger=linger,
    )
    if plan.turns % 2:
        raise typer.BadParameter("--turns has to be even: going first may be an advantage")
    names = _choice(systems, tuple(SYSTEMS), "--systems")
    if kafka_syncs:
        Kafka.SETTINGS += "log.flush.interval.messages=1\n"
    console = Console(width=None if sys.stdout.isatty() else 160)
    signal.signal(signal.SIGTERM, _terminated)
    workdir = workdir.resolve()
    workdir.mkdir(parents=True, exist_ok=True)
    try:
        compile_java()
    except BenchError as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(2) from None
    results = Run(plan, names, 1 if quick else rounds, workdir, console).run()
    console.print(terminal_table(results.samples))
    console.print(f"raw results: {workdir / 'results.json'}", highlight=False)
    if (others := noise(results.samples)) > NOISY_PERCENT:
        console.print(f"others used up to {others:.0f} % of the machine: do not trust these figures", style="yellow")
    for line in failure_lines(results.failures):
        console.print(line, style="red", markup=False)
    if results.failures:
        raise typer.Exit(1)
    if publish:
        publish_section("kafka", markdown(results))
        console.print(f"written: {PAGE_FILE.relative_to(ROOT)}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
