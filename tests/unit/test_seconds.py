"""Where the seconds of a test run go: by test file and by folder, whether one process or several workers run it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.seconds import COLLECTION, Seconds, Spent, by_folder, cpu_seconds, folder_of, table

FILES = {
    "tests/unit/log/test_a.py": Spent(3, 2.0, 1.0),
    "tests/unit/test_b.py": Spent(1, 1.0, 0.5),
    "tests/lake/test_c.py": Spent(2, 4.0, 4.5),
}


def test_folders_of_unit_tests_are_one() -> None:
    assert folder_of("tests/unit/log/write/test_a.py") == "tests/unit"
    assert folder_of("tests/lake/test_c.py") == "tests/lake"
    assert folder_of(COLLECTION) == COLLECTION


def test_folders_are_sums_and_the_dearest_is_first() -> None:
    folders = by_folder(FILES)
    assert list(folders) == ["tests/lake", "tests/unit"]
    assert folders["tests/unit"] == Spent(4, 3.0, 1.5)
    *_, unit, whole = table(folders)
    assert unit.split() == ["tests/unit", "4", "3.0", "1.5", "25.0%"]
    assert whole.split() == ["all", "6", "7.0", "6.0", "100.0%"]


def test_nothing_measured_is_no_error() -> None:
    *_, whole = table({})
    assert whole.split() == ["all", "0", "0.0", "0.0", "0.0%"]


def busy(seconds: float) -> None:
    end = cpu_seconds() + seconds
    while cpu_seconds() < end:
        pass


class Reporter:
    """Keeps the lines that would be printed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def section(self, title: str) -> None:
        self.lines.append(title)

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def ran(seconds: Seconds, nodeid: str, cpu: float) -> None:
    """What pytest does around a test."""
    around = seconds.pytest_runtest_protocol(cast(pytest.Item, SimpleNamespace(nodeid=nodeid)))
    next(around)
    busy(cpu)
    with pytest.raises(StopIteration):
        around.send(True)


def test_workers_send_what_they_measured(tmp_path: Path) -> None:
    """The process that reports adds up what two workers of xdist send, and a crashed worker sends nothing."""
    report = tmp_path / "build" / "seconds.json"
    reporting = Seconds(report)
    for cpu in (0.02, 0.04):
        worker = Seconds(tmp_path / "nothing.json")
        ran(worker, "tests/unit/test_b.py::test_one[tests/x::y]", cpu)
        output: dict[str, Any] = {}
        config = SimpleNamespace(workeroutput=output)
        worker.pytest_sessionfinish(cast(pytest.Session, SimpleNamespace(config=config)))
        reporting.pytest_testnodedown(SimpleNamespace(workeroutput=json.loads(json.dumps(output))), None)
    reporting.pytest_testnodedown(SimpleNamespace(), "crashed")
    reporter = Reporter()
    reporting.pytest_terminal_summary(cast(pytest.TerminalReporter, reporter))
    found = json.loads(report.read_text())
    assert list(found) == ["tests/unit/test_b.py"]
    assert found["tests/unit/test_b.py"]["tests"] == 2
    assert found["tests/unit/test_b.py"]["cpu"] >= 0.05
    assert found["tests/unit/test_b.py"]["wall"] >= 0.05
    assert [line.split()[0] for line in reporter.lines] == ["seconds", "folder", "tests/unit", "all", "by"]
    assert not (tmp_path / "nothing.json").exists()


def test_one_process_reports_itself(tmp_path: Path) -> None:
    """Without xdist there is nobody to send to."""
    seconds = Seconds(tmp_path / "seconds.json")
    ran(seconds, "tests/lake/test_c.py::test_one", 0.01)
    seconds.pytest_sessionfinish(cast(pytest.Session, SimpleNamespace(config=SimpleNamespace())))
    seconds.pytest_terminal_summary(cast(pytest.TerminalReporter, Reporter()))
    assert json.loads((tmp_path / "seconds.json").read_text())["tests/lake/test_c.py"]["tests"] == 1
