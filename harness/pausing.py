"""Pausing a process that shares a local ledger with others: a SQLite file, or the directory of a journal."""

from __future__ import annotations

import fcntl
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import psutil

from harness.patience import eventually


def stop_outside_the_ledger(ledger: Path, *family: psutil.Process) -> None:
    """Pause processes at a moment when none holds the lock of an embedded ledger. No other process could take it."""

    def stopped() -> bool:
        for process in family:
            process.suspend()
        if can_be_locked(ledger):
            return True
        for process in reversed(family):
            process.resume()
        return False

    eventually(stopped, "the processes are paused without the lock")


def can_be_locked(ledger: Path) -> bool:
    """Whether the lock file and SQLite's own locks, that of beats too, become free within a second.

    Other processes can wait that long.
    """

    def locked() -> bool:
        with (ledger / "lock" if ledger.is_dir() else Path(f"{ledger}.lock")).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for name in () if ledger.is_dir() else (ledger, f"{ledger}-beats"):
                    with closing(sqlite3.connect(name, isolation_level=None, timeout=0)) as db:
                        db.execute("BEGIN IMMEDIATE")
                        db.execute("ROLLBACK")
            except (BlockingIOError, sqlite3.OperationalError):
                return False
            return True

    for _ in range(50):
        if locked():
            return True
        time.sleep(0.02)  # give another process a turn
    return False
