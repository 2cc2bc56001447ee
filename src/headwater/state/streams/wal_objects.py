"""The WAL objects of a domain: how many index entries refer to each, and which can be deleted.

The sequences of one epoch are dense, so the objects of an epoch are in one packed table with 32 bytes per object.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.types import WalId

_OBJECT = struct.Struct("<qqqII")
OBJECT_BYTES = _OBJECT.size

MAX_SEQUENCE_GAP = 1_000_000
"""Sequences that were never committed leave holes. A larger hole than this is refused as an error of the writer."""


@dataclass(frozen=True, slots=True)
class WalObject:
    """What the state knows about a WAL object."""

    id: WalId
    zone: str
    created_ms: int
    """The date by the clock of its writer. It is part of the object's name."""
    arrived_ms: int
    """The ledger time at which its records came into the log."""
    size: int
    references: int
    dead_ms: int
    """The ledger time at which its last reference was released; 0 while the object is live."""


class _Table:
    """The objects of one epoch."""

    __slots__ = ("base", "data", "zone")

    def __init__(self, zone: str, base: int, data: bytes = b"") -> None:
        self.zone = zone
        self.base = base
        self.data = bytearray(data)

    def slot(self, sequence: int) -> int:
        """The byte position of a sequence's slot. It may be outside the table."""
        return (sequence - self.base) * OBJECT_BYTES


class WalObjects:
    """All objects of a domain that are live, or dead and not yet deleted."""

    __slots__ = ("_dead", "_tables", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        """The size of all objects."""
        self._tables: dict[int, _Table] = {}
        self._dead: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[WalObject]:
        for epoch, table in self._tables.items():
            for i in range(len(table.data) // OBJECT_BYTES):
                found = self.get(WalId(epoch, table.base + i))
                if found is not None:
                    yield found

    def get(self, object_id: WalId) -> WalObject | None:
        """An object that is live, or dead and not yet forgotten."""
        table = self._tables.get(object_id.epoch)
        if table is None:
            return None
        at = table.slot(object_id.sequence)
        if not 0 <= at < len(table.data):
            return None
        created, arrived, dead, size, references = _OBJECT.unpack_from(table.data, at)
        if not size:
            return None
        return WalObject(object_id, table.zone, created, arrived, size, references, dead)

    def size(self, object_id: WalId) -> int:
        """The size of an object that is live, or dead and not yet forgotten; 0 for others."""
        found = self.get(object_id)
        return found.size if found is not None else 0

    def fits(self, epoch: int, sequence: int) -> bool:
        """Whether an object can be added: it is not there yet, and its sequence is not too far from the others."""
        table = self._tables.get(epoch)
        if table is None or not table.data:
            return True
        far = abs(sequence - table.base) - len(table.data) // OBJECT_BYTES
        return far <= MAX_SEQUENCE_GAP and self.get(WalId(epoch, sequence)) is None

    def add(
        self, epoch: int, sequence: int, *, zone: str, created_ms: int, arrived_ms: int, size: int, references: int
    ) -> None:
        """Add an object with its first references. The caller has called `fits` before."""
        self.bytes += size
        table = self._tables.get(epoch)
        if table is None:
            table = self._tables[epoch] = _Table(zone, sequence)
        if sequence < table.base:
            table.data[0:0] = bytes((table.base - sequence) * OBJECT_BYTES)
            table.base = sequence
        at = table.slot(sequence)
        packed = _OBJECT.pack(created_ms, arrived_ms, 0, size, references)
        if at == len(table.data):
            table.data += packed
            return
        if at > len(table.data):
            table.data += bytes(at - len(table.data) + OBJECT_BYTES)
        table.data[at : at + OBJECT_BYTES] = packed

    def release(self, object_id: WalId, now_ms: int) -> None:
        """Release one reference. An object without references is dead."""
        table = self._tables[object_id.epoch]
        at = table.slot(object_id.sequence)
        created, arrived, dead, size, references = _OBJECT.unpack_from(table.data, at)
        references -= 1
        if not references:
            dead = max(now_ms, 1)
            self._dead[(object_id.epoch, object_id.sequence)] = dead
        _OBJECT.pack_into(table.data, at, created, arrived, dead, size, references)

    def dead(self) -> Iterator[tuple[WalId, int]]:
        """Dead objects and the time of their last release, oldest first."""
        for (epoch, sequence), died in self._dead.items():
            yield WalId(epoch, sequence), died

    def forget(self, object_id: WalId) -> bool:
        """Remove a dead object, which is deleted from the store. Returns whether the object was known and dead."""
        key = (object_id.epoch, object_id.sequence)
        if self._dead.pop(key, None) is None:
            return False
        table = self._tables[object_id.epoch]
        at = table.slot(object_id.sequence)
        self.bytes -= _OBJECT.unpack_from(table.data, at)[3]
        table.data[at : at + OBJECT_BYTES] = bytes(OBJECT_BYTES)
        self._trim(object_id.epoch, table)
        return True

    def _trim(self, epoch: int, table: _Table) -> None:
        empty = 0
        while _OBJECT.unpack_from(table.data, empty * OBJECT_BYTES)[3] == 0:
            empty += 1
            if empty * OBJECT_BYTES == len(table.data):
                del self._tables[epoch]
                return
        if empty:
            del table.data[: empty * OBJECT_BYTES]
            table.base += empty

    def pack(self) -> list[tuple[int, str, int, bytes]]:
        """The tables as plain data, for a checkpoint."""
        return [(epoch, t.zone, t.base, bytes(t.data)) for epoch, t in self._tables.items()]

    @classmethod
    def unpack(cls, tables: list[tuple[int, str, int, bytes]]) -> WalObjects:
        """The inverse of `pack`."""
        self = cls()
        for epoch, zone, base, data in tables:
            self._tables[epoch] = _Table(zone, base, data)
        objects = list(self)
        self.bytes = sum(found.size for found in objects)
        died = [(o.dead_ms, o.id.epoch, o.id.sequence) for o in objects if o.dead_ms]
        self._dead = {(epoch, sequence): ms for ms, epoch, sequence in sorted(died)}
        return self
