"""Stopping a process that shares a SQLite ledger with others."""

from __future__ import annotations

import fcntl
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import psutil

from tests.support.patience import eventually


def stop_outside_the_ledger(process: psutil.Process, ledger: Path) -> None:
    """Stop a process at a moment when it does not hold the ledger's lock, which nobody could take from it."""

    def stopped() -> bool:
        process.send_signal(signal.SIGSTOP)
        if can_be_locked(ledger):
            return True
        process.send_signal(signal.SIGCONT)
        return False

    eventually(stopped, "it is stopped without the lock", 20)


def can_be_locked(ledger: Path) -> bool:
    """Whether the lock file and SQLite's own lock come free within a second."""

    def locked() -> bool:
        with Path(f"{ledger}.lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with closing(sqlite3.connect(ledger, isolation_level=None, timeout=0)) as db:
                    db.execute("BEGIN IMMEDIATE")
                    db.execute("ROLLBACK")
            except (BlockingIOError, sqlite3.OperationalError):
                return False
            return True

    try:
        return eventually(locked, "the ledger is free", 1)
    except TimeoutError:
        return False
