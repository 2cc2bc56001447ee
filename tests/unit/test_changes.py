"""A file per change in `changes/`, and how a release collects them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 3
MAX_CHANGELOG_BYTES = 6 << 10


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("changelog_script", ROOT / "scripts" / "changelog.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()


def test_each_change_is_a_paragraph_of_three_lines() -> None:
    wrong = []
    for file in (ROOT / "changes").iterdir():
        lines = file.read_text().splitlines()
        named = re.fullmatch(r"[a-z0-9][a-z0-9-]*\.md", file.name) is not None
        if (
            not named
            or not 1 <= len(lines) <= MAX_LINES
            or not all(line.strip() and len(line) <= 120 for line in lines)
        ):
            wrong.append(file.name)
    assert not wrong


def test_the_first_release_is_short() -> None:
    """A release is what a user gets, not a list of commits."""
    section = (ROOT / "CHANGELOG.md").read_text().partition("\n## 0.1.0")[2]
    assert 0 < len(section.encode()) <= MAX_CHANGELOG_BYTES


def test_a_release_collects_the_changes(tmp_path: Path) -> None:
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "b.md").write_text("Two lines\nof b.\n")
    (tmp_path / "changes" / "a.md").write_text("One of a.\n")
    page = tmp_path / "CHANGELOG.md"
    page.write_text("# Changelog\n\n## 0.1.0\n\n- Old.\n")
    assert SCRIPT.collect(tmp_path, "0.2.0") == 2
    assert page.read_text() == "# Changelog\n\n## 0.2.0\n\n- One of a.\n- Two lines\n  of b.\n\n## 0.1.0\n\n- Old.\n"
    assert not list((tmp_path / "changes").iterdir())
    with pytest.raises(SystemExit, match=r"a section for 0\.2\.0"):
        SCRIPT.collect(tmp_path, "0.2.0")
