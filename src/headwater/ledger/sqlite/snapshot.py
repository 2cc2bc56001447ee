"""Copies of a ledger's file while processes use it, and the exchange of such a file for another.

A copy is made in one read transaction, so it has the records of all domains at one moment. In WAL mode a reader does
not hold up writers.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from headwater import modes
from headwater.errors import ConfigError, StoreFull, StoreUnavailable
from headwater.ledger.sqlite.ledger import check_format, mark_of

LOCK_SECONDS = 5.0
_BESIDE = ("-wal", "-shm", "-journal")
_ALL_PAGES = -1


def copy_ledger(source: Path, target: Path) -> None:
    """Copy a ledger, also one that is in use, to a new file. The copy is on the disk when this returns."""
    if not source.is_file():
        raise ConfigError(f"there is no ledger {source}")
    check_format(source)
    remove_ledger(target)
    os.close(modes.create(str(target), os.O_WRONLY, modes.PRIVATE))
    with _translated(source), _connected(source) as before, _connected(target) as after:
        before.backup(after, pages=_ALL_PAGES)
    merge_log(target)


def merge_log(path: Path) -> None:
    """Bring everything of a ledger that no process uses into its one file; raise if a process uses it."""
    with _translated(path), _connected(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if os.path.exists(f"{path}-wal"):
        raise StoreUnavailable(f"another process uses the ledger {path}")
    _sync(path)


def exchange(staged: Path, path: Path) -> None:
    """Put a ledger in the place of another, which no process uses, in one step. Both are on the same file system."""
    merge_log(staged)
    if path.exists():
        merge_log(path)
    mark_of(path).unlink(missing_ok=True)
    os.rename(staged, path)
    _sync(path.parent)


def remove_ledger(path: Path) -> None:
    """Delete a ledger that no process uses, with all files beside it."""
    for name in (f"{path}", f"{path}-beats"):
        for suffix in ("", *_BESIDE):
            Path(f"{name}{suffix}").unlink(missing_ok=True)
    Path(f"{path}.lock").unlink(missing_ok=True)
    mark_of(path).unlink(missing_ok=True)
    notices = Path(f"{path}-notices")
    if notices.is_dir():
        for left in notices.iterdir():
            left.unlink(missing_ok=True)
        notices.rmdir()


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)) as connection:
        yield connection


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise StoreFull(f"no space left to copy {path}: {error}") from error
        raise StoreUnavailable(f"{path}: {error}") from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
