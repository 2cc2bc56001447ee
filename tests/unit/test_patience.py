"""Limits of waits: they end, and what others take of the machine does not count."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.conftest import LONGEST
from tests.support.patience import Patience, eventually
from tests.support.serving import ROOT


class Machine:
    """A machine with two processors whose clock stands still between steps."""

    def __init__(self) -> None:
        self.now, self.stolen = 100.0, 7.0

    def step(self, seconds: float, stolen: float) -> None:
        """Let time pass, of which the hypervisor gives a share to others."""
        self.now += seconds
        self.stolen += seconds * stolen * 2


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(time, "monotonic", lambda: machine.now)
    monkeypatch.setattr(psutil, "cpu_times", lambda: SimpleNamespace(steal=machine.stolen))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    return machine


def test_a_limit_ends(machine: Machine) -> None:
    patience = Patience(10)
    machine.step(9, stolen=0)
    assert not patience.ended and patience.left == pytest.approx(1)
    machine.step(1, stolen=0)
    assert patience.ended


def test_what_others_take_does_not_count(machine: Machine) -> None:
    patience = Patience(10)
    machine.step(30, stolen=0.7)
    assert not patience.ended and patience.left == pytest.approx(1)
    machine.step(10, stolen=0.9)
    assert patience.left == pytest.approx(0)


def test_a_system_that_knows_of_no_others(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_times", SimpleNamespace)
    patience = Patience(10)
    machine.step(10, stolen=0.5)
    assert patience.ended


def test_waiting_gives_what_is_found_or_gives_up(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: machine.step(seconds, stolen=0))
    looks = iter([0, 0, 7])
    assert eventually(lambda: next(looks), "a number comes") == 7
    with pytest.raises(TimeoutError, match="gave up after 3 s: it never comes"):
        eventually(lambda: None, "it never comes", 3)


def test_a_test_that_hangs_fails(tmp_path: Path) -> None:
    """Limits of whole tests go through our own timer."""
    file = tmp_path / "test_hanging.py"
    file.write_text("import time\n\n\ndef test_it():\n    time.sleep(600)\n\n\ndef test_other():\n    pass\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:randomly", "--timeout", "1", str(file)],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "Timeout (>1.0s) from pytest-timeout." in ended.stdout
    assert "tests/conftest.py" in ended.stdout, "the timer was another one"
    assert "1 failed, 1 passed" in ended.stdout


def test_the_longest_files_are_there() -> None:
    assert [file for file in LONGEST if not (ROOT / file).is_file()] == []
