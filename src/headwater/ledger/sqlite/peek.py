"""Looks at a SQLite ledger that no process uses, without a change to any file.

SQLite merges its log into its file when it is opened and closed, also a log that has lost its end. So this looks at a
copy. Processes that use the ledger have looked before they opened it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from headwater.ledger.marks import End, Mark, crc_of
from headwater.ledger.sqlite.ledger import check_format, mark_of

_TRIES = 3
_PAUSE_SECONDS = 0.2
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class SqliteFiles:
    """See `headwater.ledger.local.LocalFiles`."""

    path: Path

    @property
    def mark(self) -> Path:
        return mark_of(self.path)

    def check_format(self) -> None:
        check_format(self.path)

    def exists(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0

    def in_use(self) -> bool:
        return in_use(self.path)

    def what_is_missing(self, marks: Iterable[Mark]) -> str:
        return what_is_missing(self.path, marks)

    def copy(self, directory: Path) -> str:
        copy = directory / "ledger.db"
        copy_files(self.path, copy)
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(self.mark, mark_of(copy))
        return f"sqlite://{copy}"


def what_is_missing(path: Path, marks: Iterable[Mark]) -> str:
    """What a ledger lacks that its marks know of, in words; empty if nothing, or if a process uses the ledger.

    A file that is copied while a process opens it may look short, so what is missing is looked for again.
    """
    marks = list(marks)
    found = ""
    for attempt in range(_TRIES if marks else 0):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        if in_use(path):
            return ""
        found = _look(path, marks)
        if not found:
            return ""
    return found


def in_use(path: Path) -> bool:
    """Whether a process has locks on the ledger, as each one has that has opened it. Only Linux tells."""
    with contextlib.suppress(OSError):
        status = path.stat()
        own = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        return any(own in line.split() for line in _LOCKS.read_text().splitlines())
    return False


def copy_files(path: Path, target: Path) -> None:
    """Copy the files of a ledger that no process uses, as they are."""
    for suffix in ("", "-wal"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(f"{path}{suffix}", f"{target}{suffix}")


def _look(path: Path, marks: Iterable[Mark]) -> str:
    if not path.exists() or not path.stat().st_size:
        return "it is empty"
    with tempfile.TemporaryDirectory(prefix="headwater-") as directory:
        copy = Path(directory) / "ledger.db"
        try:
            copy_files(path, copy)
            with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'records'").fetchone():
                    return "it is empty"
                for mark in marks:
                    for domain, end in mark.ends.items():
                        missing = _missing(connection, domain, end)
                        if missing:
                            return missing
        except (sqlite3.DatabaseError, OSError):
            return ""  # it is told when the ledger is opened
    return ""


def _missing(connection: sqlite3.Connection, domain: int, end: End) -> str:
    head = connection.execute("SELECT truncated FROM heads WHERE domain = ?", (domain,)).fetchone()
    [last] = connection.execute("SELECT max(position) FROM records WHERE domain = ?", (domain,)).fetchone()
    truncated = head[0] if head else 0
    reached = max(last or 0, truncated)
    if reached < end.position:
        return f"domain {domain} ends at record {reached}, and it had record {end.position}"
    if end.position <= truncated or not end.crc:
        return ""
    row = connection.execute(
        "SELECT data FROM records WHERE domain = ? AND position = ?", (domain, end.position)
    ).fetchone()
    if row is not None and (len(row[0]) <= 5 or crc32c(row[0][5:]) != crc_of(row[0])):
        return ""  # it is damaged, which is told when the ledger is read
    if row is None or crc_of(row[0]) != end.crc:
        return f"domain {domain} has another record {end.position} than it had"
    return ""
