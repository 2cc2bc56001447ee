"""The aborted transactions of one stream: which records readers of committed records must leave out.

Entries are packed into one byte array, in the order of their markers. Each has the stable offset of the moment in which
the transaction ended. Every transaction that ends later began at or after that offset, so a search by offset can stop.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

_ENTRY = struct.Struct("<qqqq")
_FIRST, _FIELDS = 1, 4
_MARKER_AT, _STABLE_AT = 16, 24
_OFFSET = struct.Struct("<q")


class AbortedTransaction(msgspec.Struct, frozen=True, gc=False):
    """The records of a producer from `first` up to its marker are aborted."""

    producer: int
    first: int
    marker: int
    """The offset of the marker."""
    stable: int
    """The stable offset right after the transaction ended."""


class Aborted:
    """Packed entries, oldest first."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes = b"") -> None:
        if len(data) % _ENTRY.size:
            raise ValueError("the bytes are not a whole number of aborted transactions")
        self._data = bytearray(data)

    def __len__(self) -> int:
        return len(self._data) // _ENTRY.size

    def __repr__(self) -> str:
        return f"<Aborted: {len(self)} transactions>"

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(self._at, range(len(self)))

    def pack(self) -> bytes:
        """The entries as bytes, for a checkpoint."""
        return bytes(self._data)

    def add(self, producer: int, first: int, marker: int, stable: int) -> None:
        """Add a transaction that was just aborted."""
        self._data += _ENTRY.pack(producer, first, marker, stable)

    def between(self, offset: int, bound: int) -> list[AbortedTransaction]:
        """The aborted transactions that may have records from an offset up to, not including, a bound."""
        low, high = self._find(offset), self._find(bound, _STABLE_AT) + 1
        # All that ended while a long transaction was open is in here, so only the first offsets are looked at.
        firsts = memoryview(self._data)[low * _ENTRY.size : high * _ENTRY.size].cast("q")[_FIRST::_FIELDS].tolist()
        return [self._at(i) for i, first in enumerate(firsts, low) if first < bound]

    def forget(self, before: int) -> None:
        """Remove the entries whose marker is before an offset."""
        del self._data[: self._find(before) * _ENTRY.size]

    def _at(self, i: int) -> AbortedTransaction:
        return AbortedTransaction(*_ENTRY.unpack_from(self._data, i * _ENTRY.size))

    def _find(self, offset: int, field: int = _MARKER_AT) -> int:
        """The first entry whose marker, or stable offset, is at or beyond an offset, or `len(self)`."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if _OFFSET.unpack_from(self._data, middle * _ENTRY.size + field)[0] >= offset:
                high = middle
            else:
                low = middle + 1
        return low
