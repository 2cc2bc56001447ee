"""Headwater beside Apache Kafka: ``python -m benchmarks.peer``, or ``make bench``.

Every server is started once and warmed up before anything counts. Each step is measured in turns (``turns.py``) and has
a time limit (``plan.py``). Results are on the disk after every turn, and ``--resume`` continues a run that was stopped.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import typer
from confluent_kafka import KafkaException
from rich.console import Console

from benchmarks.peer_report import markdown, settling_line, shares_line, summary, tables, turn_line
from benchmarks.plan import CHOICES, HOUR_SECONDS, QUICK, TITLES, Plan, Step
from benchmarks.report import gather_facts, publish_section
from benchmarks.results import IDLE, LOADED, STARTUP, Failure, Results, Sample, Store
from benchmarks.systems import SYSTEMS, BenchError, KafkaSystem, System, compile_java
from benchmarks.turns import Bench, Deadline
from harness.process import START_SECONDS
from harness.tools import ROOT

DISK_BYTES = 40_000_000_000
"""What the topics of a full run may need at a time."""
QUICK_DISK_BYTES = 4_000_000_000


class Run:
    """All steps that results lack, on servers that are started once."""

    def __init__(self, results: Results, store: Store, workdir: Path, console: Console) -> None:
        self._results = results
        self._plan = results.plan
        self._store = store
        self._workdir = workdir
        self._console = console
        self._hour = Deadline(HOUR_SECONDS, "the run")

    def run(self) -> None:
        """Measure what is missing. A step that fails is noted, and the next ones go on while the servers live."""
        self._say_plan()
        with ExitStack() as started:
            servers = self._start(started)
            with self._timed("warm-up", len(servers) * self._plan.warm_limit_seconds):
                self._warm_up(servers)
            for number, group in enumerate(self._plan.groups()):
                if steps := self._results.steps_left(group.steps):
                    for server in servers.values():
                        server.check()
                    self._group(Bench(group, self._plan, servers, self._workdir, f"bench-{number}"), steps)
            if self._hour.left >= self._plan.idle_limit_seconds:
                with self._timed("idle and memory", self._plan.idle_limit_seconds):
                    self._idle(servers)

    def _start(self, started: ExitStack) -> dict[str, System]:
        servers: dict[str, System] = {}
        self._results.starts += 1
        for name in self._plan.systems:
            with self._timed(f"start of {TITLES[name]}", START_SECONDS):
                servers[name] = started.enter_context(SYSTEMS[name](self._workdir / name))
            took = servers[name].startup_seconds
            self._collect([_sample(name, STARTUP, self._results.starts, "to the ready line", "s", took)])
        return servers

    def _warm_up(self, servers: dict[str, System]) -> None:
        plan = self._plan
        with Bench(plan.warming, plan, servers, self._workdir, "warm") as bench:
            limit = plan.warm_limit_seconds
            payload = plan.warm_mb * 1_000_000
            bench.warm_up(payload=payload, seconds=0, limit=limit, client_limit=self._hour.left)
            bench.read_once()

    def _group(self, bench: Bench, steps: list[Step]) -> None:
        plan = self._plan
        try:
            with bench:
                label = f"clients of {steps[0].label}"
                with self._timed(label, len(steps[0].systems) * plan.client_limit_seconds):
                    limit = plan.client_limit_seconds
                    bench.warm_up(payload=0, seconds=plan.warm_seconds, limit=limit, client_limit=self._hour.left)
                for step in steps:
                    self._step(bench, step)
        except (BenchError, KafkaException) as error:
            left = [step.label for step in self._results.steps_left(steps)]
            known = {failure.case for failure in self._results.failures}
            for case in left or [f"end of {steps[-1].label}"]:
                if case not in known:
                    self._fail(case, error)

    def _step(self, bench: Bench, step: Step) -> None:
        first = self._results.begin(step)
        try:
            with self._timed(step.label, step.limit_seconds):
                self._hour.check(step.expected_seconds)
                bench.run(step, first, min(step.limit_seconds, self._hour.left), self._collect)
        except (BenchError, KafkaException) as error:
            self._fail(step.label, error)

    def _idle(self, servers: dict[str, System]) -> None:
        """What the warm servers use of a core without load, all at the same time, and their memory after the load."""
        before = {name: server.cpu_parts() for name, server in servers.items()}
        began = time.monotonic()
        time.sleep(self._plan.idle_seconds)
        elapsed = time.monotonic() - began
        idle, loaded = [], []
        for name, server in servers.items():
            used = {part: seconds - before[name][part] for part, seconds in server.cpu_parts().items()}
            for part, seconds in (("all", sum(used.values())), *(used.items() if len(used) > 1 else ())):
                idle.append(_sample(name, IDLE, 0, f"CPU of one core, {part}", "%", 100 * seconds / elapsed))
            memory = server.memory()
            loaded.append(_sample(name, LOADED, 0, "RSS, all processes", "MB", sum(m.rss_mb for m in memory)))
            loaded.append(_sample(name, LOADED, 0, "PSS, all processes", "MB", sum(m.pss_mb for m in memory)))
        self._results.replace(IDLE, idle)
        self._results.replace(LOADED, loaded)
        self._store.save(self._results)

    # --- what is kept and said -------------------------------------------------------------------------

    def _collect(self, samples: list[Sample]) -> None:
        self._results.samples.extend(samples)
        self._store.save(self._results)
        for name in dict.fromkeys(sample.system for sample in samples):
            self._say(f"    {turn_line(name, [sample for sample in samples if sample.system == name])}")

    def _fail(self, case: str, error: Exception) -> None:
        self._results.failures.append(Failure(case=case, reason=str(error)))
        self._store.save(self._results)
        self._console.print(f"{case}: {error}", style="red", markup=False, highlight=False)

    @contextmanager
    def _timed(self, label: str, limit: float) -> Iterator[None]:
        """Say the limit of a piece of work before it, and how long it took after it."""
        began = time.monotonic()
        self._say(f"{_minutes(self._hour.passed)}  {label}: at most {limit:.0f} s")
        try:
            yield
        finally:
            took = time.monotonic() - began
            self._results.seconds[label] = self._results.seconds.get(label, 0.0) + took
            self._store.save(self._results)
            self._say(f"{_minutes(self._hour.passed)}  {label}: took {took:.0f} s")

    def _say_plan(self) -> None:
        for group in self._plan.groups():
            for step in group.steps:
                done = self._results.turns_done(step)
                self._say(
                    f"{step.label}: {step.turns} turns, {done} done, about {step.expected_seconds:.0f} s, "
                    f"at most {step.limit_seconds:.0f} s"
                )
        self._say(f"all of it, with starts and warm-ups: at most {self._plan.limit_seconds / 60:.0f} minutes")

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False)


def _sample(system: str, case: str, turn: int, metric: str, unit: str, value: float) -> Sample:
    return Sample(system=system, case=case, turn=turn, metric=metric, unit=unit, value=value)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


def _choice(text: str, allowed: tuple[str, ...], option: str) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not chosen or not set(chosen) <= set(allowed):
        raise typer.BadParameter(f"{option} takes a comma-separated list of {', '.join(allowed)}")
    return chosen


def _terminated(number: int, frame: FrameType | None) -> None:
    """SIGTERM unwinds the stack, so that the servers are stopped."""
    raise SystemExit(128 + number)


def main(
    turns: Annotated[int, typer.Option(min=1, help="Turns of each system in a step.")] = Plan().turns,
    only: Annotated[str, typer.Option(help="Kinds of load to run: " + ", ".join(CHOICES) + ".")] = "",
    systems: Annotated[str, typer.Option(help="Systems to run.")] = ",".join(SYSTEMS),
    linger: Annotated[str, typer.Option(help="linger.ms of the latency probe, or 'default'.")] = "default",
    workdir: Annotated[Path, typer.Option(help="Data of the systems, logs and results.json.")] = Path("build/bench"),
    kafka_syncs: Annotated[bool, typer.Option("--kafka-syncs", help="Kafka syncs what it appends, as we do.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Every step, but short: to see that it works.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run whose results are in the workdir.")
    ] = False,
    publish: Annotated[bool, typer.Option("--publish", help="Put the tables on docs/benchmarks/kafka.md.")] = False,
) -> None:
    """Measures Headwater and Apache Kafka side by side and prints medians and ratios. At most an hour."""
    plan = msgspec.structs.replace(
        QUICK if quick else Plan(turns=turns),
        only=_choice(only, CHOICES, "--only") if only else (),
        systems=_choice(systems, tuple(SYSTEMS), "--systems"),
        linger=linger,
        kafka_syncs=kafka_syncs,
    )
    if publish and plan != msgspec.structs.replace(Plan(), turns=plan.turns, linger=plan.linger):
        raise typer.BadParameter("--publish takes a full run: without --quick, --only, --systems and --kafka-syncs")
    if plan.limit_seconds > HOUR_SECONDS:
        raise typer.BadParameter(f"{turns} turns may take {plan.limit_seconds / 60:.0f} minutes, more than an hour")
    if kafka_syncs:
        KafkaSystem.more_settings = "log.flush.interval.messages=1\n"
    console = Console(width=None if sys.stdout.isatty() else 180)
    signal.signal(signal.SIGTERM, _terminated)
    workdir = workdir.resolve()
    workdir.mkdir(parents=True, exist_ok=True)
    store = Store(workdir)
    try:
        with store.locked():
            results = _measured(plan, store, workdir, console, quick=quick, resume=resume)
    except (BenchError, KafkaException) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        raise typer.Exit(2) from None
    _say_results(results, store, console)
    if results.failures or not results.complete:
        raise typer.Exit(1)
    if publish:
        page = publish_section("kafka", markdown(results))
        console.print(f"written: {page.relative_to(ROOT)}", highlight=False)


def _measured(plan: Plan, store: Store, workdir: Path, console: Console, *, quick: bool, resume: bool) -> Results:
    facts = gather_facts(workdir)
    results = store.resume(plan, facts) if resume else store.begin(plan, facts)
    if not results.complete:
        needed, free = QUICK_DISK_BYTES if quick else DISK_BYTES, shutil.disk_usage(workdir).free
        if free < needed:
            raise BenchError(f"{workdir} has {free / 1e9:.0f} GB free, the run needs {needed / 1e9:.0f} GB")
        compile_java()
        Run(results, store, workdir, console).run()
    return results


def _say_results(results: Results, store: Store, console: Console) -> None:
    for table in tables(results):
        console.print(table)
    for line in (settling_line(results), shares_line(results)):
        if line:
            console.print(line, highlight=False)
    for failure in results.failures:
        console.print(f"{failure.case}: {failure.reason}", style="red", markup=False, highlight=False)
    console.print(f"{summary(results)}; raw results: {store.path}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
