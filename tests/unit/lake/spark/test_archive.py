"""The archive of Spark's classes is used where it exists, and only there."""

from pathlib import Path

import pytest

from headwater.errors import ConfigError
from headwater.lake.spark import jobs
from headwater.lake.spark.archive import WRITING, archive_path, beside, with_archive

PROMISES = ("T12",)


def test_an_archive_that_exists_is_used(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert with_archive("-Dx=y", home) == "-Dx=y"
    archive_path(home).write_bytes(b"")
    assert with_archive("-Dx=y", home).startswith(f"-Dx=y -XX:SharedArchiveFile={archive_path(home)} ")


def test_whoever_writes_an_archive_does_not_use_it(tmp_path: Path) -> None:
    """Java does not start with both options."""
    home = str(tmp_path)
    path = archive_path(home)
    path.write_bytes(b"")
    options = f"{WRITING}{beside(path)}"
    assert with_archive(options, home) == options
    assert beside(path).parent == path.parent and beside(path) != path


def test_a_path_that_java_would_take_for_two_is_not_used(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    home.mkdir()
    archive_path(str(home)).write_bytes(b"")
    assert with_archive("", str(home)) == ""


@pytest.mark.parametrize(("there", "written"), [(True, True), (False, False)])
def test_an_archive_takes_its_place_when_it_is_whole(
    there: bool, written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM writes it when it ends. One that fails leaves nothing."""
    fresh = beside(archive_path(str(tmp_path)))

    class Ending:
        def __init__(self, settings: object, *, end_seconds: float) -> None:
            assert end_seconds > 60 and str(fresh) in str(settings)

        def get(self) -> object:
            raise ConfigError("no Java here")

        def close(self) -> None:
            if there:
                fresh.write_bytes(b"classes")

    monkeypatch.setattr(jobs, "java_home", lambda: str(tmp_path))
    monkeypatch.setattr(jobs, "Sessions", Ending)
    monkeypatch.setattr(jobs.Jobs, "warm_up", lambda self, slots: None)
    assert jobs.write_archive() is written
    assert [path.name for path in tmp_path.iterdir()] == ([archive_path(str(tmp_path)).name] if there else [])
