"""The data of domains 1 to N, which all parts of their state share."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec

from headwater.state.machine import State
from headwater.state.streams.stored.groups import Groups
from headwater.state.streams.stored.holds import Holds
from headwater.state.streams.stored.keys import StoredKeys
from headwater.state.streams.stored.transactions import Ending, Transactions
from headwater.state.streams.stored.typed import TypedTable
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import DataFile, TopicTable
from headwater.state.streams.wal_objects import WalObjects
from headwater.types import Domain, WalId

HOUSEKEEPING = "housekeeping"
"""The lease for a domain's retention, garbage collection and checkpoints."""

COMPACTION = "compaction"
"""The lease for settling a domain's topics."""

U32_MAX = (1 << 32) - 1
I64_MAX = (1 << 63) - 1
LAST_OFFSET = 1 << 62
"""No record may have an offset behind this one."""


class Reservation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Offsets that are assigned to records whose segments are not stored yet."""

    number: int
    owner: int
    """The epoch that made the reservation. Only this epoch may fill it."""
    topic: uuid.UUID
    expires_ms: int
    parts: tuple[tuple[int, int, int], ...]
    """(stream, start, end)"""

    def expired(self, now_ms: int) -> bool:
        """Whether the reservation can no longer be filled."""
        return now_ms >= self.expires_ms


class StreamsDomain(State):
    """The data of a domain of streams."""

    def __init__(self, domain: Domain) -> None:
        super().__init__(domain)
        self.streams: dict[int, Stream] = {}
        self.objects = WalObjects()
        self.tables: dict[uuid.UUID, TopicTable] = {}
        self.wanted: dict[uuid.UUID, None] = {}
        """Topics that a caller wants settled soon."""
        self.settles = False
        """Whether a compactor has ever held the lease. From then on retention waits until records are settled."""
        self.last_file = 0
        """The number of the newest segment. Numbers are never used again."""
        self.typed: dict[uuid.UUID, TypedTable] = {}
        """Typed columns by topic. A topic may have them before it has a table."""
        self.letters: dict[int, int] = {}
        """By stream, the offset up to which its dead letters are written."""
        self.reservations: dict[int, Reservation] = {}
        """Open reservations by number."""
        self.last_reservation = 0
        self.groups = Groups()
        self.transactions = Transactions()
        self.keys = StoredKeys()
        self.held = Holds()
        """What processes that read for others keep from deletion."""
        self.on_append: Callable[[int], None] | None = None
        """Called for every stream whose end or start has moved. The replica sets it; it is not part of the state."""

        self.on_end: Callable[[int, Ending], None] | None = None
        """Called with the writer's epoch when an open transaction ends. The broker sets it; it is not part of the
        state. A request that is repeated ends nothing."""

    def ripe(self, table: TopicTable) -> list[DataFile]:
        """The files of a table that can be deleted from the store. Nothing makes such a file needed again."""
        files, held = table.ripe(), self.held
        if not files or not held:
            return files
        versions = held.versions(table.topic)
        return [file for file in files if not held.keeps(table.gone_ms(file)) and not file.is_in(versions)]

    def ripe_objects(self, before_ms: int) -> list[WalId]:
        """The WAL objects that can be deleted from the store: they died by a time, and no hold keeps them."""
        oldest = self.held.oldest_ms
        last = before_ms if oldest is None else min(before_ms, oldest - 1)
        return [found for found, died in self.objects.dead() if died <= last]

    def removed_between(self, since_ms: int, until_ms: int) -> bool:
        """Whether something was removed in `[since_ms, until_ms)`: a hold that moves over that time may let it go."""
        if since_ms >= until_ms:
            return False
        if any(since_ms <= died < until_ms for _, died in self.objects.dead()):
            return True
        return any(table.removed_between(since_ms, until_ms) for table in self.tables.values())

    def gaps_grow(self, stream: Stream) -> bool:
        """Whether a gap at the end of a stream grows, instead of a new one behind it.

        Not while a compactor may have a plan that ends with the gap.
        """
        return not self.settles or stream.settled == stream.next_offset

    def moved(self, stream: int) -> None:
        """Notify the listener: a stream's end or start has moved, or the stream was dropped."""
        if self.on_append is not None:
            self.on_append(stream)
