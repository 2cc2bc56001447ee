"""Where the images of a journal are: 24 bytes for each, in packed tables by domain and epoch.

The sequences of an epoch have few gaps, so a table has a run of them. Runs are short, so that no gap costs more than
one. An image that was written twice is at its newer place.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from headwater.ledger.contract import Carried
from headwater.types import Domain

_PLACE = struct.Struct("<QIIIxxxx")
RUN_BITS = 10
"""A table has at most so many bits of sequences."""


class Place(NamedTuple):
    """Where an image is."""

    file: int
    at: int
    size: int
    crc: int


class _Table:
    """Images of one epoch of a domain, whose sequences follow each other from `base`. What is missing is zero."""

    __slots__ = ("base", "data")

    def __init__(self, base: int) -> None:
        self.base = base
        self.data = bytearray()


class Images:
    """All images that may be read."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, int, int], _Table] = {}
        self._files: Counter[int] = Counter()

    def __repr__(self) -> str:
        return f"<Images: {self._files.total()} in {len(self._files)} files>"

    def add(self, domain: int, epoch: int, sequence: int, place: Place) -> None:
        """Note where an image is."""
        table = self._tables.setdefault((domain, epoch, sequence >> RUN_BITS), _Table(sequence))
        if sequence < table.base:
            table.data[0:0] = bytes((table.base - sequence) * _PLACE.size)
            table.base = sequence
        at = (sequence - table.base) * _PLACE.size
        if at >= len(table.data):
            table.data += bytes(at - len(table.data) + _PLACE.size)
        [before, *_] = _PLACE.unpack_from(table.data, at)
        if before:
            self._leave(before)
        self._files[place.file] += 1
        _PLACE.pack_into(table.data, at, *place)

    def get(self, domain: int, epoch: int, sequence: int) -> Place | None:
        """Where an image is; None if it is not in the journal."""
        table = self._tables.get((domain, epoch, sequence >> RUN_BITS))
        if table is None:
            return None
        at = (sequence - table.base) * _PLACE.size
        if not 0 <= at < len(table.data):
            return None
        place = Place(*_PLACE.unpack_from(table.data, at))
        return place if place.file else None

    def in_file(self, file: int) -> int:
        """How many images a file has."""
        return self._files[file]

    def __iter__(self) -> Iterator[Carried]:
        for (domain, epoch, _), table in self._tables.items():
            for i, (file, _, size, _) in enumerate(_PLACE.iter_unpack(table.data)):
                if file:
                    yield Carried(Domain(domain), epoch, table.base + i, file, size)

    def forget(self, oldest: int) -> None:
        """Forget the images of files below a number."""
        if not any(file < oldest for file in self._files):
            return
        for key, table in list(self._tables.items()):
            kept = [i for i, row in enumerate(_PLACE.iter_unpack(table.data)) if row[0] >= oldest]
            if not kept:
                del self._tables[key]
                continue
            table.data = table.data[kept[0] * _PLACE.size : (kept[-1] + 1) * _PLACE.size]
            table.base += kept[0]
            for at in range(0, len(table.data), _PLACE.size):
                if _PLACE.unpack_from(table.data, at)[0] < oldest:
                    table.data[at : at + _PLACE.size] = bytes(_PLACE.size)
        for file in [file for file in self._files if file < oldest]:
            del self._files[file]

    def _leave(self, file: int) -> None:
        self._files[file] -= 1
        if not self._files[file]:
            del self._files[file]
