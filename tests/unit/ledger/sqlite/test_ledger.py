"""The SQLite ledger's file: its format number comes first, and files of other formats are left alone."""

import asyncio
import errno
import os
import sqlite3
from pathlib import Path
from typing import NoReturn

import pytest

from headwater.errors import ConfigError
from headwater.ledger.sqlite.ledger import SqliteLedger
from headwater.state.records import FORMAT
from headwater.types import Domain, Position
from tests.support.files import mode_of, umask_of
from tests.support.promise import promise

PROMISES = ("M1", "M5")

ONE = Domain(1)


def number_in(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[60:64], "big")


def use(path: Path) -> None:
    async def told() -> None:
        ledger = SqliteLedger(path)
        try:
            await ledger.append(ONE, b"record")
        finally:
            await ledger.close()

    asyncio.run(told())


@promise("M5")
def test_a_new_file_has_the_number(tmp_path: Path) -> None:
    """In the file itself, not only in SQLite's log beside it, and in a file that a dead process left empty."""
    path = tmp_path / "ledger.db"
    path.touch()
    ledger = SqliteLedger(path)
    assert number_in(path) == FORMAT
    asyncio.run(ledger.close())
    use(path)
    assert number_in(path) == FORMAT


@promise("M5")
@pytest.mark.parametrize("number", [0, FORMAT - 1, FORMAT + 1])
def test_other_formats_are_refused_unchanged(tmp_path: Path, number: int) -> None:
    """Nothing is created beside the file either."""
    path = tmp_path / "ledger.db"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={number}")
    connection.execute("CREATE TABLE records (a)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=f"has format {number}, .* reads format {FORMAT} only"):
        SqliteLedger(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.db"]


@promise("S3")
@pytest.mark.parametrize("umask", [0, 0o077])
def test_no_other_user_may_open_its_files(tmp_path: Path, umask: int) -> None:
    """Neither the records nor the lock, in a new directory, while the ledger is open and afterwards."""
    directory = tmp_path / "new"

    async def story() -> None:
        ledger = SqliteLedger(directory / "ledger.db")
        await ledger.append(ONE, b"record")
        await ledger.beat("process")
        found = {path.name: mode_of(path) for path in directory.iterdir()}
        assert found.pop("ledger.db-notices") == 0o700
        assert {"ledger.db-wal", "ledger.db-shm", "ledger.db.lock", "ledger.db-beats-wal"} < set(found)
        assert set(found.values()) == {0o600}
        await ledger.close()

    with umask_of(umask):
        asyncio.run(story())
    assert mode_of(directory) == 0o700


@promise("S3")
def test_files_of_an_earlier_build_are_tightened(tmp_path: Path) -> None:
    """But not what a link points to, nor a directory that was there before."""
    tmp_path.chmod(0o755)
    use(tmp_path / "ledger.db")
    for path in tmp_path.iterdir():
        path.chmod(0o777 if path.is_dir() else 0o666)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch(0o644)
    elsewhere.chmod(0o644)
    (tmp_path / "ledger.db-journal").symlink_to(elsewhere)
    use(tmp_path / "ledger.db")
    assert mode_of(elsewhere) == 0o644
    assert mode_of(tmp_path) == 0o755
    names = ("ledger.db", "ledger.db-beats", "ledger.db.lock")
    assert {mode_of(tmp_path / name) for name in names} == {0o600}
    assert mode_of(tmp_path / "ledger.db-notices") == 0o700


@promise("M1")
def test_an_append_needs_no_further_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of processes that hear of a record may stay as it was."""

    def spent(_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "too many open files")

    async def story() -> None:
        ledger = SqliteLedger(tmp_path / "ledger.db")
        try:
            monkeypatch.setattr(os, "listdir", spent)
            assert await ledger.append(ONE, b"record") == 1
            monkeypatch.undo()
            assert [entry.data for entry in await ledger.read(ONE, Position(0), 10)] == [b"record"]
        finally:
            await ledger.close()

    asyncio.run(story())
