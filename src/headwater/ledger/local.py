"""The files of a ledger on this machine, looked at before a process opens it, because opening may change them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from headwater.ledger.marks import Mark
from headwater.settings.objects import local_path


class LocalFiles(Protocol):
    """A ledger of one machine."""

    @property
    def path(self) -> Path:
        """The file, or the directory."""

    @property
    def mark(self) -> Path:
        """The file of marks beside it, or in it."""

    def check_format(self) -> None:
        """Raise `ConfigError` if it is of another format."""

    def exists(self) -> bool:
        """Whether anything was ever written to it."""

    def in_use(self) -> bool:
        """Whether a process has it open."""

    def what_is_missing(self, marks: Iterable[Mark]) -> str:
        """What it lacks that its marks know of, in words; empty if nothing, or if a process has it open."""

    def copy(self, directory: Path) -> str:
        """Copy a ledger that no process has open into an empty directory; returns the URL of the copy."""


def local_files(url: str) -> LocalFiles | None:
    """The files of the ledger of a URL; None if it is not on this machine."""
    path = local_path(url, "sqlite")
    if path is not None:
        from headwater.ledger.sqlite.peek import SqliteFiles

        return SqliteFiles(path)
    path = local_path(url, "journal")
    if path is not None:
        from headwater.ledger.journal.peek import JournalFiles

        return JournalFiles(path)
    return None
