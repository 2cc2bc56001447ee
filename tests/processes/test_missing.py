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


def test_nothing_is_missing_for_the_tier_test(tmp_path: Path) -> None:
    """`make test` needs Python, git and make only: a test that needs more has the wrong tier."""
    ended = run_pytest(tmp_path, {"test_it.py": PROGRAM}, "-ra", "--tier", "test", more={"CI": ""})
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 1 passed, 2 errors" in ended.stdout
    assert "needs a tool, so it belongs to the tier full" in ended.stdout
