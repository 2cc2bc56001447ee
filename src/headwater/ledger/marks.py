"""Marks: how far a ledger has come, kept beside it. A ledger that is behind its mark has lost its end.

A mark is a slot of 512 bytes: `HWTRMK1`, bytes of the body u16, CRC32C u32 of the body, and the body as MessagePack.
The digit is the format number. A file of marks has 64 slots, one per process, so that no process waits for another, and
a slot that is torn costs one mark. There are two such files. An object of marks has one slot.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import msgspec
from crc32c import crc32c

from headwater import modes

SLOT_BYTES = 512
SLOTS = 64
MAGIC = b"HWTRMK1"
_HEAD = struct.Struct(">7sHI")


class End(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How far a domain has come."""

    time_ms: int
    """The ledger time."""
    position: int
    """The position of the newest record."""
    crc: int
    """The checksum of that record; 0 if it is not known."""


class Mark(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How far a ledger has come, as a process has seen it."""

    cluster: str
    place: str
    """Where the ledger is. The positions of `ends` mean something there only."""
    life: str
    """The ledger's name for itself, see `Accept`."""
    ends: dict[int, End]
    """By domain."""
    epoch: int
    """The next epoch that is assigned."""
    producer: int
    """The next producer id that is assigned."""
    number: int
    """The newest frame of a journal that was synced; 0 for other ledgers."""

    def is_behind(self, other: Mark) -> bool:
        """Whether another mark of the same life has come further in a domain."""
        return any(
            domain not in self.ends or self.ends[domain].time_ms < end.time_ms for domain, end in other.ends.items()
        )


def crc_of(record: bytes) -> int:
    """The checksum that a record has in its bytes."""
    return int.from_bytes(record[1:5], "big")


def encode(mark: Mark) -> bytes:
    """A mark as one slot."""
    body = msgspec.msgpack.encode(mark)
    if len(body) > SLOT_BYTES - _HEAD.size:
        raise ValueError(f"a mark has {len(body)} bytes, and a slot {SLOT_BYTES - _HEAD.size}")
    return (_HEAD.pack(MAGIC, len(body), crc32c(body)) + body).ljust(SLOT_BYTES, b"\0")


def decode(data: bytes) -> list[Mark]:
    """The marks of all slots that are sound. Empty and torn slots have none."""
    found = []
    for at in range(0, min(len(data), SLOTS * SLOT_BYTES), SLOT_BYTES):
        slot = data[at : at + SLOT_BYTES]
        if not slot.startswith(MAGIC) or len(slot) < _HEAD.size:
            continue
        _, size, crc = _HEAD.unpack_from(slot)
        body = slot[_HEAD.size : _HEAD.size + size]
        if len(body) == size and crc32c(body) == crc:
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                found.append(msgspec.msgpack.decode(body, type=Mark))
    return found


def read_files(paths: Iterable[Path]) -> list[Mark]:
    """The marks of all files that exist."""
    found = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            found += decode(file.read(SLOTS * SLOT_BYTES))
    return found


class MarkFile:
    """A file of marks that this process writes to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = -1

    def __repr__(self) -> str:
        return f"<MarkFile {self.path}>"

    def write(self, slot: int, mark: Mark) -> None:
        """Write a slot. It is on the disk when this returns."""
        if self._handle < 0:
            with contextlib.suppress(FileExistsError):
                self.path.parent.mkdir(mode=modes.PRIVATE_DIRECTORY, parents=True, exist_ok=True)
                handle = modes.create(str(self.path), os.O_RDWR, modes.PRIVATE)
                os.pwrite(handle, bytes(SLOTS * SLOT_BYTES), 0)
                os.fsync(handle)
                os.close(handle)
                _sync(self.path.parent)
            self._handle = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        os.pwrite(self._handle, encode(mark), slot % SLOTS * SLOT_BYTES)
        os.fsync(self._handle)

    def replace(self, mark: Mark) -> None:
        """Make a mark the only one."""
        self.close()
        staged = self.path.with_name(f"{self.path.name}-new")
        staged.unlink(missing_ok=True)
        handle = modes.create(str(staged), os.O_RDWR, modes.PRIVATE)
        try:
            os.pwrite(handle, encode(mark).ljust(SLOTS * SLOT_BYTES, b"\0"), 0)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(staged, self.path)
        _sync(self.path.parent)

    def close(self) -> None:
        """Close the file. The next write opens it again."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
