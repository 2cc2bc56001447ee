"""Looks at a journal that no process uses, without a change to any file."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import Damaged, LedgerWentBack, Truncated
from headwater.ledger.journal.disk import LocalDisk
from headwater.ledger.journal.opening import find_end, has_begun
from headwater.ledger.journal.page import SLOTS
from headwater.ledger.journal.reader import Reader, files_of, read_head
from headwater.ledger.marks import Mark, crc_of
from headwater.types import Domain, Position

MARK = "mark"


@dataclass(frozen=True, slots=True)
class JournalFiles:
    """See `headwater.ledger.local.LocalFiles`."""

    path: Path

    @property
    def mark(self) -> Path:
        return self.path / MARK

    def check_format(self) -> None:
        disk = LocalDisk(self.path, writing=False)
        try:
            for file in files_of(disk):
                read_head(disk, file)
        finally:
            disk.release()

    def exists(self) -> bool:
        disk = LocalDisk(self.path, writing=False)
        try:
            return has_begun(disk)
        finally:
            disk.release()

    def in_use(self) -> bool:
        disk = LocalDisk(self.path, writing=False)
        try:
            return disk.claimed(SLOTS)
        finally:
            disk.release()

    def what_is_missing(self, marks: Iterable[Mark]) -> str:
        marks = list(marks)
        disk = LocalDisk(self.path, writing=False)
        try:
            if not marks or disk.claimed(SLOTS):
                return ""
            if not has_begun(disk):
                return "it is empty"
            reader, _ = find_end(disk, max(mark.number for mark in marks))
            reader.show(reader.number)
            return next((missing for mark in marks if (missing := _missing(reader, mark))), "")
        except LedgerWentBack as error:
            return str(error)
        finally:
            disk.release()

    def copy(self, directory: Path) -> str:
        copy = directory / "journal"
        copy.mkdir(mode=0o700)
        for name in (MARK, "lock", *(path.name for path in sorted(self.path.glob("*.j")))):
            if (self.path / name).exists():
                shutil.copyfile(self.path / name, copy / name)
        return f"journal://{copy}"


def _missing(reader: Reader, mark: Mark) -> str:
    """What the ledger lacks that a mark knows of."""
    for domain, end in mark.ends.items():
        shown = reader.shown(domain)
        if shown.last < end.position:
            return f"domain {domain} ends at record {shown.last}, and it had record {end.position}"
        if not end.crc or end.position <= shown.truncated:
            continue
        try:
            entries = reader.entries(Domain(domain), Position(end.position - 1), 1)
        except (Damaged, Truncated):
            continue  # it is told when the ledger is read
        if entries and crc_of(entries[0].data) != end.crc:
            return f"domain {domain} has another record {end.position} than it had"
    return ""
