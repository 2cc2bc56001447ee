"""Brings objects of one local store into another, by links if possible, else by copies.

Objects never change, so two stores on one file system can share a file. An object appears in the target as a whole or
not at all. After `sync` all that was brought survives a crash of the machine.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path

from headwater import modes
from headwater.errors import ObjectMissing, StoreFull, StoreUnavailable
from headwater.objects.local import PRIVATE, TEMPORARY
from headwater.objects.store import checked_path

COPY_BYTES = 4 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)
"""Why a file may have no second name in the target: another file system, other rights, too many names."""


@dataclass(slots=True)
class Counts:
    """What a backup did with objects."""

    linked: int = 0
    copied: int = 0
    copied_bytes: int = 0
    kept: int = 0
    """Objects that an earlier backup had brought."""
    removed: int = 0
    """Objects of an earlier backup that the cluster no longer needs."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def note(self, *, linked: int = 0, copied: int = 0, copied_bytes: int = 0, kept: int = 0, removed: int = 0) -> None:
        """Count something. Several threads may call this."""
        with self._lock:
            self.linked += linked
            self.copied += copied
            self.copied_bytes += copied_bytes
            self.kept += kept
            self.removed += removed


class Transfer:
    """Brings objects from one root to another."""

    def __init__(
        self,
        source: Path,
        target: Path,
        scratch: Path,
        mode: int,
        *,
        links: bool = True,
        counts: Counts | None = None,
    ) -> None:
        """`scratch` is an existing directory on the file system of the target; `mode` that of shared objects."""
        self._source = source
        self._target = target
        self._scratch = scratch
        self._mode = mode
        self._links = links
        self._numbers = itertools.count()
        self._touched: set[str] = set()
        self.counts = counts or Counts()

    def __repr__(self) -> str:
        return f"<Transfer from {self._source} to {self._target}>"

    def bring(self, path: str) -> int:
        """Bring an object; returns its size. Raises `ObjectMissing` if the source does not have it."""
        source, target = self._source / checked_path(path), self._target / path
        with _translated(path):
            found = os.stat(source)
        if _is_same(found, target):
            self.counts.note(kept=1)
            return found.st_size
        try:
            with self._placed(path, target) as temporary:
                if self._links and _linked(source, temporary):
                    self.counts.note(linked=1)
                else:
                    self._copy(source, temporary, self._mode_of(path), found)
        except ObjectMissing as error:
            if source.exists():
                raise StoreUnavailable(f"{path}: a directory of the backup was removed") from error
            raise
        return found.st_size

    def has(self, path: str) -> bool:
        """Whether the target has an object of the source already."""
        with _translated(path):
            return _is_same(os.stat(self._source / checked_path(path)), self._target / path)

    def has_bytes(self, path: str, data: bytes) -> bool:
        """Whether the target has an object with these bytes."""
        try:
            return self.size(path) == len(data) and (self._target / path).read_bytes() == data
        except FileNotFoundError:
            return False

    def put(self, path: str, data: bytes) -> None:
        """Store an object whose bytes are not those of the source."""
        with self._placed(path, self._target / checked_path(path)) as temporary:
            handle = modes.create(temporary, os.O_WRONLY, self._mode_of(path))
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(handle)
        self.counts.note(copied=1, copied_bytes=len(data))

    def size(self, path: str) -> int | None:
        """The size of an object in the target; None if it is not there."""
        try:
            return os.stat(self._target / checked_path(path)).st_size
        except FileNotFoundError:
            return None

    def sync(self) -> None:
        """Sync the directories of all objects that were brought."""
        with _translated(str(self._target)):
            for directory in sorted(self._touched):
                handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
        self._touched.clear()

    def keep_only(self, paths: Set[str]) -> None:
        """Remove all objects but these from the target."""
        self.remove(lambda path: path not in paths)

    def remove(self, needless: Callable[[str], bool]) -> None:
        """Remove objects from the target for which `needless` is true."""
        for directory, names, files in os.walk(self._target):
            if Path(directory) == self._target and TEMPORARY in names:
                names.remove(TEMPORARY)
            for name in files:
                full = Path(directory) / name
                if needless(full.relative_to(self._target).as_posix()):
                    full.unlink(missing_ok=True)
                    self.counts.note(removed=1)

    @contextlib.contextmanager
    def _placed(self, path: str, target: Path) -> Iterator[str]:
        """A temporary name that becomes the object's name if all goes well."""
        temporary = f"{self._scratch}/{next(self._numbers)}"
        try:
            with _translated(path):
                self._make(target.parent)
                yield temporary
                os.rename(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _copy(self, source: Path, temporary: str, mode: int, found: os.stat_result) -> None:
        """Copy a file with its time, by which the next backup knows it again."""
        with source.open("rb", buffering=0) as reading:
            handle = modes.create(temporary, os.O_WRONLY, mode)
            with os.fdopen(handle, "wb", buffering=0) as writing:
                shutil.copyfileobj(reading, writing, COPY_BYTES)
                os.fsync(handle)
        os.utime(temporary, ns=(found.st_atime_ns, found.st_mtime_ns))
        self.counts.note(copied=1, copied_bytes=found.st_size)

    def _make(self, directory: Path) -> None:
        """Create the directory of an object, and note it and those above it for `sync`."""
        name = str(directory)
        if name in self._touched:
            return
        if directory != self._target:
            self._make(directory.parent)
        inside = f"{directory.relative_to(self._target).as_posix()}/"
        modes.make_directory(directory, modes.directory_mode(self._mode_of(inside)))
        self._touched.add(name)

    def _mode_of(self, path: str) -> int:
        return modes.PRIVATE if path.startswith(PRIVATE) else self._mode


def _is_same(found: os.stat_result, target: Path) -> bool:
    """Whether the target is the same file, or a copy of it. A restored cluster uses names again: they prove nothing."""
    try:
        there = os.stat(target)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, there) or (found.st_size, found.st_mtime_ns) == (there.st_size, there.st_mtime_ns)


def _linked(source: Path, temporary: str) -> bool:
    try:
        os.link(source, temporary)
    except OSError as error:
        if error.errno in _NO_LINK:
            return False
        raise
    return True


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectMissing(f"no object {path}") from error
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull(f"no space left for {path}; free some and run the backup again, it continues") from error
        raise StoreUnavailable(f"{path}: {error}") from error
