"""Topic tables as the state knows them: their files, their journal, and how far each follower has come.

A table's journal is the numbered list of what each settle, merge or deletion added and removed. A file lives from the
sequence that added it to the one that removed it; it may go from the store when every follower's oldest retained
sequence has passed that.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
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

    @property
    def operation(self) -> str:
        """What happened: rows came, files were rewritten, or rows went."""
        if self.replaces:
            return "merge"
        return "retire" if self.removed else "settle"


class Follower(msgspec.Struct, array_like=True):
    """A catalog that follows the journal."""

    cursor: int
    """The newest sequence it has committed."""
    oldest: int
    """The oldest sequence that one of its versions still shows: files removed up to there are no longer needed."""
    location: str
    """Where its newest metadata lies, for those whose pointer is kept here."""
    recent: int = 0
    """From this sequence on every version may still be shown; before it, only those in `pinned`."""
    pinned: tuple[int, ...] = ()
    """Sequences before `recent` that a version still shows, rising: those with a tag."""

    def needs(self, file: DataFile) -> bool:
        """Whether one of its versions may show a file that was removed."""
        if file.removed <= self.oldest:
            return False
        if file.removed > self.recent:
            return True
        at = bisect_left(self.pinned, file.added)
        return at < len(self.pinned) and self.pinned[at] < file.removed


class ExpiryRequest(msgspec.Struct, array_like=True):
    """Somebody wants old versions gone, sooner than the settings say."""

    number: int
    keep: int
    """All but so many of the newest; 0 if only the settings count."""
    before_ms: int
    """And all that were made before; 0 if only the settings count."""
    waiting: list[str]
    """Followers that have not done it yet."""


class TableImage(msgspec.Struct, array_like=True):
    """A table inside a checkpoint."""

    topic: bytes
    root: str
    last_sequence: int
    dropped: bool
    files: list[DataFile]
    journal: list[JournalEntry]
    followers: dict[str, Follower]
    passed: dict[int, int] = {}
    expiry: ExpiryRequest | None = None
    expiries: int = 0


class TopicTable:
    """One topic's table."""

    __slots__ = (
        "dropped", "expiries", "expiry", "files", "followers", "journal", "last_sequence", "passed", "root", "topic"
    )  # fmt: skip

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
        self.passed: dict[int, int] = {}
        """Settled ends by partition, as of the version before the journal's first entry."""
        self.expiry: ExpiryRequest | None = None
        self.expiries = 0
        """The newest expiry request's number."""

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

    @property
    def first_version(self) -> int:
        """The oldest version that the journal can tell of."""
        return self.journal[0].sequence - 1 if self.journal else self.last_sequence

    def ends_at(self, version: int) -> dict[int, int]:
        """The settled end of every partition as of a version that the journal reaches."""
        ends = dict(self.passed)
        for entry in self.journal[: max(0, version - self.first_version)]:
            ends.update(entry.ends)
        return ends

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
            self.passed.update(self.journal[keep].ends)
            keep += 1
        del self.journal[:keep]

    def ripe(self) -> list[DataFile]:
        """Files that nobody needs any more."""
        if self.dropped:
            return [f for f in self.files.values() if not f.references]
        gone = (f for f in self.files.values() if f.removed and not f.references)
        return [file for file in gone if not any(f.needs(file) for f in self.followers.values())]

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
            passed=dict(self.passed),
            expiry=self.expiry,
            expiries=self.expiries,
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
        self.passed = dict(image.passed)
        self.expiry = image.expiry
        self.expiries = image.expiries
        return self
