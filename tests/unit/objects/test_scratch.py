"""Temporary files of the local store: unique, synced, spread over directories, removed when a crash left them."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.objects import scratch
from headwater.objects.local import TEMPORARY, LocalStore
from headwater.objects.scratch import STALE_MS, Scratch
from tests.support.promise import promise

PROMISES = ("M7",)


def opened(store: Scratch) -> Path:
    path, handle = store.open(0o600)
    os.close(handle)
    return Path(path)


@promise("M7")
def test_a_new_directory_after_so_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old directory goes when its last file has been renamed away, the newest one when the store is closed."""
    monkeypatch.setattr(scratch, "FILES_PER_DIRECTORY", 3)
    files = Scratch(tmp_path, 0o700)
    paths = [opened(files) for _ in range(13)]
    assert len(set(paths)) == 13
    directories = list(dict.fromkeys(path.parent for path in paths))
    assert [len(list(directory.iterdir())) for directory in directories] == [3, 3, 3, 3, 1]
    for path in paths[1:]:
        path.unlink()
    for _ in range(3):
        opened(files).unlink()
    assert [directory.exists() for directory in directories] == [True, False, False, True, True]
    paths[0].unlink()
    files.close()
    assert list(tmp_path.iterdir()) == []


@promise("M7")
def test_threads_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No two threads get the same file, whoever moves on to a new directory."""
    monkeypatch.setattr(scratch, "FILES_PER_DIRECTORY", 5)
    files = Scratch(tmp_path, 0o700)
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: opened(files), range(200)))
    assert len(set(paths)) == 200
    assert all(path.exists() for path in paths)


@promise("M7")
def test_a_directory_that_somebody_removed(tmp_path: Path) -> None:
    """Tidying up by hand costs nothing but a new directory."""
    files = Scratch(tmp_path, 0o700)
    first = opened(files)
    first.unlink()
    first.parent.rmdir()
    assert opened(files).exists()


@promise("M7")
def test_what_a_crash_left_goes(tmp_path: Path) -> None:
    """Leftovers older than any write goes on for are removed at the start; younger ones may be somebody's."""
    for name in ("old", "young"):
        (tmp_path / TEMPORARY / name).mkdir(parents=True)
        (tmp_path / TEMPORARY / name / "0").write_bytes(b"half")
    (tmp_path / TEMPORARY / "older-0").write_bytes(b"half")
    long_ago = (tmp_path / TEMPORARY / "young").stat().st_mtime - STALE_MS / 1000 - 10
    for name in ("old", "older-0"):
        os.utime(tmp_path / TEMPORARY / name, (long_ago, long_ago))
    LocalStore(tmp_path)
    assert os.listdir(tmp_path / TEMPORARY) == ["young"]
    assert (tmp_path / TEMPORARY / "young" / "0").read_bytes() == b"half"
