"""Directories for spilled data: one for each worker, and what a dead gateway has left goes."""

import fcntl
import os
from pathlib import Path

import pytest

from headwater.clock import SystemChance
from headwater.errors import ConfigError
from headwater.query.engines.spill import LOCK, Spill


def test_directories(tmp_path: Path) -> None:
    root = tmp_path / "data" / "spill"
    first = Spill(str(root), SystemChance())
    first.open()
    mine = Path(first.new())
    (mine / "x").write_bytes(b"x")
    assert mine.is_dir() and mine.stat().st_mode & 0o777 == 0o700
    left = root / "gateway-left"
    (left / "worker").mkdir(parents=True)
    (left / LOCK).touch()
    begun = root / "gateway-begun"
    begun.mkdir()
    running = root / "gateway-running"
    running.mkdir()
    handle = os.open(running / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    second = Spill(str(root), SystemChance())
    second.open()
    assert mine.is_dir() and running.is_dir() and begun.is_dir() and not left.exists()
    first.remove(str(mine))
    assert not mine.exists()
    second.close()
    first.close()
    first.close()
    assert sorted(path.name for path in root.iterdir()) == ["gateway-begun", "gateway-running"]
    os.close(handle)


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "spill").write_text("a file")
    with pytest.raises(ConfigError, match="cannot use the directory for queries"):
        Spill(str(tmp_path / "spill"), SystemChance()).open()
