"""A journal's directory in memory, for tests that damage it byte by byte."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from headwater.clock import Chance
from headwater.ledger.journal.disk import Disk
from headwater.ledger.journal.page import Page
from headwater.ledger.journal.reader import Reader
from headwater.ledger.journal.writer import Writer
from headwater.types import Domain, Pieces, Position

FILE_BYTES = 64 << 10


class MemoryDisk:
    """See `headwater.ledger.journal.disk.Disk`. One process, whose writes are all on the disk at once."""

    def __init__(self, files: dict[str, bytearray] | None = None) -> None:
        self.files = files if files is not None else {}
        self._page = bytearray()

    def names(self) -> list[str]:
        return sorted(self.files)

    def create(self, name: str, size: int) -> None:
        self.files[name] = bytearray(size)

    def size(self, name: str) -> int:
        return len(self._file(name))

    def read(self, name: str, at: int, size: int) -> bytes:
        return bytes(self._file(name)[at : at + size])

    read_once = read

    def write(self, name: str, at: int, pieces: Pieces) -> None:
        data = b"".join(pieces)
        self._file(name)[at : at + len(data)] = data

    def sync(self, name: str) -> None:
        self._file(name)

    def sync_name(self, name: str) -> None:
        self._file(name)

    def forget(self, name: str) -> None:
        """Nothing is open."""

    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    def put_aside(self, name: str) -> None:
        self.files[f"{name}-aside"] = self.files.pop(name)

    def _file(self, name: str) -> bytearray:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def claim(self, slot: int) -> bool:
        return True

    def claimed(self, slots: int) -> bool:
        return False

    def page(self, size: int) -> memoryview | None:
        return memoryview(self._page) if len(self._page) == size else None

    def new_page(self, data: bytes) -> None:
        self._page = bytearray(data)

    def drop_page(self) -> None:
        self._page = bytearray()

    def same_page(self) -> bool:
        return True

    def boot(self) -> bytes:
        return bytes(16)

    def release(self) -> None:
        """Nothing is held."""


def writer_of(disk: Disk, opened: tuple[Reader, Page], chance: Chance) -> Writer:
    """Somebody who appends to a journal that was opened."""
    reader, page = opened
    return Writer(disk, page, reader, chance, threading.Lock(), FILE_BYTES)


def state_of(reader: Reader) -> dict[int, tuple[object, ...]]:
    """Everything that a reader shows."""
    found: dict[int, tuple[object, ...]] = {}
    for domain in (0, 1):
        shown = reader.shown(domain)
        entries = reader.entries(Domain(domain), Position(shown.truncated), 1_000)
        found[domain] = (shown.last, shown.truncated, shown.pointer, tuple(entries))
    return found
