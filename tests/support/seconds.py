"""Where the seconds of a test run go: by test file, and by folder.

`--seconds` prints each folder's share at the end and writes the seconds of each test file, as JSON, into
`build/seconds-TIER.json`. Wall seconds are those of the workers. CPU seconds are those of the worker and of the
processes that it waited for: a server counts where it ends. Nothing compares the numbers with a limit.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COLLECTION = "(collection)"
"""What stands for a test file while tests are collected: imports of test modules, in each worker."""
_SENT = "headwater_seconds"


@dataclass(slots=True)
class Spent:
    """What some tests took."""

    tests: int = 0
    wall: float = 0.0
    cpu: float = 0.0

    def add(self, other: Spent) -> None:
        self.tests += other.tests
        self.wall += other.wall
        self.cpu += other.cpu


Files = Mapping[str, Spent]


class Seconds:
    """Measures in each worker, or in the only process, and adds up in the process that reports."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._files: defaultdict[str, Spent] = defaultdict(Spent)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        with self._measured(COLLECTION, 0):
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        with self._measured(item.nodeid.partition("::")[0], 1):
            return (yield)

    @contextmanager
    def _measured(self, file: str, tests: int) -> Iterator[None]:
        wall, cpu = time.monotonic(), cpu_seconds()
        try:
            yield
        finally:
            self._files[file].add(Spent(tests, time.monotonic() - wall, cpu_seconds() - cpu))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_SENT] = {file: [spent.tests, spent.wall, spent.cpu] for file, spent in self._files.items()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker of xdist has ended. One that crashed sends nothing."""
        for file, sent in getattr(node, "workeroutput", {}).get(_SENT, {}).items():
            self._files[file].add(Spent(*sent))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("seconds by folder")
        for line in table(by_folder(self._files)):
            terminalreporter.write_line(line)
        write(self._target, self._files)
        terminalreporter.write_line(f"by file: {self._target}")


def cpu_seconds() -> float:
    """CPU seconds of this process and of the children that it waited for, so far."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def folder_of(file: str) -> str:
    """The folder of a test file below `tests`; those of unit tests count as one."""
    return "/".join(Path(file).parts[:2]) if file.startswith("tests/") else file


def by_folder(files: Files) -> dict[str, Spent]:
    folders: defaultdict[str, Spent] = defaultdict(Spent)
    for file, spent in files.items():
        folders[folder_of(file)].add(spent)
    return dict(sorted(folders.items(), key=lambda item: -item[1].cpu))


def table(folders: Mapping[str, Spent]) -> Iterator[str]:
    """The lines of the report, the dearest folder first."""
    whole = total(folders.values())
    yield f"{'folder':<20} {'tests':>6} {'wall s':>8} {'CPU s':>8} {'of CPU':>7}"
    for name, spent in [*folders.items(), ("all", whole)]:
        share = spent.cpu / whole.cpu if whole.cpu else 0.0
        yield f"{name:<20} {spent.tests:>6} {spent.wall:>8.1f} {spent.cpu:>8.1f} {share:>7.1%}"


def total(spents: Iterable[Spent]) -> Spent:
    whole = Spent()
    for spent in spents:
        whole.add(spent)
    return whole


def write(target: Path, files: Files) -> None:
    """The seconds by file, the dearest first."""
    ordered = sorted(files.items(), key=lambda item: -item[1].cpu)
    told = {
        file: {"tests": spent.tests, "wall": round(spent.wall, 2), "cpu": round(spent.cpu, 2)}
        for file, spent in ordered
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(told, indent=1) + "\n")
