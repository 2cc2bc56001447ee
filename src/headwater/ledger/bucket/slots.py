"""A slot of a ledger in a bucket: one object with a batch of records.

    magic 7s `HWTRLS1` | CRC32C u32 of what follows | domain u32 | sequence u64 | writer 8s | attempt u64 | count u16
    then per record: length u32, bytes

`sequence` numbers all slots of a domain, from 1. Slot p is in place `p mod N` of the ring. The position of a record is
`sequence * 1024 + index`, so a batch takes one slot and every record has its own position. `writer` and `attempt`
together identify one batch. A writer uses them to recognise its own batch after a lost reply.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

from headwater.errors import Halted
from headwater.ledger.contract import Entry
from headwater.types import Domain, Position

MAGIC = b"HWTRLS1"
_OUTER = struct.Struct(">7sI")
_INNER = struct.Struct(">IQ8sQH")
_LENGTH = struct.Struct(">I")
INDEX_BITS = 10
MAX_RECORDS = 1 << INDEX_BITS
MAX_BATCH_BYTES = 4 << 20
"""The limit of bytes in one slot, unless a single record is larger."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One batch of one writer."""

    writer: bytes
    attempt: int


@dataclass(frozen=True, slots=True)
class Slot:
    """The content of one object of the ring."""

    domain: Domain
    sequence: int
    identity: Identity
    records: tuple[bytes, ...]

    @property
    def last(self) -> Position:
        """The position of the last record."""
        return position_of(self.sequence, len(self.records) - 1)

    @property
    def size(self) -> int:
        return sum(map(len, self.records))

    def entries(self, after: Position) -> list[Entry]:
        """The records after a position."""
        first = position_of(self.sequence, 0)
        skip = max(0, after - first + 1)
        return [Entry(Position(first + i), self.records[i]) for i in range(skip, len(self.records))]


def position_of(sequence: int, index: int) -> Position:
    """The position of one record of a slot."""
    return Position((sequence << INDEX_BITS) + index)


def sequence_of(position: Position) -> int:
    """The slot of a position."""
    return position >> INDEX_BITS


def encode_slot(slot: Slot) -> bytes:
    """A slot as the bytes of its object."""
    identity = slot.identity
    head = _INNER.pack(slot.domain, slot.sequence, identity.writer, identity.attempt, len(slot.records))
    inner = b"".join([head, *(piece for record in slot.records for piece in (_LENGTH.pack(len(record)), record))])
    return _OUTER.pack(MAGIC, crc32c(inner)) + inner


def decode_slot(data: bytes, path: str) -> Slot:
    """A slot from its object's bytes."""
    if len(data) < _OUTER.size + _INNER.size:
        raise Halted(f"{path} has {len(data)} bytes, which is too short for a slot of a ledger")
    magic, crc = _OUTER.unpack_from(data)
    if magic != MAGIC or crc32c(data[_OUTER.size :]) != crc:
        raise Halted(f"{path} is damaged, or not a slot of a ledger")
    domain, sequence, writer, attempt, count = _INNER.unpack_from(data, _OUTER.size)
    records = _records(data, _OUTER.size + _INNER.size, count)
    if not records:
        raise Halted(f"{path} is a slot without records")
    return Slot(Domain(domain), sequence, Identity(writer, attempt), tuple(records))


def _records(data: bytes, at: int, count: int) -> Sequence[bytes]:
    found = []
    for _ in range(count):
        [length] = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        found.append(data[at : at + length])
        at += length
    return found
