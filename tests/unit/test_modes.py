"""Files and directories get the mode that is asked for, and links are left alone."""

import fcntl
import os
from pathlib import Path

import pytest

from headwater import modes
from tests.support.files import mode_of, umask_of
from tests.support.promise import promise

PROMISES = ("S3",)


@pytest.mark.parametrize(("files", "directories"), [(0o600, 0o700), (0o640, 0o750), (0o644, 0o755), (0o660, 0o770)])
def test_directories_follow_files(files: int, directories: int) -> None:
    """Who may read a file may enter and list its directory."""
    assert modes.directory_mode(files) == directories


@pytest.mark.parametrize("umask", [0, 0o022, 0o177])
def test_the_umask_has_no_effect(tmp_path: Path, umask: int) -> None:
    """Neither on files nor on directories; what exists is not changed."""
    with umask_of(umask):
        os.close(modes.create(str(tmp_path / "file"), os.O_WRONLY, 0o664))
        assert modes.make_directory(tmp_path / "directory", 0o775)
        assert not modes.make_directory(tmp_path / "directory", 0o700)
    assert mode_of(tmp_path / "file") == 0o664
    assert mode_of(tmp_path / "directory") == 0o775
    with pytest.raises(FileExistsError):
        modes.make_directory(tmp_path / "file", 0o700)


def test_tightening_adds_nothing(tmp_path: Path) -> None:
    """Rights that the owner took from itself stay away, and so does what does not exist."""
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o444)
    modes.tighten(tmp_path / "file", 0o600)
    modes.tighten(tmp_path / "none", 0o600)
    assert mode_of(tmp_path / "file") == 0o400
    assert not (tmp_path / "none").exists()


def test_the_group_of_new_files_stays(tmp_path: Path) -> None:
    """A directory that gives its group to new files still does so afterwards."""
    tmp_path.chmod(0o2777)
    modes.set_mode(tmp_path, 0o750)
    assert mode_of(tmp_path) == 0o2750


def test_links_are_left_alone(tmp_path: Path) -> None:
    """What a link points to may belong to another program."""
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o666)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    modes.tighten(tmp_path / "link", 0o600)
    modes.set_mode(tmp_path / "link", 0o600)
    assert mode_of(tmp_path / "file") == 0o666


@promise("M1")
def test_locks_are_kept(tmp_path: Path) -> None:
    """The system drops a process's locks on a file when the process closes an ordinary handle of it."""
    path = tmp_path / "file"
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        path.chmod(0o666)
        modes.tighten(path, 0o600)
        assert mode_of(path) == 0o600
        assert f":{path.stat().st_ino} " in Path("/proc/locks").read_text()
