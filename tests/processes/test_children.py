"""A broker's child processes: one that cannot start, fails or hangs is a failure that is retried."""

import asyncio
import os
from pathlib import Path

import psutil
import pytest

from headwater.app.children import run_child
from headwater.errors import StoreUnavailable

PROMISES = ("M1",)


def program(directory: Path, script: str) -> str:
    """Stands in for Python, and leaves its process id behind."""
    file = directory / "program"
    file.write_text(f"#!/bin/sh\necho $$ > {directory}/new && mv {directory}/new {directory}/pid\n{script}\n")
    file.chmod(0o755)
    return str(file)


def gone(directory: Path) -> bool:
    return not psutil.pid_exists(int((directory / "pid").read_text()))


def test_one_that_ends_well(tmp_path: Path) -> None:
    python = program(tmp_path, 'echo "$@" > "$OUT"')
    out = tmp_path / "out"
    asyncio.run(run_child(["checkpoint", "--domain", "1"], {**os.environ, "OUT": str(out)}, 60, python))
    assert out.read_text().split() == ["-m", "headwater", "checkpoint", "--domain", "1"]


def test_it_has_a_session_of_its_own(tmp_path: Path) -> None:
    """The child lowers the priority of its session, which must not be the broker's."""
    python = program(tmp_path, f"cut -d' ' -f6 /proc/$$/stat > {tmp_path}/session")
    asyncio.run(run_child(["checkpoint"], os.environ, 60, python))
    assert (tmp_path / "session").read_text() == (tmp_path / "pid").read_text()


@pytest.mark.parametrize(
    ("script", "seconds", "said"),
    [("exit 3", 60, "ended with exit code 3"), ("exec sleep 1000", 0.1, "was killed: it did not end within 0.1 s")],
)
def test_one_that_fails(tmp_path: Path, script: str, seconds: float, said: str) -> None:
    with pytest.raises(StoreUnavailable, match=f"headwater checkpoint {said}"):
        asyncio.run(run_child(["checkpoint"], os.environ, seconds, program(tmp_path, script)))
    assert not (tmp_path / "pid").exists() or gone(tmp_path), "one that is killed at once may not have come so far"


def test_one_that_cannot_start(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="headwater checkpoint cannot be started"):
        asyncio.run(run_child(["checkpoint"], os.environ, 60, str(tmp_path / "nothing")))


def test_one_whose_broker_stops(tmp_path: Path) -> None:
    """It does not outlive what started it."""

    async def story() -> None:
        running = asyncio.create_task(run_child(["checkpoint"], os.environ, 60, program(tmp_path, "exec sleep 1000")))
        while not (tmp_path / "pid").exists():
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(story())
    assert gone(tmp_path)
