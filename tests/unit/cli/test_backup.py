"""What `headwater backup` prints, and its exit codes."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from headwater.cli import backup, common, errors
from tests.unit.app.backup.disk import DiskWorld, files_of, write

PROMISES = ("O6",)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a cluster that has stopped."""

    async def story() -> None:
        world = DiskWorld(tmp_path / "data")
        node, made, _ = await world.begin()
        await write(node, made, 2)
        await world.close()

    asyncio.run(story())
    monkeypatch.setattr("headwater.priority.step_back", lambda niceness: None)
    yield tmp_path / "data"


def called(*arguments: str) -> int:
    app = typer.Typer()
    app.callback()(lambda: None)
    backup.register(app)
    return common.call(app, ["backup", *arguments])


def test_for_people_and_for_programs(data: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert called("--data", str(data), str(tmp_path / "copy")) == 0
    common.flush()
    said = capfdbinary.readouterr().out.decode()
    assert str(tmp_path / "copy") in said and "4 objects: 4 linked, 0 copied (0 bytes), 0 kept; 0 removed" in said
    assert called("--data", str(data), str(tmp_path / "copied"), "--copy", "--output", "json") == 0
    common.flush()
    found = json.loads(capfdbinary.readouterr().out)
    assert (found["linked"], found["copied"], found["lost"], found["rounds"]) == (0, 4, [], 1)
    assert found["copied_bytes"] == found["bytes"] > 0


def test_a_cluster_that_lacks_objects(data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gone = min(path for path in files_of(data) if path.startswith("wal/"))
    (data / "objects" / gone).unlink()
    assert called("--data", str(data), str(tmp_path / "copy")) == errors.HEALTH
    said = capfd.readouterr().err
    assert gone in said and "headwater doctor" in said


def test_what_is_wrong(data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert called("--data", str(data), str(data / "inside")) == errors.INPUT
    assert called("--data", str(tmp_path / "none"), str(tmp_path / "copy")) == errors.INPUT
    said = capfd.readouterr().err
    assert "overlap" in said and "no cluster here" in said
    assert not (tmp_path / "copy").exists() and not (data / "inside").exists()
