"""Tests that need what is not installed are skipped, and fail under CI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.inner import run_pytest

PROGRAM = """\
import pytest

from harness.tools import needs


@pytest.fixture(scope="module")
def server():
    needs("a server", False)


def test_by_a_fixture(server):
    pass


def test_by_a_fixture_again(server):
    pass


def test_by_itself():
    needs("a tool", False)


def test_with_everything():
    needs("nothing", True)
"""


@pytest.mark.parametrize(
    ("ci", "code", "verdict"), [("", 0, "1 passed, 3 skipped"), ("true", 1, "1 failed, 1 passed, 2 errors")]
)
def test_what_is_missing(tmp_path: Path, ci: str, code: int, verdict: str) -> None:
    ended = run_pytest(tmp_path, {"test_it.py": PROGRAM}, "-ra", more={"CI": ci})
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert verdict in ended.stdout
    assert "needs a server" in ended.stdout and "needs a tool" in ended.stdout
