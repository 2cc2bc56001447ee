"""The offset index of one stream: which object holds which offsets.

Entries are packed into one byte array, 56 bytes each, ordered by (end offset, cumulative size). A million entries take
about 60 MB, and a look-up is a binary search. An entry covers the half-open range `[end - span, end)`. Ranges are
ascending and never overlap.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from headwater.types import WalId

_ENTRY = struct.Struct("<qqqqIIIIIHH")
ENTRY_BYTES = _ENTRY.size
_END = struct.Struct("<q")
_RUNNING = struct.Struct("<q")
_RUNNING_AT = 24
_SIZE_AT = 8
_OWN_AT = 16
_LENGTH = struct.Struct("<I")
_LENGTH_AT = 48
_SPAN_AT = 32
_FLAGS = struct.Struct("<H")
_FLAGS_AT = 52

NO_TIMESTAMP = -1

APPEND_TIME = 1
"""Flag: the timestamp of all records is the time of commit, which is the entry's `max_timestamp`."""
SEGMENT = 2
"""Flag: the records are in row groups of a segment. The object's sequence is the file's number. The position has the
first row group and the number of row groups. The length is that of the WAL runs that the entry replaced, or after a
bulk append a share of the file's size."""
GAP = 4
"""Flag: no offset of the entry has a record."""
RESERVED = 8
"""Flag: the offsets are reserved for records that are not in the log yet. The object's sequence is the reservation's
number."""
MARKER = 16
"""Flag: the end of a transaction in this stream, one offset without an object. Object epoch and sequence have the upper
and the lower half of the producer id, and the last field the producer's epoch. Every broker makes the same control
batch of it. Its timestamp is the date of the end, which no running maximum counts."""
COMMIT = 32
"""Flag of a marker: the transaction was committed. Without it: aborted."""
MARKER_BYTES = 78
"""The size of a marker's control batch."""
MAX_GROUPS = 0xFFFF


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """A run of batches inside one WAL object, or row groups of a segment."""

    start: int
    end: int
    cumulative_size: int
    max_timestamp: int
    """The largest timestamp inside this entry."""
    running_max_timestamp: int
    """The largest timestamp from the log start to the end of this entry."""
    object: WalId
    position: int
    length: int
    flags: int
    producer_epoch: int
    """The epoch of a marker's producer."""

    @property
    def append_time(self) -> bool:
        return bool(self.flags & APPEND_TIME)

    @property
    def settled(self) -> bool:
        """Whether the records are in a segment, or gone."""
        return bool(self.flags & (SEGMENT | GAP))

    @property
    def gap(self) -> bool:
        """Whether no offset of the entry has a record."""
        return bool(self.flags & GAP)

    @property
    def reservation(self) -> int:
        """The number of the open reservation, 0 if there is none."""
        return self.object.sequence if self.flags & RESERVED else 0

    @property
    def in_wal(self) -> bool:
        """Whether the entry is a run inside a WAL object."""
        return not self.flags & (SEGMENT | GAP | RESERVED | MARKER)

    @property
    def marker(self) -> bool:
        """Whether the entry is the end of a transaction."""
        return bool(self.flags & MARKER)

    @property
    def unsettled(self) -> bool:
        """Whether settling has to take the entry: a run inside a WAL object, or a marker."""
        return not self.flags & (SEGMENT | GAP | RESERVED)

    @property
    def commits(self) -> bool:
        """Whether a marker is that of a committed transaction."""
        return bool(self.flags & COMMIT)

    @property
    def producer(self) -> int:
        """The producer id of a marker."""
        return self.object.epoch << 32 | self.object.sequence

    @property
    def file(self) -> int:
        """The number of the segment, 0 if there is none."""
        return self.object.sequence if self.flags & SEGMENT else 0

    @property
    def groups(self) -> range:
        """The row groups of a segment."""
        first = self.position >> 16
        return range(first, first + (self.position & MAX_GROUPS))


class SettledEntry(msgspec.Struct, frozen=True, gc=False):
    """A new entry for `OffsetIndex.replace`. File 0 means a gap."""

    start: int
    end: int
    cumulative_size: int
    max_timestamp: int
    length: int
    file: int
    first_group: int
    groups: int


class OffsetIndex:
    """Packed entries, oldest first."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes = b"") -> None:
        if len(data) % ENTRY_BYTES:
            raise ValueError("the bytes of an index are not a whole number of entries")
        self._data = bytearray(data)

    def __len__(self) -> int:
        return len(self._data) // ENTRY_BYTES

    def __repr__(self) -> str:
        if not self._data:
            return "<OffsetIndex empty>"
        return f"<OffsetIndex {len(self)} entries, offsets {self[0].start} to {self[-1].end}>"

    def __getitem__(self, i: int) -> IndexEntry:
        at = i * ENTRY_BYTES
        if i < 0:
            at += len(self._data)
        if not 0 <= at < len(self._data):
            raise IndexError(i)
        return self._entry_at(at)

    def __iter__(self) -> Iterator[IndexEntry]:
        for at in range(0, len(self._data), ENTRY_BYTES):
            yield self._entry_at(at)

    def _entry_at(self, at: int) -> IndexEntry:
        end, size, own, running, span, epoch, sequence, position, length, flags, producer_epoch = _ENTRY.unpack_from(
            self._data, at
        )
        return IndexEntry(
            end - span, end, size, own, running, WalId(epoch, sequence), position, length, flags, producer_epoch
        )

    def pack(self) -> bytes:
        """The index as bytes, for a checkpoint."""
        return bytes(self._data)

    def append(
        self,
        end: int,
        span: int,
        cumulative_size: int,
        max_timestamp: int,
        object_epoch: int,
        object_sequence: int,
        position: int,
        length: int,
        flags: int,
    ) -> None:
        """Add an entry at the end. The caller ensures that it follows the last one."""
        data = self._data
        running = max_timestamp
        if data:
            before: int = _RUNNING.unpack_from(data, len(data) - ENTRY_BYTES + _RUNNING_AT)[0]
            if before > running:
                running = before
        data += _ENTRY.pack(
            end, cumulative_size, max_timestamp, running, span, object_epoch, object_sequence, position, length,
            flags, 0,
        )  # fmt: skip

    def mark(self, offset: int, cumulative_size: int, date_ms: int, producer: int, epoch: int, *, commit: bool) -> None:
        """Add a marker at the end."""
        flags = MARKER | COMMIT if commit else MARKER
        data, running = self._data, NO_TIMESTAMP
        if data:
            before: int = _RUNNING.unpack_from(data, len(data) - ENTRY_BYTES + _RUNNING_AT)[0]
            if before > running:
                running = before
        data += _ENTRY.pack(
            offset + 1, cumulative_size, date_ms, running, 1, producer >> 32, producer & 0xFFFFFFFF, 0, MARKER_BYTES,
            flags, epoch,
        )  # fmt: skip

    def skip(self, end: int, span: int, cumulative_size: int) -> None:
        """Add a gap at the end: offsets that no record will have."""
        self.append(end, span, cumulative_size, NO_TIMESTAMP, 0, 0, 0, 0, GAP)

    def grow(self, end: int, most: int) -> bool:
        """Let the gap at the end cover further offsets, `most` in all. Returns whether it did."""
        last = self[-1] if self._data else None
        if last is None or not last.gap or last.end >= min(end, last.start + most):
            return False
        grown = min(end, last.start + most)
        at = len(self._data) - ENTRY_BYTES
        _END.pack_into(self._data, at, grown)
        _LENGTH.pack_into(self._data, at + _SPAN_AT, grown - last.start)
        return True

    def find(self, offset: int) -> int:
        """The first entry whose end is greater than an offset, or `len(self)`."""
        data, low, high = self._data, 0, len(self)
        if high > 1 and _END.unpack_from(data, (high - 2) * ENTRY_BYTES)[0] <= offset:
            low = high - 1  # most readers are at the end
        while low < high:
            middle = (low + high) // 2
            if _END.unpack_from(data, middle * ENTRY_BYTES)[0] > offset:
                high = middle
            else:
                low = middle + 1
        return low

    def find_time(self, timestamp: int) -> int:
        """The first entry that may have a record with at least this timestamp, or `len(self)`."""
        data, low, high = self._data, 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if _RUNNING.unpack_from(data, middle * ENTRY_BYTES + _RUNNING_AT)[0] >= timestamp:
                high = middle
            else:
                low = middle + 1
        return low

    def drop(self, count: int) -> list[IndexEntry]:
        """Remove the oldest entries and return them."""
        dropped = [self[i] for i in range(count)]
        del self._data[: count * ENTRY_BYTES]
        self.restart_running_maximum(0)
        return dropped

    def replace(self, first: int, last: int, settled: list[SettledEntry]) -> None:
        """Replace the entries from `first` up to, not including, `last`.

        The new entries cover the same offsets and end with the same key, so later entries do not change.
        """
        running = self[first - 1].running_max_timestamp if first else settled[0].max_timestamp
        packed = b""
        for entry in settled:
            running = max(running, entry.max_timestamp)
            packed += _ENTRY.pack(
                entry.end, entry.cumulative_size, entry.max_timestamp, running, entry.end - entry.start,
                0, entry.file, entry.first_group << 16 | entry.groups, entry.length,
                SEGMENT if entry.file else GAP, 0,
            )  # fmt: skip
        self._data[first * ENTRY_BYTES : last * ENTRY_BYTES] = packed

    def restate(self, behind: int) -> int:
        """Recompute sizes and running maxima behind an entry whose own are right. Returns the size at the end."""
        before = self[behind]
        size, running = before.cumulative_size, before.running_max_timestamp
        for at in range((behind + 1) * ENTRY_BYTES, len(self._data), ENTRY_BYTES):
            length: int = _LENGTH.unpack_from(self._data, at + _LENGTH_AT)[0]
            size, running = size + length, max(running, self._counted(at))
            _END.pack_into(self._data, at + _SIZE_AT, size)
            _RUNNING.pack_into(self._data, at + _RUNNING_AT, running)
        return size

    def _counted(self, at: int) -> int:
        """The timestamp that counts for running maxima: that of records, not that of a marker."""
        own: int = _END.unpack_from(self._data, at + _OWN_AT)[0]
        return NO_TIMESTAMP if _FLAGS.unpack_from(self._data, at + _FLAGS_AT)[0] & MARKER else own

    def restart_running_maximum(self, first: int) -> None:
        """Recompute the running maximum from an entry on, up to the first entry where it is right already."""
        running = self[first - 1].running_max_timestamp if first else None
        for i in range(first, len(self)):
            at = i * ENTRY_BYTES
            own = self._counted(at)
            running = own if running is None else max(running, own)
            if _RUNNING.unpack_from(self._data, at + _RUNNING_AT)[0] == running:
                return
            _RUNNING.pack_into(self._data, at + _RUNNING_AT, running)
