"""Defects of the journal, put in on purpose. The simulation must find each of them, or it proves nothing.

Each is a context in which the defect is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from headwater.errors import LedgerWentBack
from headwater.ledger.journal import opening
from headwater.ledger.journal.disk import Disk
from headwater.ledger.journal.page import Page, Published
from headwater.ledger.journal.reader import Reader
from headwater.ledger.journal.writer import Writer

Defect = Callable[[], contextlib.AbstractContextManager[Any]]


def _answer_before_the_sync() -> contextlib.AbstractContextManager[Any]:
    def sync(self: Writer, number: int, at: Published) -> None:
        self._page.has_synced(number)
        self._reader.show(number)

    return patch.object(Writer, "_sync", sync)


def _synced_at_the_end() -> contextlib.AbstractContextManager[Any]:
    """What was published while the sync ran counts as synced."""
    right = Page.has_synced

    def has_synced(self: Page, number: int) -> None:
        right(self, self.end().number)

    return patch.object(Page, "has_synced", has_synced)


def _next_file_before_the_sync() -> contextlib.AbstractContextManager[Any]:
    rotate, sync = Writer._rotate, Writer._sync_file
    rotating: set[int] = set()

    def rotate_without(self: Writer, *arguments: Any) -> None:
        rotating.add(id(self))
        try:
            rotate(self, *arguments)
        finally:
            rotating.discard(id(self))

    def sync_file(self: Writer, name: str) -> None:
        if id(self) not in rotating:
            sync(self, name)

    stack = contextlib.ExitStack()
    stack.enter_context(patch.object(Writer, "_rotate", rotate_without))
    stack.enter_context(patch.object(Writer, "_sync_file", sync_file))
    return stack


def _page_of_another_boot() -> contextlib.AbstractContextManager[Any]:
    right = Page.attach.__func__  # type: ignore[attr-defined]

    def attach(cls: type[Page], disk: Disk, journal: bytes) -> Page | None:
        with patch.object(type(disk), "boot", lambda self: bytes(16)):
            found: Page | None = right(cls, disk, journal)
            return found

    make = Page.make.__func__  # type: ignore[attr-defined]

    def made(cls: type[Page], disk: Disk, journal: bytes, published: Published) -> Page:
        with patch.object(type(disk), "boot", lambda self: bytes(16)):
            found: Page = make(cls, disk, journal, published)
            return found

    return patch.multiple(Page, attach=classmethod(attach), make=classmethod(made))


def _cut_below_a_mark() -> contextlib.AbstractContextManager[Any]:
    right = opening.find_end

    def find_end(disk: Disk, marked: int) -> tuple[Reader, bool]:
        try:
            return right(disk, marked)
        except LedgerWentBack:
            return right(disk, 0)

    return patch.object(opening, "find_end", find_end)


def cut_in_place() -> contextlib.AbstractContextManager[Any]:
    right = opening.find_end
    return patch.object(opening, "find_end", lambda disk, marked: (right(disk, marked)[0], False))


def _published_frames_are_overwritten() -> contextlib.AbstractContextManager[Any]:
    """A writer goes by what it has read itself."""
    return patch.object(Reader, "reach", lambda self, end: None)


def _a_failed_sync_is_forgotten() -> contextlib.AbstractContextManager[Any]:
    return patch.object(Page, "break_all", lambda self: None)


def _a_failed_sync_is_a_success() -> contextlib.AbstractContextManager[Any]:
    return patch.object(Writer, "_fail", lambda self, error: None)


def _unsynced_frames_after_a_failed_sync() -> contextlib.AbstractContextManager[Any]:
    """What was published counts, also if the disk may lack it."""
    right = Page.has_synced

    def broken(self: Page) -> bool:
        return False

    def check(self: Page) -> None:
        """Nothing is wrong."""

    def make(self: Page) -> None:
        right(self, self.end().number)

    return patch.multiple(Page, broken=property(broken), check=check, break_all=make)


def _seal_that_is_not_published() -> contextlib.AbstractContextManager[Any]:
    rotate, publish = Writer._rotate, Page.publish
    rotating: dict[int, int] = {}

    def rotate_without(self: Writer, *arguments: Any) -> None:
        assert self._reader.file is not None
        rotating[id(self._page)] = self._reader.file.file
        try:
            rotate(self, *arguments)
        finally:
            del rotating[id(self._page)]

    def published(self: Page, end: Published) -> None:
        if rotating.get(id(self)) != end.file:
            publish(self, end)

    stack = contextlib.ExitStack()
    stack.enter_context(patch.object(Writer, "_rotate", rotate_without))
    stack.enter_context(patch.object(Page, "publish", published))
    return stack


def _files_deleted_before_the_sync() -> contextlib.AbstractContextManager[Any]:
    """A truncation deletes files before it is on the disk."""
    right = Writer._do

    def do(self: Writer, domain: int, decide: Any, *images: Any) -> Any:
        synced = self._sync

        def late(number: int, at: Published) -> None:
            known = self._reader.known.get(domain)
            if known is not None and known.truncated:
                self._reader.show(number)
                self._page.synced = lambda: number  # type: ignore[method-assign]
                try:
                    self._delete_files()
                finally:
                    del self._page.synced
            synced(number, at)

        with patch.object(self, "_sync", late):
            return right(self, domain, decide, *images)

    return patch.object(Writer, "_do", do)


def _headers_of_files_that_were_never_published() -> contextlib.AbstractContextManager[Any]:
    right = Reader.begin
    return patch.object(Reader, "begin", lambda self, newest=None: right(self))


def _torn_images_count() -> contextlib.AbstractContextManager[Any]:
    """A frame is sound if its record is."""
    return patch.object(opening, "_has_images", lambda *_: True)


def _images_are_not_needed() -> contextlib.AbstractContextManager[Any]:
    """A file goes when its records are not needed."""
    right = Reader.unneeded
    return patch.object(Reader, "unneeded", lambda self, synced, freed=0: right(self, synced, 1 << 62))


def _read_ahead_of_the_end() -> contextlib.AbstractContextManager[Any]:
    """What was read behind the published end is used again."""
    return patch.object(Reader, "_drop_buffer", lambda self: None)


PLANTED: dict[str, Defect] = {
    "answers come before the sync": _answer_before_the_sync,
    "synced is set to the number at the sync's end": _synced_at_the_end,
    "the next file begins before its predecessor is synced": _next_file_before_the_sync,
    "the page of another boot is trusted": _page_of_another_boot,
    "a cut below a mark": _cut_below_a_mark,
    "published frames are overwritten": _published_frames_are_overwritten,
    "a failed sync is forgotten": _a_failed_sync_is_forgotten,
    "a failed sync counts": _a_failed_sync_is_a_success,
    "unsynced frames count after a failed sync": _unsynced_frames_after_a_failed_sync,
    "a seal that is not published": _seal_that_is_not_published,
    "files are deleted before the truncation is synced": _files_deleted_before_the_sync,
    "headers of files that were never published": _headers_of_files_that_were_never_published,
    "torn images count": _torn_images_count,
    "a file goes with its images": _images_are_not_needed,
    "what lies behind the published end is used": _read_ahead_of_the_end,
}
