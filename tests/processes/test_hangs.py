"""Limits of tests: those that hang fail, wherever they hang."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.processes.inner import run_pytest


def run_tests(directory: Path, program: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Another run of pytest, in which a test may take a second."""
    return run_pytest(directory, {"test_it.py": program}, "-pno:randomly", *more, "--timeout=1")


def test_a_test_that_hangs_fails(tmp_path: Path) -> None:
    program = "import time\n\n\ndef test_it():\n    time.sleep(600)\n\n\ndef test_other():\n    pass\n"
    ended = run_tests(tmp_path, program)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "Timeout (>1.0s) from pytest-timeout." in ended.stdout
    assert "tests/support/limits.py" in ended.stdout, "the timer was another one"
    assert "1 failed, 1 passed" in ended.stdout


def test_a_test_that_hangs_where_no_signal_is_seen(tmp_path: Path) -> None:
    """A call into a C library that does not return, as destroying a client of librdkafka may not."""
    (tmp_path / "hasty.py").write_text("from tests.support import limits\n\nlimits.HARD_SECONDS = 1\n")
    ended = run_tests(tmp_path, f"import ctypes\n\n\ndef test_it():\n{HANG}\n", "-phasty")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "passed" not in ended.stdout and "failed" not in ended.stdout
    assert "in test_it" in ended.stdout + ended.stderr, "nobody says where it hangs"


HANG = """\
    libc = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)  # for ever, and no signal interrupts it"""
