"""Commands about the tables of topics: settling, merging, following, expiry, and bulk appends."""

from __future__ import annotations

import uuid
from typing import TypeAlias

from headwater.state.commands.base import Command, Fields


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
    """WAL runs of a topic became segments: swap the index entries and enter the files into the table's journal."""

    lease: int
    topic: uuid.UUID
    root: str
    files: list[NewFile]
    runs: list[SegmentRun]


class SettleRuns(Command, frozen=True, tag="settle2"):
    """A `Settle` that left records of aborted transactions out, and so tells the largest timestamp of each run."""

    lease: int
    topic: uuid.UUID
    root: str
    files: list[NewFile]
    runs: list[SegmentRun]
    newest: list[int]
    """The largest timestamp that is left in each run, or -1."""


class Merge(Command, frozen=True, tag="merge"):
    """Segments of a topic were rewritten into others with the same rows."""

    lease: int
    topic: uuid.UUID
    removed: list[int]
    files: list[NewFile]
    runs: list[SegmentRun]


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


class Release(Command, frozen=True, tag="release"):
    """A reservation was given up by its owner, or has expired: its offsets become a gap."""

    reservation: int


TablesCommand: TypeAlias = (
    WantSettled
    | Settle
    | SettleRuns
    | Merge
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
