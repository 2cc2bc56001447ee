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

    async def expire(self, table: TableRef, location: str) -> Standing:
        """Drop versions past their retention and delete the metadata files that only they needed."""

    async def drop(self, table: TableRef, location: str) -> None:
        """Remove the table's metadata: its topic is deleted. Dropping what is gone succeeds."""

    async def close(self) -> None:
        """Release threads and connections. Idempotent."""
