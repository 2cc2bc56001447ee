"""Appends to a journal: one write under the lock, then one sync that may cover the frames of others too.

Nothing is told before a sync that covers it has ended. What counts as synced is what was published when the sync began.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

import msgspec

from headwater.clock import Chance
from headwater.errors import Halted, OutcomeUnknown, StoreFull, StoreUnavailable
from headwater.ledger.contract import Image, Pointer
from headwater.ledger.journal import frames
from headwater.ledger.journal.disk import Disk, SyncFailed
from headwater.ledger.journal.frames import Frame, Kind
from headwater.ledger.journal.opening import make_spare, new_head
from headwater.ledger.journal.page import Page, Published
from headwater.ledger.journal.reader import FILE_BYTES, Reader, files_of, name_of, origin_of
from headwater.types import Pieces


class Writer:
    """One process's way to append. Several threads may use it."""

    def __init__(
        self,
        disk: Disk,
        page: Page,
        reader: Reader,
        chance: Chance,
        mutex: threading.Lock,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        """`mutex` keeps the threads of this process apart, also those that use the reader."""
        self._disk = disk
        self._page = page
        self._reader = reader
        self._chance = chance
        self._mutex = mutex
        self._file_bytes = file_bytes
        self.needs_spare = True
        """Whether there may be no file to go on with when the current one is full."""

    def __repr__(self) -> str:
        return f"<Writer of {self._reader}>"

    # --- what is appended ----------------------------------------------------------------------------

    def append(self, domain: int, record: bytes, images: Sequence[Image] = ()) -> int:
        """Append a record, and the images that it names; returns its position. Both are synced."""

        def decide() -> tuple[Kind, int, bytes]:
            known = self._reader.known.get(domain)
            return Kind.RECORD, (known.last if known is not None else 0) + 1, record

        position = self._do(domain, decide, images)
        assert position is not None
        return position

    def truncate(self, domain: int, through: int) -> None:
        """Note that records up to a position are not needed, and delete files that have no others."""

        def decide() -> tuple[Kind, int, bytes] | None:
            known = self._reader.known.get(domain)
            if known is None or min(through, known.last) <= known.truncated:
                return None
            return Kind.TRUNCATION, known.last, frames.THROUGH.pack(min(through, known.last))

        self._do(domain, decide)
        self._delete_files()

    def set_pointer(self, domain: int, expected: int, pointer: Pointer) -> bool:
        """Replace a pointer if it still is as expected; whether it was."""

        def decide() -> tuple[Kind, int, bytes] | None:
            known = self._reader.known.get(domain)
            current = known.pointer.position if known is not None and known.pointer is not None else 0
            if current != expected or pointer.position <= current:
                return None
            return Kind.POINTER, known.last if known is not None else 0, msgspec.msgpack.encode(pointer)

        return self._do(domain, decide) is not None

    # --- how -----------------------------------------------------------------------------------------

    def _do(
        self,
        domain: int,
        decide: Callable[[], tuple[Kind, int, bytes] | None],
        images: Sequence[Image] = (),
    ) -> int | None:
        """Append the frame that is decided on when everything before it is known; returns its position.

        What it rests on is synced too, also if there is none.
        """
        with self._mutex:
            with self._disk.locked():
                self._page.check_place()
                end = self._page.end()
                self._reader.reach(end)
                decided = decide()
                if decided is not None:
                    kind, position, record = decided
                    self._put(kind, domain, position, record, images)
            number, at = self._reader.number, self._page.end()
        self._sync(number, at)
        return decided[1] if decided is not None else None

    def _put(self, kind: Kind, domain: int, position: int, record: bytes, images: Sequence[Image]) -> None:
        """Write the next frame, and publish it."""
        reader = self._reader
        assert reader.file is not None
        frame = frames.encode_frame(
            reader.file.salt,
            kind,
            reader.number + 1,
            self._page.synced(),
            domain,
            position,
            record,
            reader.echo,
            images,
        )
        ends = reader.at + frame.head.size + frames.padded(frames.HEAD_BYTES + len(frame.echo))
        if reader.sealed or ends > self._disk.size(name_of(reader.file.file)):
            self._rotate(kind, domain, position, record, images)
            return
        at = reader.at
        self._write(name_of(reader.file.file), at, frame.pieces)
        reader.take(Frame(frame.head, record, at, frame.echo))
        self._page.publish(Published(reader.number, reader.file.file, reader.at))

    def _write(self, name: str, at: int, pieces: Pieces) -> None:
        try:
            self._disk.write(name, at, pieces)
        except StoreFull:
            raise
        except StoreUnavailable as error:  # bytes of it may be there, and count after a crash of the machine
            raise OutcomeUnknown(str(error)) from error

    def _rotate(self, kind: Kind, domain: int, position: int, record: bytes, images: Sequence[Image]) -> None:
        """Seal the file, and go on in the next one with a frame.

        The seal is published before the next file begins: else a process that finds no seal would write into the old
        file while the new one has a header.
        """
        reader = self._reader
        assert reader.file is not None
        file = reader.file.file
        make_spare(self._disk, file + 1, self._file_bytes)
        if not reader.sealed:
            seal = frames.encode_frame(
                reader.file.salt, Kind.SEAL, reader.number + 1, self._page.synced(), domain, position, b"", reader.echo
            )
            self._write(name_of(file), reader.at, seal.pieces)
            reader.take(Frame(seal.head, b"", reader.at, seal.echo))
            self._page.publish(Published(reader.number, file, reader.at))
        self._sync_file(name_of(file))
        self._page.has_synced(reader.number)
        first = reader.number + 1
        begun = new_head(reader.journal, file + 1, first, origin_of(reader), self._chance)
        frame = frames.encode_frame(
            begun.salt, kind, first, self._page.synced(), domain, position, record, b"", images
        )  # fmt: skip
        self._write(name_of(file + 1), 0, [frames.encode_file_head(begun), *frame.pieces])
        self._sync_name(name_of(file + 1))
        reader.enter(begun)
        reader.take(Frame(frame.head, record, begun.size, frame.echo))
        self._page.publish(Published(reader.number, file + 1, reader.at))
        self._page.has_synced(reader.number)
        self.needs_spare = True

    # --- syncs ---------------------------------------------------------------------------------------

    def _sync(self, number: int, at: Published) -> None:
        """Return when a number is synced. `at` was published when it was, or later."""
        if number > self._page.synced():
            self._page.check()
            with contextlib.suppress(FileNotFoundError):  # a rotation has synced it, as all files before
                self._sync_file(name_of(at.file))
            with self._mutex:
                self._page.has_synced(at.number)
        with self._mutex:
            self._page.check()
            self._reader.show(self._page.synced())

    def _sync_file(self, name: str) -> None:
        try:
            self._disk.sync(name)
        except SyncFailed as error:
            self._fail(error)

    def _sync_name(self, name: str) -> None:
        try:
            self._disk.sync_name(name)
        except SyncFailed as error:
            self._fail(error)

    def _fail(self, error: SyncFailed) -> None:
        """The memory may hold what the disk lacks, so no process may go on."""
        self._page.break_all()
        raise Halted(f"a sync of the journal failed: {error}. All processes that use it end") from error

    # --- space ---------------------------------------------------------------------------------------

    def make_spare(self) -> None:
        """Make the file that comes next, so that the disk is found to be full before it has to be."""
        with self._mutex, self._disk.locked():
            self._page.check_place()
            make_spare(self._disk, self._page.end().file + 1, self._file_bytes)
            self.needs_spare = False

    def free(self, through: int) -> None:
        """Note that no image in files up to a number is needed, and delete those that have no other record either."""
        self._delete_files(through)

    def _delete_files(self, freed: int = 0) -> None:
        """Delete the files at the beginning that have nothing that is needed, the oldest first."""
        with self._mutex, self._disk.locked():
            self._page.check_place()
            self._reader.reach(self._page.end())
            synced = self._page.synced()
            self._reader.show(synced)
            unneeded = self._reader.unneeded(synced, freed)
            if not unneeded:
                return
            for file in files_of(self._disk):
                if file > unneeded[-1]:
                    break
                self._disk.remove(name_of(file))
            self._reader.forget_deleted(unneeded[-1] + 1)
