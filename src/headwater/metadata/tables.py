"""Topic tables as the state knows them: their files, their journal, and how far each follower has come.

A table's journal is the numbered list of what each settle, merge or deletion added and removed. A file lives from the
sequence that added it to the one that removed it; it may go from the store when every follower's oldest retained
sequence has passed that.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

import msgspec

JOURNAL_KEPT = 256
"""Entries that stay for time travel and incremental reads after every follower has passed them."""


class DataFile(msgspec.Struct, array_like=True, gc=False):
    """A segment: what the log and both table formats need to know of it."""

    number: int
    name: str
    size: int
    rows: int
    groups: int
    first_partition: int
    last_partition: int
    first_offset: int
    last_offset: int
    min_timestamp: int
    max_timestamp: int
    timestamp_nulls: int
    """Rows whose timestamp no table can show."""
    footer_checksum: int
    """CRC32C of the Parquet footer, which has none of its own."""
    added: int
    removed: int
    """The journal sequence that removed it, 0 while it is part of the table."""
    references: int
    """Index entries that name it."""
    created_ms: int


class JournalEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One change of a table."""

    sequence: int
    ms: int
    replaces: bool
    """Whether the rows stay the same: a merge."""
    added: tuple[int, ...]
    removed: tuple[int, ...]
    ends: tuple[tuple[int, int], ...]
    """Settled end of every partition that moved."""


class Follower(msgspec.Struct, array_like=True):
    """A catalog that follows the journal."""

    cursor: int
    """The newest sequence it has committed."""
    oldest: int
    """The oldest sequence that one of its versions still shows: files removed up to there are no longer needed."""
    location: str
    """Where its newest metadata lies, for those whose pointer is kept here."""


class TableImage(msgspec.Struct, array_like=True):
    """A table inside a checkpoint."""

    topic: bytes
    root: str
    last_sequence: int
    dropped: bool
    files: list[DataFile]
    journal: list[JournalEntry]
    followers: dict[str, Follower]


class TopicTable:
    """One topic's table."""

    __slots__ = ("dropped", "files", "followers", "journal", "last_sequence", "root", "topic")

    def __init__(self, topic: uuid.UUID, root: str) -> None:
        self.topic = topic
        self.root = root
        """Where its files lie, below the object store's root."""
        self.last_sequence = 0
        self.dropped = False
        """The topic is deleted: what is left is to be removed."""
        self.files: dict[int, DataFile] = {}
        self.journal: list[JournalEntry] = []
        self.followers: dict[str, Follower] = {}

    def __repr__(self) -> str:
        return f"<TopicTable {self.root}: {len(self.files)} files, journal up to {self.last_sequence}>"

    def live(self) -> Iterator[DataFile]:
        """The files that the newest version shows."""
        return (file for file in self.files.values() if not file.removed)

    def record(
        self,
        ms: int,
        added: Iterable[DataFile],
        removed: Iterable[int],
        ends: Iterable[tuple[int, int]],
        *,
        replaces: bool,
    ) -> JournalEntry:
        """Enter a change. The files' own numbers and sequences are set here."""
        self.last_sequence += 1
        new = list(added)
        for file in new:
            file.added, file.created_ms = self.last_sequence, ms
            self.files[file.number] = file
        gone = tuple(removed)
        for number in gone:
            self.files[number].removed = self.last_sequence
        entry = JournalEntry(self.last_sequence, ms, replaces, tuple(f.number for f in new), gone, tuple(ends))
        self.journal.append(entry)
        self._forget_old_entries()
        return entry

    def entries_after(self, sequence: int) -> list[JournalEntry] | None:
        """What came after a sequence; `None` if the journal no longer reaches back so far."""
        first = self.journal[0].sequence if self.journal else self.last_sequence + 1
        if sequence + 1 < first:
            return None
        return self.journal[sequence + 1 - first :]

    def followed(self, name: str, follower: Follower) -> None:
        """A follower has come further."""
        self.followers[name] = follower
        self._forget_old_entries()

    def _forget_old_entries(self) -> None:
        spare = len(self.journal) - JOURNAL_KEPT
        if spare <= 0:
            return
        passed = min((f.cursor for f in self.followers.values()), default=self.last_sequence)
        keep = 0
        while keep < spare and self.journal[keep].sequence <= passed:
            keep += 1
        del self.journal[:keep]

    def ripe(self) -> list[DataFile]:
        """Files that nobody needs any more."""
        if self.dropped:
            return [f for f in self.files.values() if not f.references]
        oldest = min((f.oldest for f in self.followers.values()), default=self.last_sequence)
        return [f for f in self.files.values() if f.removed and f.removed <= oldest and not f.references]

    def pack(self) -> TableImage:
        """The table as plain data, for a checkpoint."""
        return TableImage(
            topic=self.topic.bytes,
            root=self.root,
            last_sequence=self.last_sequence,
            dropped=self.dropped,
            files=list(self.files.values()),
            journal=list(self.journal),
            followers=dict(self.followers),
        )

    @classmethod
    def unpack(cls, image: TableImage) -> TopicTable:
        """The inverse of `pack`."""
        self = cls(uuid.UUID(bytes=image.topic), image.root)
        self.last_sequence = image.last_sequence
        self.dropped = image.dropped
        self.files = {file.number: file for file in image.files}
        self.journal = list(image.journal)
        self.followers = dict(image.followers)
        return self
