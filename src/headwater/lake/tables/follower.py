"""The contract of a follower: a table format that repeats a topic table's journal, exactly once.

A follower has no memory of its own. How far it has come stands in the table's own metadata, written by the same atomic
step as the files, so a crash at any point, a repetition, or a second follower at the same time neither loses nor
doubles a file.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.errors import HeadwaterError
from headwater.metadata.tables import DataFile, JournalEntry, TopicTable

HOUR_MS = 3_600_000


class ForeignCommit(HeadwaterError):
    """Somebody else wrote data into a topic table. Nothing is committed there until an operator has looked at it."""


@dataclass(frozen=True, slots=True)
class TableRef:
    """Which table."""

    topic: uuid.UUID
    name: str
    """The topic's name."""
    root: str
    """Where it lies, below the object store's root; data files are named below that."""


def ref_of(table: TopicTable) -> TableRef:
    """The topic's name is part of the root, also when the topic is gone."""
    name = table.root.rpartition("/")[2].removesuffix(f"-{table.topic}")
    return TableRef(table.topic, name, table.root)


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a follower has come."""

    cursor: int
    """The newest journal sequence that is committed; 0 if the table does not exist yet."""
    oldest: int
    """The journal sequence of the oldest version that is still readable."""
    location: str
    """Where the newest metadata lies, if the format's pointer is kept in the ledger; else empty."""
    recent: int = 0
    """Before this journal sequence only the versions in `pinned` are readable. 0 if that says no more than `oldest`."""
    pinned: tuple[int, ...] = ()
    """Their journal sequences, rising."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How many versions of a table stay readable, and for how long."""

    versions: int = 50
    age_ms: int = 0
    """Older ones go, save for the newest; 0 if age does not matter."""
    tag_hours: int = 0
    """For so many hours the last version of every hour stays under a name, where the format has names."""

    def since(self, now_ms: int) -> int:
        """Versions made before that are too old."""
        return now_ms - self.age_ms if self.age_ms else 0


@dataclass(frozen=True, slots=True)
class Expiry:
    """Which versions can go, beyond what the follower's own settings say."""

    now_ms: int = 0
    keep: int = 0
    """All but so many of the newest; 0 for no such limit."""
    before_ms: int = 0
    """And all that were made before."""

    @property
    def asked(self) -> bool:
        """Whether somebody wants more than the settings say."""
        return bool(self.keep or self.before_ms)


@dataclass(frozen=True, slots=True)
class Version:
    """A readable version of a follower's table."""

    number: int
    """As the format counts: a snapshot id, a version."""
    first: int
    """The first journal sequence that came with it."""
    sequence: int
    """The last one: this is what it shows."""
    operation: str
    """`append` if rows came and none went, `replace` if rows stayed, `delete` if rows went, else `overwrite`."""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """What is to be committed, as one version of the table: everything after `after` up to `upto`."""

    after: int
    upto: int
    entries: Sequence[JournalEntry]
    """The journal's entries of that range. Empty if the journal does not reach back to `after`: then the table is
    brought to exactly the files in `live`."""
    files: Mapping[int, DataFile]
    """The files that the entries add, by number, and those that they remove."""
    live: Sequence[DataFile]
    """All files of the table at `upto`."""
    ms: int
    """The time of the newest entry."""


class TableFollower(Protocol):
    """One format in one catalog."""

    name: str

    async def standing(self, table: TableRef, location: str) -> Standing:
        """Read from the table itself how far it is. `location` is what the ledger knows of it."""

    async def commit(self, table: TableRef, location: str, batch: Batch) -> Standing:
        """Commit a batch whose `after` is the table's cursor; if the table is further already, change nothing.

        Raises `Retriable` if it did not work this time or nobody knows whether it did: ask `standing` then.
        """

    async def shown(self, table: TableRef, location: str) -> frozenset[str]:
        """The data files of the newest version, named below the table's root."""

    async def versions(self, table: TableRef, location: str) -> list[Version]:
        """All readable versions that repeat the journal, oldest first."""

    async def expire(self, table: TableRef, location: str, expiry: Expiry) -> Standing:
        """Drop versions past their retention and delete the metadata files that only they needed.

        Metadata files of versions that this very call drops may stay until the next.
        """

    async def drop(self, table: TableRef, location: str) -> None:
        """Remove the table's metadata: its topic is deleted. Dropping what is gone succeeds."""

    async def close(self) -> None:
        """Release threads and connections. Idempotent."""
