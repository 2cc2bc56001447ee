"""What a run beside Kafka leaves behind: samples and failures in one JSON file, from which it can be resumed.

The file is replaced after every turn, so a run that is stopped loses at most the turn under way.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.plan import Plan, Step
from benchmarks.report import Facts
from benchmarks.systems import BenchError

FILE = "results.json"
STARTUP, IDLE, LOADED = "startup", "idle", "after the load"
THROUGHPUT = "throughput"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One value of one system in one turn."""

    system: str
    case: str
    """The label of a step, or what is measured beside steps."""
    turn: int
    metric: str
    unit: str
    value: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was given up, and why."""

    case: str
    reason: str


class Results(msgspec.Struct, kw_only=True):
    """All of a run so far."""

    plan: Plan
    facts: Facts
    starts: int = 0
    """How often the servers were started: once, and once for every time the run was resumed."""
    samples: list[Sample] = []
    failures: list[Failure] = []
    seconds: dict[str, float] = {}
    """How long each step took, over all starts."""

    def turns_done(self, step: Step) -> int:
        """Turns that have samples of every system. They are taken in order, so the first missing one ends the count."""
        seen = {(sample.system, sample.turn) for sample in self.samples if sample.case in step.cases}
        for turn in range(step.turns):
            if any((system, turn) not in seen for system in step.systems):
                return turn
        return step.turns

    def steps_left(self, steps: Iterable[Step]) -> list[Step]:
        return [step for step in steps if self.turns_done(step) < step.turns]

    @property
    def complete(self) -> bool:
        """Whether every step has all its turns, and the servers were measured after the load."""
        measured = {sample.system for sample in self.samples if sample.case == LOADED}
        return measured >= {*self.plan.systems} and not any(
            self.steps_left(group.steps) for group in self.plan.groups()
        )

    def begin(self, step: Step) -> int:
        """The first turn that is missing; what was measured of it is dropped."""
        turn = self.turns_done(step)
        self.samples = [s for s in self.samples if s.case not in step.cases or s.turn < turn]
        return turn

    def values(self, system: str, case: str, metric: str) -> list[float]:
        return [s.value for s in self.samples if (s.system, s.case, s.metric) == (system, case, metric)]

    def replace(self, case: str, samples: Iterable[Sample]) -> None:
        """Put samples in the place of all earlier ones of their case."""
        self.samples = [sample for sample in self.samples if sample.case != case] + [*samples]


class Store:
    """The file of the results."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE

    def __repr__(self) -> str:
        return f"<Store {self.path}>"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of the directory: each would delete the servers' data of the other."""
        with self.path.with_name("lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BenchError(
                    f"another run uses {self.path.parent}: wait for its end, or name a --workdir"
                ) from None
            yield

    def begin(self, plan: Plan, facts: Facts) -> Results:
        """Results without samples. A file of an earlier run is kept under another name."""
        if self.path.exists():
            at = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self.path.stat().st_mtime))
            os.replace(self.path, self.path.with_name(f"results-{at}.json"))
        return Results(plan=plan, facts=facts)

    def resume(self, plan: Plan, facts: Facts) -> Results:
        """The results so far, without failures: what failed is tried again. They must be of this plan and machine."""
        results = self.read()
        if results.plan != plan:
            raise BenchError(f"{self.path} was begun with other options: {_difference(results.plan, plan)}")
        if changed := facts.differences(results.facts):
            raise BenchError(f"{self.path} cannot be resumed: {changed}. Begin a new run, without --resume")
        results.failures = []
        return results

    def read(self) -> Results:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Results)
        except FileNotFoundError:
            raise BenchError(f"there is no run to resume: {self.path} does not exist") from None
        except msgspec.MsgspecError as error:
            raise BenchError(f"{self.path} cannot be read: {error}") from error

    def save(self, results: Results) -> None:
        """Replace the file as a whole, so that it is readable whenever the run is stopped."""
        written = self.path.with_suffix(".tmp")
        written.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
        os.replace(written, self.path)


def _difference(one: Plan, other: Plan) -> str:
    first, second = msgspec.to_builtins(one), msgspec.to_builtins(other)
    changed = [name for name in first if first[name] != second[name]]
    return ", ".join(f"{name} was {first[name]!r}, is {second[name]!r}" for name in changed)
