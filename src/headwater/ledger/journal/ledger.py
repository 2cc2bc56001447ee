"""`journal:///directory`: the ledger of one machine, in files to which all processes append. See `__init__.py`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from headwater import modes
from headwater.background import Background, Duty, OnDeath, Supervised
from headwater.clock import SystemChance
from headwater.errors import ConfigError, StoreFull, StoreUnavailable
from headwater.ledger.contract import MAX_RECORD_BYTES, Beat, Carried, Entry, Image, Pointer
from headwater.ledger.journal.disk import LocalDisk, remote_type
from headwater.ledger.journal.opening import cut_where_unsound, open_journal
from headwater.ledger.journal.peek import MARK
from headwater.ledger.journal.reader import FILE_BYTES, Reader
from headwater.ledger.journal.writer import Writer
from headwater.ledger.marks import read_files
from headwater.ledger.notices import Notices
from headwater.threads import Threads
from headwater.types import Domain, Position

CHANGES = Duty("journal-changes", OnDeath.RESTART, "notices frames of the journal whose notice was lost")
NOTICES = "notices"
_FALLBACK_SECONDS = 0.1
_WRITERS = 2
"""Threads that append: one for each domain."""
_LOADERS = 4
"""Threads that read images."""

_T = TypeVar("_T")


def directory_of(url: str) -> Path:
    """The directory that a URL names."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/"):
        raise ConfigError(f"{url!r} is not of the form journal:///absolute/directory")
    return Path(unquote(parts.path))


class JournalLedger:
    """See `headwater.ledger.contract.Ledger`."""

    dense = True
    carries = True

    def __init__(
        self,
        directory: Path,
        background: Background | None = None,
        file_bytes: int = FILE_BYTES,
        *,
        accepting: bool = False,
    ) -> None:
        if sys.platform != "linux":
            raise ConfigError("a journal needs Linux; use sqlite:///absolute/path")
        there = next(parent for parent in (directory, *directory.parents) if parent.exists())
        if kind := remote_type(there):
            raise ConfigError(
                f"{directory} is on a file system of another machine ({kind}), where processes do not share locks: put "
                "it on a disk of this one"
            )
        self._directory = directory
        self.mark_path = directory / MARK
        self._background = background or Background()
        self._disk = LocalDisk(directory)
        self._mutex = threading.Lock()
        self._closed = False
        chance = SystemChance()
        try:
            if accepting:
                cut_where_unsound(self._disk, chance, file_bytes)
            marks = [] if accepting else read_files([self.mark_path])
            marked = max((mark.number for mark in marks), default=0)
            self._reader, self._page = open_journal(self._disk, marked, chance, file_bytes)
        except BaseException:
            self._disk.release()
            raise
        self._writer = Writer(self._disk, self._page, self._reader, chance, self._mutex, file_bytes)
        self._writing = Threads(_WRITERS, "journal-write")
        self._reading = Threads(1, "journal-read")
        self._loading = Threads(_LOADERS, "journal-load")
        modes.make_directory(directory / NOTICES, modes.PRIVATE_DIRECTORY)
        self._notices = Notices(directory / NOTICES)
        self._fallback: Supervised | None = None

    @classmethod
    def from_url(cls, url: str, background: Background | None = None, *, accepting: bool = False) -> JournalLedger:
        """`journal:///absolute/directory`"""
        return cls(directory_of(url), background, accepting=accepting)

    def __repr__(self) -> str:
        return f"<JournalLedger {self._directory}>"

    @property
    def number(self) -> int:
        """The newest frame that this process knows to be synced."""
        return self._page.synced()

    # --- the contract ------------------------------------------------------------------------------

    async def append(self, domain: Domain, record: bytes, images: Sequence[Image] = ()) -> Position:
        if len(record) > MAX_RECORD_BYTES:
            raise ValueError(f"a ledger record has {len(record)} bytes; the limit is {MAX_RECORD_BYTES}")
        position = Position(await self._run(self._writing, self._append, domain, record, images))
        self._notices.send(domain, position)
        return position

    async def read(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        return await self._run(self._reading, self._look, lambda reader: reader.entries(domain, after, limit))

    async def last(self, domain: Domain) -> Position:
        return await self._run(self._reading, self._look, lambda reader: Position(reader.shown(domain).last))

    async def watch(self, domain: Domain, after: Position) -> Position:
        if self._fallback is None:
            self._fallback = self._background.run(CHANGES, self._look_for_changes)
        return Position(max(await self._notices.wait(domain, after), after + 1))

    async def truncate(self, domain: Domain, through: Position) -> None:
        await self._run(self._writing, self._writer.truncate, domain, through)

    async def pointer(self, domain: Domain) -> Pointer | None:
        return await self._run(self._reading, self._look, lambda reader: reader.shown(domain).pointer)

    async def set_pointer(self, domain: Domain, expected: Position, pointer: Pointer) -> bool:
        return await self._run(self._writing, self._writer.set_pointer, domain, expected, pointer)

    async def image(
        self, domain: Domain, epoch: int, sequence: int, start: int = 0, length: int | None = None
    ) -> bytes | None:
        return await self._run(self._loading, self._image, domain, epoch, sequence, start, length)

    async def images(self) -> list[Carried]:
        return await self._run(self._reading, self._look, lambda reader: list(reader.images))

    async def free(self, through: int) -> None:
        await self._run(self._writing, self._writer.free, through)

    async def beat(self, process: str) -> None:
        self._check()
        if not self._page.beat(process):
            await self._run(self._reading, self._locked, self._page.begin_beat, process)

    async def beats(self) -> list[Beat]:
        self._check()
        return self._page.beats()

    async def forget_beat(self, process: str) -> None:
        await self._run(self._reading, self._locked, self._page.forget_beat, process)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._fallback is not None:
            await self._fallback.stop()
        self._notices.close()
        await self._writing.close()
        await self._reading.close()
        await self._loading.close()
        self._disk.release()

    # --- on the threads ----------------------------------------------------------------------------

    def _check(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"the ledger {self._directory} is closed")

    async def _run(self, threads: Threads, call: Callable[..., _T], *arguments: object) -> _T:
        self._check()
        return await threads.run(call, *arguments)

    def _append(self, domain: int, record: bytes, images: Sequence[Image]) -> int:
        position = self._writer.append(domain, record, images)
        if self._writer.needs_spare:
            with contextlib.suppress(StoreFull, StoreUnavailable):  # it is told when the spare is needed
                self._writer.make_spare()
        return position

    def _look(self, ask: Callable[[Reader], _T]) -> _T:
        """The answer of the reader, once it has read everything that is synced."""
        with self._mutex:
            self._page.check()
            synced = self._page.synced()
            self._reader.follow(synced, self._page.end().file)
            self._reader.show(synced)
            return ask(self._reader)

    def _image(self, domain: int, epoch: int, sequence: int, start: int, length: int | None) -> bytes | None:
        with self._mutex:
            place = self._reader.images.get(domain, epoch, sequence)
        if place is None:
            return None
        try:
            return self._reader.image(place, start, length)
        except FileNotFoundError:  # another process has freed it
            return None

    def _locked(self, call: Callable[[str], None], process: str) -> None:
        with self._mutex, self._disk.locked():
            self._page.check_place()
            call(process)

    def _ends(self, reader: Reader) -> list[tuple[int, int]]:
        return [(domain, reader.shown(domain).last) for domain in self._notices.watched]

    async def _look_for_changes(self) -> None:
        """Read the ends of watched domains when there are new frames, in case a datagram was lost.

        It also runs while no caller waits, because the next `watch` must not wait for a record that is there already.
        """
        before, known = -1, 0
        while not self._closed:
            await asyncio.sleep(_FALLBACK_SECONDS)
            synced, domains = self._page.synced(), len(self._notices.watched)
            if synced != before or domains != known:
                with contextlib.suppress(StoreUnavailable):
                    for domain, end in await self._run(self._reading, self._look, self._ends):
                        self._notices.heard(domain, end)
                    before, known = synced, domains
