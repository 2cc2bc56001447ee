"""Other builds of Headwater, as copies of sources."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from harness.process import environment
from harness.tools import ROOT, needs
from headwater.state.records import FORMAT
from tests.support.files import unpack

HERE = ROOT / "src"
_FORMAT = re.compile(r"^FORMAT = (\d+)$", re.MULTILINE)


def older_commit(*, same_format: bool) -> str | None:
    """The newest commit in the history with other sources than those here, and with their format or with another one.

    None if there is none.
    """
    changes = _git("log", "--format=%H", "--", "src/headwater").stdout.split()
    needs("the history of the sources", len(changes) > 1)
    for commit in changes:
        found = _FORMAT.search(_git("show", f"{commit}:src/headwater/state/records.py").stdout)
        number = int(found[1]) if found else None
        if (number == FORMAT) == same_format and _git("diff", "--quiet", commit, "--", "src/headwater").returncode:
            return commit
    return None


def code_of(commit: str, directory: Path) -> Path:
    """The sources of a commit, below a directory."""
    archive = directory / "older.tar"
    _git("archive", "--output", str(archive), commit, "src")
    (directory / "older").mkdir()
    unpack(archive, directory / "older")
    source = directory / "older" / "src"
    imported = subprocess.run(
        [sys.executable, "-c", "import headwater; print(headwater.__file__)"],
        env=environment({"PYTHONPATH": str(source)}), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert imported.stdout.startswith(str(source)), "the older build is what would run"
    take_compiled(source)
    return source


def take_compiled(source: Path) -> None:
    """Give a copy of the sources the compiled code that is here, for every file that is the same.

    Otherwise each process of that build would compile all modules and kernels, which takes longer than the test.
    """
    for own in (HERE / "headwater").rglob("*.py"):
        copy = source / own.relative_to(HERE)
        if not copy.exists() or copy.read_bytes() != own.read_bytes():
            continue
        shutil.copystat(own, copy)  # compiled code belongs to a file with this time
        compiled = copy.parent / "__pycache__"
        compiled.mkdir(exist_ok=True)
        for file in (own.parent / "__pycache__").glob(f"{own.stem}.*"):
            shutil.copy2(file, compiled)


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
