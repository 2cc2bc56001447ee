"""Temporary files of the local store, in directories far apart on the disk.

ext4 without a journal, common in virtual machines, keeps a deleted inode unused for minutes. It looks through all of
them near a directory whenever a file is created there. After a few thousand deletions a creation costs half a
millisecond instead of ten microseconds. So every few thousand files get a directory of their own, which the file system
is asked to place elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import struct
import threading
from pathlib import Path

from headwater import modes
from headwater.clock import SystemChance, SystemClock
from headwater.errors import StoreUnavailable

FILES_PER_DIRECTORY = 4096
KEPT = 2
"""Older directories that are kept: a thread may be about to use them."""
ATTEMPTS = 10
STALE_MS = 3_600_000
"""Age of a file that a crash left. No file is under way for so long."""

_SYNCED = os.O_WRONLY | os.O_DSYNC
"""With O_DSYNC a write returns when its data, and the metadata needed to read it, is on the disk."""
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_SPREAD_CHILDREN = 0x20000
_LONG = struct.Struct("l")


class Scratch:
    """Opens temporary files below one directory, which other processes may use too."""

    def __init__(self, root: Path, directory_mode: int) -> None:
        self._root = root
        self._mode = directory_mode
        self._name = SystemChance().uuid().hex
        """Makes names unique over processes, machines that share the directory, and restarts."""
        self._count = itertools.count()
        self._lock = threading.Lock()
        self._directory: Path | None = None
        self._full = False
        """Whether the next file that is opened here begins a new directory."""
        self._old: list[Path] = []

    def __repr__(self) -> str:
        return f"<Scratch {self._root}>"

    def prepare(self) -> None:
        """Have new directories placed apart, and remove files that crashes left."""
        _spread_children(self._root)
        oldest = SystemClock().wall_ms() - STALE_MS
        for entry in os.scandir(self._root):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime * 1000 > oldest:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)

    def open(self, mode: int) -> tuple[str, int]:
        """A new file of this mode, and a handle whose writes are synced."""
        number = next(self._count)
        directory = self._directory
        if directory is None or self._full or number % FILES_PER_DIRECTORY == 0:
            directory = self._move_on(number)
        for _ in range(ATTEMPTS):
            path = f"{directory}/{number}"
            try:
                return path, modes.create(path, _SYNCED, mode)
            except FileNotFoundError:  # removed meanwhile, by this or another process
                directory = self._move_on(number)
        raise StoreUnavailable(f"{self._root}: another process removes its directories as fast as they are created")

    def name(self) -> str | None:
        """The path of a new file that the caller opens; None when `open` has to start a new directory first."""
        number = next(self._count)
        if self._directory is None or number % FILES_PER_DIRECTORY == 0:
            self._full = True
        if self._full:
            return None
        return f"{self._directory}/{number}"

    def close(self) -> None:
        """Remove the directories that are empty."""
        with self._lock:
            if self._directory is not None:
                self._old.append(self._directory)
                self._directory = None
            self._remove_old(keep=0)

    def _move_on(self, number: int) -> Path:
        with self._lock:
            if self._directory is not None:
                self._old.append(self._directory)
            self._full = False
            self._directory = self._root / f"{self._name}-{number}"
            for directory in (self._root, self._directory):
                modes.make_directory(directory, self._mode)
            self._remove_old(keep=KEPT)
            return self._directory

    def _remove_old(self, keep: int) -> None:
        """Remove empty directories; others are tried again the next time."""
        first = max(len(self._old) - keep, 0)
        left = []
        for directory in self._old[:first]:
            try:
                directory.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                left.append(directory)
        self._old = left + self._old[first:]


def _spread_children(directory: Path) -> None:
    """Do what `chattr +T` does. Only some file systems support it, and correctness does not depend on it."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            (flags,) = _LONG.unpack(fcntl.ioctl(handle, _GET_FLAGS, _LONG.pack(0)))
            fcntl.ioctl(handle, _SET_FLAGS, _LONG.pack(flags | _SPREAD_CHILDREN))
        finally:
            os.close(handle)


def is_gone(handle: int) -> bool:
    """Whether an open directory was removed. Another one may have its name; syncing this one would have no effect."""
    return os.fstat(handle).st_nlink == 0
