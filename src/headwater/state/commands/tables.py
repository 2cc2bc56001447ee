"""Commands about the tables of topics: settling, merging, following, expiry, and bulk appends."""

from __future__ import annotations

import uuid
from typing import TypeAlias

from headwater.state.commands.base import Command, Fields

KEY_COLUMN = 5
"""The id of the log's column `key`."""


class NewFile(Fields, frozen=True):
    """A segment that is written and synced. Its name is relative to the table's root."""

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
    footer_checksum: int


class Bounds(Fields, frozen=True, gc=False):
    """The least and the greatest value of a column in a file, so that engines can pass over the file.

    Values are in Iceberg's binary form. Long ones are cut short: then `upper` is greater than all values.
    """

    column: int
    """The id of the column: that of a typed column, or `KEY_COLUMN`."""
    nulls: int
    """Rows in which it is null."""
    lower: bytes | None
    upper: bytes | None
    """None if it is not known, or if all values are null."""


class FileTyping(Fields, frozen=True, gc=False):
    """What is known of the rows of a file, beside `NewFile`."""

    digest: int
    """The sum, modulo 2^64, of a hash of each row's log columns."""
    version: int
    """The version of the columns that the file was decoded with; 0 if it is not decoded."""
    failures: int
    """Rows that could not be decoded."""
    bounds: tuple[Bounds, ...]
    """Bounds of the key and of chosen columns, by rising ids."""


class SegmentRun(Fields, frozen=True):
    """Offsets of one stream and the row groups of a new file that hold them. No file if no record is left."""

    stream: int
    start: int
    end: int
    file: int
    """The place in the command's list of files; -1 for none."""
    first_group: int
    groups: int


class WantSettled(Command, frozen=True, tag="settle?"):
    """A caller waits for a topic's table: settle the topic soon, regardless of its freshness target."""

    topic: uuid.UUID


class Settle(Command, frozen=True, tag="settle"):
    """WAL runs of a topic became segments: swap the index entries and enter the files into the table's journal.

    Records of aborted transactions are left out.
    """

    lease: int
    topic: uuid.UUID
    root: str
    files: list[NewFile]
    runs: list[SegmentRun]
    newest: list[int]
    """The largest timestamp that is left in each run, or -1."""
    typings: list[FileTyping]
    """One for each file."""


class Replace(Command, frozen=True, tag="replace"):
    """Segments became others with the same rows in the log. Refused if the digests of the rows differ."""

    lease: int
    topic: uuid.UUID
    removed: list[int]
    files: list[NewFile]
    runs: list[SegmentRun]
    typings: list[FileTyping]
    """One for each file."""
    rewrites: bool
    """Whether rows were decoded again, so that the table's rows change. Otherwise this is a merge.

    A rewrite may have files without runs: the log has left their rows, and the table shows them still."""


class Follow(Command, frozen=True, tag="follow"):
    """A follower has committed the journal up to a sequence. Refused unless its pointer is at `expected`."""

    lease: int
    topic: uuid.UUID
    follower: str
    expected: str
    location: str
    cursor: int
    oldest: int


class Unfollow(Command, frozen=True, tag="unfollow"):
    """A follower is removed. It no longer keeps files from being deleted."""

    lease: int
    topic: uuid.UUID
    follower: str


class Pin(Command, frozen=True, tag="pin"):
    """The versions before `recent` that a follower still shows. Refused unless its location and cursor are as given."""

    lease: int
    topic: uuid.UUID
    follower: str
    location: str
    cursor: int
    recent: int
    pinned: tuple[int, ...]


class Retire(Command, frozen=True, tag="retire"):
    """Remove files and their rows from a topic's table. The log keeps the files that its index still names."""

    lease: int
    topic: uuid.UUID
    files: list[int]


class WantExpired(Command, frozen=True, tag="expire?"):
    """A caller asks to expire a table's old versions now; see `ExpiryRequest`. Returns the request's number."""

    topic: uuid.UUID
    keep: int
    before_ms: int


class Expired(Command, frozen=True, tag="expired"):
    """A follower has expired the versions that a request names."""

    lease: int
    topic: uuid.UUID
    follower: str
    request: int


class ForgetFiles(Command, frozen=True, tag="files-"):
    """These segments are deleted from the store. A dropped table without files is forgotten."""

    lease: int
    topic: uuid.UUID
    files: list[int]


class Reserve(Command, frozen=True, tag="reserve"):
    """Assign offsets in a topic's streams to records that follow later in segments. Returns the reservation's number.

    For readers the log ends at an open reservation. Appends continue behind it.
    """

    topic: uuid.UUID
    parts: list[tuple[int, int]]
    """(stream, number of offsets)"""
    limit_ms: int
    """How long the reservation can be filled."""


class Fill(Command, frozen=True, tag="fill"):
    """All records of a reservation are in segments: swap the index entries and enter the files into the journal."""

    reservation: int
    root: str
    files: list[NewFile]
    runs: list[SegmentRun]
    newest: list[int]
    """The largest timestamp of each run."""
    typings: list[FileTyping]
    """One for each file."""


class Release(Command, frozen=True, tag="release"):
    """A reservation was given up by its owner, or has expired: its offsets become a gap."""

    reservation: int


TablesCommand: TypeAlias = (
    WantSettled
    | Settle
    | Replace
    | Follow
    | Unfollow
    | Pin
    | Retire
    | WantExpired
    | Expired
    | ForgetFiles
    | Reserve
    | Fill
    | Release
)
