"""Runs of pytest inside tests, with the hooks of `tests/conftest.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.tools import ROOT


def run_pytest(
    directory: Path, programs: Mapping[str, str], *options: str, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Write test modules into a directory and run them, with these variables in the environment."""
    for name, program in programs.items():
        (directory / name).write_text(program)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", *options, str(directory)]
    own = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}:{directory}", **(more or {})}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=own)
