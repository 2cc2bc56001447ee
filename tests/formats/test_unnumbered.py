"""Data of the format before formats were numbered is refused, unchanged, with a message that says what to do."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from harness.ports import free_ports
from harness.process import headwater
from tests.support.promise import promise

PROMISES = ("M5",)

OLD = Path(__file__).parent / "unnumbered.tar.xz"
"""What `kill -9` left of the last build before the number: records in SQLite's log, an object, no checkpoint."""


def contents(directory: Path) -> dict[str, str]:
    """Every file but those that the supervisor hands to its children."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.parent.name != "run")
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@promise("M5")
@pytest.mark.parametrize("command", ["up", "doctor", "cluster describe"])
def test_old_data_is_refused(tmp_path: Path, command: str) -> None:
    subprocess.run(["tar", "-xJf", str(OLD), "-C", str(tmp_path)], check=True, timeout=60)
    before = contents(tmp_path)
    assert "ledger.db" in before and "ledger.db-wal" in before
    ports = free_ports(2)
    serve = ["--kafka", f"127.0.0.1:{ports}", "--http", f"127.0.0.1:{ports + 1}"] if command == "up" else []
    done = headwater(*command.split(), "--data", str(tmp_path), *serve)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "before formats were numbered" in done.stderr
    assert "Nothing was changed. Start with an empty data directory" in done.stderr
    assert contents(tmp_path) == before
