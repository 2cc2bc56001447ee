"""Where a journal may be, and who may read it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from headwater.errors import ConfigError
from headwater.ledger.journal.disk import remote_type
from headwater.ledger.journal.ledger import JournalLedger
from tests.support.promise import promise

PROMISES = ("M1", "S3")


def described(path: Path, kind: str, directory: Path) -> Path:
    """What the kernel would say of mounts, if the one of a directory had this type."""
    device = os.stat(directory).st_dev
    path.write_text(
        "22 27 0:0 / /proc rw,relatime - proc proc rw\n"
        f"23 27 {os.major(device)}:{os.minor(device)} / /data rw shared:1 - {kind} host:/export rw\n"
    )
    return path


@pytest.mark.parametrize(("kind", "found"), [("nfs4", "nfs4"), ("fuse.sshfs", "fuse.sshfs"), ("ext4", ""), ("xfs", "")])
def test_types(tmp_path: Path, kind: str, found: str) -> None:
    assert remote_type(tmp_path, described(tmp_path / "mounts", kind, tmp_path)) == found


def test_where_nothing_is_told(tmp_path: Path) -> None:
    assert remote_type(tmp_path, tmp_path / "missing") == ""
    (tmp_path / "mounts").write_text("22 27 0:0 / /proc rw - proc proc rw\nx\n\n")
    assert remote_type(tmp_path, tmp_path / "mounts") == ""
    assert remote_type(tmp_path) == "", "the tests' directory is on this machine"


@promise("S3")
def test_a_loose_directory_is_tightened(tmp_path: Path) -> None:
    async def opened() -> None:
        await JournalLedger(tmp_path / "journal", file_bytes=1 << 20).close()

    asyncio.run(opened())
    (tmp_path / "journal" / "mark").touch()
    inside = sorted((tmp_path / "journal").iterdir())
    assert len(inside) > 3
    for path in (tmp_path / "journal", *inside):
        path.chmod(0o777 if path.is_dir() else 0o666)
    asyncio.run(opened())
    for path in (tmp_path / "journal", *inside):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


@promise("M1")
def test_a_journal_is_refused_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = described(tmp_path / "mounts", "nfs", tmp_path)
    monkeypatch.setattr("headwater.ledger.journal.ledger.remote_type", lambda directory: remote_type(directory, told))
    with pytest.raises(ConfigError, match=r"is on a file system of another machine \(nfs\).*a disk of this one"):
        JournalLedger(tmp_path / "data" / "journal")
    assert not (tmp_path / "data").exists(), "nothing is created"
