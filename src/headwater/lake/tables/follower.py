"""The contract of a follower: a table format that repeats the journal of a topic's table, exactly once.

A follower keeps no state of its own. Its cursor is in the metadata of its table, written in the same atomic step as the
files. So no crash, repetition or second follower at the same time loses or doubles a file.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headwater.errors import INSTEAD_OF_A_COMMIT, ForeignCommit
from headwater.state.commands.tables import Bounds
from headwater.state.streams.stored.typed import NO_COLUMNS, Columns
from headwater.state.streams.tables import DataFile, JournalEntry, TopicTable

HOUR_MS = 3_600_000


def foreign_commit(what: str, repair: str) -> ForeignCommit:
    """The error for what happened to which table. `repair` says what an operator does about it."""
    return ForeignCommit(f"{what}. {repair}. {INSTEAD_OF_A_COMMIT}")


@dataclass(frozen=True, slots=True)
class TableRef:
    """The identity of a table."""

    topic: uuid.UUID
    name: str
    """The topic's name."""
    root: str
    """The path of the table below the root of the object store. Names of data files are relative to it."""


def ref_of(table: TopicTable) -> TableRef:
    """The reference of a table. The root contains the topic's name, so this works after the topic is deleted."""
    name = table.root.rpartition("/")[2].removesuffix(f"-{table.topic}")
    return TableRef(table.topic, name, table.root)


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of a follower."""

    cursor: int
    """The newest journal sequence that is committed; 0 if the table does not exist yet."""
    oldest: int
    """The journal sequence of the oldest version that is still readable."""
    location: str
    """The path of the newest metadata, if the format's pointer is in the ledger; else empty."""
    recent: int = 0
    """Before this journal sequence only the versions in `pinned` are readable. 0 if all since `oldest` are."""
    pinned: tuple[int, ...] = ()
    """The journal sequences of single readable versions before `recent`, ascending."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How many versions of a table stay readable, and for how long."""

    versions: int = 50
    age_ms: int = 0
    """Older versions are dropped, except the newest; 0 for no limit."""
    tag_hours: int = 0
    """For this many hours the last version of every hour is kept under a name, if the format has names."""

    def since(self, now_ms: int) -> int:
        """The time before which versions are too old."""
        return now_ms - self.age_ms if self.age_ms else 0


@dataclass(frozen=True, slots=True)
class Expiry:
    """Which versions to drop, beyond the follower's own settings."""

    now_ms: int = 0
    """What the retention of versions takes for now."""
    keep: int = 0
    """Keep only this many of the newest versions; 0 for no such limit."""
    before_ms: int = 0
    """Drop versions that were made before this date. It counts as far as `now_ms` only."""

    @property
    def asked(self) -> bool:
        """Whether this drops more than the settings do."""
        return bool(self.keep or self.before_ms)


@dataclass(frozen=True, slots=True)
class Version:
    """A readable version of a follower's table."""

    number: int
    """The format's own number: a snapshot id, or a version."""
    first: int
    """The first journal sequence of this version."""
    sequence: int
    """The last journal sequence of this version, which it shows."""
    operation: str
    """`append` if rows were only added, `replace` if no rows changed, `delete` if rows were only removed, else
    `overwrite`."""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """The changes to commit as one version of the table: all after `after`, up to `upto`."""

    after: int
    upto: int
    entries: Sequence[JournalEntry]
    """The journal's entries of that range. Empty if the journal does not reach back to `after`: then the commit brings
    the table to exactly the files in `live`."""
    files: Mapping[int, DataFile]
    """The files that the entries add, by number, and those that they remove."""
    live: Sequence[DataFile]
    """All files of the table at `upto`."""
    ms: int
    """The date of the newest entry."""
    now_ms: int
    """What the retention of versions takes for now."""
    columns: Columns = NO_COLUMNS
    """The table's typed columns, with their history. The commit has those of `upto`."""
    changes: bool = True
    """Whether files that were decoded again are a change of data, for readers of changes."""
    bounds: Mapping[int, Sequence[Bounds]] = field(default_factory=dict)
    """Bounds of columns in the new files, by number."""


class TableFollower(Protocol):
    """One format in one catalog."""

    name: str

    async def standing(self, table: TableRef, location: str) -> Standing:
        """Read the progress from the table itself. `location` is the pointer in the ledger."""

    async def commit(self, table: TableRef, location: str, batch: Batch) -> Standing:
        """Commit a batch whose `after` is the table's cursor. If the table is already further, change nothing.

        Raises `Retriable` if the commit failed for now, or if its outcome is unknown. The caller then asks `standing`.
        """

    async def shown(self, table: TableRef, location: str) -> frozenset[str]:
        """The data files of the newest version, named below the table's root."""

    async def versions(self, table: TableRef, location: str) -> list[Version]:
        """All readable versions that repeat the journal, oldest first."""

    async def expire(self, table: TableRef, location: str, expiry: Expiry) -> Standing:
        """Drop versions past their retention and delete the metadata files that only they needed.

        Metadata files of versions that this call drops may stay until the next call.
        """

    async def announce(self, table: TableRef, location: str) -> None:
        """Show the newest version to engines that know only the table's root, if the format needs more for that.

        `location` is the pointer in the ledger. This is called after each change of it, and again from time to time.
        """

    async def drop(self, table: TableRef, location: str) -> None:
        """Remove the metadata of the table of a deleted topic. Dropping a table that does not exist succeeds."""

    async def close(self) -> None:
        """Release threads and connections. Idempotent."""
