"""Topic tables in the state: files, journal and followers.

The journal of a table is a numbered list of changes: the files that a settle, a merge or a deletion added and removed.
A file is part of the table from the sequence that added it to the sequence that removed it. It can be deleted from the
store when no index entry names it and no follower shows a version that needs it.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import msgspec

JOURNAL_KEPT = 256
"""Journal entries that are kept for time travel and incremental reads after every follower has passed them."""


class DataFile(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A segment, with the facts that the log and both table formats need."""

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
    """Rows whose timestamp is null in tables, because it is out of their range."""
    footer_checksum: int
    """CRC32C of the Parquet footer, which has none of its own."""
    added: int
    removed: int
    """The journal sequence that removed the file; 0 while it is part of the table."""
    removed_ms: int
    """The ledger time of the removal."""
    references: int
    """The number of index entries that name the file."""
    created_ms: int
    """The date of the version that added the file."""
    ended_ms: int
    """The date of the version that removed the file; 0 while it is part of the table."""
    arrived_ms: int
    """The ledger time at which the newest of its rows came into the table."""

    def is_in(self, versions: Sequence[int]) -> bool:
        """Whether one of the versions, which ascend, shows the file."""
        at = bisect_left(versions, self.added)
        return at < len(versions) and (not self.removed or versions[at] < self.removed)


class JournalEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One change of a table."""

    sequence: int
    ms: int
    """The date of the version. Later versions never have an earlier one."""
    ledger_ms: int
    """The ledger time of the change."""
    replaces: bool
    """Whether the rows stay the same: a merge. A rewrite adds and removes files, but its rows have other columns."""
    added: tuple[int, ...]
    removed: tuple[int, ...]
    ends: tuple[tuple[int, int], ...]
    """(partition, settled end) of every partition whose settled end moved."""

    @property
    def moves(self) -> bool:
        """Whether the log's rows stay the same, in other files: a merge or a rewrite."""
        return self.replaces or bool(self.added and self.removed)

    @property
    def operation(self) -> str:
        """The kind of change: rows were added, files were merged, rows were decoded again, or rows were removed."""
        if self.replaces:
            return "merge"
        if self.added and self.removed:
            return "rewrite"
        return "retire" if self.removed else "settle"


class Follower(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A catalog that follows the journal."""

    cursor: int
    """The newest sequence that the follower has committed."""
    oldest: int
    """The oldest sequence that a version still shows. Files removed up to this sequence are no longer needed."""
    location: str
    """The location of the newest metadata, if the follower keeps its pointer in the ledger."""
    recent: int
    """From this sequence on, every version may still be shown. Before it, only the versions in `pinned`."""
    pinned: tuple[int, ...]
    """Sequences before `recent` that are still shown because they have a tag, ascending."""

    def needs(self, file: DataFile) -> bool:
        """Whether one of the follower's versions may show a file that was removed."""
        if file.removed <= self.oldest:
            return False
        return file.removed > self.recent or file.is_in(self.pinned)

    def keeps(self, version: int) -> bool:
        """Whether the follower keeps all files of a version."""
        if version < self.oldest:
            return False
        at = bisect_left(self.pinned, version)
        return version >= self.recent or (at < len(self.pinned) and self.pinned[at] == version)


class ExpiryRequest(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A caller asks to expire old versions sooner than the settings say."""

    number: int
    keep: int
    """The number of newest versions to keep; 0 if only the settings count."""
    before_ms: int
    """Versions made before this time expire; 0 if only the settings count."""
    waiting: list[str]
    """Followers that have not expired their versions yet."""


class TableImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A table inside a checkpoint."""

    topic: bytes
    root: str
    last_sequence: int
    dropped: bool
    dropped_ms: int
    files: list[DataFile]
    journal: list[JournalEntry]
    followers: dict[str, Follower]
    passed: dict[int, int]
    expiry: ExpiryRequest | None
    expiries: int


class TopicTable:
    """One topic's table."""

    __slots__ = (
        "bytes", "dropped", "dropped_ms", "expiries", "expiry", "files", "followers", "journal", "last_sequence",
        "passed", "root", "topic",
    )  # fmt: skip

    def __init__(self, topic: uuid.UUID, root: str) -> None:
        self.topic = topic
        self.root = root
        """The directory of the table's files, relative to the object store's root."""
        self.last_sequence = 0
        self.dropped = False
        """Whether the topic is deleted. Its remaining files are to be deleted."""
        self.dropped_ms = 0
        """The ledger time of the deletion."""
        self.files: dict[int, DataFile] = {}
        self.bytes = 0
        """The size of all files, with those that are removed and not yet deleted."""
        self.journal: list[JournalEntry] = []
        self.followers: dict[str, Follower] = {}
        self.passed: dict[int, int] = {}
        """Settled ends by partition, at the version before the journal's first entry."""
        self.expiry: ExpiryRequest | None = None
        self.expiries = 0
        """The number of the newest expiry request."""

    def __repr__(self) -> str:
        return f"<TopicTable {self.root}: {len(self.files)} files, journal up to {self.last_sequence}>"

    def live(self) -> Iterator[DataFile]:
        """The files that the newest version shows."""
        return (file for file in self.files.values() if not file.removed)

    def record(
        self,
        ledger_ms: int,
        date_ms: int,
        added: Iterable[DataFile],
        removed: Iterable[int],
        ends: Iterable[tuple[int, int]],
        *,
        replaces: bool,
    ) -> JournalEntry:
        """Enter a change into the journal. The sequences and times of the files are set here."""
        self.last_sequence += 1
        ms = max(date_ms, self.journal[-1].ms) if self.journal else date_ms
        new, gone = list(added), tuple(removed)
        arrived_ms = max((self.files[number].arrived_ms for number in gone), default=ledger_ms)
        for file in new:
            file.added, file.created_ms, file.arrived_ms = self.last_sequence, ms, arrived_ms
            self.files[file.number] = file
            self.bytes += file.size
        for number in gone:
            file = self.files[number]
            file.removed, file.removed_ms, file.ended_ms = self.last_sequence, ledger_ms, ms
        entry = JournalEntry(
            self.last_sequence, ms, ledger_ms, replaces, tuple(f.number for f in new), gone, tuple(ends)
        )
        self.journal.append(entry)
        self._forget_old_entries()
        return entry

    def forget(self, number: int) -> bool:
        """Remove a file that is deleted from the store. Returns whether the table had it."""
        file = self.files.pop(number, None)
        if file is None:
            return False
        self.bytes -= file.size
        return True

    def entries_after(self, sequence: int) -> list[JournalEntry] | None:
        """The entries after a sequence. `None` if the journal no longer reaches back that far."""
        first = self.journal[0].sequence if self.journal else self.last_sequence + 1
        if sequence + 1 < first:
            return None
        return self.journal[sequence + 1 - first :]

    @property
    def first_version(self) -> int:
        """The oldest version that the journal covers."""
        return self.journal[0].sequence - 1 if self.journal else self.last_sequence

    def ends_at(self, version: int) -> dict[int, int]:
        """The settled end of every partition at a version that the journal covers."""
        ends = dict(self.passed)
        for entry in self.journal[: max(0, version - self.first_version)]:
            ends.update(entry.ends)
        return ends

    def followed(self, name: str, follower: Follower) -> None:
        """Store the progress of a follower."""
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

    def skip(self, count: int) -> None:
        """Leave out numbers of versions, which followers may have seen, and let every follower write its table anew."""
        self.passed = self.ends_at(self.last_sequence)
        self.last_sequence += count
        self.journal.clear()
        self.expiry = None
        if not self.dropped:  # else the table is dropped from the catalogs first
            self.followers.clear()

    def ripe(self) -> list[DataFile]:
        """Files that no index entry names and no follower needs. Those that no hold keeps can be deleted."""
        if self.dropped:
            return [f for f in self.files.values() if not f.references]
        gone = (f for f in self.files.values() if f.removed and not f.references)
        return [file for file in gone if not any(f.needs(file) for f in self.followers.values())]

    def gone_ms(self, file: DataFile) -> int:
        """The ledger time at which a file that is no longer shown was removed, by itself or with the table."""
        return file.removed_ms if file.removed else self.dropped_ms

    def removed_bytes(self, since_ms: int) -> int:
        """The size of the files that were removed since a time and are not deleted, as far as the journal goes."""
        if self.dropped:
            return self.bytes if self.dropped_ms >= since_ms else 0
        found = 0
        for entry in reversed(self.journal):
            if entry.ledger_ms < since_ms:
                break
            found += sum(self.files[number].size for number in entry.removed if number in self.files)
        return found

    def removed_between(self, since_ms: int, until_ms: int) -> bool:
        """Whether files were removed in `[since_ms, until_ms)`, as far as the journal reaches back."""
        if self.dropped and since_ms <= self.dropped_ms < until_ms:
            return True
        for entry in reversed(self.journal):
            if entry.ledger_ms < since_ms:
                return False
            if entry.removed and entry.ledger_ms < until_ms:
                return True
        return bool(self.journal) and self.first_version > 0  # what it has forgotten may have removed some

    def pack(self) -> TableImage:
        """The table as plain data, for a checkpoint."""
        return TableImage(
            topic=self.topic.bytes,
            root=self.root,
            last_sequence=self.last_sequence,
            dropped=self.dropped,
            dropped_ms=self.dropped_ms,
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
        self.dropped, self.dropped_ms = image.dropped, image.dropped_ms
        self.files = {file.number: file for file in image.files}
        self.bytes = sum(file.size for file in image.files)
        self.journal = list(image.journal)
        self.followers = dict(image.followers)
        self.passed = dict(image.passed)
        self.expiry = image.expiry
        self.expiries = image.expiries
        return self
